"""Critics that keep learning: each team has one that is fitted on the other teams, again whenever data were added.

A critic must not be fitted on the trajectories that it is applied to. With teams it need not be: what one team
collects serves the others' critics and its own estimate. So no trajectory is lost to fitting, and critics become better
as the data grow. A team's critic is a combination of the agent's value function, if there is one, and of regressions
with different length scales (see :mod:`rido.predictors.combination`).

Where actions are drawn and the agent has Q(s, a), ``E_pi[Q(s, .)] - Q(s, a)`` is a control variate too: it takes away
what the draw of an action adds to the variance. It is 0 on average in every state, so it has no part in the critic's
expectation over starts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rido.core.reward_moments import RewardMoments
from rido.core.trajectories import Trajectories
from rido.predictors.base import Critic, Floats, Steps, signal_of_values
from rido.predictors.combination import Applied, Combination, Signals
from rido.predictors.features import FeatureExtractor, Sample
from rido.predictors.regression import Basis, Normal, fit

_SCALES = (0.5, 1.5)  # length scale of each regression
_ACTIONS = 1  # place of the control variate for actions, between the agent's value and the regressions
_MOST_ROWS = 300_000  # rows of features that are fitted on; later ones change a critic hardly
_GROWTH = 1.3  # critics are fitted again when the rows have grown by this factor


@dataclass(eq=False)
class _Team:
    """What one team has collected, and its critic, which was fitted on the other teams."""

    samples: list[list[Sample]]  # trajectories of each of its groups
    applied: list[list[Applied]] = field(default_factory=list)  # the team's value functions on the first of these
    sums: list[Normal] = field(default_factory=list)  # of its trajectories, one for each regression
    coefficients: list[Floats] = field(default_factory=list)  # of each regression
    shares: Floats = field(default_factory=lambda: np.zeros(0))  # of each value function; none before the first fit

    @property
    def parts(self) -> list[Applied]:
        """The value functions on all trajectories of the team."""
        return [one for group in self.applied for one in group]


class Learner:
    """The critics of all teams."""

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
        self._combination = Combination(budget, resets, required, agent=extractor.agent is not None)
        self._teams = [_Team([[] for _ in range(members)]) for _ in range(groups // members)]
        self._bases: list[Basis] = []
        self._rows = self._fitted_rows = 0

    def add(self, sample: Sample, groups: NDArray[np.int64]) -> None:
        """Takes in trajectories, given the group of each."""
        if not self._bases:
            settings: dict[str, Any] = dict(
                agent_value=self._combination.agent, horizon=self._horizon, gamma=self._gamma
            )
            self._bases = [Basis(sample, scale, **settings) for scale in _SCALES]
        for group in np.unique(groups).tolist():
            team, part = self._teams[group // self._members], sample.select(groups == group)
            team.samples[group % self._members].append(part)
            if self._rows <= _MOST_ROWS:
                new = [Normal.of(basis, part) for basis in self._bases]
                team.sums = [a + b for a, b in zip(team.sums, new, strict=True)] if team.sums else new
        self._rows += len(sample.features)

    def learn(self) -> list[RewardMoments]:
        """Fits all critics again if there are clearly more data; returns the moments of the residuals of each group."""
        batches = [[sample.trajectories for group in team.samples for sample in group] for team in self._teams]
        if not all(any(batch.lengths.max() == self._horizon for batch in team) for team in batches):  # too few
            return [
                self._moments(sample.trajectories for sample in group) for team in self._teams for group in team.samples
            ]
        again = self._rows >= _GROWTH * self._fitted_rows
        if again:
            self._fitted_rows = self._rows
            for team in self._teams:
                team.coefficients = self._fit([other.sums for other in self._teams if other is not team])
                team.applied = [[] for _ in team.samples]
        for team in self._teams:
            for samples, applied in zip(team.samples, team.applied, strict=True):
                applied += [self._apply(team, sample) for sample in samples[len(applied) :]]
        if again:
            self._choose()
        return [
            self._moments(one.residuals(team.shares) for one in group) for team in self._teams for group in team.applied
        ]

    def _choose(self) -> None:
        signals = [Signals(team.parts, horizon=self._horizon, gamma=self._gamma) for team in self._teams]
        counts = [one.moments[0, 0].counts for one in signals]
        known = [
            team.shares if team.shares.size else self._combination.first(signals[0].size - 1) for team in self._teams
        ]
        shares = [
            self._combination.choose([one for one in signals if one is not own], counts, present)
            for own, present in zip(signals, known, strict=True)
        ]
        learned = [self._has_learned(one) for one in shares]
        # By chance, if not all teams gain at first, or if most do not later.
        if not all(learned) and (sum(learned) <= len(shares) / 2 or not any(map(self._has_learned, known))):
            simple = shares[learned.index(False)]
            shares = [simple if own else one for own, one in zip(learned, shares, strict=True)]
        for team, one in zip(self._teams, shares, strict=True):
            team.shares = one

    @property
    def starts(self) -> Floats:
        """Values of the first observations of all trajectories, by the critic of their team."""
        parts = [team.shares @ part.starts for team in self._teams if team.shares.size for part in team.parts]
        return np.concatenate(parts) if parts else np.zeros(0)

    def critic(self) -> Critic | None:
        """The mean of the teams' critics, whose expectation over starts the estimate needs; None if none is used."""
        return LearnedCritic(self) if any(team.shares.any() for team in self._teams) else None

    @property
    def same_critics(self) -> bool:
        """Whether all teams have the same critic: none, or the agent's value as it is."""
        shares = [team.shares for team in self._teams]
        return not any(map(self._has_learned, shares)) and len(np.unique(shares, axis=0)) <= 1

    @property
    def fitted(self) -> bool:
        """Whether a regression is part of some team's critic, not the agent's value alone."""
        return any(team.shares[-len(_SCALES) :].any() for team in self._teams)

    def values(self, features: Floats, steps_to_go: Steps) -> Floats:
        """The mean of the teams' critics at rows of features."""
        total = np.zeros(len(features))
        for place, basis in enumerate(self._bases):
            mean = np.mean(
                [team.shares[place - len(_SCALES)] * team.coefficients[place] for team in self._teams], axis=0
            )
            total += basis.value(mean, features, steps_to_go)
        if self._extractor.agent is not None:
            share = np.mean([team.shares[0] for team in self._teams])
            total += share * self._extractor.agent.shorten(features[:, -1], steps_to_go)
        return total

    def _has_learned(self, shares: Floats) -> bool:
        """Whether a critic is more than the agent's value as it is."""
        return bool(shares[int(self._combination.agent) :].any())

    def _moments(self, batches: Iterable[Trajectories]) -> RewardMoments:
        moments = RewardMoments(self._horizon, gamma=self._gamma)
        for batch in batches:
            moments.update(batch)
        return moments

    def _fit(self, others: Sequence[Sequence[Normal]]) -> list[Floats]:
        found = [fit(sums, basis.free) for basis, *sums in zip(self._bases, *others, strict=True)]
        return [solved if np.isfinite(solved).all() else np.zeros(solved.size) for solved in found]

    def _apply(self, team: _Team, sample: Sample) -> Applied:
        batch, values = sample.trajectories, self.value_functions(team.coefficients, sample)
        nothing = Trajectories(np.zeros(batch.flat.size), batch.lengths, batch.steps)
        found = [signal_of_values(row, nothing, gamma=self._gamma) for row in values]
        if sample.advantages is not None:
            # Without a next value, the difference of a step is minus its advantage.
            advantages = signal_of_values(sample.advantages, nothing, gamma=0.0)
            found.insert(_ACTIONS, replace(advantages, starts=np.zeros(len(batch))))
        differences = np.array([one.trajectories.flat for one in found])
        return Applied(batch, differences, np.array([one.starts for one in found]))

    def value_functions(self, coefficients: Sequence[Floats], sample: Sample) -> Floats:
        """Values at all rows of a sample, zero where no reward is to come; one row for each value function."""
        to_go = sample.to_go(self._horizon)
        alive = to_go > 0
        features, steps = sample.features[alive], to_go[alive]
        agent = self._extractor.agent
        functions = [] if agent is None else [agent.shorten(features[:, -1], steps)]
        for basis, own in zip(self._bases, coefficients, strict=True):
            functions.append(basis.value(own, features, steps))
        found = np.zeros((len(functions), to_go.size))
        found[:, alive] = functions
        return found


class LearnedCritic(Critic):
    """The mean of the critics of all teams."""

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self.name = "fit" if learner.fitted else "policy"

    def __call__(self, observations: Any, steps_to_go: Steps) -> Floats:
        return self._learner.values(self._learner._extractor(observations), steps_to_go)
