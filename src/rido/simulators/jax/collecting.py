"""Trajectories as they were asked for: dealt out to lanes of the device, and taken from what these return."""

from __future__ import annotations

import operator
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from rido.core.trajectories import Trajectories, count_reached, positions, starts_of
from rido.simulators.base import Batch, Found, Request, SimulationError
from rido.simulators.jax.device import room
from rido.simulators.jax.programs import Record
from rido.simulators.jax.seeds import split_seeds
from rido.simulators.requests import join

_LEAST_SEEDS = 1024  # that all lanes together take, so that few sizes are compiled


class Dealt:
    """Trajectories of one policy, dealt out to one or more lanes of the device, the longest first.

    Args:
        request: what was asked for, checked.
        horizon: the longest length that may be asked for.

    Attributes:
        order: index of each trajectory, the longest first.
        planned: how many trajectories take each step.
    """

    def __init__(self, request: Request, horizon: int) -> None:
        self._lengths, self._seeds, self._points = request.lengths, request.seeds, request.points
        self.order = np.argsort(-self._lengths, kind="stable")
        self.planned = count_reached(self._lengths, horizon)

    def deal(self, lanes: int) -> tuple[NDArray[np.uint32], NDArray[np.int32], NDArray[np.float32] | None]:
        """Returns what each lane gets: seeds, how many trajectories take each step, and points."""
        turns = np.arange(lanes)[:, None]
        planned = (self.planned - turns + lanes - 1) // lanes
        size = room(int(planned[0, 0]), max(16, _LEAST_SEEDS // lanes))
        rows = self.order[(turns + lanes * np.arange(size)) % self.order.size]
        points = None if self._points is None else _single(self._points)[rows]
        return split_seeds(self._seeds)[rows], planned.astype(np.int32), points

    def take(self, record: Record, lanes: range) -> Batch:
        """Returns the trajectories in the order in which they were asked for.

        Args:
            record: what trajectories returned, on the host.
            lanes: those to which they were dealt out.
        """
        own = [self.order[turn :: len(lanes)] for turn in range(len(lanes))]
        parts = [
            self._of_lane(jax.tree.map(operator.itemgetter(lane), record), rows)
            for lane, rows in zip(lanes, own, strict=True)
        ]
        return join(parts, np.concatenate(own), Found())

    def _of_lane(self, record: Record, rows: NDArray[np.intp]) -> Batch:
        """Checks the trajectories of a lane, one after the other."""
        lengths, ends = self._lengths[rows], record.ends[: rows.size]
        steps, terminated = np.minimum(ends, lengths), ends <= lengths
        rewards = np.asarray(record.numbers[0][: lengths.sum()], dtype=np.float64)
        firsts = starts_of(lengths)
        if not np.isfinite(rewards).all():
            cell = int(np.argmin(np.isfinite(rewards)))
            row = int(np.searchsorted(firsts, cell, side="right")) - 1
            seed, reason = int(self._seeds[rows[row]]), f"the reward is {rewards[cell]}"
            raise SimulationError(int(rows[row]), cell - int(firsts[row]), seed, reason)
        step = positions(steps + 1)
        trajectory = np.repeat(np.arange(rows.size), steps + 1)

        def lay_out(first: NDArray[Any], seen: NDArray[Any]) -> NDArray[Any]:
            laid: NDArray[Any] = seen[firsts[trajectory] + step - 1]
            laid[step == 0] = first[: rows.size]
            return laid

        trajectories = Trajectories.from_flat(rewards, lengths, steps, copy=False)
        return Batch(trajectories, jax.tree.map(lay_out, record.first, record.seen), terminated)


def _single(points: NDArray[np.float64]) -> NDArray[np.float32]:
    """Returns points in single precision, in which all coordinates are less than 1 too."""
    return np.minimum(points.astype(np.float32), np.nextafter(np.float32(1), np.float32(0)))
