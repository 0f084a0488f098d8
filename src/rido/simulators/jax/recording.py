"""A whole rollout on the device: trajectories of mixed lengths run in slots, and their numbers are put into tiles."""

import functools
from collections import deque
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rido.simulators.jax.layout import PART, Device, Forecast, Layout
from rido.simulators.jax.programs import NEVER, Block, Programs, RolloutTask, Slots, zeros

Tree = Any

_FREE = 32  # slots are filled again when one of so many is free
_AHEAD = 1  # blocks that the device is given before the host looks whether an earlier one was the last


class Record(NamedTuple):
    """What trajectories returned, in the tiles of a :class:`Layout`; by their numbers where it is one for each."""

    numbers: tuple[jax.Array, ...]  # rewards, and residuals if there is a critic
    ends: jax.Array  # steps after which the environment terminated the trajectory; a very large number if it did not
    values: jax.Array | None  # the critic's values of first observations, if there is a critic
    first: Tree  # first observations, if asked for
    seen: Tree  # observations after each step, if asked for


def roll_out(
    programs: Programs,
    device: Device,
    task: RolloutTask,
    planned: np.ndarray,
    *,
    observing: bool = False,
    whole: int | None = None,
) -> tuple[Record, Layout]:
    """Runs the trajectories that a task plans; returns what they returned, still on the device, and where it is.

    Args:
        programs: of the policy and the critic.
        device: what suits the device, or each of its lanes.
        task: what the programs are asked for.
        planned: how many trajectories take each step; with lanes those of the lane that has the most.
        observing: whether to keep observations.
        whole: as in :meth:`rido.simulators.jax.layout.Device.choose_slots`.
    """
    lanes, count, size = task.planned.shape[:-1], int(planned[0]), programs.size(task)
    layout = Layout.of(planned, compact=observing or bool(lanes), whole=whole)
    slots = device.choose_slots(planned, size, whole)
    # Slots are reduced once: where they are those of a tail already, each further size would be one more to compile.
    widest = slots if whole is None else device.choose_slots(np.full(len(planned), whole), size)
    steps, tables = device.steps(slots, planned, size), layout.tables()
    state, following = programs.start(task, slots=slots)
    example = jax.tree.map(lambda array: array[:1], state.observations) if observing else None
    record = _empty(example, layout.cells, layout.trajectories, programs.channels, lanes)
    longest, taken = int(np.count_nonzero(planned)), 0
    counts = np.asarray(task.planned[..., 0]) if lanes else np.array(count)  # trajectories of each lane
    width = int(np.count_nonzero(counts))
    forecast, enough = Forecast(planned, slots, steps), max(1, slots * width // _FREE)
    ahead: deque[Any] = deque()
    free, left = 0, int(np.maximum(counts - slots, 0).sum())  # by what the host knows of an earlier block
    once, stepping = count <= slots, task.without_trajectories()
    write, compact = (_write_lanes, _compact_lanes) if lanes else (_write, _compact)
    while True:
        known = min(left, forecast.left * width)
        if taken and known > 0 and max(free, forecast.free * width) >= min(enough, known):
            state, following = programs.fill(task, state, following)
            forecast.fill()
        state, block, running = programs.advance(stepping, state, steps=steps, observing=observing)
        record = write(record, block, tables)
        forecast.advance()
        taken += steps
        if once and taken >= longest:
            break
        ahead.append((running, following))
        for array in ahead[-1]:
            array.copy_to_host_async()
        if len(ahead) > _AHEAD:  # the device need not wait for the host, which looks at an earlier block
            running, started = map(np.asarray, ahead.popleft())
            waiting = np.maximum(counts - started, 0)
            free, left = int(np.where(waiting > 0, slots - running, 0).sum()), int(waiting.sum())
            if left == 0 and not running.any():
                break
            fewer = device.fewer_slots(slots, int(running.max()), size)
            if left == 0 and slots == widest and fewer < slots:
                state, slots = compact(state, slots=fewer), fewer
                steps = device.steps(slots, planned, size)
    fewer = device.tail_slots(slots, size)
    if slots == widest and fewer < slots and programs.is_new(slots, fewer) and programs.may_end(task):
        # The trajectories of another policy may end earlier: the programs that it will need are compiled now.
        steps = device.steps(fewer, planned, size)
        programs.start(task, slots=fewer)
        _, block, _ = programs.advance(stepping, compact(state, slots=fewer), steps=steps, observing=observing)
        record = write(record, block, tables)
    return record, layout


@functools.partial(jax.jit, static_argnames=("cells", "trajectories", "channels", "lanes"))
def _empty(example: Tree, cells: int, trajectories: int, channels: int, lanes: tuple[int, ...]) -> Record:
    """Returns an empty record; ``example`` is one observation, if these are asked for."""

    def observations(size: int) -> Tree:
        return jax.tree.map(lambda array: jnp.zeros((size, *array.shape[1:]), array.dtype), example)

    return Record(
        numbers=tuple(zeros(*lanes, cells) for _ in range(channels)),
        ends=jnp.full((*lanes, trajectories), NEVER),
        values=zeros(*lanes, trajectories) if channels > 1 else None,
        first=observations(trajectories),
        seen=observations(cells),
    )


def _take_running(state: Slots, slots: int) -> Slots:
    """Returns the slots whose trajectories run, which are no more than ``slots``, and free ones to fill up."""
    (order,) = jnp.nonzero(state.running, size=slots, fill_value=0)
    free = jnp.arange(slots) >= jnp.sum(state.running)
    taken: Slots = jax.tree.map(lambda array: array[order], state)
    return taken._replace(number=jnp.where(free, NEVER, taken.number), length=jnp.where(free, 0, taken.length))


_compact = jax.jit(_take_running, static_argnames="slots")
_compact_lanes = jax.jit(
    lambda state, slots: jax.vmap(functools.partial(_take_running, slots=slots))(state), static_argnames="slots"
)


def _put_block(record: Record, block: Block, tables: jax.Array) -> Record:
    """Puts the numbers of a block where they belong. What is written beyond the end of an array is dropped."""
    before, after = block.before, block.after
    firsts, offsets, rows, columns = tables
    tile = jnp.searchsorted(firsts, before.number, side="right", method="scan_unrolled") - 1
    t = before.taken + jnp.arange(len(block.numbers[0]), dtype=jnp.int32)[:, None]
    column, width = before.number - firsts[tile], jnp.minimum(columns[tile], PART)
    place = offsets[tile] + (column // width * rows[tile] + t) * width + column % width
    place = jnp.where(t < after.taken, place, NEVER)
    new = jnp.where((before.taken == 0) & (before.length > 0), before.number, NEVER)

    def put(array: jax.Array, where: jax.Array, what: jax.Array) -> jax.Array:
        return array.at[where].set(what, mode="drop", unique_indices=True)

    return Record(
        numbers=tuple(put(array, place, part) for array, part in zip(record.numbers, block.numbers, strict=True)),
        ends=put(record.ends, before.number, jnp.where(after.ended, after.taken, NEVER)),
        values=None if record.values is None else put(record.values, new, before.values),
        first=jax.tree.map(lambda array, part: put(array, new, part), record.first, before.observations),
        seen=jax.tree.map(lambda array, part: put(array, place, part), record.seen, block.seen),
    )


_write = jax.jit(_put_block, donate_argnames="record")
_write_lanes = jax.jit(jax.vmap(_put_block, in_axes=(0, 0, None)), donate_argnames="record")
