"""Sums over trajectories on the device: rewards stay where they are made, and only T x T tables are copied."""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rido.core.schedule import Schedule
from rido.core.summaries import Summary
from rido.simulators.base import Summarised
from rido.simulators.jax.device import Counts, Device, lengths_of
from rido.simulators.jax.programs import Programs, RolloutTask, places, zeros

_TILE_CELLS = 1 << 24  # of a tile that holds many trajectories
_LEAST_COLUMNS = 1024
_PART = 4096  # trajectories of a tile that are side by side, for products of matrices of this size
_PRECISION = jax.lax.Precision.HIGHEST  # of sums: fewer digits would bias them
# The compiler need not try many ways to multiply matrices, which takes 10 s for each size and gives other digits in
# another process.
_GPU_OPTIONS = {"xla_gpu_autotune_level": 0, "xla_gpu_enable_triton_gemm": False}


class Tables(NamedTuple):
    """Sums so far; see :class:`rido.core.summaries.Summary`. The first axis of all but ``taken`` is the channel."""

    taken: jax.Array
    centre: jax.Array
    sums: jax.Array
    products: jax.Array


def sum_on_device(
    programs: Programs, device: Device, task: RolloutTask, schedule: Schedule, before: Summarised | None, total: int
) -> Summarised:
    """Runs the trajectories of a schedule and sums over them, on top of the sums ``before``; ``task`` has one lane."""
    horizon, channels = schedule.horizon, programs.channels
    record = programs.roll_out(device, task, total=total)
    centre = np.zeros((channels, horizon), dtype=np.float32)
    if before is not None:
        earlier = [before.rewards] if before.signal is None else [before.rewards, before.signal]
        centre[:] = [summary.centre for summary in earlier]
    tables = _empty(centre)
    numbers = tuple(array[0] for array in record.numbers)
    for first, rows, columns in tiles(schedule.counts, total // horizon or schedule.trajectories):
        centring = np.bool_(before is None and first == 0)
        given = (tables, numbers, record.ends[0], task.planned[0], np.int32(first), centring)
        tables = _compiled_add()(*given, rows=rows, columns=columns, group=device.group)
    found: Any = jax.device_get(tables)
    summaries = [
        Summary(
            planned=schedule.counts,
            taken=found.taken.astype(np.int64),
            centre=found.centre[channel].astype(np.float64),
            sums=found.sums[channel].astype(np.float64),
            products=found.products[channel].astype(np.float64),
        )
        for channel in range(channels)
    ]
    if record.values is None:
        return Summarised(summaries[0], None, None)
    return Summarised(summaries[0], summaries[1], np.asarray(record.values[0], np.float64)[: schedule.trajectories])


def tiles(planned: Counts, trajectories: int) -> Iterator[tuple[int, int, int]]:
    """Yields the trajectories that are summed in one go: the first, the longest length, and their number.

    Lengths and numbers are a few only, for programs are compiled for them. There may be more than are planned. A tile
    has about this many ``trajectories``, fewer where they are long.

    Example:
        >>> list(tiles(np.array([5000, 3000, 0]), 2000))
        [(0, 2, 2048), (2048, 2, 2048), (4096, 1, 2048)]
    """
    first = 0
    while first < planned[0]:
        rows, longest = len(planned), int(lengths_of(planned, first))
        while (half := -(-rows // 2)) >= longest and half < rows:
            rows = half
        most = (_TILE_CELLS // rows).bit_length() - 1
        columns = 1 << min(most, (max(trajectories, _LEAST_COLUMNS) - 1).bit_length())
        yield first, rows, columns
        first += columns


@functools.cache
def _compiled_add() -> Any:
    options = _GPU_OPTIONS if jax.default_backend() == "gpu" else None
    return jax.jit(
        _add, static_argnames=("rows", "columns", "group"), donate_argnames="tables", compiler_options=options
    )


@jax.jit
def _empty(centre: jax.Array) -> Tables:
    """Returns sums over no trajectory."""
    channels, horizon = centre.shape
    square = (channels, horizon, horizon)
    return Tables(jnp.zeros(horizon, dtype=jnp.int32), centre, zeros(*square), zeros(*square))


def _add(
    tables: Tables,
    numbers: tuple[jax.Array, ...],
    ends: jax.Array,
    planned: jax.Array,
    first: jax.Array,
    centring: jax.Array,
    *,
    rows: int,
    columns: int,
    group: int,
) -> Tables:
    """Adds the sums over a tile, with the means of its own numbers as the centre if ``centring``."""
    width = min(columns, _PART)
    index = first + jnp.arange(columns, dtype=jnp.int32).reshape(-1, 1, width)
    t = jnp.arange(rows, dtype=jnp.int32)[:, None]
    length, place = places(planned, index, group)
    mask, cells = t < length, place + group * t
    tile = jnp.stack([array.at[cells].get(mode="clip") for array in numbers])
    due = planned[:rows] - first  # trajectories of the tile that are planned to take each step, or more
    means = jnp.sum(jnp.where(mask, tile, 0.0), axis=(1, 3)) / jnp.maximum(jnp.minimum(due, columns), 1)
    centre = jnp.where(centring, tables.centre.at[:, :rows].set(means), tables.centre)
    tile = jnp.where(mask, tile - centre[:, None, :rows, None], 0.0)
    products = jnp.einsum("cpsk,cpuk->cpsu", tile, tile, precision=_PRECISION).sum(axis=1)
    # Sums over the first trajectories, for each number of them that is planned for a step.
    sums = jnp.einsum("cpsk,puk->cpsu", tile, mask.astype(tile.dtype), precision=_PRECISION).sum(axis=1)
    taken = jnp.sum(mask & (t < ends.at[index].get(mode="clip")), axis=(0, 2), dtype=jnp.int32)
    return Tables(
        tables.taken.at[:rows].add(taken),
        centre,
        tables.sums.at[:, :rows, :rows].add(jnp.triu(sums)),
        tables.products.at[:, :rows, :rows].add(jnp.triu(products)),
    )
