"""Requests that are collected in parts and in another order: checked before, put together after."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rido.core import checks
from rido.core.trajectories import Trajectories, concatenate
from rido.policies.observations import stack, take
from rido.simulators.base import Observed

Rows = NDArray[np.intp]


def check_request(lengths: ArrayLike, seeds: Sequence[int], horizon: int) -> NDArray[np.int64]:
    """Returns the lengths of a request, each from 1 to the horizon and with its seed."""
    planned = checks.counts("lengths", lengths)
    if not 1 <= planned.min() <= planned.max() <= horizon:
        raise ValueError(f"lengths must be from 1 to the horizon {horizon}, got {planned.min()} to {planned.max()}")
    if len(seeds) != planned.size:
        raise ValueError(f"seeds must be one for each of {planned.size} trajectories, got {len(seeds)}")
    return planned


def join_trajectories(parts: Sequence[Trajectories], rows: Rows) -> Trajectories:
    """Returns all trajectories as one batch.

    Args:
        parts: some trajectories each.
        rows: for one trajectory after the other, its place in the result.

    Example:
        >>> parts = [Trajectories([1.0, 2.0], [2]), Trajectories([3.0], [1])]
        >>> join_trajectories(parts, np.array([1, 0])).flat
        array([3., 1., 2.])
    """
    every, order = concatenate(list(parts)), np.argsort(rows)
    return Trajectories(every.flat[_gather(every.lengths, order)], every.lengths[order], every.steps[order])


def join_observed(parts: Sequence[Observed], rows: Rows) -> Observed:
    """Returns all trajectories and their observations as one batch; arguments as in :func:`join_trajectories`."""
    order = np.argsort(rows)
    steps = np.concatenate([part.trajectories.steps for part in parts])
    return Observed(
        join_trajectories([part.trajectories for part in parts], rows),
        take(stack([part.observations for part in parts]), _gather(steps + 1, order)),
        np.concatenate([part.terminated for part in parts])[order],
    )


def join_starts(parts: Sequence[Any], rows: Rows) -> Any:
    """Returns all first observations as one batch; arguments as in :func:`join_trajectories`."""
    return take(stack(parts), np.argsort(rows))


def _gather(sizes: NDArray[np.int64], order: Rows) -> Rows:
    """Returns where the entries of pieces of these sizes are, piece ``order[0]`` first."""
    starts, ordered = np.cumsum(sizes) - sizes, sizes[order]
    return np.repeat(starts[order] - (np.cumsum(ordered) - ordered), ordered) + np.arange(ordered.sum())
