"""Numbers over several tasks: weighted means with stratified intervals, and two statistics of rliable.

Tasks are strata: their trajectories are independent, so the variances of their estimates add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from rido.core.estimate import Estimate, sum_of, unseen_share

_NORMAL = 1.96  # half-width of a 95% interval, in standard errors


def weighted_sum(estimates: Sequence[Estimate], factors: Sequence[float], sizes: Sequence[float]) -> Estimate:
    """Returns the estimate of a weighted sum of returns in different tasks.

    In a task in which nothing varied, outcomes may be unseen all the same: their error is taken from the interval that
    :meth:`rido.Estimate.interval` gives such a task.

    Args:
        estimates: of the tasks.
        factors: the weight of each estimate in the sum.
        sizes: by how much an unseen outcome may change the return of each task, where nothing varied in it.
    """
    return sum_of([_with_unseen(estimate, size) for estimate, size in zip(estimates, sizes, strict=True)], factors)


def _with_unseen(estimate: Estimate, size: float) -> Estimate:
    if not estimate.nothing_varied:
        return estimate
    full = int(estimate.schedule.counts[-1])
    error = max(2 * abs(estimate.value), size) * unseen_share(0.05, full) / _NORMAL
    return replace(estimate, standard_error=error, effective_trajectories=float(full))


def interquartile_mean(scores: ArrayLike) -> float:
    """Returns the mean of the middle half of all scores, as rliable's ``aggregate_iqm`` does.

    Args:
        scores: shape (runs, tasks).

    Example:
        >>> interquartile_mean([[0.0, 1.0, 2.0, 9.0]])
        1.5
    """
    ordered = np.sort(np.asarray(scores, dtype=np.float64), axis=None)
    cut = int(0.25 * ordered.size)  # a quarter at either end, rounded down as scipy.stats.trim_mean does
    return float(ordered[cut : ordered.size - cut].mean())


def probability_of_improvement(scores: ArrayLike, others: ArrayLike) -> float:
    """Returns the probability that a run of one algorithm is better than one of another, averaged over tasks.

    It is rliable's ``probability_of_improvement``: the Mann-Whitney statistic of each task, in which a tie counts half.

    Args:
        scores: shape (runs, tasks).
        others: of the other algorithm, shape (runs, tasks).

    Example:
        >>> probability_of_improvement([[1.0, 5.0]], [[0.0, 5.0]])
        0.75
    """
    one, other = (np.asarray(each, dtype=np.float64) for each in (scores, others))
    if one.ndim != 2 or other.ndim != 2 or one.shape[1] != other.shape[1]:
        raise ValueError(f"scores and others must be of the same tasks, got shapes {one.shape} and {other.shape}")
    return float(np.mean((np.sign(one[:, None] - other[None]) + 1) / 2))
