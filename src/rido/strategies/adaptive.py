"""Adaptive: learns while it collects where the error comes from. The default of :func:`rido.evaluate`.

Two sources tell how much each time step deserves. The *data* estimates the weights f_t of Theorem 3.2 of the paper,
well where there are many samples and badly after a small pilot. The *prior* ``gamma^2t``, the weights of rewards that
are equally uncertain at every step, knows nothing of the rewards but never errs by accident. In plain words:

1.  **Pilot.** A few trajectories, or 1% of a very large budget. Where the discount leaves almost nothing of late
    rewards, half of them stop early.
2.  **Phases.** Each phase adds half of what was spent so far, so that mistakes of the first plans stay small. Where so
    many trajectories were seen that there is little left to learn, it adds more.
3.  **Smooth.** Where neighbouring weights differ no more than chance makes them differ, they are averaged.
4.  **Temper.** While there are few full-length trajectories, the weights are drawn towards the prior.
5.  **Hedge.** A small part of each phase follows the prior alone. Steps that look quiet are looked at again.
6.  **Data.** The rest goes, one whole trajectory after the other, to the length that lowers the error most per
    transition, counting what was collected before. The plan is for all that is left; a phase takes its share.

``benchmarks/adaptive.py`` measures what each part is worth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rido.allocation import fill, pool
from rido.estimate import Estimate
from rido.moments import Moments
from rido.schedule import Schedule
from rido.strategies.base import Strategy

Array = NDArray[np.float64]

_LEAST_PILOT = 5  # trajectories, where the budget is large enough
_PILOT_SHARE = 0.01  # of the budget at least, which counts where the budget is very large
_REACH = 0.02  # the pilot's short trajectories end where gamma^t falls to this
_GROWTH = 0.5  # transitions of a phase, as a share of those before it
_PLENTY = 200  # full-length trajectories, beyond which weights are known well enough for longer phases
_LONGER = 80  # of them, beyond, for each time that everything before is added
_LEAST_GROWTH = 0.25  # the same at the least, where ``until`` is close
_RELEARN = 1.2  # weights are learned again when this many times the transitions have been spent
_WINDOW = 0.05  # half-width of the moving average, as a share of the horizon
_TEMPER = 2.0  # exponent of the prior: this over the degrees of freedom of the last step
_HEDGE = 1.0  # share of a phase that follows the prior: this over the number of full-length trajectories
_LOOKS = 0.5  # share of the 5% by which the interval may miss at each look with ``until``


@dataclass(frozen=True)
class _Lesson:
    """What a plan needs to know.

    Attributes:
        weights: f_t as they are to be planned with.
        prior: the prior's weights, averaged over the blocks of steps that share one count.
        costs: price of a sample of each step: its survival, and for the first one that of the reset.
        survival: transitions that a planned sample of each step is expected to take.
        spread: S such that x transitions, spent at best, leave a variance of about ``S^2 / x``.
    """

    weights: Array
    prior: Array
    costs: Array
    survival: Array
    spread: float


class Adaptive(Strategy):
    """Spends a budget nearly as well as if the weights f_t had been known beforehand, and can stop early.

    Args:
        horizon: number of time steps T.
        budget: transitions to spend, at least two full trajectories (six if ``unbiased``).
        gamma: discount factor in (0, 1].
        unbiased: plan each half of the data from the other half, which makes the estimate exactly unbiased at the price
            of a single plan. Plans that see the data they are added to bias the estimate a little: rare rewards that
            the pilot happened to miss are looked for less. What early ends leave unspent after the pilot
            stays unspent.
        until: stop when the 95% interval is at most this much to either side; the budget is the most to spend. The
            rule looks at the width alone and never at the value, for which such intervals keep their coverage in the
            limit of small widths (Chow and Robbins, 1965). For large ones the standard error is widened so
            that the interval is the one that would hold at 97.5% if it were looked at only once.
        reset_price: what beginning a trajectory costs, in transitions. It makes short trajectories less
            attractive; the budget still counts transitions only.

    Example:
        >>> strategy = Adaptive(horizon=10, budget=100, gamma=0.9)
        >>> strategy.ask()
        Schedule(counts=[5, 5, 5, 5, 5, 5, 5, 5, 5, 5])
    """

    def __init__(
        self,
        *,
        horizon: int,
        budget: int,
        gamma: float,
        unbiased: bool = False,
        until: float | None = None,
        reset_price: float = 0.0,
    ) -> None:
        super().__init__(horizon=horizon, budget=budget, gamma=gamma)
        least = 6 if unbiased else 2
        if self.budget < least * self.horizon:
            raise ValueError(
                f"budget must pay for {least} full trajectories, {least * self.horizon} steps, got {self.budget}"
            )
        if unbiased and until is not None:
            raise ValueError("until must be None where unbiased is True: stopping when it looks good is a bias")
        if until is not None and not 0 < until < math.inf:
            raise ValueError(f"until must be positive and finite, got {until!r}")
        if not 0 <= reset_price < math.inf:
            raise ValueError(f"reset_price must be at least 0 and finite, got {reset_price!r}")
        self.unbiased = bool(unbiased)
        self.until = None if until is None else float(until)
        self.reset_price = float(reset_price)
        self.options = {"unbiased": self.unbiased, "until": self.until, "reset_price": self.reset_price}
        self._lesson: _Lesson | None = None
        self._learned_at = 0
        self._owed = 0.0

    def estimate(self) -> Estimate:
        """Returns the estimate from everything told so far; with ``unbiased`` the mean of the two halves' own."""
        if self.unbiased and len(self._told) >= 2:
            halves = [self._moments_of(self._told[which::2]) for which in range(2)]
            return Estimate.mean([Estimate.from_moments(half) for half in halves])
        estimate = super().estimate()
        if self.until is None or not 0 < estimate.standard_error < math.inf:
            return estimate
        widening = _half_width(estimate, 1 - 0.05 * _LOOKS) / _half_width(estimate, 0.95)
        return replace(estimate, standard_error=widening * estimate.standard_error)

    def forecast(self, width: float | None = None) -> int:
        """Returns about how many transitions it takes until the 95% interval is this much to either side.

        Args:
            width: the half-width; ``until`` if not given.
        """
        width = self.until if width is None else width
        if width is None or not width > 0:
            raise ValueError(f"width must be positive, got {width!r}")
        if self.spent == 0:
            raise ValueError("forecast() needs the rewards of the pilot, got none yet")
        reached = _half_width(self.estimate(), 0.95)
        if reached <= width:
            return self.spent
        variance = (width / reached * super().estimate().standard_error) ** 2
        return max(self.spent + 1, math.ceil(self._learn().spread ** 2 / variance))

    def _plan(self, left: int) -> Schedule | None:
        if self.unbiased:
            return self._plan_half(len(self._told))
        if self.spent == 0:
            return self._pilot(self.budget / (2 * self.horizon))
        size = max(_GROWTH, (int(self.moments.counts[-1]) - _PLENTY) / _LONGER) * self.spent
        if self.until is not None:
            if _half_width(self.estimate(), 0.95) <= self.until:
                return None
            size = min(size, max(self.forecast() - self.spent, _LEAST_GROWTH * self.spent))
        return self._phase(size, left)

    def _pilot(self, most: float) -> Schedule:
        """Returns full-length trajectories, half of them cut where the discount leaves little of what follows."""
        affordable = self.budget / self.horizon
        wanted = max(_LEAST_PILOT, math.ceil(math.sqrt(affordable)), math.ceil(_PILOT_SHARE * affordable))
        count = int(min(wanted, max(2, most)))
        reach = self.horizon if self.gamma == 1 else math.ceil(math.log(_REACH) / math.log(self.gamma))
        full = count if reach >= self.horizon else max(2, count // 2)
        return Schedule(np.where(np.arange(self.horizon) < reach, count, full))

    def _phase(self, size: float, left: int) -> Schedule:
        """Returns a phase that is expected to take ``size`` of the transitions that are left.

        The hedge is owed its part of every phase and paid in units of a full-length trajectory. The data's plan
        is for all that is left. Scaled down and rounded, its counts still never increase, and no trajectory is cut
        short because a phase ends.
        """
        lesson, history = self._learn(), self.moments.counts
        self._owed += min(size, left) * min(0.5, _HEDGE / int(history[-1]))
        units = max(0, math.floor(self._owed / float(lesson.survival.sum()) + 0.5))
        room = min(units * self.horizon, left)
        hedge = fill(lesson.prior, math.inf, history, costs=lesson.costs, limit=room)
        spent = float(hedge @ lesson.survival)
        self._owed -= spent
        room = left - int(hedge.sum())
        plan = fill(lesson.weights, math.inf, history + hedge, costs=lesson.costs, limit=room, pooled=False)
        if (expected := float(plan @ lesson.survival)) > size - spent:
            part = np.rint(plan * max(0.0, (size - spent) / expected)).astype(np.int64)
            if part.sum() <= room:
                plan = part if (part + hedge).any() else np.minimum(plan, 1)
        return Schedule(plan + hedge)

    def _learn(self) -> _Lesson:
        if self._lesson is None or self.spent >= _RELEARN * self._learned_at:
            self._lesson, self._learned_at = _learn(self.moments, self.reset_price), self.spent
        return self._lesson

    def _plan_half(self, rounds: int) -> Schedule | None:
        """Plans for the two halves in turn: a pilot for each, then the rest of each from what the other's pilot told.

        The counts of a half do not depend on its own rewards, so its own estimate is that of a schedule fixed
        beforehand, which is unbiased (Section 3 of the paper). What early ends in one half's pilot left unspent goes to
        the other half, for the same reason.
        """
        pilot = self._pilot(self.budget / (4 * self.horizon))
        if rounds < 2:
            return pilot
        if rounds == 4:
            return None
        other = self._moments_of([self._told[3 - rounds]])
        lesson = _learn(other, self.reset_price)
        left = (self.budget + rounds % 2) // 2 - other.transitions
        return Schedule(fill(lesson.weights, math.inf, pilot.counts, costs=lesson.costs, limit=left, pooled=False))


def _half_width(estimate: Estimate, confidence: float) -> float:
    low, high = estimate.interval(confidence)
    return (high - low) / 2


def _learn(moments: Moments, reset_price: float) -> _Lesson:
    """Returns the weights to plan with: the data's, smoothed and tempered."""
    counts = moments.counts
    prior = np.maximum(moments.discounts**2, 1e-12)
    # Steps that no trajectory lived to see are not free.
    survival = np.maximum(moments.survival, 1 / (counts + 1))
    costs = survival + reset_price * (np.arange(counts.size) == 0)
    weights = _smooth(*moments.weights_with_variances(), prior)
    ratios = pool(weights, costs)
    root = np.sqrt(ratios)
    spread = math.sqrt(float(survival @ root) * float(costs @ root))
    if ratios[0] == 0:  # noise has made the sum negative, or nothing varied at all
        weights, ratios = weights if weights.any() else prior, pool(prior, costs)
    prior = _block_means(prior, costs, ratios)
    weights = _temper(weights, ratios, prior, int(counts[-1]))
    return _Lesson(weights=weights, prior=prior * costs, costs=costs, survival=survival, spread=spread)


def _smooth(weights: Array, variances: Array, prior: Array) -> Array:
    """Draws weights towards a moving average by as much as chance alone explains their distance from it.

    The average is of the ratio to the prior, so that a weight that falls with the discount is left as it is. This
    is James-Stein shrinkage, squared to be careful: noise as large as the distance gives the average, and
    half as large only a quarter of the way.
    """
    window = np.ones(2 * max(1, int(_WINDOW * weights.size)) + 1)
    sums = (np.convolve(values, window)[window.size // 2 :][: weights.size] for values in (weights, prior))
    distance = prior * np.divide(*sums) - weights
    total = float(distance @ distance)
    noise = min(1.0, float(variances.sum()) / total) if total > 0 else 0.0
    return weights + noise**2 * distance


def _block_means(prior: Array, costs: Array, ratios: Array) -> Array:
    """Averages the prior over the blocks of steps that share one count, so that it cuts no block in two."""
    starts = np.flatnonzero(np.diff(ratios, prepend=np.inf))
    sizes = np.diff(starts, append=ratios.size)
    return np.repeat(np.add.reduceat(prior, starts) / np.add.reduceat(costs, starts), sizes)


def _temper(weights: Array, ratios: Array, prior: Array, full_length: int) -> Array:
    """Replaces each block's level by a geometric mean of it and the prior's, which matters while data is scarce."""
    exponent = min(0.5, _TEMPER / (full_length - 1))
    positive = ratios > 0
    factors = np.zeros(ratios.size)
    factors[positive] = (prior[positive] / ratios[positive]) ** exponent
    return weights * factors
