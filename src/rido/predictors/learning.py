"""Critics that keep learning: each team has one that is fitted on the other teams, again whenever data were added.

A critic must not be fitted on the trajectories that it is applied to. With teams it need not be: what one team
collects serves the others' critics and its own estimate. So no trajectory is lost to fitting, and critics become better
as the data grow. A team's critic is a combination of the agent's value function, if there is one, and of regressions
with different length scales (see :mod:`rido.predictors.combination`).

Where actions are drawn and the agent has Q(s, a), ``E_pi[Q(s, .)] - Q(s, a)`` is a control variate too: it takes away
what the draw of an action adds to the variance. It is 0 on average in every state, so it has no part in the critic's
expectation over starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rido.core.reward_moments import RewardMoments
from rido.core.trajectories import Trajectories, concatenate
from rido.predictors.base import Critic, Floats, Steps, signal_of_values
from rido.predictors.combination import Signals, choose, residuals
from rido.predictors.features import FeatureExtractor, Sample
from rido.predictors.regression import Basis, Normal, fit

_SCALES = (0.5, 1.5)  # length scale of each regression
_ACTIONS = 1  # place of the control variate for actions, between the agent's value and the regressions
_MOST_ROWS = 300_000  # rows of features that are fitted on; later ones change a critic hardly
_GROWTH = 1.3  # critics are fitted again when the rows have grown by this factor


class Learner:
    """The critics of all teams.

    Args:
        extractor: Makes the features.
        members: Groups in a team, the groups of one team after those of the other.
        groups: Number of groups in all.
        horizon: Number of time steps T.
        gamma: Discount factor.
        budget: Transitions to spend in all.
        resets: Independent starts that a critic's expectation will come from.
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
        budget: float,
        resets: float,
        required: bool,
    ) -> None:
        self._extractor, self._members = extractor, members
        self._horizon, self._gamma = horizon, gamma
        self._budget, self._resets, self._required = budget, resets, required
        self._samples: list[list[Sample]] = [[] for _ in range(groups)]
        self._applied: list[list[_Applied]] = [[] for _ in range(groups)]  # to the first samples
        self._sums: list[list[Normal]] = [[] for _ in range(groups // members)]  # by team and length scale
        self._bases: list[Basis] = []
        self._coefficients: list[list[Floats]] = []  # by team and length scale
        self._shares: list[Floats] = []  # of each value function in a team's critic
        self._rows = self._fitted_rows = 0

    def add(self, sample: Sample, groups: NDArray[np.int64]) -> None:
        """Takes in trajectories, given the group of each."""
        if not self._bases:
            settings: dict[str, Any] = dict(horizon=self._horizon, gamma=self._gamma)
            self._bases = [
                Basis(sample, scale, agent_value=self._extractor.agent is not None, **settings) for scale in _SCALES
            ]
        for group in np.unique(groups).tolist():
            part = sample.select(groups == group)
            self._samples[group].append(part)
            if self._rows <= _MOST_ROWS:
                team = group // self._members
                new = [Normal.of(basis, part) for basis in self._bases]
                old = self._sums[team]
                self._sums[team] = [a + b for a, b in zip(old, new, strict=True)] if old else new
        self._rows += len(sample.features)

    def learn(self) -> list[RewardMoments]:
        """Fits all critics again if there are clearly more data; returns the moments of the residuals of each group."""
        teams = range(len(self._sums))
        if not all(self._has_full_length(team) for team in teams):  # too few to fit on
            return [self._of_rewards(samples) for samples in self._samples]
        again = self._rows >= _GROWTH * self._fitted_rows
        if again:
            self._fitted_rows = self._rows
            self._coefficients = [self._fit([self._sums[other] for other in teams if other != team]) for team in teams]
            self._applied = [[] for _ in self._samples]
        for team in teams:
            for group in self._groups(team):
                done = len(self._applied[group])
                self._applied[group] += [self._apply(team, sample) for sample in self._samples[group][done:]]
        if again:
            signals = [self._signals(team) for team in teams]
            others = [[signals[other] for other in teams if other != team] for team in teams]
            options: dict[str, Any] = dict(
                counts=[one.moments[0, 0].counts for one in signals],
                budget=self._budget,
                resets=self._resets,
                required=self._required,
                agent=self._extractor.agent is not None,
            )
            present = self._shares or [self._first_shares(signals[0].size - 1)] * len(teams)
            self._shares = [
                choose(group, **options, present=np.flatnonzero(shares).tolist())
                for group, shares in zip(others, present, strict=True)
            ]
            learned = [self._has_learned(shares) for shares in self._shares]
            # By chance, if not all teams gain at first, or if most do not later.
            if not all(learned) and (sum(learned) <= len(teams) / 2 or not any(map(self._has_learned, present))):
                simple = self._shares[learned.index(False)]
                self._shares = [simple if own else s for own, s in zip(learned, self._shares, strict=True)]
        return [self._moments(team, group) for team in teams for group in self._groups(team)]

    @property
    def starts(self) -> Floats:
        """Values of the first observations of all trajectories, by the critic of their team."""
        parts = [
            shares @ applied.starts
            for team, shares in enumerate(self._shares)
            for group in self._groups(team)
            for applied in self._applied[group]
        ]
        return np.concatenate(parts) if parts else np.zeros(0)

    def critic(self) -> Critic | None:
        """The mean of the teams' critics, whose expectation over starts the estimate needs; None if none is used."""
        return LearnedCritic(self) if any(shares.any() for shares in self._shares) else None

    @property
    def same_critics(self) -> bool:
        """Whether all teams have the same critic: none, or the agent's value as it is."""
        return not any(map(self._has_learned, self._shares)) and len(np.unique(self._shares, axis=0)) <= 1

    @property
    def fitted(self) -> bool:
        """Whether a regression is part of some team's critic, not the agent's value alone."""
        return any(shares[-len(_SCALES) :].any() for shares in self._shares)

    def values(self, features: Floats, steps_to_go: Steps) -> Floats:
        """The mean of the teams' critics at rows of features."""
        shares, total = np.array(self._shares), np.zeros(len(features))
        for place, basis in enumerate(self._bases):
            mean = np.mean(
                [s[-len(_SCALES) + place] * c[place] for s, c in zip(shares, self._coefficients, strict=True)], axis=0
            )
            total += basis.value(mean, features, steps_to_go)
        if self._extractor.agent is not None:
            total += shares[:, 0].mean() * self._extractor.agent.shorten(features[:, -1], steps_to_go)
        return total

    def _first_shares(self, functions: int) -> Floats:
        """The agent's value alone, if there is one and nothing else is required."""
        shares = np.zeros(functions)
        shares[:1] = self._extractor.agent is not None and not self._required
        return shares

    def _has_learned(self, shares: Floats) -> bool:
        """Whether a critic is more than the agent's value as it is."""
        return bool(shares[int(self._extractor.agent is not None) :].any())

    def _groups(self, team: int) -> range:
        return range(team * self._members, (team + 1) * self._members)

    def _has_full_length(self, team: int) -> bool:
        samples = (sample for group in self._groups(team) for sample in self._samples[group])
        return any(sample.trajectories.lengths.max() == self._horizon for sample in samples)

    def _of_rewards(self, samples: Sequence[Sample]) -> RewardMoments:
        moments = RewardMoments(self._horizon, gamma=self._gamma)
        for sample in samples:
            moments.update(sample.trajectories)
        return moments

    def _fit(self, others: Sequence[Sequence[Normal]]) -> list[Floats]:
        """Coefficients of the regression on other teams, for each length scale."""
        found = []
        for basis, sums in zip(self._bases, zip(*others, strict=True), strict=True):
            solved = fit(sums, basis.free)
            found.append(solved if np.isfinite(solved).all() else np.zeros(basis.free.size))
        return found

    def _apply(self, team: int, sample: Sample) -> _Applied:
        batch = sample.trajectories
        nothing = Trajectories(np.zeros(batch.flat.size), batch.lengths, batch.steps)
        found = [signal_of_values(values, nothing, gamma=self._gamma) for values in self._values(team, sample)]
        if sample.advantages is not None:
            # Without a next value, the difference of a step is minus what its action was worth.
            judged = signal_of_values(sample.advantages, nothing, gamma=0.0)
            found.insert(_ACTIONS, replace(judged, starts=np.zeros(len(batch))))
        return _Applied(batch, [one.trajectories for one in found], np.array([one.starts for one in found]))

    def _moments(self, team: int, group: int) -> RewardMoments:
        moments = RewardMoments(self._horizon, gamma=self._gamma)
        for applied in self._applied[group]:
            moments.update(residuals(applied.rewards, applied.differences, self._shares[team]))
        return moments

    def _values(self, team: int, sample: Sample) -> list[Floats]:
        """A team's value functions at all rows of a sample, zero where no reward is to come."""
        to_go = sample.to_go(self._horizon)
        alive = to_go > 0
        features, steps = sample.features[alive], to_go[alive]
        functions = []
        if self._extractor.agent is not None:
            functions.append(self._extractor.agent.shorten(features[:, -1], steps))
        for basis, coefficients in zip(self._bases, self._coefficients[team], strict=True):
            functions.append(basis.value(coefficients, features, steps))
        found = np.zeros((len(functions), to_go.size))
        found[:, alive] = functions
        return list(found)

    def _signals(self, team: int) -> Signals:
        parts = [applied for group in self._groups(team) for applied in self._applied[group]]
        differences = [concatenate(list(one)) for one in zip(*(part.differences for part in parts), strict=True)]
        starts = np.concatenate([part.starts for part in parts], axis=1)
        rewards = concatenate([part.rewards for part in parts])
        return Signals(rewards, differences, starts, horizon=self._horizon, gamma=self._gamma)


@dataclass(frozen=True, eq=False)
class _Applied:
    """Value functions, applied to trajectories: their residuals where all rewards are 0, and the values of starts."""

    rewards: Trajectories
    differences: list[Trajectories]
    starts: Floats


class LearnedCritic(Critic):
    """The mean of the critics of all teams.

    Args:
        learner: Has learned them.
    """

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self.name = "fit" if learner.fitted else "policy"

    def __call__(self, observations: Any, steps_to_go: Steps) -> Floats:
        return self._learner.values(self._learner._extractor(observations), steps_to_go)
