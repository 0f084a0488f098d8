"""Estimate: the expected return estimated from collected rewards, with its confidence interval."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np
from numpy.typing import NDArray

from rido.core import checks
from rido.core.allocation import unit_of
from rido.core.moments import Moments, union
from rido.core.schedule import Schedule

_UNSEEN = 2.0  # effective trajectories up to which the interval allows for one more of the largest contribution
_ROUNDING = 1e-12  # a number below this share of the sum of mean rewards is a rounding error


@dataclass(frozen=True)
class Estimate:
    """An estimate of the expected discounted return J over the horizon.

    Attributes:
        value: the estimate, (1) of the paper.
        standard_error: its standard error in units of the return; infinite when fewer than two trajectories
            were planned to the horizon, 0 when all trajectories gave the same rewards.
        degrees_of_freedom: of the t distribution of the interval; the number of trajectories less one where all
            have the same length.
        schedule: planned samples of each step behind the estimate.
        gamma: discount factor.
        early_ends: whether the environment ended a trajectory before its planned length.
        skewness: of the distribution of the value, from the contributions of the trajectories; 0 where not known.
        effective_trajectories: ``(sum x_i^2)^2 / sum x_i^4``, the number of equally large contributions x_i that would
            leave the standard error as uncertain; the degrees of freedom where not known.
        largest_contribution: of a single trajectory to the error of the value; 0 where not known.
        widening: factor by which :meth:`widened` has multiplied the standard error.
    """

    value: float
    standard_error: float
    degrees_of_freedom: float
    schedule: Schedule
    gamma: float
    early_ends: bool
    skewness: float = 0.0
    effective_trajectories: float = 1.0
    largest_contribution: float = 0.0
    widening: float = 1.0

    @classmethod
    def from_moments(cls, *teams: Moments, same_means: bool = True) -> "Estimate":
        """Estimates the return from moments of collected rewards.

        The value is the sum of discounted mean rewards, which is (1) of the paper with its sums exchanged. Of several
        teams it is the plain mean of their values. Its variance is the sum of the squared contributions
        ``sum_t gamma^t (R_t - mean_t) / (K n_t)`` of trajectories, with K teams and the counts n_t of the trajectory's
        team. Each term is scaled because its mean comes from the same data. The degrees of freedom are Satterthwaite's.

        Args:
            teams: moments of independent sets of trajectories, each with its own schedule.
            same_means: whether the expected reward of a step is the same in all teams. It is not where teams have
                different critics.
        """
        if min(int(team.counts[-1]) for team in teams) < 1:
            raise ValueError("an estimate needs at least one trajectory of full length, got none")
        counts = np.sum([team.counts for team in teams], axis=0)
        gamma = teams[0].gamma
        means = np.mean([team.means for team in teams], axis=0)
        value = float(teams[0].discounts @ means)
        error, freedom, skewness, effective, largest = math.inf, 0.0, 0.0, 1.0, 0.0
        estimated = 1 if same_means else len(teams)  # means of each step
        if counts[-1] > estimated:
            scale = teams[0].discounts / len(teams) * np.sqrt(counts / (counts - estimated))
            centres = [means if same_means else team.means for team in teams]
            pairs = zip(teams, centres, strict=True)
            found = reduce(add, (team.contributions(scale / team.counts, centre) for team, centre in pairs))
            variance = float(found.squares.sum())
            rounding = _ROUNDING * float(teams[0].discounts @ np.abs(means))
            if found.unit * math.sqrt(variance) <= rounding:
                variance = 0.0
                value = 0.0 if abs(value) <= rounding else value  # rewards of different steps that cancel out
            error = found.unit * math.sqrt(variance)
            freedom = effective = float(counts[-1] - estimated)
            if variance > 0:
                freedom = satterthwaite(found.squares, np.maximum(found.trajectories - 1.0, 1.0))
                effective = freedom if math.isnan(found.fourths) else variance**2 / found.fourths
                skewness = 0.0 if math.isnan(found.cubes) else found.cubes / variance**1.5
                largest = found.largest
        schedule = Schedule(counts)
        return cls(
            value=value,
            standard_error=error,
            degrees_of_freedom=freedom,
            schedule=schedule,
            gamma=gamma,
            early_ends=sum(team.transitions for team in teams) < schedule.transitions,
            skewness=skewness,
            effective_trajectories=effective,
            largest_contribution=largest,
        )

    @classmethod
    def from_replicates(cls, teams: "Sequence[Sequence[Moments]]", *, same_means: bool = True) -> "Estimate":
        """Estimates the return from replicates, within which trajectories need not be independent.

        The value is that of :meth:`from_moments`. Its variance is the sum of squared contributions as there, but of
        whole replicates instead of trajectories (see :func:`replicate_terms`). Skewness is that of the trajectories'
        contributions as if these were independent.

        Args:
            teams: moments of the replicates of each team, at least two in each and as many in all of them.
            same_means: as in :meth:`from_moments`. Where teams have different critics they have different variances
                too, and the degrees of freedom are Satterthwaite's.
        """
        plain = cls.from_moments(*(union(team) for team in teams), same_means=False)
        shares = np.array([float(terms @ terms) for terms in map(replicate_terms, teams)])
        error = math.sqrt(sum(shares)) / len(teams)
        if not 0 < error < math.inf or error <= _ROUNDING * plain.standard_error:
            return plain
        alike = len(teams) if same_means else satterthwaite(shares, np.ones(len(teams)))
        return replace(
            plain,
            standard_error=error,
            degrees_of_freedom=(len(teams[0]) - 1) * alike,
            largest_contribution=plain.largest_contribution * (error / plain.standard_error),
        )

    @property
    def nothing_varied(self) -> bool:
        """Whether all trajectories gave the same rewards."""
        return self.standard_error == 0

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Returns the interval that holds J with about this confidence.

        It is a t interval that allows for skewness. Where contributions are skewed, the variance of the value changes
        with J: to first order by ``K3 / K2`` per unit, its third cumulant over its variance. The interval is the set of
        J at distance d from the value with ``d^2 <= t^2 (K2 + K3 / K2 d)``. For success rates this is Wilson's interval
        up to terms of order 1/n, for symmetric contributions the plain t interval.

        An error that rests on few large contributions may have missed another one. So on the side of the largest, one
        more like it is added to the cumulants: in full up to two effective trajectories, and less with more of them.
        The other side is short where the skewness is large, but one large contribution alone is no proof of skewness:
        by its share of the variance, that side reaches as far as it would without this trajectory.

        Where nothing varied, n equal trajectories exclude with this confidence only outcomes more frequent than
        ``log(1 / (1 - confidence)) / n``, which is 3 / n for 95%. Such outcomes are assumed to change the return by at
        most twice the value. Where the value is 0 their size is unknown, and the interval is infinite.
        """
        tail = (1 + checks.probability("confidence", confidence)) / 2
        if not math.isfinite(self.standard_error) or (self.nothing_varied and self.value == 0):
            return -math.inf, math.inf
        if self.nothing_varied:
            half_width = 2 * abs(self.value) * unseen_share(1 - confidence, float(self.schedule.counts[-1]))
            return self.value - half_width, self.value + half_width
        from scipy.special import stdtrit  # slow to import

        quantile = float(stdtrit(self.degrees_of_freedom, tail))
        unit = unit_of(self.standard_error)
        error, largest = self.standard_error / unit, self.largest_contribution / unit
        variance, third = error**2, self.skewness * error**3
        low, high = _limits(variance, third, quantile)
        unseen = min(1.0, _UNSEEN / self.effective_trajectories)
        farther = _limits(variance + unseen * largest**2, third + unseen * largest**3, quantile)
        trajectories = max(2, int(self.schedule.counts[-1]))
        share = min(1.0, largest**2 * trajectories / (trajectories - 1) / variance)
        without = error * (math.sqrt(share) + quantile * math.sqrt(1 - share))
        shorter = min(quantile * error, without)
        if largest > 0:
            low, high = low - share * max(0.0, low + shorter), max(high, farther[1])
        else:
            low, high = min(low, farther[0]), high + share * max(0.0, shorter - high)
        return self.value + low * unit, self.value + high * unit

    def half_width(self, confidence: float = 0.95) -> float:
        """Returns the distance from the value to the farther end of the interval."""
        low, high = self.interval(confidence)
        return max(high - self.value, self.value - low)

    def widened(self, factor: float) -> "Estimate":
        """Returns the estimate with a larger error, for what the rewards cannot tell."""
        return replace(
            self,
            standard_error=factor * self.standard_error,
            largest_contribution=factor * self.largest_contribution,
            widening=factor * self.widening,
        )

    def plus(self, values: NDArray[np.float64]) -> "Estimate":
        """Adds the mean of independent values, with Satterthwaite's degrees of freedom."""
        values = checks.finite_vector("values", values)
        value = self.value + float(values.mean())
        unit = unit_of(self.standard_error, float(np.abs(values).max()))
        own, others = (self.standard_error / unit) ** 2, float((values / unit).var(ddof=1)) / values.size
        both = replace(self, value=value, standard_error=unit * math.sqrt(own + others))
        if not math.isfinite(own) or own + others == 0:
            return both
        parts, freedom = np.array([own, others]), max(self.degrees_of_freedom, 1.0)
        return replace(
            both,
            degrees_of_freedom=satterthwaite(parts, np.array([freedom, values.size - 1.0])),
            skewness=self.skewness * (own / (own + others)) ** 1.5,
            effective_trajectories=satterthwaite(parts, np.array([self.effective_trajectories, values.size / 3])),
        )


def replicate_terms(team: Sequence[Moments]) -> NDArray[np.float64]:
    """Returns the contribution of each replicate of a team to the error of its value.

    Replicate k with n_kt of the N_t samples of step t contributes ``sum_t gamma^t s_kt (mean_kt - mean_t)`` with its
    shares ``s_kt = n_kt / N_t``. Each term is divided by ``sqrt(1 - sum_k s_kt^2)``, because the mean of all comes from
    the same data. With several components there is a row for each.
    """
    together = union(team)
    shares = np.array([member.counts for member in team]) / together.counts
    scale = together.discounts * shares / np.sqrt(1 - np.sum(shares**2, axis=0))
    off = [np.where(member.counts > 0, member.means - together.means, 0.0) for member in team]
    return np.stack([part @ row for part, row in zip(off, scale, strict=True)], axis=-1)


def sum_of(estimates: Sequence[Estimate], factors: Sequence[float]) -> Estimate:
    """Returns the estimate of a weighted sum of returns that were estimated independently.

    Variances and third cumulants add up; degrees of freedom are Satterthwaite's. The schedule is that of the estimate
    with the fewest full-length trajectories.
    """
    scale = np.array(factors, dtype=np.float64)
    errors = scale * [part.standard_error for part in estimates]
    errors /= (unit := unit_of(float(np.abs(errors).max())))
    variance = float(errors @ errors)
    total = replace(
        min(estimates, key=lambda part: int(part.schedule.counts[-1])),
        value=float(scale @ [part.value for part in estimates]),
        standard_error=unit * math.sqrt(variance),
        early_ends=any(part.early_ends for part in estimates),
        skewness=0.0,
        largest_contribution=0.0,
    )
    if not 0 < variance < math.inf:
        return total
    freedoms = np.array([max(part.degrees_of_freedom, 1.0) for part in estimates])
    return replace(
        total,
        degrees_of_freedom=satterthwaite(errors**2, freedoms),
        effective_trajectories=satterthwaite(errors**2, np.array([part.effective_trajectories for part in estimates])),
        skewness=float(errors**3 @ [part.skewness for part in estimates]) / variance**1.5,
        largest_contribution=max((scale * [part.largest_contribution for part in estimates]).tolist(), key=abs),
    )


def unseen_share(alpha: float, trials: float) -> float:
    """Returns the share of outcomes that this many trials all miss with probability alpha: 3 / n for 5%.

    Example:
        >>> round(unseen_share(0.05, 100), 4)
        0.03
    """
    return min(1.0, -math.log(alpha) / trials)


def satterthwaite(parts: NDArray[np.float64], freedoms: NDArray[np.float64]) -> float:
    """Returns the degrees of freedom of a sum of estimated variances, ``(sum V)^2 / sum(V^2 / freedom)``."""
    parts = parts / unit_of(float(parts.max()))
    return float(parts.sum()) ** 2 / float(np.sum(parts**2 / freedoms))


def _limits(variance: float, third: float, quantile: float) -> tuple[float, float]:
    """Returns the two d with ``d^2 = quantile^2 (variance + third / variance d)``."""
    shift = quantile**2 * third / variance / 2
    half_width = math.hypot(shift, quantile * math.sqrt(variance))
    return shift - half_width, shift + half_width
