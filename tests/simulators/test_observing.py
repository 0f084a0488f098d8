"""Observations belong to their rewards, in every simulator and in any batch."""

from functools import partial

import gymnasium as gym
import numpy as np
import pytest

from environments import Mortal
from rido.simulators import trajectory_seeds
from rido.simulators.gymnasium import GymnasiumSimulator

LENGTHS = np.array([1, 7, 30, 2, 30, 12, 5, 1, 19, 4])
SEEDS = trajectory_seeds(3, 0, LENGTHS.size)


def act(observations):
    return (observations[:, 1] > 0).astype(int)


def alone(length, seed, death):
    """The same trajectory by hand."""
    env = Mortal(death=death)
    observation, _ = env.reset(seed=seed)
    seen, terminated = [observation], False
    while len(seen) <= length and not terminated:
        observation, _, terminated, _, _ = env.step(0)
        seen.append(observation)
    return np.array(seen), terminated


@pytest.mark.parametrize("num_envs", [1, 3, 16])
@pytest.mark.parametrize("death", [0.0, 0.2, 1.0])
def test_observations_are_those_of_each_trajectory_run_alone(num_envs, death):
    simulator = GymnasiumSimulator(partial(Mortal, death=death), act, horizon=30, num_envs=num_envs)
    assert simulator.capabilities.observes
    seen = simulator.observe(LENGTHS, SEEDS)
    np.testing.assert_array_equal(seen.trajectories.flat, simulator.rollout(LENGTHS, SEEDS).flat)
    expected = [alone(length, seed, death) for length, seed in zip(LENGTHS, SEEDS, strict=True)]
    np.testing.assert_array_equal(seen.observations, np.concatenate([part for part, _ in expected]))
    np.testing.assert_array_equal(seen.terminated, [terminated for _, terminated in expected])
    assert LENGTHS[0] == seen.trajectories.steps[0] == 1
    assert seen.terminated[0] or death < 1.0  # an end at the planned length


@pytest.mark.parametrize("env", ["rido/LQG-v0", "Pendulum-v1"])
@pytest.mark.parametrize("num_envs", [1, 5, 64])
def test_starts_are_the_first_observations(env, num_envs):
    policy = None if env == "rido/LQG-v0" else "random"
    simulator = GymnasiumSimulator(env, policy, horizon=30, num_envs=num_envs)
    seen = simulator.observe(LENGTHS, SEEDS)
    first = np.cumsum(seen.trajectories.steps + 1) - seen.trajectories.steps - 1
    np.testing.assert_array_equal(simulator.starts(SEEDS), seen.observations[first])


def test_dictionaries_are_shown_as_dictionaries_of_batches():
    class Dictionary(gym.ObservationWrapper):
        def __init__(self):
            super().__init__(Mortal())
            self.observation_space = gym.spaces.Dict(a=gym.spaces.Box(-9, 99, (1,)), b=gym.spaces.Box(-9, 9, (1,)))

        def observation(self, observation):
            return {"a": observation[:1], "b": observation[1:]}

    plain = GymnasiumSimulator(Mortal, act, horizon=30).observe(LENGTHS, SEEDS)
    seen = GymnasiumSimulator(Dictionary, lambda o: act(np.concatenate([o["a"], o["b"]], axis=1)), horizon=30).observe(
        LENGTHS, SEEDS
    )
    np.testing.assert_array_equal(
        np.concatenate([seen.observations["a"], seen.observations["b"]], axis=1), plain.observations
    )


def test_streams_of_seeds_are_different():
    assert len(set(trajectory_seeds(1, 0, 1000)) & set(trajectory_seeds(1, 0, 1000, stream=1))) == 0
    assert trajectory_seeds(1, 0, 1000, stream=1)[500:] == trajectory_seeds(1, 500, 500, stream=1)
