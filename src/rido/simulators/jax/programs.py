"""Compiled programs for the device: start trajectories, and run them in lockstep for some steps."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from rido.simulators.jax.envs import JaxEnv

Tree = Any

_NEVER = np.int32(np.iinfo(np.int32).max)
_GENERATOR = "threefry2x32"  # not JAX's default, which users can change: its keys are the 64 bits of a seed
_LEAST_DIMENSIONS = 64  # numbers that an environment's reset_from gets; those that a point has not are pseudo-random


class Batch(NamedTuple):
    """Trajectories that run in lockstep, one in each row."""

    keys: jax.Array
    states: Tree
    observations: Tree
    ends: jax.Array  # steps after which the environment terminated; a very large number if it did not
    values: jax.Array  # the critic's values of the observations; zero without a critic


class Programs:
    """The compiled programs of one policy in one environment; each is compiled once for every number of rows.

    Args:
        env: the environment.
        policy: from an observation to an action, or from an observation and a parameter ``key``.
        critic: V of an observation and the steps to go, if there is one. Then each step has two channels of numbers,
            the reward and the residual ``R_t + gamma V(s_{t+1}) - V(s_t)``; otherwise the reward alone.
        horizon: number of time steps.
        gamma: discount factor, for the critic.
        steps: time steps in one call.
    """

    def __init__(
        self,
        env: JaxEnv,
        policy: Callable[..., Any],
        critic: Callable[[Any, Any], Any] | None,
        *,
        horizon: int,
        gamma: float,
        steps: int,
    ) -> None:
        self._env, self._policy, self._critic = env, policy, critic
        self._draws = "key" in inspect.signature(policy).parameters
        self.horizon, self._gamma, self.steps = horizon, gamma, steps
        self.channels = 1 if critic is None else 2
        self.width = -(-horizon // steps) * steps
        self.seeds = jax.jit(_seeds, static_argnames="count")
        self.start = jax.jit(self._start)
        self.advance = jax.jit(self._advance, static_argnames="observing")
        self.shrink = jax.jit(lambda tree, rows: jax.tree.map(lambda array: array[:rows], tree), static_argnames="rows")

    def _start(self, seeds: jax.Array, points: jax.Array | None = None) -> Batch:
        """Starts trajectories from seeds, two words each: the whole key of a trajectory; or where points decide."""
        keys = jax.random.wrap_key_data(seeds, impl=_GENERATOR)
        # Step t draws from the key folded with t, so the horizon itself is free for the reset.
        reset_keys = jax.vmap(lambda key: jax.random.fold_in(key, self.horizon))(keys)
        if points is None:
            states, observations = jax.vmap(self._env.reset)(reset_keys)
        else:
            assert self._env.reset_from is not None
            missing = max(0, _LEAST_DIMENSIONS - points.shape[1])
            others = jax.vmap(lambda key: jax.random.uniform(key, (missing,), dtype=jnp.float32))(reset_keys)
            states, observations = jax.vmap(self._env.reset_from)(jnp.concatenate([points, others], axis=1))
        return Batch(keys, states, observations, jnp.full(keys.shape, _NEVER), self._value(observations, keys, 0))

    def _value(self, observations: Tree, keys: jax.Array, taken: Any) -> jax.Array:
        """Returns the critic's values after some steps, zero at the horizon."""
        if self._critic is None:
            return zeros(*keys.shape)
        to_go = self.horizon - jnp.asarray(taken)
        values = jax.vmap(self._critic, in_axes=(0, None))(observations, jnp.maximum(to_go, 1))
        return jnp.where(to_go > 0, values.reshape(keys.shape).astype(jnp.float32), 0.0)

    def _advance(self, batch: Batch, first: jax.Array, observing: bool) -> tuple[Batch, Any]:
        """Takes some steps; returns rewards, ends, and the observations after each step if asked for."""
        batch, (numbers, seen) = self._scan(batch, first, observing)
        return batch, (numbers[:, 0], batch.ends, seen)

    def _scan(self, batch: Batch, first: jax.Array, observing: bool = False) -> tuple[Batch, Any]:
        step = functools.partial(self._step, observing)
        batch, out = jax.lax.scan(step, batch, first + jnp.arange(self.steps))
        return batch, out

    def _step(self, observing: bool, batch: Batch, t: jax.Array) -> tuple[Batch, Any]:
        keys, states, observations, ends, values = batch
        alive = t < ends
        both = jax.vmap(lambda key: jax.random.split(jax.random.fold_in(key, t)))(keys)
        actions = jax.vmap(self._act)(observations, both[:, 0])
        moved, seen, rewards, ended = jax.vmap(self._env.step)(both[:, 1], states, actions)
        numbers = [jnp.where(alive, rewards, 0.0).astype(jnp.float32)]
        later = values
        if self._critic is not None:
            later = jnp.where(ended.astype(jnp.bool_), 0.0, self._value(seen, keys, t + 1))
            numbers.append(jnp.where(alive, numbers[0] + self._gamma * later - values, 0.0))
        # A scan needs states of one type; an environment may turn an integer into a float on the way.
        moved, seen = jax.tree.map(lambda new, old: new.astype(old.dtype), (moved, seen), (states, observations))
        ends = jnp.where(alive & ended.astype(jnp.bool_), t + 1, ends).astype(ends.dtype)
        return Batch(keys, moved, seen, ends, later), (jnp.stack(numbers), seen if observing else None)

    def _act(self, observation: Tree, key: jax.Array) -> Tree:
        return self._policy(observation, key=key) if self._draws else self._policy(observation)


def zeros(*shape: int) -> jax.Array:
    """Returns zeros of single precision, also where JAX was told to use double."""
    return jnp.zeros(shape, dtype=jnp.float32)


def split_seeds(seeds: Sequence[int]) -> NDArray[np.uint32]:
    """Returns two words for each seed, the upper one first, as ``jax.random.key`` takes it."""
    wide = np.asarray(seeds, dtype=np.uint64)
    return np.stack([wide >> np.uint64(32), wide & np.uint64(0xFFFFFFFF)], axis=1).astype(np.uint32)


def round_points(points: NDArray[np.float64]) -> NDArray[np.float32]:
    """Returns points in single precision, in which all coordinates are less than 1 too."""
    return np.minimum(points.astype(np.float32), np.nextafter(np.float32(1), np.float32(0)))


def join_seeds(words: NDArray[np.uint32]) -> list[int]:
    """Returns the seeds that :func:`split_seeds` split."""
    upper, lower = words.astype(np.uint64).T
    seeds: list[int] = (upper << np.uint64(32) | lower).tolist()
    return seeds


def seed_words(source: np.random.SeedSequence, index: int) -> NDArray[np.uint32]:
    """Returns the words from which :attr:`Programs.seeds` makes the seeds of trajectories from an index on."""
    high, low = divmod(index, 1 << 31)  # so that no sum of a word and a row overflows
    if high:
        source = np.random.SeedSequence(source.entropy, spawn_key=(*source.spawn_key, 0, high))
    return np.array([*source.generate_state(2, np.uint32), low], dtype=np.uint32)


def _seeds(words: jax.Array, count: int) -> jax.Array:
    """Returns two words for each trajectory, which do not repeat: folding in is a permutation of 64 bits."""
    base = jax.random.fold_in(jax.random.key(words[0], impl=_GENERATOR), words[1])
    keys = jax.vmap(lambda i: jax.random.fold_in(base, i))(words[2] + jnp.arange(count, dtype=jnp.uint32))
    return jax.random.key_data(keys)
