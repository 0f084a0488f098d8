"""JointEstimate: the returns of several components from the same trajectories, and how their errors go together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rido.core import checks
from rido.core.allocation import Array
from rido.core.estimate import Estimate
from rido.core.moments import rescale, union
from rido.core.reward_moments import RewardMoments
from rido.core.scaling import scaled

_POINTS = 20_000  # of the lattice that integrates the normal distribution, for each component
_SEED = 1  # of its shift: the same numbers in every call
_STEPS = 40  # bisections for the confidence of each interval


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
            return cls(tuple(Estimate.from_replicates(part) for part in parts), _of_replicates(teams))
        single = [[group for (group,) in part] for part in parts]
        estimates = tuple(Estimate.from_moments(*part, same_means=same_means) for part in single)
        return cls(estimates, _of_trajectories([group for (group,) in teams], same_means))

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

    def _confidence_of_each(self, confidence: float) -> float:
        """Returns the confidence of single intervals that hold together with the one asked for."""
        deviations = np.sqrt(np.diag(self.covariance))
        varied = (deviations > 0) & np.isfinite(deviations)
        several = 1 - (1 - confidence) / len(self.estimates)  # Bonferroni's
        if varied.sum() < 2 or not varied.all():
            return several
        from scipy.special import ndtri  # slow to import
        from scipy.stats import multivariate_normal

        correlation = self.covariance / deviations / deviations[:, None]
        normal = multivariate_normal(cov=correlation, allow_singular=True, maxpts=_POINTS * varied.sum(), seed=_SEED)
        low, high = confidence, several
        for _ in range(_STEPS):
            if high - low < 1e-6:
                break
            middle = (low + high) / 2
            edge = np.full(len(deviations), ndtri((1 + middle) / 2))
            normal.random_state = np.random.default_rng(_SEED)
            low, high = (low, middle) if normal.cdf(edge, lower_limit=-edge) >= confidence else (middle, high)
        return high


def _of_trajectories(teams: Sequence[RewardMoments], same_means: bool) -> Array:
    """Returns the covariance of the values of teams whose trajectories are independent.

    As the variance of :meth:`rido.core.estimate.Estimate.from_moments`, with outer products for squares.
    """
    counts = np.sum([team.counts for team in teams], axis=0)
    estimated = 1 if same_means else len(teams)
    size = len(teams[0].means)
    if counts[-1] <= estimated:
        return np.full((size, size), np.inf)
    parts, unit = rescale(*teams)
    means = np.mean([part.means for part in parts], axis=0)
    scale = parts[0].discounts / len(parts) * np.sqrt(counts / (counts - estimated))
    total = np.zeros((size, size))
    for part in parts:
        assert isinstance(part, RewardMoments)
        terms = part.terms(scale / part.counts, means if same_means else part.means)
        total += terms @ terms.T
    return scaled(total, 2 * unit)


def _of_replicates(teams: Sequence[Sequence[RewardMoments]]) -> Array:
    """Returns the covariance of the values of teams whose groups are independent, see ``Estimate.from_replicates``."""
    members, size = len(teams[0]), len(teams[0][0].means)
    total = np.zeros((size, size))
    for team in teams:
        (together, *groups), unit = rescale(union(team), *team)
        off = np.array([np.where(group.counts > 0, group.means - together.means, 0.0) for group in groups])
        shares = np.array([group.counts for group in groups]) / together.counts
        terms = np.einsum("gct,gt->cg", off, shares * together.discounts)
        total += scaled(terms @ terms.T, 2 * unit)
    return total * members / (members - 1) / len(teams) ** 2
