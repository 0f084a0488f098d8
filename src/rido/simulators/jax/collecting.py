"""Trajectories as they were asked for: a request is dealt out to the device, and its tiles become rows on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from rido.core.trajectories import Trajectories, count_reached
from rido.simulators.base import Batch, Points, SimulationError
from rido.simulators.jax.layout import PART, Layout
from rido.simulators.jax.programs import round_points, split_seeds
from rido.simulators.jax.recording import Record
from rido.simulators.requests import check_points, check_request

_LEAST_SEEDS, _LEAST_SEEDS_OF_LANE = 1024, 16  # that a program takes, so that few sizes are compiled


class Request:
    """Trajectories of one policy, dealt out to one or more lanes of the device, the longest first.

    Args:
        lengths: planned length of each.
        seeds: seed of each.
        points: point of each that decides where it starts, if any.
        horizon: the longest length that may be asked for.

    Attributes:
        order: index of each trajectory, the longest first.
        planned: how many trajectories take each step.
    """

    def __init__(self, lengths: NDArray[np.int64], seeds: Sequence[int], points: Points, horizon: int) -> None:
        self._lengths = check_request(lengths, seeds, horizon)
        self._seeds, self._words = list(seeds), split_seeds(seeds)
        checked, self._given = check_points(points, self._lengths.size), points
        self._points = None if checked is None else round_points(checked)
        self.order = np.argsort(-self._lengths, kind="stable")
        self.planned = count_reached(self._lengths, horizon)

    def is_for(self, lengths: NDArray[np.int64], seeds: Sequence[int], points: Points) -> bool:
        """Returns whether this is the request for these trajectories."""
        same_points = points is self._given or _same(points, self._given)
        return same_points and np.array_equal(lengths, self._lengths) and list(seeds) == self._seeds

    def deal(self, lanes: int) -> tuple[NDArray[np.uint32], NDArray[np.int64], NDArray[np.float32] | None]:
        """Returns what each lane gets: seeds, how many trajectories take each step, and points."""
        turns = np.arange(lanes)[:, None]
        planned = (self.planned - turns + lanes - 1) // lanes
        most = int(planned[0, 0])
        size = max(_LEAST_SEEDS if lanes == 1 else _LEAST_SEEDS_OF_LANE, 1 << (most - 1).bit_length())
        rows = self.order[(turns + lanes * np.arange(size)) % self.order.size]
        return self._words[rows], planned, None if self._points is None else self._points[rows]

    def take(self, record: Record, layout: Layout, lanes: slice = slice(0, 1)) -> list[Batch]:
        """Returns the trajectories of each tile, in the order in which they were dealt out.

        Args:
            record: what trajectories returned, on the host; the first axis of all arrays is that of the lanes.
            layout: the tiles.
            lanes: those to which the request was dealt out.
        """
        number, parts = lanes.stop - lanes.start, []
        for first, offset, rows, columns in layout:
            own = self.order[first * number : (first + columns) * number]

            def of_steps(
                array: Any, dtype: Any = None, start: int = offset, shape: Any = (rows, columns), count: int = own.size
            ) -> Any:
                rows, columns = shape
                tile = array[lanes, start : start + rows * columns]
                tile = tile.reshape(number, -1, rows, min(columns, PART), *array.shape[2:])
                tile = np.moveaxis(tile, (1, 3), (0, 1))[:, : -(-count // number)]  # columns that hold trajectories
                return np.ascontiguousarray(tile, dtype).reshape(-1, rows, *array.shape[2:])[:count]

            def of_each(array: Any, start: int = first, size: int = columns, count: int = own.size) -> Any:
                return array[lanes, start : start + size].swapaxes(0, 1).reshape(-1, *array.shape[2:])[:count]

            rewards = of_steps(record.numbers[0], np.float64)
            observations = jax.tree.map(of_each, record.first), jax.tree.map(of_steps, record.seen)
            parts.append(self._observed(rewards, of_each(record.ends), observations, own))
        return parts

    def _observed(
        self, rewards: NDArray[Any], ends: NDArray[Any], observations: tuple[Any, Any], rows: NDArray[np.intp]
    ) -> Batch:
        """Checks the trajectories of a tile. Observations are the first ones and those after each step, if any."""
        lengths = self._lengths[rows]
        steps, terminated = np.minimum(ends, lengths), ends <= lengths
        if not np.isfinite(rewards).all():
            wrong = ~np.isfinite(rewards) & (np.arange(rewards.shape[1]) < steps[:, None])
            for row, step in np.argwhere(wrong)[:1].tolist():
                seed = int(self._seeds[rows[row]])
                raise SimulationError(int(rows[row]), step, seed, f"the reward is {rewards[row, step]}")

        def lay_out(first: NDArray[Any], later: NDArray[Any]) -> NDArray[Any]:
            observed = np.arange(rewards.shape[1] + 1) <= steps[:, None]
            laid: NDArray[Any] = np.concatenate([first[:, None], later], axis=1)[observed]
            return laid

        full = lengths.min() == rewards.shape[1]
        flat = rewards.reshape(-1) if full else rewards[np.arange(rewards.shape[1]) < lengths[:, None]]
        trajectories = Trajectories.from_flat(flat, lengths, steps, copy=False)
        return Batch(trajectories, jax.tree.map(lay_out, *observations), terminated)


def _same(one: Points, other: Points) -> bool:
    return one is not None and other is not None and np.array_equal(one, other)
