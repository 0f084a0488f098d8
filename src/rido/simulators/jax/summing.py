"""Sums over trajectories on the device: rewards are added up where they are made, and only T x T tables are copied."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from rido.core.schedule import Schedule
from rido.core.summaries import Summary
from rido.simulators.base import Summarised
from rido.simulators.jax.batching import Batching
from rido.simulators.jax.programs import Batch, Programs, seed_words, zeros

Tables = dict[str, jax.Array]

_PRECISION = jax.lax.Precision.HIGHEST  # of sums: fewer digits would bias them


class Deviations(NamedTuple):
    """The numbers of a batch so far, less the centre."""

    numbers: jax.Array  # shape (channels, steps, rows)
    row: jax.Array  # the first trajectory's index in the schedule
    first: jax.Array  # the next step


class SummingPrograms(Programs):
    """Programs that sum too; arguments as in :class:`Programs`."""

    def __init__(self, *functions: Any, **settings: Any) -> None:
        super().__init__(*functions, **settings)
        self.begin = jax.jit(self._begin, static_argnames="rows")
        self.add = jax.jit(self._add, static_argnames="blocks", donate_argnames=("deviations", "tables"))

    def empty_tables(self, planned: NDArray[np.int32], before: Summarised | None) -> Tables:
        """Returns sums over no trajectory, with the centre of earlier sums or else the means of the first batch."""
        centre = np.zeros((self.channels, self.width), dtype=np.float32)
        if before is not None:
            summaries = [before.rewards] if before.signal is None else [before.rewards, before.signal]
            centre[:, : self.horizon] = [summary.centre for summary in summaries]
        return {
            "planned": jnp.array(planned),
            "uncentred": jnp.bool_(before is None),
            "taken": jnp.zeros(self.width, dtype=jnp.int32),
            "centre": jnp.array(centre),
            "sums": zeros(self.channels, self.width, self.width),
            "products": zeros(self.channels, self.width, self.width),
        }

    def _begin(self, words: jax.Array, row: jax.Array, rows: int) -> tuple[Batch, Deviations]:
        """Starts a batch of trajectories, the first of which is number ``row`` of the schedule."""
        batch = self._start(self.seeds(words, count=rows))
        return batch, Deviations(zeros(self.channels, self.width, rows), row, jnp.int32(0))

    def _add(
        self, batch: Batch, deviations: Deviations, tables: Tables, blocks: int
    ) -> tuple[Batch, Deviations, Tables]:
        """Runs some blocks of steps of a batch, the longest trajectories first, and adds them to the tables."""
        if blocks == 1:
            return self._add_block(batch, deviations, tables)
        state, _ = jax.lax.scan(
            lambda state, _: (self._add_block(*state), None), (batch, deviations, tables), length=blocks
        )
        return state

    def _add_block(self, batch: Batch, deviations: Deviations, tables: Tables) -> tuple[Batch, Deviations, Tables]:
        buffer, row, first = deviations
        batch, (numbers, _) = self._scan(batch, first)
        numbers = jnp.moveaxis(numbers, 1, 0)  # channels, steps, rows
        alive = (first + jnp.arange(self.steps))[:, None] < batch.ends
        here = functools.partial(jax.lax.dynamic_slice_in_dim, start_index=first, slice_size=self.steps, axis=-1)
        put = functools.partial(jax.lax.dynamic_update_slice_in_dim, start_index=first, axis=-1)
        due = row + jnp.arange(alive.shape[1]) < here(tables["planned"])[:, None]
        means = jnp.sum(numbers, axis=2, where=due) / jnp.maximum(jnp.sum(due, axis=1), 1)
        centre = jnp.where(tables["uncentred"] & (row == 0), means, here(tables["centre"]))
        new = jnp.where(due, numbers - centre[:, :, None], 0.0)
        buffer = jax.lax.dynamic_update_slice_in_dim(buffer, new, first, axis=1)
        # Both tables in one pass over the buffer. Rows of later steps are below the diagonal, which is not used.
        others = jnp.concatenate([new, jnp.broadcast_to(due, new.shape).astype(jnp.float32)], axis=1)
        both = jnp.einsum("ctr,cur->ctu", buffer, others, precision=_PRECISION)
        added = {
            "taken": jnp.sum(alive & due, axis=1, dtype=jnp.int32),
            "products": both[..., : self.steps],
            "sums": both[..., self.steps :],
        }
        changed = {name: put(tables[name], here(tables[name]) + part) for name, part in added.items()}
        tables = {**tables, **changed, "centre": put(tables["centre"], centre)}
        return batch, Deviations(buffer, row, first + self.steps), tables


def sum_on_device(
    programs: SummingPrograms,
    batching: Batching,
    schedule: Schedule,
    source: np.random.SeedSequence,
    first: int,
    before: Summarised | None,
) -> Summarised:
    """Runs the trajectories of a schedule; arguments as in :meth:`SummarisingSimulator.summarise`."""
    horizon, starts = programs.horizon, []
    planned = np.zeros(programs.width, dtype=np.int32)
    planned[:horizon] = schedule.counts
    tables = programs.empty_tables(planned, before)
    for row, sizes in batching.batches(planned):
        batch, deviations = programs.begin(seed_words(source, first + row), np.int32(row), rows=sizes[0])
        starts.append(batch.values)
        for size, blocks in batching.calls(sizes):
            if size < batch.ends.size:
                batch = programs.shrink(batch, rows=size)
                deviations = deviations._replace(numbers=deviations.numbers[..., :size])
            batch, deviations, tables = programs.add(batch, deviations, tables, blocks=blocks)
    found = jax.device_get({name: tables[name] for name in ("taken", "centre", "sums", "products")})
    channels = [
        Summary(
            planned=schedule.counts,
            taken=found["taken"][:horizon].astype(np.int64),
            centre=found["centre"][channel, :horizon].astype(np.float64),
            sums=found["sums"][channel, :horizon, :horizon].astype(np.float64),
            products=found["products"][channel, :horizon, :horizon].astype(np.float64),
        )
        for channel in range(programs.channels)
    ]
    if programs.channels == 1:
        return Summarised(channels[0], None, None)
    values = np.concatenate([np.asarray(part, np.float64) for part in starts])
    return Summarised(channels[0], channels[1], values[: schedule.trajectories])
