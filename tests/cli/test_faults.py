"""What the command line does when environments, policies, files and signals misbehave."""

import json
import os
import pickle
import shlex
import signal
import subprocess
import sys
import time
import zipfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from helpers import needs
from interrupted import pieces
from rido.cli import app

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "faults" / "commands.py"
SHORT = ["--budget", "60", "--gamma", "0.9", "--horizon", "5", "--seed", "1"]

MODULE = """
import rido
import ctypes, os, sys
import gymnasium as gym, numpy as np
from gymnasium.envs.classic_control.pendulum import PendulumEnv

class Noisy(PendulumEnv):
    def step(self, action):
        print("from Python")
        print("from Python's own", file=sys.__stdout__)
        ctypes.CDLL(None).puts(b"from C")
        os.write(1, b"from the descriptor")
        return super().step(action)

class Exits(PendulumEnv):
    def step(self, action):
        sys.exit(0)

class Recurses(PendulumEnv):
    def reset(self, **options):
        return self.reset(**options)

class Unusual(PendulumEnv):
    def step(self, action):
        raise type("Unusual", (BaseException,), {})("two\\nlines")

class Unclosable(PendulumEnv):
    def close(self):
        raise RuntimeError("it does not close")

class Slow(PendulumEnv):
    def step(self, action):
        import time; time.sleep(0.002)
        return super().step(action)

for kind in (Noisy, Exits, Recurses, Unusual, Unclosable, Slow):
    gym.register(f"{kind.__name__}-v0", entry_point=kind)

@rido.batched
def still(observations):
    return np.zeros((len(observations), 1))
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "misbehaving.py").write_text(MODULE)
    return tmp_path


def command(*words, module=True):
    return [sys.executable, *(["-m", "rido"] if module else ["-c", "from rido.cli import main; main()"]), *words]


def run(folder, *words, **options):
    return subprocess.run(command(*words, **options), cwd=folder, capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize("workers", [1, 2])
def test_what_an_environment_prints_goes_to_standard_error(folder, workers):
    words = ["evaluate", "misbehaving:Noisy-v0", "--policy", "misbehaving:still", *SHORT, "--workers", str(workers)]
    done = run(folder, *words, "--json")
    steps = 60 + 4 * 14  # the rehearsal plays two trajectories twice
    assert done.returncode == 0 and done.stdout.count("\n") == 1 and json.loads(done.stdout)["transitions"] == steps
    said = done.stderr.replace("from Python's own", "")  # lines of two workers may be mixed
    for text in ("from Python", "from C", "from the descriptor"):
        assert said.count(text) == steps
    assert done.stderr.count("from Python's own") == steps


LEAVING = "rido: the environment, the policy or a module of theirs called sys.exit(3)"


@pytest.mark.parametrize(
    ("env", "policy", "workers", "message"),
    [
        ("Exits", "random", 1, "the environment's step raised SystemExit(0)"),
        ("Recurses", "random", 1, "RecursionError"),
        ("Unusual", "random", 1, "rido: Unusual: two lines"),
        ("Unusual", "random", 2, "rido: Unusual: two lines"),
        ("Slow", "leaving:policy", 1, LEAVING),
        ("Slow", "leaving:policy", 2, LEAVING),
    ],
)
def test_whatever_an_environment_or_a_policy_raises_gets_one_line(folder, env, policy, workers, message):
    (folder / "leaving.py").write_text("import sys; sys.exit(3)")
    words = ["evaluate", f"misbehaving:{env}-v0", "--policy", policy, *SHORT, "--workers", str(workers)]
    done = run(folder, *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith("rido: ") and message in done.stderr


def test_the_traceback_is_shown_on_request(folder, monkeypatch):
    monkeypatch.setenv("RIDO_DEBUG", "1")
    done = run(folder, "evaluate", "misbehaving:Unusual-v0", "--policy", "random", *SHORT)
    assert done.returncode == 1 and "Traceback" in done.stderr


def test_an_environment_that_does_not_close_loses_nothing(folder):
    words = ["misbehaving:Unclosable-v0", "--policy", "misbehaving:still", *SHORT]
    done = run(folder, "evaluate", *words, "--json")
    assert done.returncode == 0 and "it does not close" in json.loads(done.stdout)["warnings"][-1]
    done = run(folder, "study", *words, "--bank", "5", "--repetitions", "2", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["bank"] == 5
    assert "it does not close" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.skipif(os.name != "posix", reason="needs pipes")
def test_a_reader_that_goes_away_ends_the_command_silently(tmp_path):
    ours, theirs = os.pipe()
    os.close(ours)
    with os.fdopen(theirs, "wb") as closed:
        words = ["plan", "--budget", "200000", "--horizon", "20000", "--gamma", "0.9999", "--json"]
        done = subprocess.run(command(*words), stdout=closed, stderr=subprocess.PIPE, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.skipif(os.name != "posix", reason="needs a shell")
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("more", ["", " --json"])
def test_closed_streams_are_empty_ones(tmp_path, closed, more):
    words = ["evaluate", "rido/LQG-v0", "--policy", "random", "--run", "a.rido", *SHORT]
    done = subprocess.run(
        f"{shlex.join(command(*words))}{more} {closed}", shell=True, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0 and "rido:" not in done.stderr
    assert ("random in rido/LQG-v0" in done.stdout or '"value"' in done.stdout) == (" >&-" not in f" {closed}")
    assert run(tmp_path, *words).returncode == 0  # nothing was written into the run file


IMPORTING = """
import os, signal, sys
from importlib.abc import MetaPathFinder

class Interrupts(MetaPathFinder):
    def find_spec(self, name, *_):
        if name == MODULE:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
MODULE = sys.argv[1]
sys.meta_path.insert(0, Interrupts())
sys.argv[:2] = ["rido"]
from rido.cli import main
main()
"""


@pytest.mark.skipif(os.name != "posix", reason="needs SIGINT")
@pytest.mark.parametrize("module", ["rido.core.checks", "gymnasium", "typer", "scipy.optimize"])
def test_an_interrupt_while_modules_are_imported_gets_one_line(tmp_path, module):
    words = ["evaluate", "Pendulum-v1", "--policy", "random", "--until", "1", "--time-budget", "60", "--gamma", "0.9"]
    words = [sys.executable, "-c", IMPORTING, module, *words]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 130 and done.stdout == ""
    assert done.stderr.startswith("rido: stopped") and done.stderr.count("\n") == 1


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
@pytest.mark.parametrize("number", ["SIGTERM", "SIGHUP"])
def test_signals_say_what_was_saved(folder, number):
    words = ["evaluate", "misbehaving:Slow-v0", "--policy", "misbehaving:still", "--gamma", "0.9", "--horizon", "5"]
    words += ["--budget", "100000", "--run", "slow.rido", "--num-envs", "2"]
    # nohup ignores SIGHUP, and children inherit that; a handler they do not.
    handler = signal.signal(getattr(signal, number), lambda *_: None)
    process = subprocess.Popen(command(*words), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    signal.signal(getattr(signal, number), handler)
    while process.poll() is None and not pieces(folder / "slow.rido"):
        time.sleep(0.05)
    process.send_signal(getattr(signal, number))
    out, err = process.communicate(timeout=600)
    assert (process.returncode, out, err) == (130, "", "rido: stopped; the same command resumes slow.rido\n")


@pytest.mark.parametrize("module", [True, False])
def test_modules_of_the_working_directory_do_not_take_the_place_of_installed_ones(folder, module):
    for name in ("scipy", "html", "matplotlib", "json", "rich", "sqlite3"):
        (folder / f"{name}.py").write_text("open('executed', 'w'); raise SystemExit(0)")
    words = ["evaluate", "Pendulum-v1", "--policy", "misbehaving:still", *SHORT, "--run", "a.rido", "--workers", "2"]
    start = ["-P"] if not module else []  # the installed script has its own folder first, not the working directory
    for each in (words, ["report", "a.rido"]):
        line = command(*each, module=module)
        line[1:1] = start
        done = subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
    assert not (folder / "executed").exists() and (folder / "report.html").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["evaluate", "rido/LQG-v0", "--budget", "1" + "0" * 18], "budget must be at most 1e+15"),
        (["evaluate", "rido/LQG-v0", "--budget", "1" + "0" * 40], "budget must be at most 1e+15"),
        (["evaluate", "rido/LQG-v0", "--budget", "1" + "0" * 15], "GiB of memory"),
        (["evaluate", "rido/LQG-v0", "--time-budget", "inf"], "time_budget must be at least 0 and finite, got inf"),
        (["evaluate", "rido/LQG-v0", "--time-budget", "nan"], "time_budget must be at least 0 and finite, got nan"),
        (["evaluate", "rido/LQG-v0", "--time-budget", "1e300"], "GiB of memory"),
        (["plan", "--budget", "1" + "0" * 18], "budget must be at most 1e+15"),
        (["plan", "--budget", "1" + "0" * 15, "--horizon", "1" + "0" * 12], "horizon must be at most 1e+08"),
    ],
)
def test_what_is_too_large_is_refused_before_anything_is_allocated(words, message):
    seed = ["--seed", "1"] if words[0] == "evaluate" else []
    result = CliRunner().invoke(app, [words[0], "--horizon", "50", *words[1:], "--gamma", "0.9", *seed])
    assert result.exit_code == 1 and message in result.stderr and result.stderr.count("\n") == 1


def test_arguments_that_an_environment_in_jax_does_not_have():
    needs("jax", "jax")
    words = ["evaluate", "rido/LQG-v0", "--simulator", "jax", "--env-kwarg", "x=1", *SHORT]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 1 and "env_kwargs must be arguments of rido/LQG-v0" in result.stderr


class Hostile:
    def __reduce__(self):
        return exec, ("open('executed', 'w')",)


@pytest.fixture
def agent(folder, monkeypatch):
    """A small agent in the working directory, with hostile statistics beside it."""
    PPO = needs("stable_baselines3", "sb3").PPO
    monkeypatch.chdir(folder)
    monkeypatch.delenv("RIDO_TRUST", raising=False)
    PPO("MlpPolicy", "Pendulum-v1", n_steps=8, batch_size=8, device="cpu").save("agent.zip")
    Path("vecnormalize.pkl").write_bytes(pickle.dumps(Hostile()))
    return ["evaluate", "Pendulum-v1", "--policy", "agent.zip", *SHORT]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_code_in_an_agents_files_runs_only_where_the_user_trusts_them(agent, monkeypatch, workers):
    agent += ["--workers", workers]
    result = CliRunner().invoke(app, agent)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert "vecnormalize.pkl uses builtins.exec, and loading it may run any code" in result.stderr
    assert "--trust" in result.stderr and not Path("executed").exists()
    result = CliRunner().invoke(app, [*agent, "--trust"])
    assert "must be written by VecNormalize.save(), got a NoneType" in result.stderr and Path("executed").exists()
    Path("executed").unlink()
    monkeypatch.setenv("RIDO_TRUST", "1")
    CliRunner().invoke(app, agent)
    assert Path("executed").exists()


def test_one_agent_of_a_comparison_that_needs_trust_ends_it(agent):
    result = CliRunner().invoke(app, ["compare", "Pendulum-v1", "random", "agent.zip", *SHORT])
    assert result.exit_code == 1 and "vecnormalize.pkl uses builtins.exec" in result.stderr
    assert not Path("executed").exists()


def test_an_ordinary_agent_needs_no_trust(agent):
    Path("vecnormalize.pkl").unlink()
    assert CliRunner().invoke(app, agent).exit_code == 0


@pytest.mark.skipif(os.name != "posix", reason="needs a terminal")
@pytest.mark.parametrize(("answer", "executed"), [("y", True), ("n", False)])
def test_a_terminal_is_asked_before_code_runs(agent, answer, executed):
    import pty

    ours, theirs = pty.openpty()
    with subprocess.Popen(command(*agent), stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        os.write(ours, f"{answer}\n".encode())
        text = b""
        while True:
            try:
                text += os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
    os.close(ours)
    assert b"Run it? [y/N]" in text and process.returncode == 1
    assert Path("executed").exists() == executed


def test_a_bomb_is_refused_by_its_declared_size(agent):
    with zipfile.ZipFile("bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data", bytes(2**27))
    Path("bomb.npz").write_bytes(Path("bomb.zip").read_bytes())
    for name in ("bomb.zip", "bomb.npz"):
        result = CliRunner().invoke(app, ["evaluate", "Pendulum-v1", "--policy", name, *SHORT])
        assert result.exit_code == 1 and "its content must be at most 4 GiB and 100 times" in result.stderr


@pytest.fixture(scope="module")
def fuzz(tmp_path_factory):
    needs("stable_baselines3", "sb3")
    spec = spec_from_file_location("commands", SCRIPT)
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    return script, script.make_files(tmp_path_factory.mktemp("files"))


@given(random=st.randoms(use_true_random=False))
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
def test_every_command_line_ends_in_order(fuzz, tmp_path_factory, random):
    script, files = fuzz
    words = script.command(random, files, tmp_path_factory.getbasetemp())
    status, found = script.problems(words)
    assert found == [], (status, words)
