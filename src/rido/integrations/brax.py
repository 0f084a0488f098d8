"""A drop-in for Brax's training evaluator, whose metrics come with confidence intervals; needs Brax."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from brax.training import acting
from scipy import stats

from rido.core import checks
from rido.evaluation.evaluate import evaluate
from rido.simulators.jax.envs import JaxEnv, from_brax


class Evaluator(acting.Evaluator):  # type: ignore[misc]
    """Takes the place of ``brax.training.acting.Evaluator``: the same call and the same metrics, and more.

    Each mean over episodes, such as ``eval/episode_reward``, gets an interval: ``eval/episode_reward_low`` and
    ``eval/episode_reward_high``. With ``gamma``, :func:`rido.evaluate` estimates the discounted return too, with as
    many transitions as the episodes take or ``budget``: ``eval/return``, ``eval/return_low``, ``eval/return_high`` and
    ``eval/return_transitions``. Nothing is compiled again for other parameters.

    Args:
        eval_env: environments that are wrapped for training, as Brax takes them.
        eval_policy_fn: from parameters to a policy of observations and a key, which returns actions and extras.
        num_eval_envs: episodes of an evaluation.
        episode_length: longest episode.
        action_repeat: physics steps of a step.
        key: what all randomness comes from.
        gamma: discount factor of the return; None for none.
        budget: transitions for it.
        confidence: of the intervals.
    """

    _key: Any

    def __init__(
        self,
        eval_env: Any,
        eval_policy_fn: Callable[[Any], Callable[..., Any]],
        num_eval_envs: int,
        episode_length: int,
        action_repeat: int,
        key: Any,
        *,
        gamma: float | None = None,
        budget: int | None = None,
        confidence: float = 0.95,
    ) -> None:
        super().__init__(eval_env, eval_policy_fn, num_eval_envs, episode_length, action_repeat, key)
        self._confidence = checks.probability("confidence", confidence)
        self._episodes, self._horizon = num_eval_envs, episode_length // action_repeat
        self._gamma, self._budget = gamma, budget or num_eval_envs * self._horizon
        self._env = _repeated(from_brax(eval_env.unwrapped), action_repeat)

        def act(params: Any, observation: Any, key: Any) -> Any:
            # Brax's policies take batches.
            batch = jax.tree.map(lambda array: array[None], observation)
            return jax.tree.map(lambda array: array[0], eval_policy_fn(params)(batch, key)[0])

        self._act = act

    def run_evaluation(
        self, policy_params: Any, training_metrics: Mapping[str, Any], aggregate_episodes: bool = True
    ) -> dict[str, Any]:
        """Runs one evaluation; arguments and metrics as in Brax, with the intervals."""
        metrics: dict[str, Any] = super().run_evaluation(policy_params, training_metrics, aggregate_episodes)
        if aggregate_episodes:
            width = float(stats.t.ppf((1 + self._confidence) / 2, max(1, self._episodes - 1)))
            for name in [name for name in metrics if name.startswith("eval/episode_") and f"{name}_std" in metrics]:
                # Brax's standard deviation divides by n.
                error = metrics[f"{name}_std"] / math.sqrt(max(1, self._episodes - 1))
                metrics[f"{name}_low"] = metrics[name] - width * error
                metrics[f"{name}_high"] = metrics[name] + width * error
        if self._gamma is not None:
            self._key, key = jax.random.split(self._key)
            started = time.time()
            result = evaluate(
                self._env,
                (self._act, policy_params),
                gamma=self._gamma,
                horizon=self._horizon,
                budget=self._budget,
                seed=int(np.asarray(jax.random.bits(key, dtype=jnp.uint32))),
                progress=False,
            )
            self._eval_walltime += time.time() - started
            low, high = result.interval(self._confidence)
            metrics["eval/walltime"] = self._eval_walltime
            metrics |= {"eval/return": result.value, "eval/return_low": low, "eval/return_high": high}
            metrics["eval/return_transitions"] = result.transitions
        return metrics


def _repeated(env: JaxEnv, repeat: int) -> JaxEnv:
    """Returns an environment that takes each action several times, as Brax's ``EpisodeWrapper`` does."""
    if repeat == 1:
        return env

    def step(key: Any, state: Any, action: Any) -> Any:
        def once(state: Any, _: None) -> Any:
            state, observation, reward, ended = env.step(key, state, action)
            return state, (observation, reward, ended)

        state, (observations, rewards, ended) = jax.lax.scan(once, state, None, length=repeat)
        return state, jax.tree.map(lambda array: array[-1], observations), rewards.sum(axis=0), ended[-1]

    return JaxEnv(env.name, env.reset, step, env.time_limit)
