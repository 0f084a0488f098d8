"""Division: which trajectories belong together. Teams are independent of each other; replicates tell the error.

A team is planned from the other teams' rewards, and may have a critic that was fitted on the other teams. Each
replicate starts from the points of another low-discrepancy sequence. Points of one sequence depend on each other, so
the error of their mean cannot be told from their spread; the spread of the replicates' means tells it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rido.core.allocation import Array, tail_sums
from rido.core.estimate import Estimate
from rido.core.moments import Moments, union
from rido.core.schedule import Schedule
from rido.core.trajectories import positions

Counts = NDArray[np.int64]

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
        cross_fitted: whether each team has its own critic.
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
            cross_fitted: whether each team has its own critic.
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

    def deal(self, teams: NDArray[np.int64], before: Sequence[int]) -> NDArray[np.int64]:
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


def affordable(parts: Sequence[Counts], left: int) -> list[Counts]:
    """Returns the share of each part of a plan that can be paid for even if no trajectory ends early.

    Args:
        parts: samples of each step, for one team after the other.
        left: transitions that there are.

    Returns:
        At least one trajectory; none of the parts where not even one is affordable.

    Example:
        >>> affordable([np.array([4, 4, 2]), np.array([2, 0, 0])], 6)
        [array([2, 2, 1]), array([1, 0, 0])]
    """
    total = sum(int(part.sum()) for part in parts)
    if total <= left:
        return list(parts) if total else []
    shares = [np.array([count * left // total for count in part.tolist()]) for part in parts]
    if any(share.any() for share in shares):
        return shares
    ends = np.array([-np.diff(part, append=0) for part in parts])[:, :left]  # trajectories of each length
    if not ends.any():
        return []
    longest = int(np.flatnonzero(ends.any(axis=0))[-1])
    one = np.zeros((len(parts), parts[0].size), dtype=np.int64)
    one[ends[:, longest].argmax(), : longest + 1] = 1
    return list(one)


def deal(given: NDArray[np.int64], parts: Sequence[Counts]) -> NDArray[np.int64]:
    """Returns the team of each trajectory: those of each length go in turn to the teams that planned them.

    Args:
        given: lengths of the trajectories.
        parts: samples of each step that each team planned.
    """
    lengths, places, teams = [], [], []
    for team, part in enumerate(parts):
        if not part.any():
            continue
        own = Schedule(part).lengths[::-1]
        rank = np.arange(own.size) - np.searchsorted(own, own)
        lengths.append(own)
        places.append((rank + 0.5) / (-np.diff(part, append=0))[own - 1])
        teams.append(np.full(own.size, team))
    turns = np.lexsort((np.concatenate(places), np.concatenate(lengths)))
    dealt = np.empty(given.size, dtype=np.int64)
    dealt[np.argsort(given, kind="stable")] = np.concatenate(teams)[turns]
    return dealt


def in_fair_order(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns lengths, given the longest first, in an order of which every beginning is a fair sample.

    Example:
        >>> in_fair_order(np.array([9, 9, 9, 9, 2, 2]))
        array([9, 2, 9, 9, 2, 9])
    """
    _, places, counts = np.unique(-lengths, return_inverse=True, return_counts=True)
    return lengths[np.argsort((positions(counts) + 0.5) / counts[places], kind="stable")]
