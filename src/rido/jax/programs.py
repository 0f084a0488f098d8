"""What runs on the device: trajectories in lockstep, some steps at a time, and the sums over them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from rido.jax.envs import JaxEnv

Tree = Any
Tables = dict[str, jax.Array]

_UNROLL = 1  # steps of one turn of the device's loop


class Programs:
    """The compiled parts of rollouts of one policy in one environment.

    Trajectories are carried on as their keys, states, observations, whether they live, and the critic's values. Each
    part is compiled once for every number of rows that it is called with.

    Args:
        env: the environment.
        policy: from an observation and a key to an action.
        critic: V of an observation and the steps to go, if there is one. Then there are two channels of numbers that are
            summed, the rewards and the critic's signal ``R_t + gamma V(s_{t+1}) - V(s_t)``.
        horizon: number of time steps.
        gamma: discount factor, for the critic.
        steps: time steps in one call.
    """

    def __init__(
        self,
        env: JaxEnv,
        policy: Callable[[Any, Any], Any],
        critic: Callable[[Any, Any], Any] | None,
        *,
        horizon: int,
        gamma: float,
        steps: int,
    ) -> None:
        self._env, self._policy, self._critic = env, policy, critic
        self._horizon, self._gamma, self._steps = horizon, gamma, steps
        self.channels = 1 if critic is None else 2
        self.width = -(-horizon // steps) * steps
        self.start = jax.jit(self._start)
        self.advance = jax.jit(self._advance, static_argnames="observing")
        self.summarise = jax.jit(self._summarise, donate_argnames=("buffer", "tables"))
        self.shrink = jax.jit(self._shrink, static_argnames="rows")

    def tables(self) -> Tables:
        """Returns the sums over no trajectory; see :class:`rido.summaries.Summary`."""
        channels, width = self.channels, self.width
        return {
            "taken": jnp.zeros(width, dtype=jnp.int32),
            "centre": jnp.zeros((channels, width)),
            "sums": jnp.zeros((channels, width, width)),
            "products": jnp.zeros((channels, width, width)),
            "cubes": jnp.zeros((channels, width)),
            "fourths": jnp.zeros((channels, width)),
        }

    def buffer(self, rows: int) -> jax.Array:
        """Returns room for what is summed of some trajectories."""
        return jnp.zeros((self.channels, self.width, rows))

    def _start(self, seeds: jax.Array) -> Tree:
        keys = jax.vmap(jax.random.key)(seeds)
        states, observations = jax.vmap(self._env.reset)(
            jax.vmap(lambda key: jax.random.fold_in(key, self._horizon))(keys)
        )
        return keys, states, observations, jnp.ones(seeds.shape, dtype=jnp.bool_), self._value(observations, keys, 0)

    def _value(self, observations: Tree, keys: jax.Array, taken: Any) -> jax.Array:
        """Returns the critic's values after some steps, zero where there are none to go."""
        if self._critic is None:
            return jnp.zeros(keys.shape)
        to_go = self._horizon - jnp.asarray(taken)
        values = jax.vmap(self._critic, in_axes=(0, None))(observations, jnp.maximum(to_go, 1))
        return jnp.where(to_go > 0, values.reshape(keys.shape).astype(jnp.float32), 0.0)

    def _step(self, observing: bool, carry: Tree, t: jax.Array) -> tuple[Tree, Any]:
        keys, states, observations, alive, values = carry
        both = jax.vmap(lambda key: jax.random.split(jax.random.fold_in(key, t)))(keys)
        actions = jax.vmap(self._policy)(observations, both[:, 0])
        moved, seen, rewards, ended = jax.vmap(self._env.step)(both[:, 1], states, actions)
        ended = ended.astype(jnp.bool_)
        numbers = [jnp.where(alive, rewards, 0.0).astype(jnp.float32)]
        later = values
        if self._critic is not None:
            later = jnp.where(ended, 0.0, self._value(seen, keys, t + 1))
            numbers.append(jnp.where(alive, numbers[0] + self._gamma * later - values, 0.0))
        # Loops need states of one type; environments may turn an integer into a float on the way.
        moved, seen = jax.tree.map(lambda new, old: new.astype(old.dtype), (moved, seen), (states, observations))
        out = (jnp.stack(numbers), alive, alive & ended, *([seen] if observing else []))
        return (keys, moved, seen, alive & ~ended, later), out

    def _advance(self, carry: Tree, first: jax.Array, observing: bool) -> tuple[Tree, Any]:
        """Takes some steps; returns rewards, whether each trajectory ended, and what was observed if that is asked."""
        carry, (numbers, _, ended, *seen) = self._scan(carry, first, observing)
        return carry, (numbers[:, 0], ended, *seen)

    def _scan(self, carry: Tree, first: jax.Array, observing: bool = False) -> tuple[Tree, Any]:
        step = functools.partial(self._step, observing)
        return jax.lax.scan(step, carry, first + jnp.arange(self._steps), unroll=_UNROLL)

    def _shrink(self, carry: Tree, buffer: jax.Array | None, rows: int) -> tuple[Tree, jax.Array | None]:
        """Keeps the first rows only."""
        kept = jax.tree.map(lambda array: array[:rows], carry)
        return kept, None if buffer is None else buffer[..., :rows]

    def _summarise(
        self,
        carry: Tree,
        buffer: jax.Array,
        tables: Tables,
        first: jax.Array,
        row: jax.Array,
        planned: jax.Array,
        fresh: jax.Array,
    ) -> tuple[Tree, jax.Array, Tables]:
        """Takes some steps and adds them to the sums.

        Args:
            carry: the trajectories, of which no later one is longer.
            buffer: the numbers of their steps before, less the centre.
            tables: the sums.
            first: the first of the steps.
            row: how many trajectories come before these.
            planned: how many trajectories are planned to take each step.
            fresh: whether the centre is to be taken from these trajectories.
        """
        carry, (numbers, alive, _) = self._scan(carry, first)
        numbers = jnp.moveaxis(numbers, 1, 0)  # channels, steps, rows
        here = functools.partial(jax.lax.dynamic_slice_in_dim, start_index=first, slice_size=self._steps, axis=-1)
        put = functools.partial(jax.lax.dynamic_update_slice_in_dim, start_index=first, axis=-1)
        due = row + jnp.arange(alive.shape[1]) < here(planned)[:, None]
        means = jnp.sum(numbers, axis=2, where=due) / jnp.maximum(jnp.sum(due, axis=1), 1)
        centre = jnp.where(fresh, means, here(tables["centre"]))
        deviations = jnp.where(due, numbers - centre[:, :, None], 0.0)
        buffer = jax.lax.dynamic_update_slice_in_dim(buffer, deviations, first, axis=1)
        # Both tables in one pass over the buffer. Rows of steps to come are below the diagonal, where nobody looks.
        others = jnp.concatenate([deviations, jnp.broadcast_to(due, deviations.shape).astype(jnp.float32)], axis=1)
        both = jnp.einsum("ctr,cur->ctu", buffer, others, precision=jax.lax.Precision.HIGHEST)
        added = {
            "taken": jnp.sum(alive & due, axis=1, dtype=jnp.int32),
            "products": both[..., : self._steps],
            "sums": both[..., self._steps :],
            "cubes": jnp.sum(deviations**3, axis=2),
            "fourths": jnp.sum(deviations**4, axis=2),
        }
        tables = {"centre": put(tables["centre"], centre)} | {
            name: put(tables[name], here(tables[name]) + part) for name, part in added.items()
        }
        return carry, buffer, tables
