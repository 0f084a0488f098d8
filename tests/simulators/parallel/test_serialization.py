"""A deserialised simulator acts as the one that was serialised."""

import shutil
import threading

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason='stable_baselines3 is missing: pip install "rido[sb3]"')

from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from rido.simulators import trajectory_seeds
from rido.simulators.gymnasium import GymnasiumSimulator
from rido.simulators.parallel.serialization import deserialize, serialize
from traps import assert_same

LENGTHS = np.array([3, 40, 1, 17, 40, 8])
SEEDS = trajectory_seeds(11, 0, LENGTHS.size)
SETTINGS = dict(horizon=40, gamma=1.0, env_kwargs=None, num_envs=4, deterministic=True)


@pytest.fixture
def agent(agents_dir, tmp_path):
    """A copy that may be deleted, in the layout of the zoo: the statistics lie in a folder beside the zip."""
    shutil.copytree(agents_dir / "ppo" / "Pendulum-v1", tmp_path / "ppo" / "Pendulum-v1")
    return tmp_path / "ppo" / "Pendulum-v1" / "Pendulum-v1.zip"


@pytest.mark.parametrize("suffix", ["", ".zip"])
def test_agents_travel_with_their_files(agent, suffix):
    reference = GymnasiumSimulator("Pendulum-v1", agent, horizon=40)
    content = serialize("Pendulum-v1", str(agent.with_suffix(suffix)), SETTINGS)
    shutil.rmtree(agent.parent)
    simulator = deserialize(content)
    assert_same(simulator, reference, LENGTHS, SEEDS)
    assert simulator.policy.name == reference.policy.name == "ppo/Pendulum-v1/Pendulum-v1.zip"
    assert simulator.policy.fingerprint == reference.policy.fingerprint != ""


def test_models_travel_without_what_only_training_needs():
    model = PPO("MlpPolicy", VecNormalize(DummyVecEnv([lambda: gym.make("Pendulum-v1")])), device="cpu", seed=0)
    model.env.obs_rms.mean[:] = 0.3
    model.env.venv.not_for_the_journey = threading.Lock()
    reference = GymnasiumSimulator("Pendulum-v1", model, horizon=40)
    content = serialize("Pendulum-v1", model, SETTINGS)
    assert_same(deserialize(content), reference, LENGTHS, SEEDS)
    model.lock = threading.Lock()
    with pytest.raises(ValueError, match=r"policy must be an agent or its path.* cannot be sent to another process"):
        serialize("Pendulum-v1", model, SETTINGS)


def test_a_missing_agent_is_named_as_ever():
    with pytest.raises(ValueError, match=r"policy must be the path of an existing zip, got nowhere\.zip"):
        deserialize(serialize("Pendulum-v1", "nowhere.zip", SETTINGS))


def test_arguments_that_cannot_be_sent_are_named():
    with pytest.raises(ValueError, match=r"env_kwargs must be plain values, got .* cannot be sent"):
        serialize("Pendulum-v1", "random", {**SETTINGS, "env_kwargs": {"g": threading.Lock()}})
