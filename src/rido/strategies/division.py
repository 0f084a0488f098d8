"""Division: which trajectories belong together. Teams are independent of each other; replicates tell the error.

A team is planned from the other teams' rewards, and may have a critic that was fitted on the other teams. The starts of
a replicate are points of a low-discrepancy sequence of its own. Points of one sequence depend on each other, so the
error of their mean cannot be told from their spread; the spread of the replicates' means tells it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rido.core.allocation import Array, tail_sums
from rido.core.estimate import Estimate
from rido.core.moments import Moments, union

TEAMS = 3
_REPLICATES = {1: (8, 12, 16), 2: (8, 12, 16), 3: (9, 12, 15)}  # by teams, for few, more and many trajectories
_MORE, _MANY = 60, 600  # full-length trajectories that the budget pays for
_DOUBT = 0.05  # probability that a share is larger than it is thought to be
_LEAST_GAIN = 1e-4  # the smallest share of its variance that a step is thought to keep


@dataclass(frozen=True)
class Division:
    """How trajectories are divided into groups, the members of one team after those of the other.

    Attributes:
        teams: number of teams.
        members: groups in a team: its replicates, or 1 where starts are independent.
        cross_fitted: whether each team has a critic of its own.
    """

    teams: int = 1
    members: int = 1
    cross_fitted: bool = False

    @classmethod
    def of(cls, teams: int, affordable: float, *, replicated: bool, cross_fitted: bool) -> Division:
        """Returns a division with a good number of replicates, if there are to be any.

        Args:
            teams: number of teams.
            affordable: full-length trajectories that the budget pays for.
            replicated: whether starts come from low-discrepancy sequences.
            cross_fitted: whether each team has a critic of its own.
        """
        replicates = _REPLICATES[teams][int(affordable >= _MORE) + int(affordable >= _MANY)]
        return cls(teams, replicates // teams if replicated else 1, cross_fitted)

    @property
    def groups(self) -> int:
        """Number of groups in all."""
        return self.teams * self.members

    @property
    def replicated(self) -> bool:
        """Whether groups are replicates."""
        return self.members > 1

    def team(self, index: int, groups: Sequence[Moments]) -> Sequence[Moments]:
        """Returns the groups of a team."""
        return groups[index * self.members : (index + 1) * self.members]

    def others(self, index: int, groups: Sequence[Moments]) -> list[Sequence[Moments]]:
        """Returns the groups of the other teams, one list for each; its own where there is no other."""
        found = [self.team(other, groups) for other in range(self.teams) if other != index]
        return found or [groups]

    def deal(self, teams: NDArray[np.int64], before: NDArray[np.int64]) -> NDArray[np.int64]:
        """Deals the trajectories of each team out to its members in turn; returns the group of each.

        Args:
            teams: team of each trajectory, the longest first.
            before: trajectories that each team had before.
        """
        if self.members == 1:
            return teams
        groups = np.empty_like(teams)
        for team in range(self.teams):
            rows = np.flatnonzero(teams == team)
            groups[rows] = team * self.members + (before[team] + np.arange(rows.size)) % self.members
        return groups

    def estimate(self, groups: Sequence[Moments]) -> Estimate:
        """Returns the estimate from the moments of all groups: the mean of the teams' own."""
        if self.replicated:
            teams = [self.team(index, groups) for index in range(self.teams)]
            return Estimate.from_replicates(teams, same_means=not self.cross_fitted)
        usable = [group for group in groups if group.counts[-1]] or groups
        return Estimate.from_moments(*usable, same_means=not self.cross_fitted)

    def gains(self, index: int, groups: Sequence[Moments]) -> Array | None:
        """Returns what the other teams' replicates tell of the gain from low-discrepancy starts.

        Let v_h be the variance of ``sum_{u>=h} gamma^u R_u`` (see :mod:`rido.strategies.planning`). The mean of n such
        sums over low-discrepancy points has a smaller variance than ``v_h / n``. What is left is told by the spread of
        the replicates.

        Few replicates tell it with a large error, and a plan that follows the error is worse than one for random
        starts. So the shares are upper bounds with 95% confidence.

        Returns:
            The share of v_h that is left for each step h, at most 1; None without replicates.
        """
        if not self.replicated:
            return None
        from scipy.special import chdtri  # slow to import

        found: Array = np.zeros(groups[0].horizon)
        expected = np.zeros_like(found)
        teams = self.others(index, groups)
        for team in teams:
            together = union(team)
            tails = np.array([tail_sums(member.discounts * member.means) for member in team])
            found += together.over_components(tails.var(axis=0, ddof=1))
            weights = together.weights()
            expected += np.mean([tail_sums(weights / member.counts) for member in team], axis=0)
        shares = np.divide(found, expected, out=np.ones_like(found), where=expected > 0)
        freedom = len(teams) * (self.members - 1)
        bounds: Array = np.clip(shares * freedom / chdtri(freedom, 1 - _DOUBT), _LEAST_GAIN, 1.0)
        return bounds
