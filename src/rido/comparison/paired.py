"""Rewards of several policies, from which a comparison is computed: paired by common seeds and lengths."""

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rido.core.estimate import Estimate
from rido.core.moments import union
from rido.core.reward_moments import RewardMoments
from rido.core.trajectories import Trajectories
from rido.strategies.diagnostics import interval_warnings
from rido.strategies.division import Division


class Rewards(Protocol):
    """What a comparison is computed from: rewards of several policies."""

    horizon: int  # number of time steps
    gamma: float  # discount factor
    unit: str  # what the budget is counted in
    rounds: int  # how often the policies were looked at

    @property
    def transitions(self) -> int:
        """Transitions of all policies."""

    @property
    def trajectories(self) -> int:
        """Trajectories of all policies."""

    def transitions_of(self, name: str) -> int:
        """Returns the transitions of one policy."""

    def estimate(self, name: str) -> Estimate:
        """Estimates the return of a policy."""

    def difference(self, name: str, other: str) -> Estimate:
        """Estimates J(name) - J(other)."""

    def gain(self, name: str, other: str) -> float:
        """Returns how many times larger the variance of a difference would be without common seeds; NaN if unknown."""

    def describe(self, name: str, other: str) -> str:
        """Returns what the difference of two policies rests on."""

    def doubts(self, name: str, other: str) -> tuple[str, ...]:
        """Returns reasons to doubt the interval of a difference."""


class PairedRewards:
    """Rewards of several policies on the same seeds and lengths, by the groups of a division."""

    unit = "transitions"

    def __init__(self, names: Sequence[str], *, horizon: int, gamma: float, division: Division) -> None:
        self.names = tuple(names)
        self.horizon, self.gamma = horizon, gamma
        self._division = division
        self._groups = [
            {name: RewardMoments(horizon, gamma=gamma) for name in self.names} for _ in range(division.groups)
        ]
        self._estimates: dict[tuple[tuple[str, float], ...], Estimate] = {}  # that were computed since the last round
        self._transitions = dict.fromkeys(self.names, 0)
        self.trajectories = 0
        self.pairs = 0  # trajectories of each policy that is not eliminated
        self.rounds = 0

    def add(self, trajectories: Mapping[str, Trajectories], dealt: NDArray[np.int64]) -> None:
        """Adds a round.

        Args:
            trajectories: of each policy that is not eliminated, in the same order.
            dealt: the group to which each trajectory belongs.
        """
        self.rounds += 1
        self.pairs += dealt.size
        self._estimates = {}
        for name, batch in trajectories.items():
            self.trajectories += len(batch)
            self._transitions[name] += batch.transitions
        for index in np.unique(dealt).tolist():
            rows = dealt == index
            for name, batch in trajectories.items():
                self._groups[index][name].update(batch.select(rows))

    @property
    def transitions(self) -> int:
        return sum(self._transitions.values())

    def transitions_of(self, name: str) -> int:
        return self._transitions[name]

    def moments(self, signal: Mapping[str, float]) -> list[RewardMoments]:
        """Returns for each group the moments of a signal of the trajectories that all these policies have.

        Args:
            signal: coefficients of the policies' rewards: ``{"a": 1, "b": -1}`` for the difference of two.
        """
        return [RewardMoments.of_signal([group[name] for name in signal], [*signal.values()]) for group in self._groups]

    def value(self, name: str) -> float:
        """Returns the estimated return of a policy, without its error."""
        groups = [group[name] for group in self._groups]
        teams = [union(self._division.team(index, groups)) for index in range(self._division.teams)]
        usable = [team for team in teams if team.counts[-1] > 0]
        with np.errstate(over="ignore", invalid="ignore"):
            return float(np.mean([team.means @ team.discounts for team in usable]))

    def estimate(self, name: str) -> Estimate:
        return self._estimate({name: 1.0})

    def difference(self, name: str, other: str) -> Estimate:
        return self._estimate({name: 1.0, other: -1.0})

    def _estimate(self, signal: Mapping[str, float]) -> Estimate:
        key = tuple(signal.items())
        if key not in self._estimates:
            self._estimates[key] = self._division.estimate(self.moments(signal))
        return self._estimates[key]

    def gain(self, name: str, other: str) -> float:
        alone = (
            self._division.estimate(self.moments(signal))
            for signal in ({name: 1.0, other: 0.0}, {name: 0.0, other: 1.0})
        )
        separate = math.hypot(*(one.standard_error for one in alone))
        paired = self.difference(name, other).standard_error
        return (separate / paired) ** 2 if paired > 0 and math.isfinite(separate) else math.nan

    def describe(self, name: str, other: str) -> str:
        return (
            f"{self.transitions:,} transitions in {self.trajectories:,} trajectories of up to {self.horizon} steps, "
            f"gamma {self.gamma:g}"
        )

    def doubts(self, name: str, other: str) -> tuple[str, ...]:
        return interval_warnings(self.difference(name, other))
