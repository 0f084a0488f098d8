"""Estimate: the expected return as the collected rewards tell it, with its error bars."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rido import _checks
from rido.allocation import hoeffding_weights
from rido.moments import Moments
from rido.schedule import Schedule

# Where the t interval stops holding what it promises; results/adaptive.md counts missed and false alarms.
_FEWEST_DEGREES = 9
_LARGEST_KURTOSIS = 6.0
_LARGEST_SKEWNESS = 0.2


@dataclass(frozen=True)
class Estimate:
    """An estimate of the expected discounted return J over the horizon.

    Attributes:
        value: the estimate, (1) of the paper.
        standard_error: its standard error in units of the return; infinite when fewer than two trajectories
            were planned to the horizon.
        degrees_of_freedom: of the t distribution behind the interval. Where all trajectories have one length they
            are their number less one.
        schedule: planned samples of each step that the estimate rests on.
        gamma: discount factor.
        early_ends: whether the environment ended a trajectory before its planned length.
    """

    value: float
    standard_error: float
    degrees_of_freedom: float
    schedule: Schedule
    gamma: float
    early_ends: bool

    @classmethod
    def from_moments(cls, moments: Moments) -> "Estimate":
        """Estimates the return from everything these moments have seen.

        The value is the sum of discounted mean rewards, which is (1) of the paper with its sums exchanged. The degrees
        of freedom of its error are Satterthwaite's, ``(sum_h V_h)^2 / sum_h V_h^2 / d_h`` for parts V_h of the
        variance with d_h each.
        """
        schedule = Schedule(moments.counts)
        counts = schedule.counts
        if counts[-1] < 1:
            raise ValueError("an estimate needs at least one trajectory of full length, got none")
        error, freedom = math.inf, 0.0
        if counts[-1] > 1:
            parts, freedoms = moments.error_parts()
            error = math.sqrt(parts.sum())
            freedom = _satterthwaite(parts, freedoms, default=float(counts[-1] - 1))
        return cls(
            value=float(moments.discounts @ moments.means),
            standard_error=error,
            degrees_of_freedom=freedom,
            schedule=schedule,
            gamma=moments.gamma,
            early_ends=moments.transitions < schedule.transitions,
        )

    @classmethod
    def mean(cls, estimates: list["Estimate"]) -> "Estimate":
        """Returns the mean of independent estimates of one return, all with the same weight."""
        variances = np.array([estimate.standard_error**2 for estimate in estimates])
        freedoms = np.array([estimate.degrees_of_freedom for estimate in estimates])
        finite = bool(np.isfinite(variances).all())
        return cls(
            value=float(np.mean([estimate.value for estimate in estimates])),
            standard_error=math.sqrt(variances.sum()) / len(estimates),
            degrees_of_freedom=_satterthwaite(variances, freedoms, default=float(freedoms.sum())) if finite else 0.0,
            schedule=Schedule(np.sum([estimate.schedule.counts for estimate in estimates], axis=0)),
            gamma=estimates[0].gamma,
            early_ends=any(estimate.early_ends for estimate in estimates),
        )

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Returns the interval that holds J with about this confidence, from the t distribution."""
        tail = (1 + _checks.probability("confidence", confidence)) / 2
        if not math.isfinite(self.standard_error):
            return -math.inf, math.inf
        from scipy.special import stdtrit  # twice the time of numpy's import

        half_width = float(stdtrit(self.degrees_of_freedom, tail)) * self.standard_error
        return self.value - half_width, self.value + half_width

    def hoeffding_interval(self, reward_range: tuple[float, float], confidence: float = 0.95) -> tuple[float, float]:
        """Returns the generalised Hoeffding interval, (2) of the paper: valid for any rewards in the range.

        It holds for schedules that were fixed before any reward was seen.

        Args:
            reward_range: lowest and highest possible reward. The zeros after an early end must lie in it too, so it
                is widened to contain 0 where there were any.
            confidence: the probability 1 - delta of holding J.
        """
        low, high = _checks.reward_range("reward_range", reward_range)
        if self.early_ends:
            low, high = min(low, 0.0), max(high, 0.0)
        delta = 1 - _checks.probability("confidence", confidence)
        spread = self.schedule.variance(hoeffding_weights(self.schedule.horizon, self.gamma))
        half_width = (high - low) * math.sqrt(math.log(2 / delta) / 2 * spread)
        return self.value - half_width, self.value + half_width


def interval_warnings(moments: Moments, estimate: Estimate) -> tuple[str, ...]:
    """Returns what in these rewards speaks against the t interval of the estimate, one sentence for each cause."""
    warnings = []
    if estimate.degrees_of_freedom < _FEWEST_DEGREES:
        full = int(moments.counts[-1])
        warnings.append(
            f"too few trajectories: {full} of full length, and the error bar rests on about "
            f"{estimate.degrees_of_freedom + 1:.0f}, which would not show rare returns"
        )
    if estimate.standard_error == 0:
        warnings.append(
            "all trajectories gave the same rewards: the interval has no width, which rare rewards may break"
        )
    if 0 < estimate.standard_error < math.inf:
        skewness, kurtosis = abs(moments.skewness), moments.kurtosis
        if kurtosis > _LARGEST_KURTOSIS:
            warnings.append(
                f"rewards have heavy tails (kurtosis {kurtosis:.0f}, normal is 3): rare rewards that were not seen may "
                f"lie outside of the interval"
            )
        # As few normal contributions have a skewness of about sqrt(6) / n by chance; twice that is no news.
        elif skewness > max(_LARGEST_SKEWNESS, 5 / estimate.degrees_of_freedom):
            warnings.append(
                f"a few trajectories make up much of the error (skewness {skewness:.2f}): rare returns that were not "
                f"seen may lie outside of the interval"
            )
    return tuple(warnings)


def _satterthwaite(parts: NDArray[np.float64], freedoms: NDArray[np.float64], *, default: float) -> float:
    """Returns the degrees of freedom of a sum of estimated variances; the default where the sum is zero."""
    total = float(parts.sum())
    return 1 / float(np.sum((parts / total) ** 2 / freedoms)) if total > 0 else default
