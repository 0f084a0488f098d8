"""The evaluator for Brax's training against Brax's own."""

import numpy as np
import pytest

pytest.importorskip("brax", reason="brax is missing: see the dependency group test")

import jax
import jax.numpy as jnp
from brax import envs
from brax.training import acting

from rido.integrations.brax import Evaluator

SETTINGS = dict(num_eval_envs=32, episode_length=24, action_repeat=2, key=jax.random.PRNGKey(1))


def make_policy(params):
    return lambda observations, key: (jnp.tanh(observations @ params), {})


def test_metrics_are_brax_own_with_intervals_and_the_return():
    """The discounted return with gamma 1 is the mean episode reward: within 4.5 standard errors."""
    env = envs.training.wrap(envs.get_environment("fast"), episode_length=24, action_repeat=2)
    params = jnp.zeros((env.observation_size, env.action_size))
    theirs = acting.Evaluator(env, make_policy, **SETTINGS).run_evaluation(params, {"training/loss": 1.0})
    ours = Evaluator(env, make_policy, **SETTINGS, gamma=1.0, budget=400).run_evaluation(params, {"training/loss": 1.0})
    timed = {"eval/walltime", "eval/epoch_eval_time", "eval/sps"}
    assert set(theirs) <= set(ours)
    assert {name: ours[name] for name in theirs if name not in timed} == {
        name: value for name, value in theirs.items() if name not in timed
    }
    assert ours["eval/episode_reward_low"] <= ours["eval/episode_reward"] <= ours["eval/episode_reward_high"]
    assert ours["eval/return_low"] <= ours["eval/return"] <= ours["eval/return_high"]
    error = (ours["eval/return_high"] - ours["eval/return_low"]) / 4 + 1e-4
    assert abs(ours["eval/return"] - ours["eval/episode_reward"]) < 4.5 * np.hypot(
        error, ours["eval/episode_reward_std"] / np.sqrt(32)
    )
    assert 0 < ours["eval/return_transitions"] <= 400
