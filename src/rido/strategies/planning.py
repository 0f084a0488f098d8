"""Which weights to plan with: those whose plan does best on trajectories that it was not made from.

Weights f_t from few trajectories are noisy, and a plan that follows the noise cuts trajectories where it should not.
But the variance ``sum_t f_t / n_t`` of a plan is linear in the weights, so trajectories that had no part in a plan
score it without bias. That gives one rule for dense and for sparse rewards:

1.  **Candidates.** Full-length trajectories; the data's weights; the discount's, ``gamma^2t``; and blends of the data's
    with either of the others.
2.  **Cross-validation.** Each is planned from four folds of the trajectories and scored on the fifth, against
    full-length trajectories at the same cost. One is taken only if it gains more than the error of that gain.
3.  **Insurance.** A tail of rewards that has never varied may do so yet: the failure that no trajectory so far has met.
    Such tails get some samples all the same, for a premium that is limited and falls with what was seen.

``benchmarks/adaptive.py`` measures what this is worth on dense rewards, ``benchmarks/trust`` on sparse ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rido.core.allocation import allocate_rows, pool
from rido.core.moments import Moments

Array = NDArray[np.float64]

_FOLDS = 5
_BLENDS = (0.25, 0.5, 0.75)  # shares of the data's weights in a blend
_MARGIN = 1.25  # standard errors by which a plan must beat full-length trajectories
_CONSTANT = 1e-9  # share of the largest variance below which a tail of rewards did not vary
_UNSEEN = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)  # insured events, as a share of one full-length trajectory
_PREMIUM = 2.0  # most that insurance may add to the variance, relative: this over the full-length trajectories


@dataclass(frozen=True)
class Lesson:
    """What a plan needs to know.

    Attributes:
        weights: f_t to plan with.
        truncates: whether trajectories are to be cut anywhere; if not, all are to have full length.
        costs: price of a sample of each step: its survival, and for the first one that of the reset.
        survival: transitions that a planned sample of each step is expected to take.
        folds: the data's weights by folds of the trajectories.
        spread: S such that x transitions, spent by these weights, leave a variance of about ``S^2 / x``.
    """

    weights: Array
    truncates: bool
    costs: Array
    survival: Array
    folds: Array
    spread: float

    def gains(self, counts: NDArray[np.int64]) -> Array:
        """Returns what one more trajectory of each length 1, 2, ... surely takes off the variance of these counts.

        It is the mean over folds less its standard error, and may be negative: where early and late rewards make up
        for each other, more samples of the early ones alone do harm.
        """
        gains = np.cumsum(self.folds / (counts * (counts + 1.0)), axis=1)
        sure: Array = gains.sum(axis=0) - math.sqrt(len(gains)) * gains.std(axis=0, ddof=1)
        return sure


def learn(moments: Moments, *, budget: float, reset_price: float = 0.0) -> Lesson:
    """Learns from trajectories how others should be planned.

    Args:
        moments: of the trajectories, at least two of them with full length.
        budget: expected cost of all trajectories when the budget is spent.
        reset_price: what beginning a trajectory costs, in transitions.
    """
    counts = moments.counts
    full = int(counts[-1])
    # Steps that no trajectory lived to see are not free.
    survival = np.maximum(moments.survival, 1 / (counts + 1))
    costs = survival + reset_price * (np.arange(counts.size) == 0)
    folds = moments.weights_by_fold(max(2, min(_FOLDS, full)))
    weights = folds.sum(axis=0)
    fewest = min(float(full), budget / float(costs.sum()))
    chosen: Array | None = None
    if float(weights.sum()) > _CONSTANT * float(moments.discounts**2 @ moments.variances):
        chosen = _choose(folds, moments.discounts**2, costs, budget, fewest)
    if chosen is not None:
        chosen = _insure(chosen, weights, costs, budget, fewest, moments.largest_deviation**2 / full, full)
    planned = _last(np.maximum(weights.sum(), 0.0), costs.size) if chosen is None else chosen
    root = np.sqrt(pool(planned, costs))
    return Lesson(
        weights=planned,
        truncates=chosen is not None,
        costs=costs,
        survival=survival,
        folds=folds,
        spread=math.sqrt(float(survival @ root) * float(costs @ root)),
    )


def _last(total: NDArray[np.float64] | np.float64, horizon: int) -> Array:
    """Returns weights under which full-length trajectories are best: everything uncertain lies in the last step."""
    weights = np.zeros((*np.shape(total), horizon))
    weights[..., -1] = total
    return weights


def _candidates(weights: Array, prior: Array) -> Array:
    """Returns the weights of all plans to choose from, shape (rows, candidates, horizon), full length first."""
    total = np.maximum(weights.sum(axis=1), 0.0)
    last = _last(total, weights.shape[1])
    prior = prior / prior.sum() * total[:, None]
    blends = [share * weights + (1 - share) * base for base in (last, prior) for share in (0.0, *_BLENDS)]
    return np.stack([*blends, weights], axis=1)


def _choose(folds: Array, prior: Array, costs: Array, budget: float, fewest: float) -> Array | None:
    """Returns the candidate that surely gains most over full-length trajectories; None where none does."""
    number, horizon = folds.shape
    weights = folds.sum(axis=0)
    # Scaled so that folds of equal size would all give the weights themselves.
    others, held_out = (weights - folds) * number / (number - 1), folds * number
    candidates = _candidates(others, prior)
    plans = allocate_rows(candidates.reshape(-1, horizon), budget, minimum=fewest, costs=costs)
    uniform = float(costs.sum()) / budget
    scores = np.einsum("kt,kct->kc", held_out, 1 / plans.reshape(candidates.shape) - uniform)
    error = scores.std(axis=0, ddof=1) / math.sqrt(number)
    bounds = (scores.mean(axis=0) + _MARGIN * error) / (uniform * float(weights.sum()))
    best = int(bounds.argmin())
    return None if best == 0 or bounds[best] > -_CONSTANT else _candidates(weights[None], prior)[0, best]


def _insure(
    chosen: Array, weights: Array, costs: Array, budget: float, fewest: float, unseen: float, full: int
) -> Array:
    """Raises the weights of a tail that has never varied.

    With v_h the variance of what is still to come from step h on, ``f_t = v_t - v_{t+1}``, and the error of a schedule
    is a mix of the v_h with coefficients of at least 0. So an event that was not seen is insured by raising v_h there:
    to what it would be if one of the full-length trajectories had met the largest deviation seen anywhere. Where that
    costs more than the premium allows, a smaller event is insured.
    """
    tails = np.cumsum(weights[::-1])[::-1]
    varied = np.maximum.accumulate(np.abs(tails[::-1]))[::-1] > _CONSTANT * np.abs(tails).max()
    if varied.all():
        return chosen
    variances = np.cumsum(chosen[::-1])[::-1]
    insured = np.where(varied, variances, np.maximum(variances, unseen * np.array([*_UNSEEN, 0.0])[:, None]))
    raised = insured - np.concatenate([insured[:, 1:], np.zeros((len(insured), 1))], axis=1)
    plans = allocate_rows(raised, budget, minimum=fewest, costs=costs)
    variance = np.sum(weights / plans, axis=1)
    affordable = np.flatnonzero(variance <= variance[-1] + _PREMIUM / full * abs(variance[-1]))
    first: Array = raised[affordable[0]]
    return first
