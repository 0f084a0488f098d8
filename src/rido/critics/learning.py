"""Critics that keep learning: each team has one that is fitted on the other teams, again whenever data were added.

A critic must not be fitted on the trajectories that it is applied to. With teams it need not be: what one team
collects serves the others' critics and its own estimate. So no trajectory is lost to fitting, and critics become better
as the data grow. A team's critic is a combination of the agent's value function, if there is one, and of regressions
with different length scales (see :mod:`rido.critics.combination`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rido.core.moments import RewardMoments
from rido.core.scaling import excess_exponent, scaled
from rido.core.trajectories import Trajectories, concatenate
from rido.critics.base import Critic, Floats, Steps, signal_of_values
from rido.critics.combination import Signals, choose, residuals
from rido.critics.features import FeatureExtractor, Sample
from rido.critics.regression import Basis, Normal

_SETTINGS = ((1.5, 3e-4), (4.0, 1e-3))  # length scale and penalty of each regression
_MOST_ROWS = 300_000  # rows of features that are fitted on; later ones change a critic hardly


class Learner:
    """The critics of all teams.

    Args:
        extractor: Makes the features.
        members: Groups in a team, the groups of one team after those of the other.
        groups: Number of groups in all.
        horizon: Number of time steps T.
        gamma: Discount factor.
        price_of_starts: Transitions of the budget over resets.
        required: Whether a critic must be used, also where none seems to gain.
    """

    def __init__(
        self,
        extractor: FeatureExtractor,
        *,
        members: int,
        groups: int,
        horizon: int,
        gamma: float,
        price_of_starts: float,
        required: bool,
    ) -> None:
        self._extractor, self._members = extractor, members
        self._horizon, self._gamma = horizon, gamma
        self._price, self._required = price_of_starts, required
        self._samples: list[list[Sample]] = [[] for _ in range(groups)]
        self._sums: list[list[Normal]] = [[] for _ in range(groups // members)]  # by team and setting
        self._bases: list[Basis] = []
        self._coefficients: list[list[Floats]] = []  # by team and setting
        self._shares: list[Floats] = []  # of each value function in a team's critic
        self._unit = self._rows = 0
        self.starts = np.zeros(0)

    @property
    def in_use(self) -> bool:
        """Whether some team has a critic."""
        return any(shares.any() for shares in self._shares)

    def add(self, sample: Sample, groups: NDArray[np.int64]) -> None:
        """Takes in trajectories, given the group of each."""
        if not self._bases:
            self._unit = excess_exponent(float(np.abs(sample.trajectories.flat).max()))
            settings: dict[str, Any] = dict(horizon=self._horizon, gamma=self._gamma)
            self._bases = [
                Basis(sample, scale, agent_value=self._extractor.agent is not None, **settings) for scale, _ in _SETTINGS
            ]
        for group in np.unique(groups).tolist():
            part = sample.select(groups == group)
            self._samples[group].append(part)
            if self._rows <= _MOST_ROWS:
                team = group // self._members
                new = [Normal.of(basis, part, self._unit) for basis in self._bases]
                old = self._sums[team]
                self._sums[team] = [a + b for a, b in zip(old, new, strict=True)] if old else new
        self._rows += len(sample.features)

    def learn(self) -> list[RewardMoments]:
        """Fits all critics again; returns the moments of the residuals of each group."""
        teams = range(len(self._sums))
        self._coefficients = [self._fit([self._sums[other] for other in teams if other != team]) for team in teams]
        parts = [[self._apply(team, group) for group in self._groups(team)] for team in teams]
        signals = [self._signals(team, part) for team, part in zip(teams, parts, strict=True)]
        self._shares = [
            choose([signals[other] for other in teams if other != team], price_of_starts=self._price, required=self._required)
            for team in teams
        ]
        self.starts = np.concatenate([shares @ one.starts for shares, one in zip(self._shares, signals, strict=True)])
        found = []
        for team in teams:
            for group, (differences, _) in zip(self._groups(team), parts[team], strict=True):
                moments = RewardMoments(self._horizon, gamma=self._gamma)
                moments.update(residuals(self._rewards(group), differences, self._shares[team]))
                found.append(moments)
        return found

    def critic(self) -> Critic:
        """The mean of the teams' critics, whose expectation over starts the estimate needs."""
        return LearnedCritic(self)

    def values(self, features: Floats, steps_to_go: Steps) -> Floats:
        """The mean of the teams' critics at rows of features."""
        shares, total = np.array(self._shares), np.zeros(len(features))
        for place, basis in enumerate(self._bases):
            mean = np.mean([s[-len(_SETTINGS) + place] * c[place] for s, c in zip(shares, self._coefficients, strict=True)], axis=0)
            total += scaled(basis.value(mean, features, steps_to_go), self._unit)
        if self._extractor.agent is not None:
            total += shares[:, 0].mean() * self._extractor.agent.shorten(features[:, -1], steps_to_go)
        return total

    def _groups(self, team: int) -> range:
        return range(team * self._members, (team + 1) * self._members)

    def _rewards(self, group: int) -> Trajectories:
        return concatenate([sample.trajectories for sample in self._samples[group]])

    def _fit(self, others: Sequence[Sequence[Normal]]) -> list[Floats]:
        """Coefficients of the regression on other teams, for each setting."""
        found = []
        for basis, (_, penalty), sums in zip(self._bases, _SETTINGS, zip(*others, strict=True), strict=True):
            solved = sum(sums[1:], sums[0]).solve(basis.free, penalty)
            found.append(np.zeros(basis.free.size) if solved is None or not np.isfinite(solved).all() else solved)
        return found

    def _apply(self, team: int, group: int) -> tuple[list[Trajectories], Floats]:
        """Residuals of a team's value functions on a group where all rewards are 0, and the values of its starts."""
        found, firsts = [], []
        for functions in zip(*(self._values(team, sample) for sample in self._samples[group]), strict=True):
            signals = [
                signal_of_values(values, _without_rewards(sample.trajectories), gamma=self._gamma)
                for values, sample in zip(functions, self._samples[group], strict=True)
            ]
            found.append(concatenate([one.trajectories for one in signals]))
            firsts.append(np.concatenate([one.starts for one in signals]))
        return found, np.array(firsts)

    def _values(self, team: int, sample: Sample) -> list[Floats]:
        """A team's value functions at all rows of a sample, zero where no reward is to come."""
        to_go = sample.to_go(self._horizon)
        alive = to_go > 0
        features, steps = sample.features[alive], to_go[alive]
        functions = []
        if self._extractor.agent is not None:
            functions.append(self._extractor.agent.shorten(features[:, -1], steps))
        for basis, coefficients in zip(self._bases, self._coefficients[team], strict=True):
            functions.append(scaled(basis.value(coefficients, features, steps), self._unit))
        found = np.zeros((len(functions), to_go.size))
        found[:, alive] = functions
        return list(found)

    def _signals(self, team: int, parts: Sequence[tuple[list[Trajectories], Floats]]) -> Signals:
        rewards = concatenate([self._rewards(group) for group in self._groups(team)])
        differences = [concatenate(list(one)) for one in zip(*(part for part, _ in parts), strict=True)]
        starts = np.concatenate([starts for _, starts in parts], axis=1)
        return Signals(rewards, differences, starts, horizon=self._horizon, gamma=self._gamma)


class LearnedCritic(Critic):
    """The mean of the critics of all teams.

    Args:
        learner: Has learned them.
    """

    name = "fit"

    def __init__(self, learner: Learner) -> None:
        self._learner = learner

    def __call__(self, observations: Any, steps_to_go: Steps) -> Floats:
        return self._learner.values(self._learner._extractor(observations), steps_to_go)


def _without_rewards(trajectories: Trajectories) -> Trajectories:
    return Trajectories(np.zeros(trajectories.flat.size), trajectories.lengths, trajectories.steps)
