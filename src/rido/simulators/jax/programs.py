"""What runs on the device: trajectories in lockstep, some steps at a time, and the sums over them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from rido.simulators.jax.envs import JaxEnv

Tree = Any
Tables = dict[str, jax.Array]

NUMBERS = ("centre", "sums", "products")
"""What is summed up, in the order in which it travels."""

ENDLESS = np.int32(np.iinfo(np.int32).max)
"""Steps that a trajectory lived which did not end."""

_GENERATOR = "threefry2x32"  # whatever JAX was told to use: its keys are the 64 bits of a seed
_PRECISION = jax.lax.Precision.HIGHEST  # of sums; rounding them to fewer digits would bias them


class Programs:
    """The compiled parts of rollouts of one policy in one environment.

    Trajectories are carried on as their keys, states, observations, the steps that they lived (or a very large number),
    and the critic's values. Each part is compiled once for every number of rows that it is called with.

    Args:
        env: the environment.
        policy: from an observation to an action, or from an observation and a parameter ``key``.
        critic: V of an observation and the steps to go, if there is one. Then there are two channels of numbers that
            are summed, the rewards and the critic's signal ``R_t + gamma V(s_{t+1}) - V(s_t)``.
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
        self._horizon, self._gamma, self._steps = horizon, gamma, steps
        self.channels = 1 if critic is None else 2
        self.width = -(-horizon // steps) * steps
        self.seeds = jax.jit(_seeds, static_argnames="count")
        self.start = jax.jit(self._start)
        self.advance = jax.jit(self._advance, static_argnames="observing")
        self.open = jax.jit(self._open)
        self.begin = jax.jit(self._begin, static_argnames="rows")
        self.summarise = jax.jit(self._summarise, static_argnames="blocks", donate_argnames=("work", "tables"))
        self.shrink = jax.jit(self._shrink, static_argnames="rows")
        self.close = jax.jit(self._close)

    def _open(self, planned: jax.Array, centre: jax.Array | None) -> Tables:
        """Returns the sums over no trajectory; see :class:`rido.core.summaries.Summary`.

        Args:
            planned: how many trajectories are planned to take each step, the longest first.
            centre: what is to be subtracted; if not given, the means of the first trajectories.
        """
        channels, width = self.channels, self.width
        return {
            "planned": planned,
            "fresh": jnp.bool_(centre is None),
            "taken": jnp.zeros(width, dtype=jnp.int32),
            "centre": _zeros(channels, width) if centre is None else centre,
            "sums": _zeros(channels, width, width),
            "products": _zeros(channels, width, width),
        }

    def _close(self, tables: Tables) -> tuple[jax.Array, jax.Array]:
        """Returns what is to travel, in two arrays because each takes its time: whole numbers, channels of others."""
        channels = [tables[name].reshape(self.channels, -1) for name in NUMBERS]
        return tables["taken"], jnp.concatenate(channels, axis=1)

    def _begin(self, source: jax.Array, row: jax.Array, rows: int) -> tuple[Tree, Tree]:
        """Starts trajectories; returns them, and the place of their numbers.

        Args:
            source: what their seeds come from, as in :func:`seed_words`.
            row: of the first trajectory in the schedule.
            rows: number of trajectories.
        """
        carry = self._start(_seeds(source, rows))
        return carry, (_zeros(self.channels, self.width, rows), row, jnp.int32(0))

    def _start(self, seeds: jax.Array) -> Tree:
        """Starts trajectories from seeds, two words each: the whole key of a trajectory."""
        keys = jax.random.wrap_key_data(seeds, impl=_GENERATOR)
        states, observations = jax.vmap(self._env.reset)(
            jax.vmap(lambda key: jax.random.fold_in(key, self._horizon))(keys)
        )
        return keys, states, observations, jnp.full(keys.shape, ENDLESS), self._value(observations, keys, 0)

    def _value(self, observations: Tree, keys: jax.Array, taken: Any) -> jax.Array:
        """Returns the critic's values after some steps, zero where there are none to go."""
        if self._critic is None:
            return _zeros(*keys.shape)
        to_go = self._horizon - jnp.asarray(taken)
        values = jax.vmap(self._critic, in_axes=(0, None))(observations, jnp.maximum(to_go, 1))
        return jnp.where(to_go > 0, values.reshape(keys.shape).astype(jnp.float32), 0.0)

    def _step(self, observing: bool, carry: Tree, t: jax.Array) -> tuple[Tree, Any]:
        keys, states, observations, lived, values = carry
        alive = t < lived
        both = jax.vmap(lambda key: jax.random.split(jax.random.fold_in(key, t)))(keys)
        actions = jax.vmap(self._act)(observations, both[:, 0])
        moved, seen, rewards, ended = jax.vmap(self._env.step)(both[:, 1], states, actions)
        numbers = [jnp.where(alive, rewards, 0.0).astype(jnp.float32)]
        later = values
        if self._critic is not None:
            later = jnp.where(ended.astype(jnp.bool_), 0.0, self._value(seen, keys, t + 1))
            numbers.append(jnp.where(alive, numbers[0] + self._gamma * later - values, 0.0))
        # Loops need states of one type; environments may turn an integer into a float on the way.
        moved, seen = jax.tree.map(lambda new, old: new.astype(old.dtype), (moved, seen), (states, observations))
        lived = jnp.where(alive & ended.astype(jnp.bool_), t + 1, lived).astype(lived.dtype)
        return (keys, moved, seen, lived, later), (jnp.stack(numbers), seen if observing else None)

    def _act(self, observation: Tree, key: jax.Array) -> Tree:
        return self._policy(observation, key=key) if self._draws else self._policy(observation)

    def _advance(self, carry: Tree, first: jax.Array, observing: bool) -> tuple[Tree, Any]:
        """Takes some steps; returns rewards, steps lived, and what was observed after each step if that is asked."""
        carry, (numbers, seen) = self._scan(carry, first, observing)
        return carry, (numbers[:, 0], carry[3], seen)

    def _scan(self, carry: Tree, first: jax.Array, observing: bool = False) -> tuple[Tree, Any]:
        step = functools.partial(self._step, observing)
        carry, out = jax.lax.scan(step, carry, first + jnp.arange(self._steps))
        return carry, out

    def _shrink(self, carry: Tree, work: Tree, rows: int) -> tuple[Tree, Tree]:
        """Keeps the first rows only."""
        kept = jax.tree.map(lambda array: array[:rows], carry)
        return kept, None if work is None else (work[0][..., :rows], *work[1:])

    def _summarise(self, carry: Tree, work: Tree, tables: Tables, blocks: int) -> tuple[Tree, Tree, Tables]:
        """Takes some blocks of steps and adds them to the sums.

        Args:
            carry: the trajectories, of which no later one is longer.
            work: the numbers of their steps before, less the centre; how many trajectories of the schedule come before
                them; and the step at which they are.
            tables: the sums.
            blocks: how many blocks.
        """
        if blocks == 1:
            return self._summarise_block(carry, work, tables)
        (carry, work, tables), _ = jax.lax.scan(
            lambda state, _: (self._summarise_block(*state), None), (carry, work, tables), length=blocks
        )
        return carry, work, tables

    def _summarise_block(self, carry: Tree, work: Tree, tables: Tables) -> tuple[Tree, Tree, Tables]:
        buffer, row, first = work
        carry, (numbers, _) = self._scan(carry, first)
        numbers = jnp.moveaxis(numbers, 1, 0)  # channels, steps, rows
        alive = (first + jnp.arange(self._steps))[:, None] < carry[3]
        here = functools.partial(jax.lax.dynamic_slice_in_dim, start_index=first, slice_size=self._steps, axis=-1)
        put = functools.partial(jax.lax.dynamic_update_slice_in_dim, start_index=first, axis=-1)
        due = row + jnp.arange(alive.shape[1]) < here(tables["planned"])[:, None]
        means = jnp.sum(numbers, axis=2, where=due) / jnp.maximum(jnp.sum(due, axis=1), 1)
        centre = jnp.where(tables["fresh"] & (row == 0), means, here(tables["centre"]))
        deviations = jnp.where(due, numbers - centre[:, :, None], 0.0)
        buffer = jax.lax.dynamic_update_slice_in_dim(buffer, deviations, first, axis=1)
        # Both tables in one pass over the buffer. Rows of steps to come are below the diagonal, where nobody looks.
        others = jnp.concatenate([deviations, jnp.broadcast_to(due, deviations.shape).astype(jnp.float32)], axis=1)
        both = jnp.einsum("ctr,cur->ctu", buffer, others, precision=_PRECISION)
        added = {
            "taken": jnp.sum(alive & due, axis=1, dtype=jnp.int32),
            "products": both[..., : self._steps],
            "sums": both[..., self._steps :],
        }
        changed = {name: put(tables[name], here(tables[name]) + part) for name, part in added.items()}
        tables = {**tables, **changed, "centre": put(tables["centre"], centre)}
        return carry, (buffer, row, first + self._steps), tables


def _zeros(*shape: int) -> jax.Array:
    """Returns zeros of single precision, also where JAX was told to use double."""
    return jnp.zeros(shape, dtype=jnp.float32)


def split_seeds(seeds: Sequence[int]) -> NDArray[np.uint32]:
    """Returns two words for each seed, the upper one first, as ``jax.random.key`` takes it."""
    wide = np.asarray(seeds, dtype=np.uint64)
    return np.stack([wide >> np.uint64(32), wide & np.uint64(0xFFFFFFFF)], axis=1).astype(np.uint32)


def join_seeds(words: NDArray[np.uint32]) -> list[int]:
    """Returns the seeds of which these are the words."""
    upper, lower = words.astype(np.uint64).T
    seeds: list[int] = (upper << np.uint64(32) | lower).tolist()
    return seeds


def seed_words(source: np.random.SeedSequence, index: int) -> NDArray[np.uint32]:
    """Returns what the seeds of trajectories come from, starting with that of an index."""
    high, low = divmod(index, 1 << 31)  # so that no sum of a word and a row overflows
    if high:
        source = np.random.SeedSequence(source.entropy, spawn_key=(*source.spawn_key, 0, high))
    return np.array([*source.generate_state(2, np.uint32), low], dtype=np.uint32)


def _seeds(source: jax.Array, count: int) -> jax.Array:
    """Returns two words for each trajectory, which do not repeat: folding in is a permutation of 64 bits."""
    base = jax.random.fold_in(jax.random.key(source[0], impl=_GENERATOR), source[1])
    keys = jax.vmap(lambda i: jax.random.fold_in(base, i))(source[2] + jnp.arange(count, dtype=jnp.uint32))
    return jax.random.key_data(keys)
