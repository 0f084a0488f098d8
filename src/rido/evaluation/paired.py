"""Rewards of several policies, from which a comparison is computed: paired by common seeds and lengths."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rido.core.allocation import discount_factors
from rido.core.estimate import Estimate
from rido.core.reward_moments import RewardMoments
from rido.core.trajectories import Trajectories, concatenate, positions
from rido.strategies.diagnostics import interval_warnings
from rido.strategies.division import Division


class Rewards(Protocol):
    """What a comparison is computed from: rewards of several policies.

    Attributes:
        horizon: number of time steps.
        gamma: discount factor.
        unit: what the budget is counted in.
        rounds: how often the policies were looked at.
    """

    horizon: int
    gamma: float
    unit: str
    rounds: int

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
    """Rewards of several policies on the same seeds and lengths.

    Args:
        names: of the policies.
        horizon: number of time steps.
        gamma: discount factor.
        division: how trajectories are divided into groups (see :mod:`rido.strategies.division`).
    """

    unit = "transitions"

    def __init__(self, names: Sequence[str], *, horizon: int, gamma: float, division: Division) -> None:
        self.names = tuple(names)
        self.horizon, self.gamma = horizon, gamma
        self._division = division
        self._groups: list[dict[str, Trajectories]] = [{} for _ in range(division.groups)]
        self._sums = {name: np.zeros((division.groups, horizon)) for name in self.names}  # of the rewards of each step
        self._transitions = dict.fromkeys(self.names, 0)
        self.trajectories = 0
        self.rounds = 0

    def add(self, trajectories: Mapping[str, Trajectories], dealt: NDArray[np.int64]) -> None:
        """Adds a round.

        Args:
            trajectories: of each policy that is still in the race, in the same order.
            dealt: the group to which each trajectory belongs.
        """
        self.rounds += 1
        for name, batch in trajectories.items():
            self.trajectories += len(batch)
            self._transitions[name] += batch.transitions
        lengths = next(iter(trajectories.values())).lengths
        for index in np.unique(dealt).tolist():
            rows, group = dealt == index, self._groups[index]
            steps = positions(lengths[rows])
            for name, batch in trajectories.items():
                new = batch.select(rows)
                group[name] = concatenate([group[name], new]) if name in group else new
                with np.errstate(over="ignore", invalid="ignore"):
                    self._sums[name][index] += np.bincount(steps, new.flat, self.horizon)

    @property
    def transitions(self) -> int:
        """Transitions of all policies."""
        return sum(self._transitions.values())

    def transitions_of(self, name: str) -> int:
        """Returns the transitions of one policy."""
        return self._transitions[name]

    def moments(self, signal: Mapping[str, float]) -> list[RewardMoments]:
        """Returns for each group the moments of a signal of the trajectories that all these policies have.

        Args:
            signal: how often each policy's rewards count: ``{"a": 1, "b": -1}`` for the difference of two.
        """
        found = []
        for group in self._groups:
            moments = RewardMoments(self.horizon, gamma=self.gamma)
            if all(name in group for name in signal):
                parts = [group[name] for name in signal]
                count = min(len(part) for part in parts)  # who left the race has the first ones
                lengths = parts[0].lengths[:count]
                planned = int(lengths.sum())
                flats = [part.flat[:planned] for part in parts]
                rewards = _combine(flats, signal.values())
                steps = functools.reduce(np.maximum, (part.steps[:count] for part in parts))
                moments.update(Trajectories.from_flat(rewards, lengths, steps, copy=len(signal) == 1))
            found.append(moments)
        return found

    def value(self, name: str) -> float:
        """Returns the estimated return of a policy, without its error."""
        none = np.zeros(self.horizon, dtype=np.int64)
        counts = np.array([group[name].counts(self.horizon) if name in group else none for group in self._groups])
        teams = (self._division.teams, self._division.members, self.horizon)
        counts, sums = (each.reshape(teams).sum(axis=1) for each in (counts, self._sums[name]))
        usable = counts[:, -1] > 0
        with np.errstate(over="ignore", invalid="ignore"):
            means = sums[usable] / counts[usable]
            return float((means @ discount_factors(self.horizon, self.gamma)).mean())

    def estimate(self, name: str) -> Estimate:
        """Estimates the return of a policy."""
        return self._division.estimate(self.moments({name: 1.0}))

    def difference(self, name: str, other: str) -> Estimate:
        """Estimates J(name) - J(other)."""
        return self._division.estimate(self.moments({name: 1.0, other: -1.0}))

    def gain(self, name: str, other: str) -> float:
        """Returns how many times larger the variance of a difference would be without common seeds; NaN if unknown."""
        alone = (
            self._division.estimate(self.moments(signal))
            for signal in ({name: 1.0, other: 0.0}, {name: 0.0, other: 1.0})
        )
        separate = math.hypot(*(one.standard_error for one in alone))
        paired = self.difference(name, other).standard_error
        return (separate / paired) ** 2 if paired > 0 and math.isfinite(separate) else math.nan

    def describe(self, name: str, other: str) -> str:
        """Returns what was collected."""
        return (
            f"{self.transitions:,} transitions in {self.trajectories:,} trajectories of up to {self.horizon} steps, "
            f"gamma {self.gamma:g}"
        )

    def doubts(self, name: str, other: str) -> tuple[str, ...]:
        """Returns reasons to doubt the interval of a difference."""
        return interval_warnings(self.difference(name, other))


def _combine(flats: Sequence[NDArray[np.float64]], factors: Iterable[float]) -> NDArray[np.float64]:
    """Returns the sum of rewards, each times its factor; factors of 1 and -1 cost no array of their own."""
    (total, factor), *others = zip(flats, factors, strict=True)
    total = total if factor == 1 else factor * total
    for flat, factor in others:
        total = total - flat if factor == -1 else total + factor * flat
    return total
