"""Time limits are found through functions, wrappers and vector environments; they are lifted, or end an episode."""

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit, TransformReward

import rido
from environments import Interrupted, Mortal
from helpers import needs
from rido.evaluation.recorded import read_run
from rido.record.database import RunFileError
from rido.simulators.base import SimulationError
from rido.simulators.factory import resolve_horizon
from rido.simulators.gymnasium import GymnasiumSimulator
from traps import zeros

CARTPOLE = "CartPole-v1"
REFUSED = "horizon must be at most the environment's time limit of {} steps, got 120: make the environment with max_ep"


def upright(observations):
    return (observations[:, 2] + 0.2 * observations[:, 3] > 0).astype(int)


def same(reward):
    return reward


def vector(kind, env, **settings):
    return kind([env, env], autoreset_mode=AutoresetMode.DISABLED, **settings)


def limited():
    return TransformReward(TimeLimit(CartPoleEnv(), 50), same)


MAKERS = {
    "id": (500, lambda: CARTPOLE),
    "function": (500, lambda: partial(gym.make, CARTPOLE)),
    "environment": (500, lambda: gym.make(CARTPOLE)),
    "SyncVectorEnv": (500, lambda: vector(SyncVectorEnv, partial(gym.make, CARTPOLE))),
    "another limit": (50, lambda: gym.make(CARTPOLE, max_episode_steps=50)),
    "two limits": (50, lambda: TimeLimit(gym.make(CARTPOLE), 50)),
    "limit outside": (50, lambda: TimeLimit(TransformReward(CartPoleEnv(), same), 50)),
    "limit inside": (50, limited),
    "limit inside, function": (50, lambda: limited),
    "limit inside, SyncVectorEnv": (50, lambda: vector(SyncVectorEnv, limited)),
    "limit inside, wrapped SyncVectorEnv": (
        50,
        lambda: gym.wrappers.vector.TransformReward(vector(SyncVectorEnv, limited), same),
    ),
}


@pytest.mark.parametrize("name", MAKERS)
def test_the_limit_is_found_and_lifted_alike(name):
    limit, make = MAKERS[name]
    env = make()
    assert resolve_horizon(env, None, 1.0) == limit
    assert resolve_horizon(env, None, 0.8) == min(limit, 31)  # 0.8^31 < 0.001
    settings = dict(budget=6 * limit, gamma=1.0, seed=1)
    own = rido.evaluate(env, upright, **settings)
    assert (own.schedule.horizon, own.remarks) == (limit, ())
    longer = rido.evaluate(env, upright, **settings, horizon=limit + 100)
    (remark,) = longer.remarks
    assert remark == f"the environment's own limit of {limit} steps was lifted: the horizon is {limit + 100}"
    assert f"\n{remark}" in longer.summary() and longer.to_dict()["remarks"] == [remark]
    assert remark not in longer.warnings and longer.reproducible
    reference = rido.evaluate(CartPoleEnv, upright, **settings, horizon=limit + 100)
    assert longer.value == reference.value > limit
    assert resolve_horizon(env, None, 1.0) == limit  # the user's environment is as it was
    assert rido.evaluate(env, upright, **settings, horizon=limit + 100, end_on_truncation=True).value <= limit


def test_a_limit_in_other_processes_is_found_and_refused():
    env = vector(AsyncVectorEnv, limited)
    assert resolve_horizon(env, None, 1.0) == 50
    with pytest.raises(ValueError, match=REFUSED.format(50)):
        GymnasiumSimulator(env, upright, horizon=120)
    ended = GymnasiumSimulator(env, upright, horizon=120, end_on_truncation=True).rollout(np.array([120, 20]), [1, 2])
    assert ended.steps.tolist() == [50, 20]
    env.close()


def test_a_limit_that_is_an_argument_of_the_id_is_the_horizon():
    result = rido.evaluate(CARTPOLE, upright, env_kwargs={"max_episode_steps": 40}, budget=200, gamma=1.0, seed=1)
    assert (result.value, result.schedule.horizon) == (40, 40)


def test_an_environment_gets_its_limit_back_when_something_else_is_wrong():
    env = limited()
    with pytest.raises(ValueError, match="policy must be"):
        GymnasiumSimulator(env, 7, horizon=120)
    assert env.env._max_episode_steps == 50


def value_function(observations, steps_to_go):
    return steps_to_go * (observations[:, 0] + 1.0)


SETTINGS = dict(budget=3000, gamma=0.95, horizon=40, seed=3)


@pytest.mark.parametrize("critic", [None, value_function, "fit"])
def test_a_truncation_that_ends_is_a_termination_to_the_last_digit(critic):
    ended = rido.evaluate(Interrupted, zeros, **SETTINGS, critic=critic, end_on_truncation=True)
    expected = rido.evaluate(Mortal, zeros, **SETTINGS, critic=critic)
    assert (ended.value, ended.standard_error) == (expected.value, expected.standard_error)
    assert ended.transitions == expected.transitions and ended.trajectories == expected.trajectories
    low, high = ended.interval(0.9999)
    assert low < Mortal.expected_return(40, 0.95, 0.1) < high  # a false alarm of 1 in 10,000, at a fixed seed


def test_without_the_option_a_truncation_is_an_error_that_names_it():
    with pytest.raises(SimulationError, match=r"cut it before .*; count that as the end .* end_on_truncation=True"):
        rido.evaluate(Interrupted, zeros, **SETTINGS)


def test_workers_end_there_too():
    settings = dict(SETTINGS, end_on_truncation=True)
    alone, two = (rido.evaluate(Interrupted, zeros, **settings, workers=workers) for workers in (1, 2))
    assert (alone.value, alone.standard_error) == (two.value, two.standard_error)


def test_workers_say_what_was_lifted():
    env = partial(gym.make, CARTPOLE, max_episode_steps=50)
    lifted = rido.evaluate(env, "random", budget=600, gamma=1.0, horizon=120, seed=1, workers=2)
    assert lifted.remarks == ("the environment's own limit of 50 steps was lifted: the horizon is 120",)


def test_envpool_ends_there_too():
    needs("envpool", "envpool")
    from rido.simulators.envpool import EnvPoolSimulator

    settings = dict(horizon=300, num_envs=4)
    ended = EnvPoolSimulator("Pendulum-v1", "random", **settings, end_on_truncation=True)
    seen = ended.observe(np.full(3, 300), range(3))
    assert seen.trajectories.steps.tolist() == [200, 200, 200] and seen.terminated.all()
    assert ended.capabilities.found.remarks == ()
    lifted = EnvPoolSimulator("Pendulum-v1", "random", **settings)
    assert lifted.capabilities.found.remarks == (
        "the environment's own limit of 200 steps was lifted: the horizon is 300",
    )
    assert lifted.fingerprint != ended.fingerprint


def test_a_run_file_knows_the_setting_and_the_remarks(tmp_path):
    run, settings = tmp_path / "run.rido", dict(budget=500, gamma=1.0, horizon=120, seed=1)
    result = rido.evaluate(limited, upright, **settings, run=run)
    assert read_run(run).evaluation.remarks == result.remarks and len(result.remarks) == 1
    assert rido.evaluate(limited, upright, **settings, run=run).remarks == result.remarks
    with pytest.raises(RunFileError, match="its end_on_truncation is False, not True"):
        rido.evaluate(limited, upright, **settings, run=run, end_on_truncation=True)
    with pytest.raises(RunFileError, match="its reseed is True, not False"):
        rido.evaluate(limited, upright, **settings, run=run, reseed=False)


def test_where_it_means_nothing_it_is_refused():
    own = GymnasiumSimulator(Mortal, zeros, horizon=40)
    with pytest.raises(ValueError, match="end_on_truncation must be False with a simulator of your own, got True"):
        rido.evaluate(own, **SETTINGS, end_on_truncation=True)
    for setting in (dict(end_on_truncation=True), dict(reseed=False)):
        with pytest.raises(ValueError, match=f"{next(iter(setting))} must be .* with simulator 'jax'"):
            rido.evaluate("Pendulum-v1", zeros, **SETTINGS, simulator="jax", **setting)


def test_it_is_the_mean_reward_of_sb3():
    """Two independent estimates of episodes that a limit cuts, z-test with a false alarm of 1 in 10,000."""
    needs("stable_baselines3", "sb3")
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    class Model:
        def predict(self, observations, state=None, episode_start=None, deterministic=True):
            return zeros(observations), state

    def make():
        return TimeLimit(Interrupted(death=0.05), 30)

    env = Monitor(make())
    env.reset(seed=5)
    returns, lengths = evaluate_policy(Model(), env, n_eval_episodes=300, return_episode_rewards=True)
    ours = rido.evaluate(make, zeros, budget=6000, gamma=1.0, seed=1, end_on_truncation=True)
    assert ours.schedule.horizon == max(lengths) == 30
    error = np.hypot(np.std(returns, ddof=1) / np.sqrt(300), ours.standard_error)
    assert abs(np.mean(returns) - ours.value) < 3.9 * error
