"""Wrong environments and faults of the Gymnasium simulator."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import PassiveEnvChecker

from environments import Faulty, Mortal
from rido.simulators import SimulationError, trajectory_seeds
from rido.simulators.gymnasium import GymnasiumSimulator


def act(observations):
    return np.zeros(len(observations), dtype=int)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("nan", "the reward is nan"),
        ("-inf", "the reward is -inf"),
        ("raise", r"the environment's step raised RuntimeError\('the robot fell over'\)"),
        ("truncate", "the environment's time limit cut it before its planned length of 10 steps"),
    ],
)
def test_a_fault_names_trajectory_step_and_seed(fault, message):
    seeds = list(range(100, 160))
    starts = [gym.utils.seeding.np_random(seed)[0].normal() for seed in seeds]
    first = next(i for i, start in enumerate(starts) if start > 1)
    with pytest.raises(SimulationError, match=message) as caught:
        GymnasiumSimulator(lambda: Faulty(fault), act, horizon=10, num_envs=1).rollout(np.full(60, 10), seeds)
    error = caught.value
    step = 4 if fault == "truncate" else 3
    assert (error.trajectory, error.step, error.seed) == (first, step, seeds[first])
    assert f"trajectory {first} failed at step {step} (seed {seeds[first]})" in str(error)


def test_a_planned_end_at_the_time_limit_is_no_fault():
    env = gym.wrappers.TimeLimit(Mortal(death=0.0), max_episode_steps=10)
    assert GymnasiumSimulator(env, act, horizon=10).rollout(np.array([10, 3]), [1, 2]).transitions == 13


def test_a_policy_that_fails_or_returns_the_wrong_shape_is_named():
    def broken(observations):
        raise KeyError("weights")

    def flat(observations):
        return np.zeros((len(observations), 3))

    for policy, message in (
        (broken, r"the policy raised KeyError\('weights'\)"),
        (flat, "policy must return actions of shape"),
    ):
        with pytest.raises(SimulationError, match=message):
            GymnasiumSimulator(Mortal, policy, horizon=10).rollout(np.array([5, 5]), [7, 8])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: GymnasiumSimulator("Pendulem-v1", act, horizon=5), "got 'Pendulem-v1'; did you mean Pendulum-v1"),
        (
            lambda: GymnasiumSimulator("no.such.module:E-v0", act, horizon=5),
            "env must name a module that can be imported",
        ),
        (lambda: GymnasiumSimulator("CartPole-v1", horizon=5), "policy must be given"),
        (
            lambda: GymnasiumSimulator("CartPole-v1", act, horizon=5, env_kwargs={"wings": 2}),
            "env_kwargs must be arguments",
        ),
        (lambda: GymnasiumSimulator(Mortal, act, horizon=5, env_kwargs={"death": 1}), "env_kwargs works only with"),
        (lambda: GymnasiumSimulator(7, act, horizon=5), "env must be an id, a function that makes an environment"),
        (lambda: GymnasiumSimulator(dict, act, horizon=5), "env must make a gymnasium.Env when it is called"),
        (lambda: GymnasiumSimulator(Mortal, act, horizon=0), "horizon must be an integer of at least 1, got 0"),
        (lambda: GymnasiumSimulator(Mortal, act, horizon=5, num_envs=0), "num_envs must be an integer of at least 1"),
        (
            lambda: GymnasiumSimulator(SyncVectorEnv([Mortal]), act, horizon=5),
            "env must be a VectorEnv without autoreset, got autoreset_mode=",
        ),
    ],
)
def test_wrong_environments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


class Legacy(Mortal):
    """Seeds numpy's old generator, which takes 32 bits."""

    def reset(self, *, seed=None, options=None):
        self.old = np.random.RandomState(np.random.MT19937(0))  # RandomState(seed) asks for entropy first
        self.old.seed(seed)
        observation, info = super().reset(seed=seed)
        return observation + self.old.normal(), info


def test_environments_that_take_32_bits_get_seeds_that_do_not_repeat():
    seeds = trajectory_seeds(3, 0, 40)
    results = [GymnasiumSimulator(Legacy, act, horizon=10, num_envs=n).starts(seeds) for n in (1, 7)]
    np.testing.assert_array_equal(*results)
    assert np.unique(results[0][:, 1]).size == 40


def test_gymnasiums_checker_does_not_mind_a_seed_that_was_too_wide():
    seeds = trajectory_seeds(3, 0, 4)
    found = [
        GymnasiumSimulator(make, act, horizon=10).rollout(np.full(4, 10), seeds).flat
        for make in (Legacy, lambda: PassiveEnvChecker(Legacy()))
    ]
    np.testing.assert_array_equal(*found)


def test_a_reset_that_fails_for_another_reason_is_named():
    class Closed(Mortal):
        def reset(self, *, seed=None, options=None):
            raise ValueError("no display")

    with pytest.raises(SimulationError, match=r"the environment's reset raised ValueError\('no display'\)"):
        GymnasiumSimulator(Closed, act, horizon=10).starts(trajectory_seeds(3, 0, 2))
