"""Wrappers that carry something from one trajectory to the next are frozen or refused; others are not in the way."""

import itertools
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import NormalizeObservation, NormalizeReward, TransformReward

import rido
from environments import Mortal
from helpers import needs
from misbehaving import by_observation, critic
from rido.record.database import RunFileError
from rido.simulators.gymnasium import GymnasiumSimulator
from traps import zeros

FROZEN = "the statistics of NormalizeObservation were frozen"
INITIAL = "env must have the statistics of training, got NormalizeObservation at its initial values: load them into"


def swing(observations):
    return np.clip(-observations[:, 1:2] - observations[:, 2:], -2, 2).astype(np.float32)


def trained(updating=True, mean=0.5):
    env = NormalizeObservation(gym.make("Pendulum-v1"))
    env.obs_rms.mean, env.obs_rms.var = np.array([mean, 0.1, 0.3]), np.array([0.4, 0.6, 9.0])
    env.update_running_mean = updating
    return env


def inside(env):
    return TransformReward(env, float)


def vector(kind, *functions):
    return kind(functions, autoreset_mode=AutoresetMode.DISABLED)


@pytest.mark.parametrize(
    "env",
    [trained, lambda: inside(trained()), inside(trained()), vector(SyncVectorEnv, trained, trained)],
    ids=["function", "function, inside", "environment", "SyncVectorEnv"],
)
def test_statistics_of_observations_are_frozen(env):
    settings = dict(budget=600, gamma=0.9, seed=1)
    constant = rido.evaluate(partial(trained, updating=False), swing, **settings)
    assert constant.remarks == () and constant.reproducible
    for num_envs in (1, 8):
        frozen = rido.evaluate(env, swing, **settings, num_envs=num_envs)
        assert (frozen.value, frozen.reproducible, frozen.remarks) == (constant.value, True, (FROZEN,))
    if isinstance(env, gym.Env):
        assert env.env.update_running_mean  # training may go on


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: NormalizeObservation(gym.make("Pendulum-v1")), INITIAL),
        (lambda: inside(NormalizeObservation(gym.make("Pendulum-v1"))), INITIAL),
        (lambda: NormalizeReward(gym.make("Pendulum-v1")), "env must pay its own rewards, got NormalizeReward, which"),
        (lambda: inside(NormalizeReward(gym.make("Pendulum-v1"))), "env must pay its own rewards"),
        (lambda: inside(type("EpisodicLifeEnv", (gym.Wrapper,), {})(Mortal())), "env must start again at every reset"),
    ],
    ids=["initial", "initial, inside", "rewards", "rewards, inside", "lives"],
)
def test_what_cannot_be_frozen_is_refused(make, message):
    for env in (make, make(), vector(SyncVectorEnv, make)):
        with pytest.raises(ValueError, match=message):
            rido.evaluate(env, zeros, budget=1000, gamma=0.9, seed=0)


def test_statistics_that_differ_between_environments_are_refused(tmp_path):
    means = itertools.chain([0.5, 0.5], itertools.repeat(0.6))
    for env in (lambda: trained(mean=next(means)), vector(SyncVectorEnv, trained, partial(trained, mean=0.6))):
        with pytest.raises(ValueError, match="env must have the same statistics everywhere, got NormalizeObservation"):
            rido.evaluate(env, swing, budget=600, gamma=0.9, seed=0)
    settings = dict(budget=600, gamma=0.9, seed=0, run=tmp_path / "run.rido")
    rido.evaluate(trained(), swing, **settings)
    with pytest.raises(RunFileError, match="its environment had other code or numbers"):
        rido.evaluate(trained(mean=0.6), swing, **settings)


def test_statistics_in_other_processes_are_refused_unless_they_are_constant():
    with pytest.raises(ValueError, match="env must have constant statistics, got NormalizeObservation in other proc"):
        GymnasiumSimulator(vector(AsyncVectorEnv, trained), swing, horizon=50)
    env = vector(AsyncVectorEnv, partial(trained, updating=False))
    rewards = GymnasiumSimulator(env, swing, horizon=50).rollout(np.array([50]), [3]).flat
    env.close()
    np.testing.assert_array_equal(rewards, GymnasiumSimulator(trained, swing, horizon=50).rollout([50], [3]).flat)


def test_environments_of_other_kinds_are_named():
    """PettingZoo's environments have these attributes, or at least a base class of this module."""
    fixed = type("Fixed", (), {"possible_agents": ["a", "b"], "agents": ["a", "b"]})
    growing = type("Growing", (type("ParallelEnv", (), {"__module__": "pettingzoo.utils.env"}),), {})
    wrapped = gym.Wrapper(Mortal())
    wrapped.possible_agents = ["a", "b"]
    for env in (fixed(), growing(), fixed, growing, wrapped):
        with pytest.raises(ValueError, match=r"env must have one agent, got the multi-agent environment \w+, which is"):
            rido.evaluate(env, zeros, budget=1000, gamma=1.0, seed=0)
    needs("stable_baselines3", "sb3")
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    for env in (DummyVecEnv([Mortal]), VecNormalize(DummyVecEnv([Mortal]))):
        with pytest.raises(ValueError, match=f"env must be a Gymnasium environment, got SB3's {type(env).__name__}: "):
            rido.evaluate(env, zeros, budget=1000, gamma=1.0, seed=0)


def test_an_id_that_a_worker_does_not_know_is_named():
    gym.register("here/Only-v0", entry_point=Mortal)
    make = partial(gym.make, "here/Only-v0")
    with pytest.raises(ValueError, match="import the module that registers it inside the function, because workers"):
        rido.evaluate(make, "random", budget=100, gamma=0.9, horizon=10, workers=2, seed=0)
    with pytest.raises(ValueError, match=r"got 'own/Pang-v5'.*; where another package registers it, name that first"):
        rido.evaluate("own/Pang-v5", "random", budget=100, gamma=0.9, seed=0)


class OneArray(gym.vector.VectorEnv):
    """Two pendulums that return the same array each time, and write into it with every reset and step."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012

    def __init__(self):
        self._env = vector(SyncVectorEnv, Mortal, Mortal)
        self.num_envs = 2
        self.single_observation_space, self.single_action_space = Mortal().observation_space, Mortal().action_space
        self.observation_space, self.action_space = self._env.observation_space, self._env.action_space
        self._array = np.zeros((2, 2), dtype=np.float32)
        self._rewards = np.zeros(2)

    def reset(self, *, seed=None, options=None):
        self._array[:] = self._env.reset(seed=seed, options=options)[0]
        return self._array, {}

    def step(self, actions):
        observations, self._rewards[:], *rest = self._env.step(actions)
        self._rewards += actions
        self._array[:] = observations
        return self._array, self._rewards, *rest


class NewArray(OneArray):
    """As it should be: new arrays each time."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed, options=options)[0].copy(), {}

    def step(self, actions):
        observations, rewards, *rest = super().step(actions)
        return observations.copy(), rewards.copy(), *rest


@pytest.mark.parametrize("control", [None, critic, "fit"])
def test_a_vector_environment_that_reuses_its_arrays_is_copied_from(control):
    one, new = (
        rido.evaluate(env(), by_observation, budget=1000, gamma=0.95, horizon=20, seed=1, critic=control)
        for env in (OneArray, NewArray)
    )
    assert (one.value, one.standard_error) == (new.value, new.standard_error)


def test_first_observations_of_a_reused_array_are_copied():
    starts = GymnasiumSimulator(OneArray(), by_observation, horizon=5).starts([1, 2, 3, 4])
    alone = [GymnasiumSimulator(Mortal, by_observation, horizon=5).starts([seed])[0] for seed in (1, 2, 3, 4)]
    np.testing.assert_array_equal(starts, alone)
