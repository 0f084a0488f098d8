"""Packages that are missing: one line with what installs them, in Python and on the command line."""

import json
import subprocess
import sys
import zipfile

import pytest

import rido
import rido.envs

PENDULUM = ["evaluate", "Pendulum-v1", "--budget", "400", "--gamma", "0.9"]
RANDOM = ["--policy", "random", *PENDULUM[2:]]
LQG = ["evaluate", "rido/LQG-v0", "--budget", "400", "--gamma", "0.9", "--horizon", "20"]
IN_JAX = ["--simulator", "jax", "--budget", "400", "--gamma", "0.9", "--horizon", "20"]

# The package, the code and the command line that need it, and the line that installs it.
CASES = [
    ("jax", "import rido.jax", [*LQG, "--simulator", "jax"], 'pip install "rido[jax]"'),
    (
        "brax",
        "import rido.jax; rido.jax.adapt('needs_brax:env')",
        ["evaluate", "needs_brax:env", *IN_JAX],
        "pip install brax",
    ),
    (
        "gymnax",
        "import rido.jax; rido.jax.adapt('needs_gymnax:env')",
        ["evaluate", "needs_gymnax:env", *IN_JAX],
        "pip install gymnax",
    ),
    ("stable_baselines3", "import rido.sb3", [*PENDULUM, "--policy", "trpo.zip"], 'pip install "rido[sb3]"'),
    ("torch", "import rido.sb3", [*PENDULUM, "--policy", "trpo.zip"], 'pip install "rido[sb3]"'),
    ("sb3_contrib", None, [*PENDULUM, "--policy", "trpo.zip"], 'pip install "rido[sb3]"'),
    ("matplotlib", "result.plot()", ["report", "a.rido"], 'pip install "rido['),
    ("jinja2", None, ["report", "a.rido"], 'pip install "rido[report]"'),
    ("envpool", "import rido.simulators.envpool", [*PENDULUM, "--envpool"], 'pip install "rido[envpool]"'),
    ("ray", "import rido.simulators.parallel.ray", [*PENDULUM, "--ray", "local"], 'pip install "rido[ray]"'),
    ("mujoco", None, ["evaluate", "Swimmer-v5", *RANDOM], 'pip install "rido[mujoco]"'),
    ("ale_py", None, ["evaluate", "ALE/Pong-v5", *RANDOM], "pip install ale-py"),
    ("minigrid", None, ["evaluate", "MiniGrid-Empty-5x5-v0", *RANDOM], "pip install minigrid"),
    ("onnxruntime", None, [*PENDULUM, "--policy", "needs_onnxruntime:policy"], "pip install onnxruntime"),
    ("huggingface_hub", None, ["evaluate", "needs_huggingface_hub:Env-v0", *RANDOM], "pip install huggingface_hub"),
]

SCRIPT = """
import json, sys
sys.path.append("")
import rido, rido.envs
from typer.testing import CliRunner
from rido.cli import app
result = rido.evaluate("rido/LQG-v0", budget=400, gamma=0.9, horizon=20, run="a.rido")
answers = []
for module, code, words in json.loads(sys.argv[1]):
    there = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == module}
    sys.modules[module] = None
    message = None
    if code:
        try:
            exec(code)
        except Exception as error:
            message = str(error)
    done = CliRunner().invoke(app, words)
    answers.append([message, done.exit_code, done.stdout, done.stderr])
    del sys.modules[module]
    sys.modules.update(there)
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """What each case gives where its package cannot be imported, all in one process."""
    folder = tmp_path_factory.mktemp("extras")
    for package in ("brax", "gymnax", "onnxruntime", "huggingface_hub"):
        (folder / f"needs_{package}.py").write_text(f"import {package}\n")
    with zipfile.ZipFile(folder / "trpo.zip", "w") as archive:
        archive.writestr("data", json.dumps({"policy_class": {"__module__": "x"}, "cg_max_steps": 1}))
    cases = json.dumps([case[:3] for case in CASES])
    done = subprocess.run([sys.executable, "-c", SCRIPT, cases], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    return {case[0]: answer for case, answer in zip(CASES, found, strict=True)}


@pytest.mark.parametrize(("module", "code", "words", "line"), CASES, ids=[case[0] for case in CASES])
def test_a_missing_package_is_named_with_the_line_that_installs_it(answers, module, code, words, line):
    message, status, out, err = answers[module]
    assert (status, out, err.count("\n")) == (1, "", 1) and err.startswith("rido: ") and line in err
    if code:
        assert line in message and "\n" not in message


def test_a_well_known_environment_is_imported_where_it_is_installed(tmp_path, monkeypatch):
    (tmp_path / "minigrid.py").write_text(
        "import gymnasium as gym\n"
        "gym.register('MiniGrid-Test-v0', 'gymnasium.envs.classic_control.pendulum:PendulumEnv', max_episode_steps=20)"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "minigrid", raising=False)
    assert rido.evaluate("MiniGrid-Test-v0", "random", budget=100, gamma=0.9, seed=1).schedule.horizon == 20
    with pytest.raises(ValueError, match=r"env must be a registered environment, got 'MiniGrid-Toast-v0'"):
        rido.evaluate("MiniGrid-Toast-v0", "random", budget=100, gamma=0.9, seed=0)


def test_a_zip_that_is_not_there_is_named_once():
    pytest.importorskip("stable_baselines3", reason='stable_baselines3 is missing: pip install "rido[sb3]"')
    for name in ("nothing.zip", "no/such/nothing.zip"):
        with pytest.raises(ValueError, match=f"path of an existing zip, got {name}$"):
            rido.evaluate("Pendulum-v1", name, budget=400, gamma=0.9, seed=0)
