"""Requests for trajectories that are collected in several parts: checked before, joined in the caller's order after."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rido.core import checks
from rido.core.trajectories import Trajectories, concatenate, positions, starts_of
from rido.policies.observations import stack, take
from rido.simulators.base import NO_TRAJECTORIES, Batch, Found, Request

Rows = NDArray[np.intp]


def checked(request: Request, horizon: int, *, takes_points: bool) -> Request:
    """Returns a request with its lengths and points as arrays, or raises where something is wrong with it."""
    lengths, points, seeds = request.lengths, request.points, request.seeds
    if points is not None and not takes_points:
        raise ValueError("starts='sobol' is not available: this environment's reset cannot take points")
    if request.wants in ("rewards", "observations"):
        lengths = checks.counts("lengths", lengths)
        if not 1 <= lengths.min() <= lengths.max() <= horizon:
            raise ValueError(f"lengths must be from 1 to the horizon {horizon}, got {lengths.min()} to {lengths.max()}")
        known = seeds if isinstance(seeds, Sequence) or (isinstance(seeds, np.ndarray) and seeds.ndim == 1) else ()
        if len(known) != lengths.size or not all(isinstance(seed, (int, np.integer)) for seed in known):
            raise ValueError(
                f"seeds must be an integer for each of {lengths.size} trajectories, got {checks.shown(seeds)}"
            )
    if points is not None:
        points = np.asarray(points, dtype=np.float64)
        if points.ndim != 2 or len(points) != len(seeds):
            raise ValueError(f"points must have shape ({len(seeds)}, dimensions), got {points.shape}")
        if not ((points >= 0) & (points < 1)).all():
            raise ValueError(f"points must lie in [0, 1), got numbers from {points.min():g} to {points.max():g}")
    return replace(request, lengths=lengths, points=points)


def part_of(request: Request, rows: Rows) -> Request:
    """Returns the request for some of the trajectories."""
    lengths, points = (None if each is None else each[rows] for each in (request.lengths, request.points))
    return replace(request, lengths=lengths, seeds=[request.seeds[row] for row in rows.tolist()], points=points)


def split(costs: NDArray[np.int64], workers: int, num_envs: int) -> list[NDArray[np.intp]]:
    """Cuts a request into chunks of decreasing size, costly rows first, so that all workers finish together.

    A chunk has half of a worker's fair share of the remaining cost. It has at least a quarter as many rows as a worker
    has environments, because few rows cost about as much as many where they are vectorised, and at most twice as many,
    which limits the loss with a worker.

    Example:
        >>> split(np.array([1, 9, 5, 3]), 2, 2)
        [array([1]), array([2]), array([3]), array([0])]
    """
    order = np.argsort(-costs, kind="stable")
    spent = np.cumsum(costs[order])
    least = min(max(num_envs // 4, 1), -(-costs.size // workers))
    chunks, first = [], 0
    while first < order.size:
        before = spent[first - 1] if first else 0
        share = before + (spent[-1] - before) / (2 * workers)
        last = int(np.clip(np.searchsorted(spent, share), first + least, first + 2 * num_envs))
        chunks.append(order[first:last])
        first = last
    return chunks


def join(parts: Sequence[Batch], rows: Rows, found: Found) -> Batch:
    """Returns all that was collected in parts as one batch; rows are the places in it, for one part after the other.

    Example:
        >>> parts = [Batch(Trajectories([1.0, 2.0], [2])), Batch(Trajectories([3.0], [1]))]
        >>> join(parts, np.array([1, 0]), Found()).trajectories.flat
        array([3., 1., 2.])
    """
    order = np.argsort(rows)
    seen = None if parts[0].observations is None else stack([part.observations for part in parts])
    if not any(len(part.trajectories) for part in parts):
        return Batch(NO_TRAJECTORIES, take(seen, order), found=found)
    trajectories = joined = concatenate([part.trajectories for part in parts])
    if (order[:-1] > order[1:]).any():  # otherwise they have their places already
        rewards = joined.flat[_reordered(joined.lengths, order)]
        trajectories = Trajectories.from_flat(rewards, joined.lengths[order], joined.steps[order], copy=False)
    if seen is None:
        return Batch(trajectories, found=found)
    actions = [part.actions for part in parts if part.actions is not None]
    return Batch(
        trajectories,
        take(seen, _reordered(joined.steps + 1, order)),
        np.concatenate([part.terminated for part in parts])[order],
        np.concatenate(actions)[_reordered(joined.steps, order)] if actions else None,
        found=found,
    )


def _reordered(sizes: NDArray[np.int64], order: Rows) -> Rows:
    """Returns the indices that put pieces of these sizes, one after the other in an array, into another order."""
    return np.repeat(starts_of(sizes)[order], sizes[order]) + positions(sizes[order])


def check_rewards(batch: Trajectories, reward_range: tuple[float, float]) -> None:
    """Raises ValueError where a reward lies outside the range. Zeros after an early end are not checked."""
    low, high = reward_range
    outside = (batch.flat < low) | (batch.flat > high)
    if outside.any():
        outside &= positions(batch.lengths) < np.repeat(batch.steps, batch.lengths)
    if outside.any():
        raise ValueError(
            f"reward_range must contain all rewards, got {reward_range!r} and a reward of {batch.flat[outside][0]:g}"
        )
