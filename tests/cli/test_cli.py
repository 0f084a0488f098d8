"""The command line as a user runs it."""

import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from typer.main import get_command
from typer.testing import CliRunner

import rido
import rido.envs
from helpers import needs
from rido.cli import app
from rido.cli.console import bars, sparkline
from rido.core.allocation import hoeffding_weights
from rido.simulators.base import trajectory_seeds
from rido.simulators.gymnasium import GymnasiumSimulator
from rido.study import compare_strategies

LQG = ["evaluate", "rido/LQG-v0", "--budget", "3000", "--gamma", "0.9", "--horizon", "50", "--seed", "1"]
PENDULUM = ["evaluate", "Pendulum-v1", "--budget", "500", "--gamma", "0.9", "--seed", "1"]
STUDY = ["study", "rido/LQG-v0", "--budget", "400", "--budget", "800", "--gamma", "0.9", "--horizon", "20"]
STUDY += ["--bank", "60", "--repetitions", "5", "--strategy", "uniform", "--strategy", "rido", "--seed", "1"]


def rido_command(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def fails(*arguments, code=1):
    """Runs a command that cannot be done, and returns its one line on standard error."""
    result = rido_command(*arguments, code=code)
    assert result.stdout == "" and "Traceback" not in result.stderr
    assert result.stderr.count("\n") == 1
    return result.stderr


def prints_json(*arguments):
    """Runs a command with --json and returns the one object that it prints."""
    result = rido_command(*arguments, "--json")
    assert result.stderr == ""
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def run_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "lqg.rido"
    rido.evaluate("rido/LQG-v0", budget=3000, gamma=0.9, horizon=50, seed=1, run=path)
    return path


def test_version_is_that_of_the_package_and_the_citation():
    assert rido_command("--version").stdout == f"rido {rido.__version__}\n"
    assert version("rido") == rido.__version__
    citation = (Path(__file__).parents[2] / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {rido.__version__}\n" in citation


def test_completion_is_offered_and_knows_the_commands():
    assert "install_completion" in [parameter.name for parameter in get_command(app).params]
    words = {"_RIDO_COMPLETE": "complete_bash", "COMP_WORDS": "rido e", "COMP_CWORD": "1"}
    result = CliRunner().invoke(app, [], prog_name="rido", env=words)
    assert result.stdout.split() == ["evaluate", "envs"]


def test_evaluate_prints_what_the_library_finds():
    expected = rido.evaluate("rido/LQG-v0", budget=3000, gamma=0.9, horizon=50, seed=1)
    *summary, picture = rido_command(*LQG).stdout.splitlines()
    assert "\n".join(summary) == expected.summary()
    counts = expected.schedule.counts
    start = f"samples per step, {counts[0]:,} of the first to {counts[-1]:,} of the last: "
    assert picture == start + sparkline(counts)
    printed = prints_json(*LQG)
    assert printed["value"] == expected.value and printed["interval_low"] == expected.interval()[0]


def test_env_arguments_strategies_and_runs(tmp_path):
    arguments = [*LQG, "--strategy", "robust", "--env-kwarg", "noise=deviation", "--run", tmp_path / "a.rido"]
    first = prints_json(*arguments)
    again = prints_json(*arguments)
    assert again["value"] == first["value"] and again["strategy"] == "robust"
    message = fails(*LQG, "--env-kwarg", "noise=deviation", "--run", tmp_path / "a.rido", "--strategy", "uniform")
    assert "is of another run: its strategy is 'robust', not 'uniform'" in message


def test_evaluate_stops_at_a_precision_and_takes_a_critic():
    precise = prints_json(*LQG, "--budget", 100_000, "--until", 150)
    assert precise["interval_high"] - precise["interval_low"] <= 300 and precise["transitions"] < 50_000
    assert prints_json(*LQG, "--critic", "fit")["critic"] == "fit"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*LQG, "--until", "-1"], "until must be positive"),
        (
            [*LQG, "--until", "10", "--strategy", "rido"],
            "until works only with strategy 'adaptive' or",
        ),
        ([*LQG, "--critic", "policy"], "critic 'policy' works only with an agent"),
        (["evaluate", "Pendulem-v1", "--budget", "500", "--gamma", "0.9"], "did you mean Pendulum-v1"),
        (PENDULUM, "policy must be given"),
        ([*LQG[:2], "--budget", "49", "--gamma", "0.9", "--horizon", "50"], "budget must pay for"),
        ([*LQG[:2], "--gamma", "0.9", "--horizon", "50"], "budget must be given, in transitions, or time_budget"),
        ([*LQG, "--gamma", "0"], "gamma must be in (0, 1], got 0.0"),
        ([*LQG, "--gamma", "1.2"], "gamma must be in (0, 1], got 1.2"),
        ([*LQG, "--env-kwarg", "noise"], "env-kwarg must be NAME=VALUE, got 'noise'"),
        ([*LQG, "--run", "/no/such/directory/a.rido"], "cannot be used"),
        (["plan", "--budget", "49", "--horizon", "50", "--gamma", "0.9"], "budget must pay for one full trajectory"),
        (["plan", "--budget", "500", "--horizon", "50", "--gamma", "1.2"], "gamma must be in (0, 1], got 1.2"),
        (["plan", "--budget", "500", "--horizon", "50"], "gamma must be given"),
        (["plan", "--budget", "500", "--gamma", "0.9"], "horizon must be given"),
        (["plan", "--budget", "500", "--weights", "/no/such/weights.json"], "No such file"),
        (["report", "/no/such/file.rido"], "run file /no/such/file.rido is not there"),
    ],
)
def test_what_cannot_be_done_gets_one_line(arguments, message):
    assert message in fails(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluate", "rido/LQG-v0", "--budget", "500"], "--gamma"),
        ([*LQG, "--budget", "many"], "--budget"),
        ([*LQG, "--critic", "mine"], "--critic"),
        ([*LQG, "--strategy", "best"], "--strategy"),
        (["plan", "--budget", "500", "--horizon", "50", "--strategy", "best"], "--strategy"),
        (["improve"], "improve"),
    ],
)
def test_wrong_usage_ends_with_2(arguments, message):
    assert message in fails(*arguments, code=2)


def test_a_file_that_is_no_agent_is_named(tmp_path):
    (tmp_path / "agent.zip").write_text("not a zip")
    assert "policy must be a zip written by SB3's save()" in fails(*PENDULUM, "--policy", tmp_path / "agent.zip")


def test_an_agent_of_other_observations_is_refused(tmp_path):
    sb3 = needs("stable_baselines3", "sb3")
    sb3.PPO("MlpPolicy", "CartPole-v1", device="cpu").save(tmp_path / "agent.zip")
    message = fails(*PENDULUM, "--policy", tmp_path / "agent.zip")
    assert "environment must have observations like" in message and "got Box" in message


def test_unreadable_and_foreign_run_files_are_named(tmp_path):
    (tmp_path / "text.rido").write_text("hello")
    with sqlite3.connect(tmp_path / "foreign.rido") as database:
        database.execute("CREATE TABLE things (name TEXT)")
    database.close()
    for name in ("text.rido", "foreign.rido"):
        for command in (["report", tmp_path / name, "-o", tmp_path / "a.html"], [*LQG, "--run", tmp_path / name]):
            assert f"run file {tmp_path / name} cannot be used" in fails(*command)


def test_an_output_that_cannot_be_written_is_named(run_file, tmp_path):
    message = fails("report", run_file, "-o", tmp_path / "missing" / "a.html")
    assert "output must be a file that can be written" in message and "No such file or directory" in message


JSON_ERRORS = [
    (["evaluate", "rido/LQG-v0", "--budget", "49", "--gamma", "0.9", "--horizon", "50"], 1, "budget must pay for"),
    (["evaluate", "rido/LQG-v0", "--budget", "many", "--gamma", "0.9"], 2, "Invalid value for '--budget'"),
    (["evaluate", "rido/LQG-v0"], 2, "Missing option '--gamma'"),
    (["evaluate"], 2, "Missing argument 'env'"),
    (["compare", "rido/LQG-v0", "--nothing"], 2, "No such option: --nothing"),
    (["plan", "--budget", "500"], 1, "horizon must be given"),
    (["report", "/no/such.rido"], 1, "run file /no/such.rido is not there"),
    (["reproduce", "nothing"], 1, "section must be one of"),
    (["envs", "nothing"], 2, "Got unexpected extra argument"),
    (["improve"], 2, "No such command 'improve'"),
]


@pytest.mark.parametrize(("arguments", "code", "message"), JSON_ERRORS, ids=lambda value: str(value)[:20])
def test_errors_are_json_too(arguments, code, message):
    """One object on standard output, for programs; the usual line on standard error, for people."""
    result = rido_command(*arguments, "--json", code=code)
    (error,) = json.loads(result.stdout).items()
    assert error[0] == "error" and message in error[1] and result.stdout.count("\n") == 1
    assert result.stderr == f"rido: {error[1]}\n"
    assert rido_command(*arguments, code=code).stdout == ""


def test_a_finished_run_is_extended(tmp_path):
    path = tmp_path / "a.rido"
    first = prints_json(*LQG[:2], "--budget", 1000, *LQG[4:], "--run", path)
    then = prints_json(*LQG[:2], "--budget", 2000, *LQG[4:], "--run", path)
    assert (first["transitions"], then["transitions"]) == (1000, 2000)
    message = fails(*LQG[:2], "--budget", 1500, *LQG[4:], "--run", path)
    assert "cannot be extended: budget must be at least its 2,000 transitions, got 1,500" in message


def test_policies_of_the_working_directory(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import numpy as np\ndef act(observations): return np.zeros((len(observations), 1))\n"
    )
    command = [sys.executable, "-m", "rido", *PENDULUM, "--policy", "mine:act"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert result.stdout.startswith("mine.act in Pendulum-v1: -") and result.stderr == ""


SLOW = """
import os, time
import gymnasium as gym
from gymnasium.envs.classic_control.pendulum import PendulumEnv
from rido.evaluation import source
source._PIECE_SECONDS = 0.2
class Slow(PendulumEnv):
    def step(self, action):
        time.sleep(0.01 * ("HURRY" not in os.environ))
        return super().step(action)
gym.register("Slow-v0", Slow)
"""


@pytest.mark.skipif(os.name != "posix", reason="needs SIGINT")
def test_ctrl_c_ends_cleanly_and_the_same_command_goes_on(tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    command = [sys.executable, "-m", "rido", "evaluate", "slow:Slow-v0", "--policy", "random", "--gamma", "0.9"]
    command += ["--budget", "3000", "--horizon", "5", "--run", "slow.rido", "--num-envs", "2"]
    # Shells ignore SIGINT in the background; a handler is what a new process does not inherit.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    signal.signal(signal.SIGINT, handler)
    # Not in the first rounds: planning imports scipy.optimize, and CPython forgets the exit code of a process that was
    # interrupted while it executed a string of code, as some imports do.
    while process.poll() is None and pieces(tmp_path / "slow.rido") < 4:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=600)
    assert (process.returncode, out, err) == (130, "", "rido: stopped; the same command resumes slow.rido\n")
    kept = pieces(tmp_path / "slow.rido")
    hurried = subprocess.run(
        [*command, "--json"], cwd=tmp_path, env={**os.environ, "HURRY": "1"}, capture_output=True, check=True
    )
    assert json.loads(hurried.stdout)["transitions"] == 3000 and pieces(tmp_path / "slow.rido") > kept >= 4


def pieces(path):
    """Pieces that a run file has, 0 where it is not there yet."""
    try:
        with sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True) as database:
            return database.execute("SELECT count(*) FROM pieces").fetchone()[0]
    except sqlite3.Error:
        return 0
    finally:
        if "database" in locals():
            database.close()


def test_plan_prints_the_schedule_of_the_library():
    robust = rido.Schedule.robust(50, 5000, gamma=0.9)
    arguments = ["plan", "--horizon", 50, "--budget", 5000, "--gamma", 0.9]
    first, *picture, last = rido_command(*arguments).stdout.splitlines()
    assert first.startswith(f"robust schedule: 5,000 transitions in {robust.trajectories} trajectories")
    assert "\n".join(picture) == bars(robust.counts)
    weights = hoeffding_weights(50, 0.9)
    ratio = robust.variance(weights) / rido.Schedule.uniform(50, 5000).variance(weights)
    assert f"{ratio**0.5:.3g} times" in last
    printed = prints_json(*arguments)
    assert printed["counts"] == robust.counts.tolist() and printed["variance_ratio_to_uniform"] == pytest.approx(ratio)
    assert sum(int(length) * count for length, count in printed["trajectories_by_length"].items()) == 5000
    uniform = prints_json("plan", "--horizon", 50, "--budget", 5010, "--strategy", "uniform")
    assert uniform["counts"] == rido.Schedule.uniform(50, 5010).counts.tolist()


def test_plan_takes_weights_from_files_and_runs(tmp_path, run_file):
    weights = [9.0, 4.0, 4.0, 1.0]
    (tmp_path / "w.json").write_text(json.dumps(weights))
    np.save(tmp_path / "w.npy", weights)
    (tmp_path / "w.csv").write_text("9, 4\n4\n1\n")
    expected = rido.Schedule.optimal(weights, 400).counts.tolist()
    for name in ("w.json", "w.npy", "w.csv"):
        assert prints_json("plan", "--budget", 400, "--weights", tmp_path / name)["counts"] == expected
    assert len(prints_json("plan", "--budget", 400, "--weights", run_file)["counts"]) == 50
    (tmp_path / "words.csv").write_text("nine,four")
    assert "weights must be a file of numbers" in fails("plan", "--budget", 400, "--weights", tmp_path / "words.csv")
    wrong = fails("plan", "--budget", 400, "--horizon", 5, "--weights", tmp_path / "w.json")
    assert "weights must have 5 entries, got 4" in wrong


def test_study_prints_what_the_library_finds(tmp_path):
    printed = prints_json(*STUDY, "--num-envs", 7, "--plot", tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")
    simulator = GymnasiumSimulator("rido/LQG-v0", horizon=20, gamma=0.9)
    bank = simulator.rollout(np.full(60, 20), trajectory_seeds(1, 0, 60)).rewards
    assert printed["truth"] == pytest.approx(bank.mean(axis=0) @ 0.9 ** np.arange(20))
    expected = compare_strategies(["uniform", "rido"], bank, budget=800, gamma=0.9, repetitions=5, seed=1)
    shown = printed["comparisons"][1]
    assert shown["budget"] == 800 and shown["best_variance"] == pytest.approx(expected.oracle_variance)
    errors = {row["strategy"]: row["mse"] for row in shown["strategies"]}
    assert errors == pytest.approx({result.name: result.mse for result in expected.results})
    table = rido_command(*STUDY).stdout
    assert "800 transitions, best possible error" in table and f"{expected['rido'].mse ** 0.5:.4g}" in table


def test_study_where_all_trajectories_end_before_the_horizon():
    arguments = ["study", "CartPole-v1", "--policy", "random", "--gamma", "1", "--horizon", "400", "--seed", "1"]
    printed = prints_json(*arguments, "--budget", "2000", "--bank", "30", "--repetitions", "3")
    (compared,) = printed["comparisons"]
    assert compared["best_variance"] > 0 and all(row["transitions"] <= 2000 for row in compared["strategies"])


def test_study_understands_an_environment_as_evaluate_does():
    """It took the default horizon of the environment without its arguments."""
    words = ["Pendulum-v1", "--policy", "random", "--gamma", "1", "--seed", "1", "--env-kwarg", "max_episode_steps=50"]
    study = ["study", *words, "--budget", "200", "--bank", "4", "--repetitions", "2", "--strategy", "uniform", "--json"]
    evaluated = json.loads(
        CliRunner().invoke(app, ["evaluate", *words, "--budget", "200", "--strategy", "uniform", "--json"]).output
    )
    found = [json.loads(CliRunner().invoke(app, [*study, *more]).output) for more in ([], ["--workers", "2"])]
    assert evaluated["horizon"] == found[0]["horizon"] == 50
    assert found[0]["truth"] == pytest.approx(evaluated["value"]) and found[1] == found[0]
    ended = [*study, "--horizon", "80", "--end-on-truncation"]
    assert json.loads(CliRunner().invoke(app, ended).output)["truth"] == pytest.approx(evaluated["value"])


def test_study_takes_what_evaluate_takes():
    options = {name: {p.name for p in get_command(app).commands[name].params} for name in ("evaluate", "study")}
    one_run = {"components", "plan_for", "reward_range", "time_budget", "until", "max_resets", "reset_cost", "critic"}
    one_run |= {"strategy", "strategy_kwarg", "starts", "run"}
    assert options["evaluate"] - options["study"] == one_run


def test_study_checks_its_output_before_it_works(tmp_path):
    assert "plot must be a file that can be written" in fails(*STUDY, "--plot", tmp_path / "no" / "a.png")
    assert "plot must be a file of a kind like png" in fails(*STUDY, "--plot", tmp_path / "a.txt")
    assert list(tmp_path.iterdir()) == []
    assert "strategies must be one of" in fails(*STUDY, "--strategy", "best")


def test_report_writes_a_page(run_file, tmp_path):
    page = tmp_path / "report.html"
    assert str(page) in rido_command("report", run_file, "-o", page).stdout
    assert page.read_text().startswith("<!doctype html>")
    assert prints_json("report", run_file, "-o", page) == {"run": str(run_file), "report": str(page)}


def test_envs_lists_what_is_registered():
    agents = prints_json("envs")["agents"]
    assert {row["policy"]: row["env"] for row in agents}["rido:pendulum"] == "Pendulum-v1" and len(agents) == 5
    assert "rido:ant" in rido_command("envs").stdout
    listed = prints_json("envs")["environments"]
    assert [row["id"] for row in listed] == list(rido.envs.ENV_IDS)
    assert all(row["description"] and row["policy"] for row in listed)
    everything = {row["id"]: row["time_limit"] for row in prints_json("envs", "--all")["environments"]}
    assert everything == {name: spec.max_episode_steps for name, spec in gym.registry.items()}
    assert all(name in rido_command("envs").stdout for name in rido.envs.ENV_IDS)


def test_pictures_use_what_the_terminal_can_show(monkeypatch):
    assert sparkline([0, 1, 2, 8]) == "▁▁▂█" and len(sparkline(np.ones(1000))) == 64
    assert bars([1000, 500], width=2) == "step 0  1,000 ██\nstep 1    500 █"
    assert bars(np.arange(32, 0, -1)).splitlines()[0].startswith("steps 0-1    31.5 ")
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert sparkline([1, 8]) == ".@" and bars([2, 1], width=2) == "step 0  2 ##\nstep 1  1 #"


def test_import_is_light():
    heavy = ("gymnasium", "torch", "mujoco", "matplotlib", "ray", "jax", "typer", "jinja2", "sklearn", "scipy.optimize")
    code = f"import sys, rido; print([name for name in {heavy} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_processes_and_seconds_change_where_and_how_long():
    alone, crew = (json.loads(rido_command(*LQG, "--workers", n, "--json").stdout) for n in (1, 2))
    assert crew["value"] == alone["value"] and crew["counts"] == alone["counts"]
    found = json.loads(rido_command(*LQG, "--time-budget", "600", "--json").stdout)  # the budget ends it
    assert found["transitions"] == 3000 and any("speed of the machine" in warning for warning in found["warnings"])


def test_settings_of_a_strategy():
    command = ("evaluate", "rido/LQG-v0", "--budget", "3000", "--gamma", "0.9", "--horizon", "50", "--seed", "1")
    found = prints_json(*command, "--strategy-kwarg", "unbiased=True")
    assert (
        found["value"]
        == rido.evaluate(
            "rido/LQG-v0", budget=3000, gamma=0.9, horizon=50, seed=1, strategy=rido.Adaptive(unbiased=True)
        ).value
    )
    assert "must be a setting of adaptive" in fails(*command, "--strategy-kwarg", "unbised=True")
    assert "strategy-kwarg must be NAME=VALUE, got 'unbiased'" in fails(*command, "--strategy-kwarg", "unbiased")
