"""The command line as a user runs it."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import rido
from rido.cli import app

LQG = ["evaluate", "rido/LQG-v0", "--budget", "3000", "--gamma", "0.9", "--horizon", "50", "--seed", "1"]


def rido_command(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def test_evaluate_prints_what_the_library_finds():
    expected = rido.evaluate("rido/LQG-v0", budget=3000, gamma=0.9, horizon=50, seed=1)
    assert rido_command(*LQG).stdout == expected.summary() + "\n"
    printed = json.loads(rido_command(*LQG, "--json").stdout)
    assert printed["value"] == expected.value and printed["interval_low"] == expected.interval()[0]


def test_env_arguments_strategies_and_runs(tmp_path):
    arguments = [*LQG, "--strategy", "robust", "--env-kwarg", "noise=deviation", "--run", tmp_path / "a.rido", "--json"]
    first = rido_command(*arguments).stdout
    again = json.loads(rido_command(*arguments).stdout)
    assert again["value"] == json.loads(first)["value"] and again["strategy"] == "robust"
    result = rido_command(*LQG, "--run", tmp_path / "a.rido", code=1)
    assert "is of another run: its strategy is 'robust', not 'rido'" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["evaluate", "Pendulem-v1", "--budget", "500", "--gamma", "0.9"], 1, "did you mean Pendulum-v1"),
        (["evaluate", "Pendulum-v1", "--budget", "500", "--gamma", "0.9"], 1, "policy must be given"),
        ([*LQG[:2], "--budget", "49", "--gamma", "0.9", "--horizon", "50"], 1, "budget must pay for"),
        ([*LQG, "--gamma", "0"], 1, "gamma must be in (0, 1], got 0.0"),
        ([*LQG, "--gamma", "1.2"], 1, "gamma must be in (0, 1], got 1.2"),
        ([*LQG, "--strategy", "best"], 1, "strategy must be one of"),
        ([*LQG, "--env-kwarg", "noise"], 1, "env-kwarg must be NAME=VALUE, got 'noise'"),
        ([*LQG, "--run", "/no/such/directory/a.rido"], 1, "cannot be used"),
        (["evaluate", "rido/LQG-v0", "--gamma", "0.9"], 2, "--budget"),
        ([*LQG, "--budget", "many"], 2, "--budget"),
    ],
)
def test_wrong_input_gets_a_message_and_no_traceback(arguments, code, message):
    result = rido_command(*arguments, code=code)
    assert message in result.stderr and result.stdout == "" and "Traceback" not in result.stderr
    if code == 1:
        assert result.stderr.count("\n") == 1


def test_a_file_that_is_no_agent_is_named(tmp_path):
    (tmp_path / "agent.zip").write_text("not a zip")
    result = rido_command(
        "evaluate", "Pendulum-v1", "--policy", tmp_path / "agent.zip", "--budget", 500, "--gamma", 0.9, code=1
    )
    assert "policy must be a zip written by SB3's save()" in result.stderr


def test_policies_of_the_working_directory(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import numpy as np\ndef act(observations): return np.zeros((len(observations), 1))\n"
    )
    command = [sys.executable, "-m", "rido", "evaluate", "Pendulum-v1", "--policy", "mine:act", "--budget", "500"]
    result = subprocess.run([*command, "--gamma", "0.9"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert result.stdout.startswith("mine.act in Pendulum-v1: -") and result.stderr == ""


def test_import_is_light():
    heavy = ("gymnasium", "torch", "mujoco", "matplotlib", "ray", "jax", "typer")
    code = f"import sys, rido; print([name for name in {heavy} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
