"""Trajectories as they were asked for: dealt out to lanes of the device, and taken from what these return."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from rido.core.trajectories import Trajectories, count_reached, positions, starts_of
from rido.simulators.base import Batch, Request, SimulationError
from rido.simulators.jax.device import room
from rido.simulators.jax.programs import Record
from rido.simulators.jax.seeds import split_seeds

_LEAST_SEEDS = 1024  # that all lanes together take, so that few sizes are compiled


class Dealt:
    """Trajectories of one policy, dealt out to one or more lanes of the device, the longest first."""

    def __init__(self, request: Request, horizon: int) -> None:
        self._lengths, self._seeds, self._points = request.lengths, request.seeds, request.points
        self.order = np.argsort(-self._lengths, kind="stable")
        self.planned = count_reached(self._lengths, horizon)
        self._cells: dict[int, NDArray[np.int64]] = {}  # of all rewards in the record, by the number of lanes

    def deal(self, lanes: int) -> tuple[NDArray[np.uint32], NDArray[np.int32], NDArray[np.float32] | None]:
        """Returns what each lane gets: seeds, how many trajectories take each step, and points."""
        turns = np.arange(lanes)[:, None]
        planned = (self.planned - turns + lanes - 1) // lanes
        size = room(int(planned[0, 0]), max(16, _LEAST_SEEDS // lanes))
        rows = self.order[(turns + lanes * np.arange(size)) % self.order.size]
        points = None if self._points is None else _single(self._points)[rows]
        return split_seeds(self._seeds)[rows], planned.astype(np.int32), points

    def take(self, record: Record, lanes: slice, group: int) -> Batch:
        """Returns the trajectories of some lanes, from a record on the host, in the order of the request."""
        lengths, number = self._lengths, lanes.stop - lanes.start
        lane, index = np.divmod(np.argsort(self.order), number)[::-1]
        rewards, ends = np.asarray(record.numbers[0])[lanes], np.asarray(record.ends)[lanes]
        steps = np.minimum(ends[lane, index], lengths)
        if number not in self._cells:
            first = lane * rewards.shape[1] + self._places(number, group)[lane, index]
            self._cells[number] = np.repeat(first, lengths) + group * positions(lengths)
        flat: NDArray[np.float64] = rewards.reshape(-1)[self._cells[number]].astype(np.float64)
        if not np.isfinite(flat).all():
            cell, firsts = int(np.argmin(np.isfinite(flat))), starts_of(lengths)
            row = int(np.searchsorted(firsts, cell, side="right")) - 1
            reason = f"the reward is {flat[cell]}"
            raise SimulationError(row, cell - int(firsts[row]), int(self._seeds[row]), reason)
        trajectory, step = np.repeat(np.arange(steps.size), steps + 1), positions(steps + 1)
        later = (starts_of(lengths)[trajectory] + step - 1)[step > 0]

        def lay_out(first: NDArray[Any], seen: NDArray[Any]) -> NDArray[Any]:
            laid = np.empty((step.size, *seen.shape[2:]), seen.dtype)
            laid[step == 0] = first[lanes][lane, index]
            laid[step > 0] = seen[lanes].reshape(-1, *seen.shape[2:])[self._cells[number][later]]
            return laid

        trajectories = Trajectories.from_flat(flat, lengths, steps, copy=False)
        observations = None if record.first is None else jax.tree.map(lay_out, record.first, record.seen)
        return Batch(trajectories, observations, ends[lane, index] <= lengths)

    def _places(self, lanes: int, group: int) -> NDArray[np.int64]:
        """Returns the places of the first rewards of the trajectories of each lane, as :func:`places` does."""
        found = np.zeros((lanes, -(-self.order.size // lanes)), dtype=np.int64)
        for turn in range(lanes):
            own = self._lengths[self.order[turn::lanes]]
            groups = group * starts_of(own[::group])
            found[turn, : own.size] = np.repeat(groups, group)[: own.size] + np.arange(own.size) % group
        return found


def _single(points: NDArray[np.float64]) -> NDArray[np.float32]:
    """Returns points in single precision, in which all coordinates are less than 1 too."""
    return np.minimum(points.astype(np.float32), np.nextafter(np.float32(1), np.float32(0)))
