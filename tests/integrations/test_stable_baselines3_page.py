"""From a zip to a number in one command: docs/stable_baselines3.md, with tiny agents of the same names."""

import json
import re
import shlex
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason='stable_baselines3 is missing: pip install "rido[sb3]"')

from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from typer.testing import CliRunner

from rido.cli import app

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "stable_baselines3.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(python|sh)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = [shlex.split(line)[1:] for _, text in BLOCKS for line in text.splitlines() if line.startswith("rido ")]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with the page's own environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # the command line looks there too, last
    (own,) = (text for _, text in BLOCKS if text.startswith("# own.py"))
    (tmp_path / "own.py").write_text(own)
    return tmp_path


def test_there_is_a_command_for_each_of_three_environments():
    assert [command[1] for command in COMMANDS] == ["CartPole-v1", "Pendulum-v1", "own:Corridor"]
    options = {part for command in COMMANDS for part in command if part.startswith("--")}
    assert options == {"--policy", "--budget", "--gamma"}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[1])
def test_the_command_gives_the_agents_value(command, folder):
    name, zipped = command[1], command[command.index("--policy") + 1]
    if name == "own:Corridor":
        from own import Corridor as make
    else:

        def make():
            return gym.make(name)

    model = PPO("MlpPolicy", make(), policy_kwargs=dict(net_arch=[4]), seed=0, device="cpu")
    if name == "own:Corridor":
        model.policy.action_net.bias.data[1] += 10  # walks to the right, and arrives
    model.save(zipped)
    quick = [*command, "--json", "--seed", "0"]
    quick[quick.index("--budget") + 1] = "4000"
    output = CliRunner().invoke(app, quick)
    assert output.exit_code == 0, output.output
    found = json.loads(output.stdout)
    returns, lengths = evaluate_policy(model, make_vec_env(make, 4, seed=0), 40, return_episode_rewards=True)
    if (gamma := found["gamma"]) < 1:  # each step costs 1
        returns = [-(1 - gamma**length) / (1 - gamma) for length in lengths]
    # Five standard deviations of the difference of two means are a false alarm in 2 million.
    error = np.hypot(found["standard_error"], np.std(returns) / np.sqrt(len(returns)))
    assert abs(found["value"] - np.mean(returns)) < 5 * error


def test_the_pages_examples_run(folder):
    namespace = {"__name__": "__main__"}
    for language, text in BLOCKS:
        if language == "python":
            exec(compile(text, "docs/stable_baselines3.md", "exec"), namespace)
    assert (folder / "best" / "best_model.zip").is_file() and (folder / "best" / "vecnormalize.pkl").is_file()
