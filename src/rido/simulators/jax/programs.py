"""Compiled programs for the device: trajectories run in slots, in lockstep; a slot that is free starts the next one."""

import functools
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rido.simulators.jax.device import Counts, Device, room
from rido.simulators.jax.envs import JaxEnv
from rido.simulators.jax.functions import Structure
from rido.simulators.jax.seeds import keys_of, make_seeds

Tree = Any

NEVER = np.int32(np.iinfo(np.int32).max)
_LEAST_DIMENSIONS = 64  # numbers that an environment's reset_from gets; those that a point has not are pseudo-random
_FREE = 32  # slots are filled again when one of this many is free
_CELLS = 1 << 18  # rewards that there is room for at least, in all lanes together
_OBSERVED_BYTES = 1 << 26  # of observations that there is room for at least
_PER_TRAJECTORY = 4  # rewards that there is room for, over trajectories


class RolloutTask(NamedTuple):
    """What a rollout is asked for; all of it is an argument of the programs, so that these are compiled once.

    The device's slots are divided into lanes, each with its policy and trajectories: the first axis of all fields but
    critic, horizon and gamma.

    Attributes:
        policy: the policy's arrays.
        critic: the critic's arrays.
        horizon: number of time steps.
        gamma: discount factor, for the critic.
        seeds: two words for each trajectory; or four from which :func:`make_seeds` makes them.
        planned: how many trajectories take each step. Trajectories are numbered from 0, the longest first.
        points: the point of each trajectory that decides where it starts; None where its key does.
    """

    policy: Any
    critic: Any
    horizon: Any
    gamma: Any
    seeds: Any
    planned: Any
    points: Any = None


_AXES = RolloutTask(policy=0, critic=None, horizon=None, gamma=None, seeds=0, planned=0, points=0)


class Slots(NamedTuple):
    """Trajectories that run in lockstep, one in each slot."""

    number: jax.Array  # of the trajectory
    length: jax.Array  # its planned length; 0 in a slot without one
    taken: jax.Array  # steps that it took
    ended: jax.Array  # whether the environment terminated it
    place: jax.Array  # of its first reward in the record
    seeds: jax.Array  # its key, two words
    states: Tree
    observations: Tree
    values: jax.Array  # the critic's value of the observation; zero without a critic

    @property
    def running(self) -> jax.Array:
        return (self.taken < self.length) & ~self.ended


class Record(NamedTuple):
    """What trajectories returned, groups of them one after the other, the longest first. The first axis is the lane's.

    The rewards of a group are side by side for each step.
    """

    numbers: tuple[jax.Array, ...]  # rewards, and residuals if there is a critic
    ends: jax.Array  # steps after which the environment terminated each trajectory; a very large number if it did not
    values: jax.Array | None  # the critic's values of first observations, if there is a critic
    first: Tree  # first observations, if asked for
    seen: Tree  # observations after each step, if asked for


class Programs:
    """The programs of one kind of policy in one environment; each is compiled once for every number of slots.

    With a critic, V of an observation and the steps to go, each step has two numbers: the reward and the residual
    ``R_t + gamma V(s_{t+1}) - V(s_t)``.
    """

    def __init__(self, env: JaxEnv, policy: Structure, critic: Structure | None) -> None:
        self._env, self._policy, self._critic = env, policy, critic
        self.channels = 1 if critic is None else 2
        self.start = jax.jit(self._start, static_argnames="slots")
        self._run = jax.jit(self._run_blocks, static_argnames=("steps", "group"), donate_argnames=("slots", "record"))
        self._shapes: Slots | None = None

    def roll_out(self, device: Device, task: RolloutTask, *, observing: bool = False, total: int = 0) -> Record:
        """Runs the trajectories that a task plans, of ``total`` transitions; their record stays on the device."""
        planned: Counts = np.asarray(task.planned).max(axis=0)
        lanes, horizon = task.planned.shape
        shapes = self._slot(task)
        size = _bytes(shapes)
        sizes = device.slots(planned, size, -(-total // horizon))
        least = min(_CELLS, _OBSERVED_BYTES // _bytes(shapes.observations)) if observing else _CELLS
        needed = device.group * int((-(-planned // device.group)).sum())
        cells = room(max(needed, total), 1 << max(10, (least // lanes).bit_length() - 1))
        trajectories = max(cells // _PER_TRAJECTORY, room(int(planned[0]), 256))
        record = _empty(shapes.observations if observing else None, lanes, cells, trajectories, self.channels)
        leaves, tree = jax.tree.flatten(shapes)
        kinds = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
        blank, *_ = [_blank(lanes, number, kinds) for number in sizes]  # another request may begin with any of these
        slots = jax.tree.unflatten(tree, blank)
        for width, fewer in itertools.pairwise((*sizes, 0)):
            settings = dict(steps=device.steps(width, horizon, size), group=device.group)
            following = np.asarray(task.planned)[:, 0] * np.int32(width < sizes[0])
            slots, record = self._run(task, slots, record, following, np.int32(fewer), **settings)
            slots = _take_running(slots, fewer) if fewer else slots
        return record

    def _slot(self, task: RolloutTask) -> Slots:
        """Returns the shapes of one slot; tracing is slow, and they do not change."""
        if self._shapes is None:
            started = jax.eval_shape(functools.partial(self._start, slots=1), task)
            self._shapes = jax.eval_shape(lambda slots: jax.tree.map(lambda array: array[0, 0], slots), started)
        return self._shapes

    def _start(self, task: RolloutTask, slots: int) -> Slots:
        """Starts the first trajectories of each lane."""
        index = jnp.arange(slots, dtype=jnp.int32)
        begun: Slots = jax.vmap(lambda task: self._begin(task, index), in_axes=(_AXES,))(task)
        return begun

    def _begin(self, task: RolloutTask, index: jax.Array, group: int = 1) -> Slots:
        """Starts the trajectories of these numbers in a lane."""
        seeds = make_seeds(task.seeds, index) if task.seeds.ndim == 1 else task.seeds.at[index].get(mode="clip")
        # Step t draws from the key folded with t, so the horizon itself is free for the reset.
        reset_keys = jax.vmap(lambda key: jax.random.fold_in(key, task.horizon))(keys_of(seeds))
        if task.points is None:
            states, observations = jax.vmap(self._env.reset)(reset_keys)
        else:
            assert self._env.reset_from is not None
            missing = max(0, _LEAST_DIMENSIONS - task.points.shape[1])
            others = jax.vmap(lambda key: jax.random.uniform(key, (missing,), dtype=jnp.float32))(reset_keys)
            numbers = jnp.concatenate([task.points.at[index].get(mode="clip"), others], axis=1)
            states, observations = jax.vmap(self._env.reset_from)(numbers)
        length, place = places(task.planned, index, group)
        taken = jnp.zeros_like(index)
        values = self._value(task, observations, taken)
        return Slots(index, length, taken, taken > 0, place, seeds, states, observations, values)

    def _fill(self, task: RolloutTask, slots: Slots, following: jax.Array, *, group: int) -> tuple[Slots, jax.Array]:
        """Starts trajectories from number ``following`` on in the free slots of a lane; returns the next number too."""
        free = ~slots.running
        number = following + jnp.cumsum(free, dtype=jnp.int32) - 1
        # Slots that get no trajectory at the beginning have a real state all the same: others may be slow to step.
        filled = free & ((number < task.planned[0]) | (following == 0))

        def chosen(new: jax.Array, old: jax.Array) -> jax.Array:
            return jnp.where(filled.reshape(filled.shape + (1,) * (new.ndim - 1)), new, old.astype(new.dtype))

        started = jax.tree.map(chosen, self._begin(task, number, group), slots)
        return started, following + jnp.sum(filled, dtype=jnp.int32)

    def _run_blocks(
        self,
        task: RolloutTask,
        slots: Slots,
        record: Record,
        following: jax.Array,
        until: jax.Array,
        *,
        steps: int,
        group: int,
    ) -> tuple[Slots, Record]:
        """Takes blocks of steps until no trajectory waits and no lane has more than ``until`` that run."""
        count = task.planned[:, 0]
        enough = jnp.maximum(slots.number.shape[1] * jnp.sum(count > 0) // _FREE, 1)
        advance = jax.vmap(functools.partial(self._advance, steps=steps, group=group), in_axes=(_AXES, 0, 0))
        fill = jax.vmap(functools.partial(self._fill, group=group), in_axes=(_AXES, 0, 0))

        def goes_on(slots: Slots, following: jax.Array) -> jax.Array:
            return jnp.any(following < count) | jnp.any(jnp.sum(slots.running, axis=1) > until)

        def is_due(slots: Slots, following: jax.Array) -> jax.Array:
            waiting = jnp.maximum(count - following, 0)
            free = jnp.sum(jnp.where(waiting > 0, jnp.sum(~slots.running, axis=1), 0))
            return (free > 0) & (free >= jnp.minimum(enough, jnp.sum(waiting)))

        def advanced(slots: Slots, record: Record, following: jax.Array) -> tuple[Slots, Record]:
            found: tuple[Slots, Record] = jax.lax.while_loop(
                lambda carry: goes_on(carry[0], following) & ~is_due(carry[0], following),
                lambda carry: advance(task, *carry),
                (slots, record),
            )
            return found

        def filled(carry: Any) -> Any:
            slots, record, following = carry
            slots, following = fill(task, slots, following)
            return *advanced(slots, record, following), following

        given = slots, record, following
        slots, record, _ = jax.lax.while_loop(lambda carry: goes_on(carry[0], carry[2]), filled, given)
        return slots, record

    def _advance(
        self, task: RolloutTask, before: Slots, record: Record, *, steps: int, group: int
    ) -> tuple[Slots, Record]:
        """Takes some steps in all slots of a lane, and records them. What is put beyond the end of an array is lost."""
        observing = record.first is not None
        after, (numbers, seen) = jax.lax.scan(
            lambda slots, _: self._step(task, slots, observing), before, None, length=steps
        )
        t = before.taken + jnp.arange(steps, dtype=jnp.int32)[:, None]
        place = jnp.where(t < after.taken, before.place + group * t, NEVER)
        new = jnp.where((before.taken == 0) & (before.length > 0), before.number, NEVER)

        def put(array: jax.Array, where: jax.Array, what: jax.Array) -> jax.Array:
            return array.at[where].set(what, mode="drop", unique_indices=True)

        return after, Record(
            numbers=tuple(put(array, place, part) for array, part in zip(record.numbers, numbers, strict=True)),
            ends=put(record.ends, before.number, jnp.where(after.ended, after.taken, NEVER)),
            values=None if record.values is None else put(record.values, new, before.values),
            first=jax.tree.map(lambda array, part: put(array, new, part), record.first, before.observations)
            if observing
            else None,
            seen=jax.tree.map(lambda array, part: put(array, place, part), record.seen, seen) if observing else None,
        )

    def _step(self, task: RolloutTask, slots: Slots, observing: bool) -> tuple[Slots, Any]:
        running = slots.running
        both = jax.vmap(lambda key, t: jax.random.split(jax.random.fold_in(key, t)))(keys_of(slots.seeds), slots.taken)
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


def places(planned: jax.Array, index: jax.Array, group: int) -> tuple[jax.Array, jax.Array]:
    """Returns the planned lengths of trajectories by their numbers, and the places of their first rewards."""

    def lengths(planned: jax.Array, index: jax.Array) -> jax.Array:
        return jnp.searchsorted(-planned, -index, method="scan_unrolled").astype(jnp.int32)

    groups, own = (planned + group - 1) // group, index // group
    later = jnp.cumsum(jnp.append(groups, 0)[::-1], dtype=jnp.int32)[::-1]  # samples of groups from each step on
    longest = lengths(groups, own)
    return lengths(planned, index), group * (own * longest + later[longest]) + index % group


@functools.partial(jax.jit, static_argnames="slots")
@functools.partial(jax.vmap, in_axes=(0, None))
def _take_running(state: Slots, slots: int) -> Slots:
    """Returns the slots whose trajectories run, which are no more than ``slots``, and free ones to fill up."""
    (order,) = jnp.nonzero(state.running, size=slots, fill_value=0)
    free = jnp.arange(slots) >= jnp.sum(state.running)
    taken: Slots = jax.tree.map(lambda array: array[order], state)
    return taken._replace(number=jnp.where(free, NEVER, taken.number), length=jnp.where(free, 0, taken.length))


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _blank(lanes: int, slots: int, kinds: tuple[Any, ...]) -> list[jax.Array]:
    """Returns the arrays of slots without trajectories."""
    return [jnp.zeros((lanes, slots, *shape), dtype) for shape, dtype in kinds]


def _empty(observation: Tree, lanes: int, cells: int, trajectories: int, channels: int) -> Record:
    """Returns an empty record; ``observation`` is the shape of one, if these are asked for."""

    def observations(size: int) -> Tree:
        return jax.tree.map(lambda one: jnp.zeros((lanes, size, *one.shape), one.dtype), observation)

    return Record(
        numbers=tuple(zeros(lanes, cells) for _ in range(channels)),
        ends=jnp.full((lanes, trajectories), NEVER),
        values=zeros(lanes, trajectories) if channels > 1 else None,
        first=observations(trajectories),
        seen=observations(cells),
    )


def _bytes(shapes: Tree) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))


def zeros(*shape: int) -> jax.Array:
    """Returns zeros of single precision, also where JAX was told to use double."""
    return jnp.zeros(shape, dtype=jnp.float32)
