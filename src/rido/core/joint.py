"""JointEstimate: the returns of several components from the same trajectories, and how their errors go together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rido.core import checks
from rido.core.allocation import Array
from rido.core.estimate import Estimate, replicate_terms
from rido.core.reward_moments import RewardMoments

_POINTS = 20_000  # of the lattice that integrates the normal distribution
_JITTER = 1e-9  # added to the unit variances, because equal components have a singular correlation matrix
_LEAST = 2.0**-53  # probability, so that quantiles are finite
_STEPS = 40  # bisections for a confidence
_TOLERANCE = 1e-5  # of the confidence of each interval


@dataclass(frozen=True)
class JointEstimate:
    """Estimates of the expected returns of several components.

    Attributes:
        estimates: the estimate of each component by itself.
        covariance: estimated covariance matrix of their values.
    """

    estimates: tuple[Estimate, ...]
    covariance: Array

    @classmethod
    def from_teams(cls, teams: Sequence[Sequence[RewardMoments]], *, same_means: bool = True) -> JointEstimate:
        """Estimates all components from the trajectories of several teams.

        Args:
            teams: the groups of each team: one where its trajectories are independent of each other, at least two where
                only the groups are.
            same_means: whether the expected reward of a step is the same in all teams.
        """
        size = len(teams[0][0].means)
        parts = [[[group.component(index) for group in team] for team in teams] for index in range(size)]
        if len(teams[0]) > 1:
            terms = np.concatenate([replicate_terms(team) for team in teams], axis=-1)
            return cls(tuple(Estimate.from_replicates(part) for part in parts), terms @ terms.T / len(teams) ** 2)
        single = [[group for (group,) in part] for part in parts]
        estimates = tuple(Estimate.from_moments(*part, same_means=same_means) for part in single)
        return cls(estimates, _of_trajectories([group for (group,) in teams], same_means))

    def widened(self, factors: Sequence[float]) -> JointEstimate:
        """Returns the same estimates with the error of each component times its factor."""
        estimates = [estimate.widened(factor) for estimate, factor in zip(self.estimates, factors, strict=True)]
        return JointEstimate(tuple(estimates), self.covariance * np.outer(factors, factors))

    @property
    def values(self) -> Array:
        """The estimated expected return of each component."""
        return np.array([estimate.value for estimate in self.estimates])

    def intervals(self, confidence: float = 0.95, *, simultaneous: bool = False) -> list[tuple[float, float]]:
        """Returns an interval for each component.

        Args:
            confidence: with which each interval holds its component.
            simultaneous: whether all of them together hold theirs with this confidence. Then each is as wide as it
                would be for the confidence with which no component of a normal vector with the same correlations
                exceeds its bounds.
        """
        confidence = checks.probability("confidence", confidence)
        if simultaneous:
            confidence = self._confidence_of_each(confidence)
        return [estimate.interval(confidence) for estimate in self.estimates]

    def confidence(self, *, below: Mapping[int, float], above: Mapping[int, float]) -> float:
        """Returns with what confidence components are below and above limits, all of them at the same time.

        It is the largest confidence with which simultaneous one-sided bounds put every component on the right side of
        its limit. The bounds are those of single intervals whose confidence is chosen by the correlations of the
        components, as in :meth:`intervals`.

        Args:
            below: limits by the indices of the components that are to be below them.
            above: limits by the indices of the components that are to be above them.
        """
        claims = [(index, limit, 1.0) for index, limit in below.items()]
        claims += [(index, limit, -1.0) for index, limit in above.items()]
        if not claims or any(math.isnan(limit) for _, limit, _ in claims):
            raise ValueError(f"below and above must give at least one limit, and numbers, got {below} and {above}")
        weakest = min(_one_sided(self.estimates[index], limit, sign) for index, limit, sign in claims)
        if len(claims) == 1:
            return weakest
        columns, signs = [index for index, _, _ in claims], np.array([sign for _, _, sign in claims])
        covariance = self.covariance[np.ix_(columns, columns)] * np.outer(signs, signs)
        together = _NormalBox.of(covariance)
        if together is None:
            return max(0.0, 1 - len(claims) * (1 - weakest))  # Bonferroni's
        from scipy.special import ndtri  # slow to import

        return min(weakest, together.probability(-np.inf, float(ndtri(weakest))))

    def _confidence_of_each(self, confidence: float) -> float:
        """Returns the confidence of single intervals that hold together with the one asked for."""
        several = 1 - (1 - confidence) / len(self.estimates)  # Bonferroni's
        together = _NormalBox.of(self.covariance)
        if len(self.estimates) < 2 or together is None:
            return several
        from scipy.special import ndtri  # slow to import

        low, high = confidence, several
        for _ in range(_STEPS):
            if high - low < _TOLERANCE:
                break
            middle = (low + high) / 2
            edge = float(ndtri((1 + middle) / 2))
            low, high = (low, middle) if together.probability(-edge, edge) >= confidence else (middle, high)
        return high


@dataclass(frozen=True)
class _NormalBox:
    """Probabilities of boxes under a normal distribution with unit variances."""

    correlation: Array

    @classmethod
    def of(cls, covariance: Array) -> _NormalBox | None:
        """Returns the distribution with the correlations of a covariance matrix; None where a variance is not known."""
        deviations = np.sqrt(np.diag(covariance))
        if not ((deviations > 0) & np.isfinite(deviations)).all():
            return None
        return cls(covariance / deviations / deviations[:, None])

    def probability(self, low: float, high: float) -> float:
        """Returns the probability that all components are from low to high, the same number in every call.

        Genz's separation of variables: each component in turn is drawn from its conditional distribution within the
        bounds, and the probabilities of the bounds are multiplied. Points are Niederreiter's lattice, folded at 1/2.
        """
        from scipy.special import ndtr, ndtri  # slow to import

        size = len(self.correlation)
        factor = np.linalg.cholesky(self.correlation + _JITTER * np.eye(size))
        points = 2.0 ** (np.arange(1, size + 1) / size)[:, None] * np.arange(1, _POINTS + 1) % 1
        points = np.abs(2 * points - 1)
        draws, together = np.zeros((size, _POINTS)), np.ones(_POINTS)
        for index, row in enumerate(factor):
            given = row[:index] @ draws[:index]
            lowest, highest = ndtr((low - given) / row[index]), ndtr((high - given) / row[index])
            together *= highest - lowest
            draws[index] = ndtri(np.clip(lowest + points[index] * (highest - lowest), _LEAST, 1 - _LEAST))
        return float(together.mean())


def _one_sided(estimate: Estimate, limit: float, sign: float) -> float:
    """Returns the largest confidence of a one-sided bound that is below the limit (sign 1) or above it (-1)."""
    if sign * (limit - estimate.value) <= 0:
        return 1 - _one_sided(estimate, limit, -sign) if limit != estimate.value else 0.5
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        end = estimate.interval(middle)[1 if sign > 0 else 0]
        low, high = (middle, high) if sign * (limit - end) > 0 else (low, middle)
    return (1 + low) / 2


def _of_trajectories(teams: Sequence[RewardMoments], same_means: bool) -> Array:
    """Returns the covariance of the values of teams whose trajectories are independent.

    As the variance of :meth:`rido.core.estimate.Estimate.from_moments`, with outer products for squares.
    """
    counts = np.sum([team.counts for team in teams], axis=0)
    estimated = 1 if same_means else len(teams)
    size = len(teams[0].means)
    if counts[-1] <= estimated:
        return np.full((size, size), np.inf)
    means = np.mean([team.means for team in teams], axis=0)
    scale = teams[0].discounts / len(teams) * np.sqrt(counts / (counts - estimated))
    total = np.zeros((size, size))
    for team in teams:
        terms = team.terms(scale / team.counts, means if same_means else team.means)
        total += terms @ terms.T
    return total
