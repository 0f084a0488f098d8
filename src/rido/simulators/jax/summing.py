"""Sums over trajectories on the device: rewards stay where they are made, and only T x T tables are copied."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rido.core.schedule import Schedule
from rido.core.summaries import Summary
from rido.simulators.base import Summarised
from rido.simulators.jax.layout import PART, Device
from rido.simulators.jax.programs import Programs, RolloutTask, zeros
from rido.simulators.jax.recording import roll_out

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
    programs: Programs,
    device: Device,
    task: RolloutTask,
    schedule: Schedule,
    before: Summarised | None,
    whole: int | None,
) -> Summarised:
    """Runs the trajectories of a schedule and sums over them.

    Args:
        programs: of the policy and the critic.
        device: what suits the device.
        task: what the programs are asked for.
        schedule: how many samples of each step.
        before: sums to which these will be added; their centre is used here too.
        whole: as in :meth:`rido.simulators.jax.layout.Device.choose_slots`.
    """
    horizon, channels = schedule.horizon, programs.channels
    record, layout = roll_out(programs, device, task, schedule.counts, whole=whole)
    centre = np.zeros((channels, horizon), dtype=np.float32)
    if before is not None:
        earlier = [before.rewards] if before.signal is None else [before.rewards, before.signal]
        centre[:] = [summary.centre for summary in earlier]
    tables = _empty(centre)
    for tile, (first, offset, rows, columns) in enumerate(layout):
        place = np.array([first, offset], dtype=np.int32)
        centring = np.bool_(before is None and tile == 0)
        given = (tables, record.numbers, record.ends, task.planned, place, centring)
        tables = _compiled_add()(*given, rows=rows, columns=columns)
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
    return Summarised(summaries[0], summaries[1], np.asarray(record.values, np.float64)[: schedule.trajectories])


@functools.cache
def _compiled_add() -> Any:
    options = _GPU_OPTIONS if jax.default_backend() == "gpu" else None
    return jax.jit(_add, static_argnames=("rows", "columns"), donate_argnames="tables", compiler_options=options)


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
    place: jax.Array,
    centring: jax.Array,
    *,
    rows: int,
    columns: int,
) -> Tables:
    """Adds the sums over a tile, with the means of its own numbers as the centre if ``centring``."""
    first, offset = place
    flat = jnp.stack([jax.lax.dynamic_slice_in_dim(array, offset, rows * columns) for array in numbers])
    width = min(columns, PART)
    tile = flat.reshape(len(numbers), -1, rows, width)
    due = planned[:rows] - first  # columns that are planned to take each step
    column = jnp.arange(columns).reshape(-1, 1, width)
    mask = column < due[:, None]
    means = jnp.sum(jnp.where(mask, tile, 0.0), axis=(1, 3)) / jnp.maximum(jnp.minimum(due, columns), 1)
    centre = jnp.where(centring, tables.centre.at[:, :rows].set(means), tables.centre)
    tile = jnp.where(mask, tile - centre[:, None, :rows, None], 0.0)
    products = jnp.einsum("cstk,csuk->cstu", tile, tile, precision=_PRECISION).sum(axis=1)
    # Sums over the first columns, for each number of columns that is planned for a step.
    within = jnp.cumsum(tile, axis=3)
    before = jnp.cumsum(within[..., -1], axis=1) - within[..., -1]
    last = jnp.clip(due, 1, columns) - 1
    sums = jnp.moveaxis(before[:, last // width] + within[:, last // width, :, last % width].swapaxes(0, 1), 1, 2)
    sums = jnp.where(due > 0, sums, 0.0)
    steps = jax.lax.dynamic_slice_in_dim(ends, first, columns)
    taking = jnp.arange(rows)[:, None] < steps.reshape(-1, 1, width)
    taken = jnp.sum(mask & taking, axis=(0, 2), dtype=jnp.int32)
    return Tables(
        tables.taken.at[:rows].add(taken),
        centre,
        tables.sums.at[:, :rows, :rows].add(jnp.triu(sums)),
        tables.products.at[:, :rows, :rows].add(jnp.triu(products)),
    )
