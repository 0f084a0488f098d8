"""Chooses the weights to plan with, by cross-validation.

Weights f_t from few trajectories are noisy, and a plan that follows the noise truncates trajectories where it should
not. But the variance ``sum_t f_t / n_t`` of a plan is linear in the weights, so trajectories that were not used for a
plan give an unbiased score of it. The same rule serves dense and sparse rewards:

1.  **Candidates.** Full-length trajectories; the data's weights; weights ``gamma^2t`` of the discount; and blends of
    the data's weights with either of the others.
2.  **Cross-validation.** Each candidate is planned from four folds of the trajectories and scored on the fifth, against
    full-length trajectories at the same cost. It is taken only if its gain exceeds the error of that gain.
3.  **Insurance.** Late rewards that never varied may still vary: a rare failure may be unseen so far. Such steps get
    some samples all the same. What this may add to the variance is limited and falls with the trajectories collected.
4.  **Continuity.** Few trajectories that reach a step show little of what varies there, and a plan that follows them
    ends where the first plans ended. So the weight of a step with few samples falls off gradually from that of the step
    before: from phase to phase more of what lies behind is seen.

``benchmarks/adaptive.py`` measures what this is worth on dense rewards, ``benchmarks/trust`` on sparse ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rido.core.allocation import Array, allocate_rows, pool, tail_sums
from rido.core.moments import Moments, rescale
from rido.core.scaling import scaled_number

_FOLDS = 5
_BLENDS = (0.25, 0.5, 0.75)  # shares of the data's weights in a blend
_MOST_BLOCKS = 10_000  # steps that are planned one by one in cross-validation
_MARGIN = 1.25  # standard errors by which a plan must beat full-length trajectories
_CONSTANT = 1e-9  # rewards did not vary if their variance is below this share of the largest
_UNSEEN = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)  # insured events, in units of one full-length trajectory
_CONTINUITY = (300.0, 100.0, 30.0, 10.0, 3.0)  # m, where a step with n samples keeps m / (n + m) of the weight before
_EXCESS = 0.1  # continuity may raise the variance by this share
_PREMIUM = 2.0  # insurance may raise the variance by this over the number of full-length trajectories, relatively


@dataclass(frozen=True)
class Lesson:
    """What a plan is made from.

    Attributes:
        weights: f_t to plan with, in any unit.
        truncates: whether to truncate trajectories; if not, all have full length.
        costs: price of a sample of each step: its survival, plus the price of the reset for the first step.
        survival: transitions that a planned sample of each step is expected to take.
        folds: the data's weights in the same unit, split by folds of the trajectories.
        spread: S such that x transitions, planned with these weights, give a variance of about ``S^2 / x``.
    """

    weights: Array
    truncates: bool
    costs: Array
    survival: Array
    folds: Array
    spread: float

    def gains(self, counts: NDArray[np.int64]) -> Array:
        """Returns a lower bound of what one more trajectory of each length 1, 2, ... takes off the variance.

        It is the mean gain over the folds less its standard error. It may be negative: where early and late rewards
        cancel out, more samples of the early ones alone do harm.

        Args:
            counts: samples of each step so far.
        """
        gains = np.cumsum(self.folds / (counts * (counts + 1.0)), axis=1)
        sure: Array = gains.sum(axis=0) - math.sqrt(len(gains)) * gains.std(axis=0, ddof=1)
        return sure


def learn(moments: Moments, *, budget: float, reset_price: float = 0.0, gains: Array | None = None) -> Lesson:
    """Learns from trajectories how to plan others.

    Args:
        moments: of the trajectories, at least two of them with full length.
        budget: expected cost of all trajectories when the budget is spent.
        reset_price: price of starting a trajectory, in transitions.
        gains: share of the variance v_h of the rewards from each step h on that low-discrepancy starts leave.
    """
    prior, gamma = moments.discounts**2, moments.gamma
    (moments,), unit = rescale(moments)
    counts = moments.counts
    full = int(counts[-1])
    # Steps that no trajectory reached still have a price.
    survival = np.maximum(moments.survival, 1 / (counts + 1))
    costs = survival + reset_price * (np.arange(counts.size) == 0)
    folds = moments.weights_by_fold(max(2, min(_FOLDS, full)))
    if gains is not None:
        folds = _differences(tail_sums(folds) * gains)
    weights = folds.sum(axis=0)
    fewest = min(float(full), budget / float(costs.sum()))
    chosen: Array | None = None
    if float(weights.sum()) > _CONSTANT * float(moments.discounts**2 @ moments.variances):
        chosen = _choose(folds, prior, costs, budget, fewest)
    if chosen is not None:
        chosen = _insure(chosen, weights, costs, budget, fewest, moments.largest_deviation**2 / full, full)
        chosen = _continue(chosen, weights, costs, budget, fewest, counts, gamma)
    planned = _last(np.maximum(weights.sum(), 0.0), costs.size) if chosen is None else chosen
    root = np.sqrt(pool(planned, costs))
    return Lesson(
        weights=planned,
        truncates=chosen is not None,
        costs=costs,
        survival=survival,
        folds=folds,
        spread=scaled_number(math.sqrt(float(survival @ root) * float(costs @ root)), unit),
    )


def _differences(variances: Array) -> Array:
    """Returns the weights ``f_t = v_t - v_{t+1}`` of rows of variances v_h."""
    weights: Array = variances - np.concatenate([variances[:, 1:], np.zeros((len(variances), 1))], axis=1)
    return weights


def _last(total: NDArray[np.float64] | np.float64, horizon: int) -> Array:
    """Returns weights under which full-length trajectories are best: only the last step varies."""
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
    """Returns the candidate with the best lower bound of its gain over full-length trajectories; None if none gains."""
    number, horizon = folds.shape
    weights = full_weights = folds.sum(axis=0)
    full_prior = prior
    if horizon > _MOST_BLOCKS:  # compare plans whose counts change from block to block, not from step to step
        blocks = np.arange(0, horizon, math.ceil(horizon / _MOST_BLOCKS))
        weights, prior, costs, folds = (np.add.reduceat(x, blocks, axis=-1) for x in (weights, prior, costs, folds))
    # Scaled to estimate the weights themselves.
    others, held_out = (weights - folds) * number / (number - 1), folds * number
    candidates = _candidates(others, prior)
    plans = allocate_rows(candidates.reshape(-1, weights.size), budget, minimum=fewest, costs=costs)
    uniform = float(costs.sum()) / budget
    np.divide(1, plans, out=plans)
    plans -= uniform
    scores = np.einsum("kt,kct->kc", held_out, plans.reshape(candidates.shape))
    error = scores.std(axis=0, ddof=1) / math.sqrt(number)
    bounds = (scores.mean(axis=0) + _MARGIN * error) / (uniform * float(weights.sum()))
    best = int(bounds.argmin())
    return None if best == 0 or bounds[best] > -_CONSTANT else _candidates(full_weights[None], full_prior)[0, best]


def _continue(
    chosen: Array,
    weights: Array,
    costs: Array,
    budget: float,
    fewest: float,
    counts: NDArray[np.int64],
    gamma: float,
) -> Array:
    """Lets weights fall off gradually where steps have few samples, as far as that is cheap."""
    pooled, rows = pool(chosen, costs), np.array(_CONTINUITY)[:, None]
    handed_on = np.cumsum(np.log(rows / (counts + rows)) + 2 * math.log(gamma), axis=1)
    with np.errstate(divide="ignore"):
        raised = np.exp(handed_on + np.maximum.accumulate(np.log(pooled) - handed_on, axis=1))
    continued = np.vstack([np.maximum(pooled, raised) * costs, chosen])
    return _affordable(continued, weights, costs, budget, fewest, _EXCESS)


def _affordable(rows: Array, weights: Array, costs: Array, budget: float, fewest: float, excess: float) -> Array:
    """Returns the first of several weights whose plan has a variance of at most 1 + excess times that of the last."""
    variance = np.sum(weights / allocate_rows(rows, budget, minimum=fewest, costs=costs), axis=1)
    first: Array = rows[np.flatnonzero(variance <= variance[-1] + excess * abs(variance[-1]))[0]]
    return first


def _insure(
    chosen: Array, weights: Array, costs: Array, budget: float, fewest: float, unseen: float, full: int
) -> Array:
    """Raises the weights of late steps that never varied.

    Let v_h be the variance of the discounted rewards from step h on. Then ``f_t = v_t - v_{t+1}``, and the variance of
    a schedule is a sum of the v_h with coefficients of at least 0. So a schedule is insured against an unseen event by
    raising v_h to what it would be if one full-length trajectory had shown the largest deviation seen anywhere. Where
    that costs more than the premium, a smaller event is insured.
    """
    tails = tail_sums(weights)
    varied = np.maximum.accumulate(np.abs(tails[::-1]))[::-1] > _CONSTANT * np.abs(tails).max()
    if varied.all():
        return chosen
    variances = tail_sums(chosen)
    insured = np.where(varied, variances, np.maximum(variances, unseen * np.array([*_UNSEEN, 0.0])[:, None]))
    return _affordable(_differences(insured), weights, costs, budget, fewest, _PREMIUM / full)
