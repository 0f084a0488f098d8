"""Compiled programs for the device: trajectories run in slots, in lockstep; a slot that is free starts the next one."""

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from rido.simulators.jax.envs import JaxEnv
from rido.simulators.jax.functions import Structure

Tree = Any

NEVER = np.int32(np.iinfo(np.int32).max)
_GENERATOR = "threefry2x32"  # not JAX's default, which users can change: its keys are the 64 bits of a seed
_MANY_LEAVES = 16  # arrays of a state above which they are packed: a call takes the longer the more arrays it has
_LEAST_DIMENSIONS = 64  # numbers that an environment's reset_from gets; those that a point has not are pseudo-random


class RolloutTask(NamedTuple):
    """What a rollout is asked for; all of it is an argument of the programs, so that these are compiled once.

    Attributes:
        policy: the policy's arrays.
        critic: the critic's arrays.
        horizon: number of time steps.
        gamma: discount factor, for the critic.
        seeds: two words for each trajectory; or four from which :func:`make_seeds` makes them.
        planned: how many trajectories take each step. Trajectories are numbered from 0, the longest first.
        points: the point of each trajectory that decides where it starts; None where its key does.

    With lanes the fields of ``_PER_LANE`` have a first axis, that of the lanes.
    """

    policy: Any
    critic: Any
    horizon: Any
    gamma: Any
    seeds: Any
    planned: Any
    points: Any = None

    def without_trajectories(self) -> "RolloutTask":
        """Returns what steps need: their programs do not depend on how many trajectories there are."""
        return self._replace(seeds=None, planned=None, points=None)


_PER_LANE = ("policy", "seeds", "planned", "points")
_AXES = RolloutTask(**{name: 0 if name in _PER_LANE else None for name in RolloutTask._fields})


class Slots(NamedTuple):
    """Trajectories that run in lockstep, one in each slot."""

    number: jax.Array  # of the trajectory
    length: jax.Array  # its planned length; 0 in a slot that never had one
    taken: jax.Array  # steps that it took
    ended: jax.Array  # whether the environment terminated it
    seeds: jax.Array  # its key, two words
    states: Tree  # packed where they are many arrays
    observations: Tree
    values: jax.Array  # the critic's value of the observation; zero without a critic

    @property
    def running(self) -> jax.Array:
        return (self.taken < self.length) & ~self.ended


class Block(NamedTuple):
    """What slots return of some steps."""

    before: Slots  # without states; with observations if asked for
    after: Slots  # without states and observations
    numbers: tuple[jax.Array, ...]  # rewards, and residuals if there is a critic; shape (steps, slots)
    seen: Tree  # observations after each step, if asked for


class Packing(NamedTuple):
    """How the arrays of a state are put into one array of each type, with a row for each slot.

    A state of a body with joints has hundreds of arrays, and handing each of them to a program takes its time.

    Attributes:
        tree: how the state is put together.
        shapes: shape of each array of one state.
        groups: indices of the arrays that are packed into one; an array by itself where there is only one.
    """

    tree: Any
    shapes: tuple[tuple[int, ...], ...]
    groups: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(state: Tree) -> "Packing":
        """Returns the packing of states with these shapes and types."""
        leaves, tree = jax.tree.flatten(state)
        kinds: dict[Any, list[int]] = {}
        for index, leaf in enumerate(leaves):
            own = len(leaves) <= _MANY_LEAVES or jnp.issubdtype(leaf.dtype, jax.dtypes.extended)
            kinds.setdefault(index if own else leaf.dtype, []).append(index)
        return Packing(tree, tuple(leaf.shape for leaf in leaves), tuple(map(tuple, kinds.values())))

    def pack(self, states: Tree) -> tuple[jax.Array, ...]:
        """Packs states that have a row for each slot."""
        leaves = jax.tree.leaves(states)

        def joined(group: tuple[int, ...]) -> jax.Array:
            if len(group) == 1:
                return leaves[group[0]]  # type: ignore[no-any-return]
            return jnp.concatenate([leaves[index].reshape(len(leaves[index]), -1) for index in group], axis=1)

        return tuple(joined(group) for group in self.groups)

    def unpack(self, packed: tuple[jax.Array, ...]) -> Tree:
        """Returns the states that :meth:`pack` packed."""
        leaves: list[Any] = [None] * len(self.shapes)
        for group, array in zip(self.groups, packed, strict=True):
            if len(group) == 1:
                leaves[group[0]] = array
                continue
            ends = np.cumsum([math.prod(self.shapes[index]) for index in group])
            for index, part in zip(group, jnp.split(array, ends[:-1], axis=1), strict=True):
                leaves[index] = part.reshape(len(array), *self.shapes[index])
        return jax.tree.unflatten(self.tree, leaves)


class Programs:
    """The programs of one kind of policy in one environment; each is compiled once for every number of slots.

    Args:
        env: the environment.
        policy: from an observation to an action, or from an observation and a parameter ``key``.
        critic: V of an observation and the steps to go, if there is one. Then each step has two numbers, the reward
            and the residual ``R_t + gamma V(s_{t+1}) - V(s_t)``; otherwise the reward alone.
        lanes: whether slots are divided into lanes, each with arrays of the policy and trajectories of its own.
    """

    def __init__(self, env: JaxEnv, policy: Structure, critic: Structure | None, *, lanes: bool = False) -> None:
        self._env, self._policy, self._critic = env, policy, critic
        self.channels = 1 if critic is None else 2
        fill, advance = self._fill, self._advance
        if lanes:
            fill = jax.vmap(fill, in_axes=(_AXES, 0, 0))
            advance = self._advance_lanes
        self.fill = jax.jit(fill, donate_argnames="slots")
        self.advance = jax.jit(advance, static_argnames=("steps", "observing"), donate_argnames="slots")
        self._shapes: Slots | None = None
        self._seen: set[tuple[int, ...]] = set()

    def start(self, task: RolloutTask, slots: int) -> tuple[Slots, jax.Array]:
        """Starts the first trajectories in so many slots; returns them and the number of the next one."""
        leaves, tree = jax.tree.flatten(self._shape(task))
        lanes = task.planned.shape[:-1]
        blank = _blank(slots=(*lanes, slots), shapes=tuple((leaf.shape[1:], leaf.dtype) for leaf in leaves))
        following = np.zeros(lanes, dtype=np.int32)
        started: tuple[Slots, jax.Array] = self.fill(task, jax.tree.unflatten(tree, blank), following)
        return started

    def size(self, task: RolloutTask) -> int:
        """Returns the bytes of a slot."""
        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(self._shape(task)))

    def is_new(self, *sizes: int) -> bool:
        """Returns whether these sizes are asked for the first time."""
        new = sizes not in self._seen
        self._seen.add(sizes)
        return new

    def may_end(self, task: RolloutTask) -> bool:
        """Returns whether the environment may terminate a trajectory; not where its program says that it never does."""
        key = _key_shape()

        def ended(key: jax.Array, state: Tree, observation: Tree, arrays: Any) -> jax.Array:
            return self._env.step(key, state, self._act(arrays, observation, key))[3]

        program = jax.make_jaxpr(ended)(key, *jax.eval_shape(self._env.reset, key), self._first_lane(task).policy).jaxpr
        needed = set(map(id, program.outvars))
        for equation in reversed(program.eqns):
            if needed & set(map(id, equation.outvars)):
                needed |= set(map(id, equation.invars))
        return bool(needed & set(map(id, program.invars)))

    def _shape(self, task: RolloutTask) -> Slots:
        """Returns the shapes of one slot; tracing is slow, and they do not change."""
        if self._shapes is None:
            self._packing = Packing.of(jax.eval_shape(self._env.reset, _key_shape())[0])
            self._shapes = jax.eval_shape(self._begin, self._first_lane(task), jnp.zeros(1, dtype=jnp.int32))
        return self._shapes

    def _first_lane(self, task: RolloutTask) -> RolloutTask:
        """Returns the task of the first lane, which is like all others; the task as it is where there are none."""
        if task.planned.ndim == 1:
            return task
        return task._replace(**{name: jax.tree.map(lambda array: array[0], getattr(task, name)) for name in _PER_LANE})

    def _begin(self, task: RolloutTask, index: jax.Array) -> Slots:
        """Starts the trajectories of these numbers."""
        seeds = make_seeds(task.seeds, index) if task.seeds.ndim == 1 else task.seeds.at[index].get(mode="clip")
        # Step t draws from the key folded with t, so the horizon itself is free for the reset.
        reset_keys = jax.vmap(lambda key: jax.random.fold_in(key, task.horizon))(_keys(seeds))
        if task.points is None:
            states, observations = jax.vmap(self._env.reset)(reset_keys)
        else:
            assert self._env.reset_from is not None
            missing = max(0, _LEAST_DIMENSIONS - task.points.shape[1])
            others = jax.vmap(lambda key: jax.random.uniform(key, (missing,), dtype=jnp.float32))(reset_keys)
            numbers = jnp.concatenate([task.points.at[index].get(mode="clip"), others], axis=1)
            states, observations = jax.vmap(self._env.reset_from)(numbers)
        length = jnp.searchsorted(-task.planned, -index, method="scan_unrolled").astype(jnp.int32)
        taken = jnp.zeros_like(index)
        values = self._value(task, observations, taken)
        return Slots(index, length, taken, taken > 0, seeds, self._packing.pack(states), observations, values)

    def _fill(self, task: RolloutTask, slots: Slots, following: jax.Array) -> tuple[Slots, jax.Array]:
        """Starts the next trajectories in free slots; returns all and the number of the next."""
        free = ~slots.running
        number = jnp.where(free, following + jnp.cumsum(free, dtype=jnp.int32) - 1, slots.number)
        # Slots that get no trajectory at the beginning have a real state all the same: others may be slow to step.
        filled = free & ((number < task.planned[0]) | (following == 0))
        started = self._begin(task, number)
        slots = jax.tree.map(lambda new, old: _where(filled, new, old), started, slots)
        return slots, following + jnp.sum(filled, dtype=jnp.int32)

    def _advance(
        self, task: RolloutTask, slots: Slots, steps: int, observing: bool = False
    ) -> tuple[Slots, Block, jax.Array]:
        """Takes some steps in all slots; returns them, what came of it, and how many still run."""

        def step(slots: Slots, _: None) -> tuple[Slots, Any]:
            return self._step(task, slots, observing)

        unpacked = slots._replace(states=self._packing.unpack(slots.states))
        after, (numbers, seen) = jax.lax.scan(step, unpacked, None, length=steps)
        after = after._replace(states=self._packing.pack(after.states))
        before = slots._replace(states=None, observations=slots.observations if observing else None)
        block = Block(before, after._replace(states=None, observations=None), numbers, seen)
        return after, block, jnp.sum(after.running, dtype=jnp.int32)

    def _advance_lanes(self, task: RolloutTask, slots: Slots, steps: int, observing: bool = False) -> Any:
        def advance(task: RolloutTask, slots: Slots) -> Any:
            return self._advance(task, slots, steps, observing)

        return jax.vmap(advance, in_axes=(_AXES, 0))(task, slots)

    def _step(self, task: RolloutTask, slots: Slots, observing: bool) -> tuple[Slots, Any]:
        running = slots.running
        both = jax.vmap(lambda key, t: jax.random.split(jax.random.fold_in(key, t)))(_keys(slots.seeds), slots.taken)
        actions = jax.vmap(functools.partial(self._act, task.policy))(slots.observations, both[:, 0])
        moved, seen, rewards, ended = jax.vmap(self._env.step)(both[:, 1], slots.states, actions)
        ended = ended.astype(jnp.bool_)
        numbers: tuple[jax.Array, ...] = (jnp.where(running, rewards, 0.0).astype(jnp.float32),)
        later = slots.values
        if self._critic is not None:
            later = jnp.where(ended, 0.0, self._value(task, seen, slots.taken + 1))
            residual = numbers[0] + jnp.float32(task.gamma) * later - slots.values
            numbers = (*numbers, jnp.where(running, residual, 0.0))
        # A scan needs states of one type; an environment may turn an integer into a float on the way.
        moved, seen = jax.tree.map(
            lambda new, old: new.astype(old.dtype), (moved, seen), (slots.states, slots.observations)
        )
        taken, over = slots.taken + running.astype(jnp.int32), slots.ended | (running & ended)
        slots = slots._replace(taken=taken, ended=over, states=moved, observations=seen, values=later)
        return slots, (numbers, seen if observing else None)

    def _act(self, arrays: Any, observation: Tree, key: jax.Array) -> Tree:
        policy = self._policy.bind(arrays)
        try:
            return policy(observation, key=key) if self._policy.draws else policy(observation)
        except Exception as error:
            found = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise ValueError(f"policy must be written with jax.numpy, but it raised {found}") from error

    def _value(self, task: RolloutTask, observations: Tree, taken: jax.Array) -> jax.Array:
        """Returns the critic's values after some steps, zero at the horizon."""
        if self._critic is None:
            return zeros(*taken.shape)
        to_go = task.horizon - taken
        values = jax.vmap(self._critic.bind(task.critic))(observations, jnp.maximum(to_go, 1))
        return jnp.where(to_go > 0, values.reshape(taken.shape).astype(jnp.float32), 0.0)


@functools.partial(jax.jit, static_argnames=("slots", "shapes"))
def _blank(slots: tuple[int, ...], shapes: tuple[Any, ...]) -> tuple[jax.Array, ...]:
    """Returns slots of these shapes that never had a trajectory."""
    return tuple(jnp.zeros((*slots, *shape), dtype) for shape, dtype in shapes)


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


def seed_words(source: np.random.SeedSequence, index: int, stride: int = 1) -> NDArray[np.uint32]:
    """Returns the words from which :func:`make_seeds` makes seeds, from an index on and by a stride."""
    high, low = divmod(index, 1 << 31)  # so that no sum of a word and a row overflows
    if high:
        source = np.random.SeedSequence(source.entropy, spawn_key=(*source.spawn_key, 0, high))
    return np.array([*source.generate_state(2, np.uint32), low, stride], dtype=np.uint32)


@jax.jit
def make_seeds(words: jax.Array, index: jax.Array) -> jax.Array:
    """Returns two words for each trajectory, which do not repeat: folding in is a permutation of 64 bits."""
    base = jax.random.fold_in(jax.random.key(words[0], impl=_GENERATOR), words[1])
    keys = jax.vmap(lambda i: jax.random.fold_in(base, i))(words[2] + words[3] * index.astype(jnp.uint32))
    return jax.random.key_data(keys)


def _key_shape() -> Any:
    """Returns the shape of a key, for which nothing is compiled."""
    return jax.eval_shape(functools.partial(jax.random.key, impl=_GENERATOR), 0)


def _keys(words: jax.Array) -> jax.Array:
    keys: jax.Array = jax.random.wrap_key_data(words, impl=_GENERATOR)
    return keys


def _where(mask: jax.Array, new: jax.Array, old: jax.Array) -> jax.Array:
    """Selects rows."""
    return jnp.where(mask.reshape(mask.shape + (1,) * (new.ndim - 1)), new, old.astype(new.dtype))
