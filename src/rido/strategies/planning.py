"""Chooses the weights to plan with: a trajectory is cut only where the data shows that this is safe.

Let v_h be the variance of the rewards from step h on, and C_h the share of a full-length trajectory's cost that is
still to come at h. The variance of a schedule is a sum of the v_h::

    sum_t f_t / n_t  =  sum_h v_h (1 / n_h - 1 / n_{h-1}),     1 / n_{-1} = 0

All coefficients are at least 0 because counts never increase. So v_0 is at stake in every schedule, and v_h where
trajectories are cut at h. Cutting there pays if v_h < C_h v_0, the line from (0, v_0) to (T, 0): the best schedule
follows the greatest convex function below v_h.

Few trajectories show the v_h with large errors, and the best schedule for estimates looks for those that are too small.
So each v_h is replaced by an upper bound, which adds two terms to the estimate:

1.  **Caution.** A multiple of the standard error of ``v_h / v_0``, from the differences between folds of trajectories.
2.  **Unseen events.** Where the trajectories that go on after h happen to be alike, the estimate and its error are
    both too small. By the rule of succession one more of m trajectories may be of a kind that was not seen there. If
    it is like those that make up the variance of the return, it adds v_0 times the kurtosis of the returns over m, and
    half of that is taken (Jeffreys' rule). It is a share of what may lie behind: there, a trajectory that goes on has
    as uneven rewards before it as at any earlier step, up to the discount. So the steps behind which few trajectories
    are left, and which seem safe to cut for that reason alone, are not cut.

One rule replaces a test of the whole plan: where the bounds lie above the line, trajectories have full length; where
they are a little below, the plan differs a little. Unseen events widen the interval too, where a plan has cut.

Steps that no trajectory reached cost nothing and vary by nothing; they share the count of the last step reached.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rido.core.allocation import Array, pool, tail_sums, unit_of
from rido.core.moments import Moments
from rido.strategies.settings import AdaptiveSettings

_FREE = 1e-9  # price in transitions of a step that no trajectory reached; plans need a price above 0
_SMALLEST = 1e-280  # variances below this have too few digits to plan with
_CONSTANT = 1e-9  # returns did not vary if their variance is below this share of that of some of their rewards


@dataclass(frozen=True)
class Lesson:
    """What a plan is made from.

    Attributes:
        weights: f_t to plan with.
        truncates: whether to truncate trajectories; if not, all have full length.
        costs: price of a sample of each step: its survival, plus the price of the reset for the first step.
        survival: transitions that a planned sample of each step is expected to take.
        gain: variance of full-length trajectories over that of the best plan of the same cost, by these weights.
        unseen: what events that were not seen may add to v_h.
        spread: S such that x transitions, planned with these weights, give a variance of about ``S^2 / x``.
    """

    weights: Array
    truncates: bool
    costs: Array
    survival: Array
    gain: float
    unseen: Array
    spread: float

    def unseen_variance(self, counts: NDArray[np.int64]) -> float:
        """Returns what unseen events may add to the variance of a schedule."""
        thinning = np.diff(1.0 / counts)
        return float(self.unseen[1:] @ thinning)


def learn(
    moments: Moments,
    *,
    reset_price: float = 0.0,
    gains: Array | None = None,
    settings: AdaptiveSettings = AdaptiveSettings(),  # noqa: B008 - frozen
) -> Lesson:
    """Learns from trajectories how to plan others.

    Args:
        moments: of the trajectories, at least two of them with full length.
        reset_price: price of starting a trajectory, in transitions.
        gains: share of the variance v_h of the rewards from each step h on that low-discrepancy starts leave.
        settings: constants of the strategy.
    """
    reached = int(np.count_nonzero(moments.survival))
    survival = np.maximum(moments.survival, _FREE)
    costs = survival + reset_price * (np.arange(survival.size) == 0)
    tails = tail_sums(moments.weights_by_fold(max(2, min(settings.folds, int(moments.counts[-1])))))
    if gains is not None:
        tails = tails * gains
    variances = tails.sum(axis=0)
    total = max(float(variances[0]), 0.0)
    shares = np.clip(variances / total, 0.0, 1.0) if total > 0 else np.zeros_like(variances)
    unseen = _unseen(tails, survival, float(moments.counts[0]), moments.gamma, settings)
    bounds = variances + settings.caution * _error(tails - shares * tails[:, :1]) + unseen
    bounds[0], bounds[reached:] = total, 0.0
    weights = bounds - np.append(bounds[1:], 0.0)
    varied = total > max(_CONSTANT * float(variances.max()), _SMALLEST)
    pooled = pool(weights, costs)
    gain = total * float(costs.sum()) / float(costs @ np.sqrt(pooled)) ** 2 if varied else 1.0
    truncates = varied and gain > 1 / (1 - settings.least_gain)
    if truncates:
        weights[reached:] = pooled[reached - 1] * costs[reached:]
    else:
        weights = np.zeros(weights.size)
        weights[-1] = total
    root = np.sqrt(pool(weights, costs))
    reciprocal = np.divide(1.0, root, out=np.zeros_like(root), where=root > 0)
    variance = float(np.maximum(variances, 0.0) @ np.maximum(np.diff(reciprocal, prepend=0.0), 0.0))
    return Lesson(
        weights=weights,
        truncates=truncates,
        costs=costs,
        survival=survival,
        gain=gain,
        unseen=np.where(np.arange(weights.size) < reached, unseen, 0.0),
        spread=math.sqrt(float(survival @ root) * variance),
    )


def _unseen(tails: Array, survival: Array, trajectories: float, gamma: float, settings: AdaptiveSettings) -> Array:
    """Returns the variance behind each step of events that were not seen.

    Args:
        tails: v_h by folds.
        survival: share of the trajectories that take each step, above 0.
        trajectories: number of them.
        gamma: discount factor.
        settings: constants of the strategy.
    """
    variances = np.maximum(tails.sum(axis=0), 0.0)
    if variances[0] <= 0:
        return np.zeros(survival.size)
    kurtosis = 1 + trajectories * (float(_error(tails[:, 0])) / float(variances[0])) ** 2
    doubt = settings.unseen * kurtosis / (survival * trajectories)
    with np.errstate(divide="ignore"):
        logs = np.log(variances)
    # In logarithms, because gamma^2t underflows.
    reach = np.log(survival) + 2 * math.log(gamma) * np.arange(survival.size)
    behind = np.exp(np.maximum.accumulate(logs - reach) + reach)
    unseen: Array = np.minimum(doubt, 1.0) * behind
    return unseen


def _error(folds: Array) -> Array:
    """Returns the standard error of sums over folds."""
    unit = unit_of(float(np.abs(folds).max()))
    error: Array = unit * (math.sqrt(len(folds)) * (folds / unit).std(axis=0, ddof=1))
    return error
