"""Critics that are fitted on a pilot, and the choice of a critic by what it would leave to be paid for.

A fitted critic is a ridge regression of the discounted rewards to come on random features of the observation
(Rahimi and Recht, 2007), the observation itself and the agent's own value where it has one. Each comes twice,
as it is and times ``(1 - gamma^k) / (1 - gamma^T)``, what k steps to go are worth of all T. benchmarks/critic.py
compares with boosted trees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rido.core.allocation import pool
from rido.core.moments import Moments, RewardMoments
from rido.core.trajectories import Trajectories
from rido.critics.base import AgentCritic, Critic, Signal, signal_of_values

Floats = NDArray[np.float64]

RESET_SHARE = 0.05
"""Share of the variance that resets are to leave."""

_WIDTH = 300  # random features at most
_LIMIT = 5.0  # standardised observations are clipped here, so that no feature runs away
_LARGEST = 2000  # numbers in an observation beyond which it is taken for an image
_PROMISE = 0.5  # of the variance without a critic: at most this much must be promised for one to be taken
_FEWEST = 4  # full-length trajectories: two to learn from and two to judge by, and the other way round


class View:
    """What a fitted critic sees of observations: their numbers and, in the last column, the agent's own value.

    Args:
        space: of one observation; None where observations are plain arrays.
        agent: the agent's value function, if it has one.

    Attributes:
        agent: the agent's value function, if it has one.
    """

    def __init__(self, space: Any, agent: AgentCritic | None) -> None:
        reason = None if space is None else _unsuited(space)
        if reason is not None:
            raise ValueError(f"critic cannot be fitted on {reason}")
        self._space = space
        self.agent = agent

    def __call__(self, observations: Any) -> Floats:
        """Returns one row of numbers per observation."""
        flat = np.concatenate(_flatten(self._space, observations), axis=1)
        own = np.zeros((len(flat), 0)) if self.agent is None else self.agent.endless(observations)[:, None]
        return np.concatenate([flat, own], axis=1)


def _unsuited(space: Any) -> str | None:
    """Returns what of a space cannot be flattened into a moderate number of numbers, or None."""
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
    """Returns a batch of observations as arrays of numbers, choices one-hot, as Gymnasium flattens single ones."""
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
    """The trajectories that a critic is fitted on and judged by.

    Attributes:
        trajectories: the rewards.
        terminated: for each trajectory, whether the environment ended it, be it at its planned length.
        features: what the view shows, before each step that a trajectory took and after its last one.
        own: whether the last column is the agent's own value.
        horizon: number of time steps T.
        gamma: discount factor.
    """

    trajectories: Trajectories
    terminated: NDArray[np.bool_]
    features: Floats
    own: bool
    horizon: int
    gamma: float

    @property
    def full_length(self) -> int:
        """Trajectories that were planned to the horizon."""
        return int((self.trajectories.lengths == self.horizon).sum())

    @property
    def taken(self) -> NDArray[np.int64]:
        """Steps that were taken before each row of the features."""
        rows = self.trajectories.steps + 1
        return np.arange(len(self.features)) - np.repeat(np.cumsum(rows) - rows, rows)

    @property
    def alive(self) -> NDArray[np.bool_]:
        """Rows of the features after which there are rewards to come."""
        alive = self.taken < self.horizon
        alive[np.cumsum(self.trajectories.steps + 1)[self.terminated] - 1] = False
        return alive

    def select(self, rows: NDArray[np.bool_]) -> Pilot:
        """Returns the trajectories for which ``rows`` is true."""
        features = self.features[np.repeat(rows, self.trajectories.steps + 1)]
        chosen = self.trajectories.select(rows)
        return Pilot(chosen, self.terminated[rows], features, self.own, self.horizon, self.gamma)

    def values(self, critic: Callable[[Floats, NDArray[np.int64]], Floats]) -> Floats:
        """Returns V at every row of the features, zero where nothing is to come."""
        alive, values = self.alive, np.zeros(len(self.features))
        values[alive] = critic(self.features[alive], self.horizon - self.taken[alive])
        return values

    def signal(self, critic: Callable[[Floats, NDArray[np.int64]], Floats]) -> Signal:
        """Returns the signal that a critic makes of the rewards."""
        return signal_of_values(self.values(critic), self.trajectories, gamma=self.gamma)

    def moments(self, values: Floats | None) -> RewardMoments:
        """Returns the moments of the rewards, or of the signal for values of all rows."""
        told = self.trajectories
        if values is not None:
            told = signal_of_values(values, told, gamma=self.gamma).trajectories
        moments = RewardMoments(self.horizon, gamma=self.gamma)
        moments.update(told)
        return moments


@dataclass(frozen=True)
class Recipe:
    """How to fit.

    Attributes:
        scale: length scale of the random features in standard deviations; None for the agent's own value alone.
        penalty: of the squared coefficients.
    """

    scale: float | None
    penalty: float


_RECIPES = (Recipe(1.5, 3e-4), Recipe(4.0, 1e-3))
_OWN = Recipe(None, 1e-6)


class _Ridge:
    """A fitted function of features and steps to go."""

    def __init__(self, pilot: Pilot, recipe: Recipe) -> None:
        self._gamma, self._horizon, self._own = pilot.gamma, pilot.horizon, pilot.own
        rows = pilot.features[pilot.alive]
        deviation = rows.std(axis=0)
        self._mean = rows.mean(axis=0)
        self._scale = np.where(deviation > 1e-9 * (1 + np.abs(self._mean)), deviation, 1.0)
        self._directions: Floats | None = None
        if recipe.scale is not None:
            count = rows.shape[1] - pilot.own
            width = min(_WIDTH, max(len(rows) // 2, 8))
            random = np.random.default_rng(0)
            self._directions = random.standard_normal((count, width)) * np.sqrt(3 / count) / recipe.scale
            self._phases = random.uniform(0, 2 * np.pi, width)
        self._coefficients = self._fit(pilot, recipe.penalty)

    def __call__(self, features: Floats, steps_to_go: NDArray[np.int64]) -> Floats:
        # The same as self._basis(features, steps_to_go) @ self._coefficients, without writing the basis out twice.
        level, slope = (self._columns(features) @ self._coefficients.reshape(2, -1).T).T
        values: Floats = level + self._worth(steps_to_go) * slope
        return values

    def _columns(self, features: Floats) -> Floats:
        columns = np.clip((features - self._mean) / self._scale, -_LIMIT, _LIMIT)
        numbers, own = np.split(columns, [columns.shape[1] - self._own], axis=1)
        parts = [np.ones((len(columns), 1)), own]
        if self._directions is not None:
            waves = np.cos(numbers @ self._directions + self._phases) * np.sqrt(2 / self._phases.size)
            parts += [numbers, waves]
        return np.concatenate(parts, axis=1)

    def _worth(self, steps_to_go: NDArray[np.int64]) -> Floats:
        steps = steps_to_go.astype(np.float64)
        if self._gamma == 1:
            return steps / self._horizon
        worth: Floats = (1 - self._gamma**steps) / (1 - self._gamma**self._horizon)
        return worth

    def _basis(self, features: Floats, steps_to_go: NDArray[np.int64]) -> Floats:
        columns = self._columns(features)
        return np.concatenate([columns, columns * self._worth(steps_to_go)[:, None]], axis=1)

    def _fit(self, pilot: Pilot, penalty: float) -> Floats:
        alive, taken = pilot.alive, pilot.taken
        basis = self._basis(pilot.features[alive], self._horizon - taken[alive])
        free = 1 + self._own  # the constant and the agent's own value are not shrunk
        penalties = np.full(basis.shape[1] // 2, penalty)
        penalties[:free] = 1e-9
        # Errors at late steps count less in the signal. As much less here would leave little to learn late values by.
        weights = pilot.gamma ** (taken[alive] / 2)
        penalties = np.tile(penalties, 2) * weights.sum()
        # Cut trajectories have no rewards to come after their end: a first fit without them stands in for these.
        batch = pilot.trajectories
        whole = np.repeat((batch.lengths == pilot.horizon) | pilot.terminated, batch.steps + 1)
        ends = np.zeros(len(alive))
        for known in (whole[alive], np.ones(len(basis), dtype=np.bool_)):
            targets = _to_go(pilot, ends)[alive][known]
            design = basis[known] * weights[known, None]
            gram = design.T @ basis[known]
            gram[np.diag_indices_from(gram)] += penalties
            coefficients: Floats = np.linalg.solve(gram, design.T @ targets)
            if known.all():
                break
            ends[alive] = basis @ coefficients
        return coefficients


def _to_go(pilot: Pilot, ends: Floats) -> Floats:
    """Returns the discounted rewards to come at every row of the features, ``ends`` standing for what was cut off."""
    batch, rows = pilot.trajectories, pilot.trajectories.steps + 1
    last = np.cumsum(rows) - 1
    width = int(rows.max())
    rewards = np.zeros((len(batch), width))
    rewards[:, : batch.rewards.shape[1]] = batch.rewards[:, :width]
    to_go = np.zeros((len(batch), width + 1))
    tails = np.where(pilot.alive[last], ends[last], 0.0)
    for t in range(width - 1, -1, -1):
        to_go[:, t] = np.where(batch.steps == t, tails, rewards[:, t] + pilot.gamma * to_go[:, t + 1])
    return to_go[:, :width][np.arange(width) < rows[:, None]]


def spread(moments: Sequence[Moments]) -> float:
    """Returns the variance that is left per budget of 1 under the best schedule, by the weights of some moments."""
    weights = np.mean([part.weights() for part in moments], axis=0)
    survival = np.mean([part.survival for part in moments], axis=0)
    costs = np.maximum(survival, 1 / (1 + sum(part.counts for part in moments)))
    return float(costs @ np.sqrt(pool(weights, costs))) ** 2


class FittedCritic(Critic):
    """A value function that was fitted on a pilot.

    Args:
        view: what it sees of observations.
        function: maps what the view shows, and the steps to go, to values.

    Attributes:
        function: the same.
    """

    name = "fit"

    def __init__(self, view: View, function: Callable[[Floats, NDArray[np.int64]], Floats]) -> None:
        self._view = view
        self.function = function

    def __call__(self, observations: Any, steps_to_go: NDArray[np.int64]) -> Floats:
        """Values of a batch."""
        return self.function(self._view(observations), steps_to_go)


def fit(pilot: Pilot, view: View) -> FittedCritic:
    """Returns a critic fitted on all of a pilot, by the recipe that does best on the half that it has not seen."""
    return FittedCritic(view, _Ridge(pilot, _best_recipe(pilot)[0]))


def choose(pilot: Pilot, view: View, *, budget: int, max_resets: int, fits: bool) -> Critic | None:
    """Returns the critic that promises the least error, or None for plain rewards.

    Each is judged by the variance that its signal would leave under its own best schedule, ``(sum_t sqrt(c_t g_t))^2``
    over the budget with pooled weights g_t and costs c_t. The weights are of trajectories that it was not fitted on,
    and a fitted critic has only the budget after the pilot. A critic must promise a clear gain, because the pilot is
    small and the promise of the best of several is too good on average.

    Args:
        pilot: the pilot.
        view: what a fitted critic sees of observations.
        budget: transitions to spend in all.
        max_resets: resets there may be at most.
        fits: whether a fitted critic is allowed.
    """
    if pilot.full_length < _FEWEST:
        return None
    plain = _spread(_halves(pilot), [None, None]) / budget
    best: tuple[float, Critic | None] = (plain * _PROMISE, None)
    if view.agent is not None:
        values = [half.values(own_value(view.agent)) for half in _halves(pilot)]
        variance = _with_resets(_spread(_halves(pilot), values) / budget, values, pilot, max_resets)
        if variance < best[0]:
            best = variance, view.agent
    if fits:
        recipe, left, values = _best_recipe(pilot)
        variance = _with_resets(left / (budget - pilot.trajectories.transitions), values, pilot, max_resets)
        if variance < best[0]:
            best = variance, FittedCritic(view, _Ridge(pilot, recipe))
    return best[1]


def _best_recipe(pilot: Pilot) -> tuple[Recipe, float, list[Floats]]:
    """Returns the recipe of least spread, that spread, and its values on the halves it was not fitted on."""
    recipes = (_OWN, *_RECIPES) if pilot.own else _RECIPES
    if pilot.full_length < _FEWEST:
        return _RECIPES[0], float("inf"), []
    halves = _halves(pilot)
    judged = []
    for recipe in recipes:
        values = [half.values(_Ridge(other, recipe)) for half, other in zip(halves, halves[::-1], strict=True)]
        judged.append((_spread(halves, values), recipe, values))
    left, recipe, values = min(judged, key=lambda entry: entry[0])
    return recipe, left, values


def _halves(pilot: Pilot) -> list[Pilot]:
    """Returns every other trajectory, and the rest. They come longest first, so that both have all lengths."""
    first = np.arange(len(pilot.trajectories)) % 2 == 0
    return [pilot.select(first), pilot.select(~first)]


def _spread(halves: list[Pilot], values: list[Any]) -> float:
    return spread([half.moments(value) for half, value in zip(halves, values, strict=True)])


def own_value(agent: AgentCritic) -> Callable[[Floats, NDArray[np.int64]], Floats]:
    """Returns an agent's value function on what a view shows."""
    return lambda features, steps_to_go: agent.shorten(features[:, -1], steps_to_go)


def _with_resets(variance: float, values: list[Floats], pilot: Pilot, max_resets: int) -> float:
    """Adds what the resets leave: their share of 5%, or more where they may not be as many as that takes."""
    if not values:
        return variance
    starts = [half_values[half.taken == 0] for half, half_values in zip(_halves(pilot), values, strict=True)]
    among_starts = float(np.mean([part.var(ddof=1) for part in starts]))
    return variance + max(RESET_SHARE / (1 - RESET_SHARE) * variance, among_starts / max_resets)
