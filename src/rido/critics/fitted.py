"""Critics that are fitted on a pilot, the first trajectories of an evaluation.

A fitted critic is a ridge regression of the discounted rewards to come on random features of the observation (Rahimi
and Recht, 2007), the observation itself and the agent's value where it has one. Each feature comes twice, as it is and
times ``(1 - gamma^k) / (1 - gamma^T)``, the share of the discounted steps that k steps to go have in all T.
benchmarks/critic.py compares with boosted trees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rido.core.allocation import pool
from rido.core.moments import Moments, RewardMoments, rescale
from rido.core.scaling import excess_exponent, scaled, scaled_number
from rido.core.trajectories import Trajectories
from rido.critics.base import AgentCritic, Critic, Floats, Signal, Steps, signal_of_values, steps_to_go

_WIDTH = 300  # random features at most
_LIMIT = 5.0  # standardised observations are clipped to this many deviations, so that no feature extrapolates far
_LARGEST = 2000  # numbers in an observation beyond which it is taken for an image
_FEWEST = 4  # full-length trajectories for cross-validation: two to fit on and two to validate on

FeatureFunction = Callable[[Floats, Steps], Floats]
"""Maps features and steps to go to values."""


class FeatureExtractor:
    """Turns observations into features: their numbers and, in the last column, the agent's value.

    Args:
        space: Observation space of one environment; None where observations are plain arrays.
        agent: The agent's value function, if it has one; also an attribute.
    """

    def __init__(self, space: Any, agent: AgentCritic | None) -> None:
        reason = None if space is None else _unsuited(space)
        if reason is not None:
            raise ValueError(f"critic cannot be fitted on {reason}")
        self._space = space
        self.agent = agent

    def __call__(self, observations: Any) -> Floats:
        columns = _flatten(self._space, observations)
        if self.agent is not None:
            columns.append(self.agent.endless(observations)[:, None])
        return np.concatenate(columns, axis=1)


def _unsuited(space: Any) -> str | None:
    """What of a space cannot be flattened into a moderate number of numbers, or None."""
    from gymnasium import spaces

    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return next((reason for part in parts if (reason := _unsuited(part)) is not None), None)
    if not isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        return f"observations in a {type(space).__name__} space"
    if spaces.flatdim(space) > _LARGEST or (len(space.shape or ()) > 1 and space.dtype == np.uint8):
        return f"images or other observations of {spaces.flatdim(space)} numbers"
    return None


def _flatten(space: Any, observations: Any) -> list[Floats]:
    """A batch of observations as columns of numbers, choices one-hot, as Gymnasium flattens single ones."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        return [part for key, inner in space.spaces.items() for part in _flatten(inner, observations[key])]
    if isinstance(space, spaces.Tuple):
        return [part for i, inner in enumerate(space.spaces) for part in _flatten(inner, observations[i])]
    array = np.asarray(observations)
    if isinstance(space, spaces.Discrete):
        return [(array[:, None] - space.start == np.arange(space.n)).astype(np.float64)]
    if isinstance(space, spaces.MultiDiscrete):
        choices = (array - space.start).reshape(len(array), -1).T
        pairs = zip(choices, space.nvec.ravel(), strict=True)
        return [(choice[:, None] == np.arange(count)).astype(np.float64) for choice, count in pairs]
    return [array.reshape(len(array), -1).astype(np.float64)]


@dataclass(frozen=True, eq=False)
class Pilot:
    """The trajectories that a critic is fitted on or chosen by.

    Attributes:
        trajectories: The rewards.
        terminated: Whether the environment terminated each trajectory, also if at its planned length.
        features: What the extractor made of observations, before each step that a trajectory took and after its last.
        agent_value: Whether the last column of the features is the agent's value.
        horizon: Number of time steps T.
        gamma: Discount factor.
    """

    trajectories: Trajectories
    terminated: NDArray[np.bool_]
    features: Floats
    agent_value: bool
    horizon: int
    gamma: float

    @property
    def full_length(self) -> int:
        """Number of trajectories that were planned to the horizon."""
        return int((self.trajectories.lengths == self.horizon).sum())

    @property
    def divisible(self) -> bool:
        """Whether there are enough full-length trajectories to fit on one half and validate on the other."""
        return self.full_length >= _FEWEST

    @property
    def to_go(self) -> Steps:
        """Rewards still to come at each row of the features."""
        return steps_to_go(self.trajectories, self.terminated, self.horizon)

    def select(self, rows: NDArray[np.bool_]) -> Pilot:
        """Select the trajectories for which ``rows`` is true."""
        features = self.features[np.repeat(rows, self.trajectories.steps + 1)]
        chosen = self.trajectories.select(rows)
        return Pilot(chosen, self.terminated[rows], features, self.agent_value, self.horizon, self.gamma)

    def halves(self) -> list[Pilot]:
        """Split into every other trajectory and the rest. They come longest first, so both halves have all lengths."""
        first = np.arange(len(self.trajectories)) % 2 == 0
        return [self.select(first), self.select(~first)]

    def values(self, critic: FeatureFunction) -> Floats:
        """V at every row of the features, zero where no reward is to come."""
        to_go, values = self.to_go, np.zeros(len(self.features))
        alive = to_go > 0
        values[alive] = critic(self.features[alive], to_go[alive])
        return values

    def signal(self, critic: FeatureFunction) -> Signal:
        """The residuals of the rewards under a critic."""
        return signal_of_values(self.values(critic), self.trajectories, gamma=self.gamma)

    def moments(self, values: Floats | None) -> RewardMoments:
        """Moments of the residuals for values of all rows; of the rewards if None."""
        data = self.trajectories
        if values is not None:
            data = signal_of_values(values, data, gamma=self.gamma).trajectories
        moments = RewardMoments(self.horizon, gamma=self.gamma)
        moments.update(data)
        return moments


def agent_value(agent: AgentCritic) -> FeatureFunction:
    """An agent's value function of features, whose last column is the agent's value for an infinite horizon."""
    return lambda features, steps_to_go: agent.shorten(features[:, -1], steps_to_go)


@dataclass(frozen=True)
class FitSettings:
    """Settings of a regression.

    Attributes:
        scale: Length scale of the random features in standard deviations; None for the agent's value alone.
        penalty: Ridge penalty of the coefficients.
    """

    scale: float | None
    penalty: float


_SETTINGS = (FitSettings(1.5, 3e-4), FitSettings(4.0, 1e-3))
_AGENT_VALUE_ALONE = FitSettings(None, 1e-6)


class _Ridge:
    """A fitted function of features and steps to go."""

    def __init__(self, pilot: Pilot, settings: FitSettings) -> None:
        self._gamma, self._horizon, self._agent_value = pilot.gamma, pilot.horizon, pilot.agent_value
        rows = pilot.features[pilot.to_go > 0]
        deviation = rows.std(axis=0)
        self._mean = rows.mean(axis=0)
        self._scale = np.where(deviation > 1e-9 * (1 + np.abs(self._mean)), deviation, 1.0)
        self._directions: Floats | None = None
        if settings.scale is not None:
            count = rows.shape[1] - pilot.agent_value
            width = min(_WIDTH, max(len(rows) // 2, 8))
            random = np.random.default_rng(0)
            self._directions = random.standard_normal((count, width)) * np.sqrt(3 / count) / settings.scale
            self._phases = random.uniform(0, 2 * np.pi, width)
        self._coefficients = self._fit(pilot, settings.penalty)

    def __call__(self, features: Floats, steps_to_go: Steps) -> Floats:
        # The same as self._design(features, steps_to_go) @ self._coefficients, without writing the columns twice.
        level, slope = (self._columns(features) @ self._coefficients.reshape(2, -1).T).T
        values: Floats = level + self._share(steps_to_go) * slope
        return values

    def _columns(self, features: Floats) -> Floats:
        standardised = np.clip((features - self._mean) / self._scale, -_LIMIT, _LIMIT)
        numbers, agent_value = np.split(standardised, [standardised.shape[1] - self._agent_value], axis=1)
        columns = [np.ones((len(numbers), 1)), agent_value]
        if self._directions is not None:
            waves = np.cos(numbers @ self._directions + self._phases) * np.sqrt(2 / self._phases.size)
            columns += [numbers, waves]
        return np.concatenate(columns, axis=1)

    def _share(self, steps_to_go: Steps) -> Floats:
        """Discounted steps to go over those of the whole horizon."""
        steps = steps_to_go.astype(np.float64)
        if self._gamma == 1:
            return steps / self._horizon
        share: Floats = (1 - self._gamma**steps) / (1 - self._gamma**self._horizon)
        return share

    def _design(self, features: Floats, steps_to_go: Steps) -> Floats:
        columns = self._columns(features)
        return np.concatenate([columns, columns * self._share(steps_to_go)[:, None]], axis=1)

    def _fit(self, pilot: Pilot, penalty: float) -> Floats:
        to_go = pilot.to_go
        alive = to_go > 0
        design = self._design(pilot.features[alive], to_go[alive])
        penalties = np.full(design.shape[1] // 2, penalty)
        penalties[: 1 + self._agent_value] = 1e-9  # the constant and the agent's value are not shrunk
        # Errors at late steps count gamma^2t in the variance. The full discount would leave too little weight there.
        weights = pilot.gamma ** ((self._horizon - to_go[alive]) / 2)
        penalties = np.tile(penalties, 2) * weights.sum()
        # Truncated trajectories lack the rewards after their end: a first fit without them estimates these.
        batch = pilot.trajectories
        complete = np.repeat((batch.lengths == pilot.horizon) | pilot.terminated, batch.steps + 1)
        values = np.zeros(len(alive))
        for used in (complete[alive], np.ones(len(design), dtype=np.bool_)):
            targets = _returns_to_go(pilot, values)[alive][used]
            weighted = design[used] * weights[used, None]
            gram = weighted.T @ design[used]
            gram[np.diag_indices_from(gram)] += penalties
            unit = excess_exponent(float(np.abs(targets).max(initial=0.0)))
            coefficients = scaled(np.linalg.solve(gram, weighted.T @ scaled(targets, -unit)), unit)
            if used.all():
                break
            values[alive] = design @ coefficients
        return coefficients


def _returns_to_go(pilot: Pilot, values: Floats) -> Floats:
    """Discounted rewards to come at every row of the features; ``values`` stand for those after a trajectory's end."""
    steps, rewards = pilot.trajectories.steps, pilot.trajectories.rewards
    returns = np.zeros((len(steps), int(steps.max()) + 1))
    returns[np.arange(len(steps)), steps] = values[np.cumsum(steps + 1) - 1]
    for t in range(int(steps.max()) - 1, -1, -1):
        returns[:, t] = np.where(steps > t, rewards[:, t] + pilot.gamma * returns[:, t + 1], returns[:, t])
    return returns[np.arange(returns.shape[1]) <= steps[:, None]]


class FittedCritic(Critic):
    """A value function that was fitted on a pilot.

    Args:
        extractor: Turns observations into features.
        function: Maps features and steps to go to values; also an attribute.
    """

    name = "fit"

    def __init__(self, extractor: FeatureExtractor, function: FeatureFunction) -> None:
        self._extractor = extractor
        self.function = function

    def __call__(self, observations: Any, steps_to_go: Steps) -> Floats:
        return self.function(self._extractor(observations), steps_to_go)


def fit(pilot: Pilot, extractor: FeatureExtractor, settings: FitSettings | None = None) -> FittedCritic:
    """Fit a critic on all of a pilot, by default with the settings that do best in cross-validation."""
    return FittedCritic(extractor, _Ridge(pilot, settings or cross_validate(pilot)[0]))


def cross_validate(pilot: Pilot) -> tuple[FitSettings, float, list[Floats]]:
    """Compare settings, each fitted on one half of a pilot and validated on the other.

    Returns:
        The settings of least variance, that variance for a budget of one transition, and the values on the halves that
        they were validated on. With too few trajectories: default settings, infinity and no values.
    """
    if not pilot.divisible:
        return _SETTINGS[0], float("inf"), []
    halves = pilot.halves()
    results = []
    for settings in (_AGENT_VALUE_ALONE, *_SETTINGS) if pilot.agent_value else _SETTINGS:
        values = [half.values(_Ridge(other, settings)) for half, other in zip(halves, halves[::-1], strict=True)]
        results.append((settings, residual_variance(halves, values), values))
    return min(results, key=lambda result: result[1])


def residual_variance(pilots: Sequence[Pilot], values: Sequence[Floats | None]) -> float:
    """Least variance of the residuals of pilots, for V at every row of their features; None for no critic.

    It is for a budget of one transition, in squares of the :func:`reward_unit`, and infinite where it overflows.
    """
    moments = [pilot.moments(part) for pilot, part in zip(pilots, values, strict=True)]
    deviation = scaled_number(best_deviation(moments), -reward_unit(pilots))
    return deviation**2 if deviation < 1e150 else float("inf")


def reward_unit(pilots: Sequence[Pilot]) -> int:
    """Exponent k of the unit 2^k of rewards in which variances are compared; 0 for ordinary rewards."""
    return excess_exponent(max(float(np.abs(pilot.trajectories.flat).max()) for pilot in pilots))


def best_deviation(moments: Sequence[Moments]) -> float:
    """Error of the estimate under the best schedule for the mean of some moments, for a budget of one transition.

    Its square, the variance, is ``(sum_t sqrt(c_t g_t))^2`` with pooled weights g_t and costs c_t.
    """
    moments, unit = rescale(*moments)
    weights = np.mean([part.weights() for part in moments], axis=0)
    survival = np.mean([part.survival for part in moments], axis=0)
    costs = np.maximum(survival, 1 / (1 + sum(part.counts for part in moments)))
    return scaled_number(float(costs @ np.sqrt(pool(weights, costs))), unit)
