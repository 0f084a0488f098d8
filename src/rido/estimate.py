"""Estimate: the expected return as the collected rewards tell it, with its error bars."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from rido import _checks
from rido.allocation import hoeffding_weights
from rido.moments import RewardMoments
from rido.schedule import Schedule


@dataclass(frozen=True)
class Estimate:
    """An estimate of the expected discounted return J over the horizon.

    Attributes:
        value: the estimate, (1) of the paper.
        standard_error: its standard error in units of the return; infinite when fewer than two trajectories
            were planned to the horizon.
        degrees_of_freedom: of the t distribution behind the interval: full-length trajectories less one.
        schedule: planned samples of each step that the estimate rests on.
        gamma: discount factor.
        early_ends: whether the environment ended a trajectory before its planned length.
    """

    value: float
    standard_error: float
    degrees_of_freedom: int
    schedule: Schedule
    gamma: float
    early_ends: bool

    @classmethod
    def from_moments(cls, moments: RewardMoments) -> "Estimate":
        """Estimates the return from everything these moments have seen.

        The value is the sum of discounted mean rewards, which is (1) of the paper with its sums exchanged. Its standard
        error adds the squares of what each trajectory contributed, ``sum_t gamma^t (R_t - mean_t) / n_t``, each
        term scaled by ``sqrt(n_t / (n_t - 1))`` for the mean that was taken from the same data.
        """
        schedule = Schedule(moments.counts)
        counts = schedule.counts
        if counts[-1] < 1:
            raise ValueError("an estimate needs at least one trajectory of full length, got none")
        error = math.inf
        if counts[-1] > 1:
            error = float(np.linalg.norm(moments.project(moments.discounts / np.sqrt(counts * (counts - 1.0)))))
        return cls(
            value=float(moments.discounts @ moments.means),
            standard_error=error,
            degrees_of_freedom=int(counts[-1]) - 1,
            schedule=schedule,
            gamma=moments.gamma,
            early_ends=moments.transitions < schedule.transitions,
        )

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Returns the interval that holds J with about this confidence, from the t distribution."""
        tail = (1 + _checks.probability("confidence", confidence)) / 2
        if not math.isfinite(self.standard_error):
            return -math.inf, math.inf
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
