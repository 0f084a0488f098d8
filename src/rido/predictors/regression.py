"""Value functions by regression, from sums over trajectories that can be added up.

A fitted value function is a ridge regression of the discounted rewards to come on random features of the observation
(Rahimi and Recht, 2007), the observation itself and the agent's value where it has one. Each feature comes twice, as it
is and times ``(1 - gamma^k) / (1 - gamma^T)``, the share of the discounted steps that k steps to go have in all T.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rido.predictors.base import Floats, Steps
from rido.predictors.features import Sample

_WIDTH = 150  # random features at most; twice as many gain 5% and take twice as long
_LIMIT = 5.0  # standardised observations are clipped to this many deviations, so that no feature extrapolates far
_FREE = 1e-9  # penalty of what is hardly shrunk: the constant and the agent's value
_PENALTIES = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7)  # of the others, to choose from
_FIRST_PENALTY = 1e-4  # of the first fit, and where no data are left to choose one
_ROUNDS = 3  # of estimating the rewards that truncated trajectories lack
_SLAB = 8192  # rows at once, so that temporary arrays stay small


Truths = NDArray[np.bool_]


class Basis:
    """Functions of features and steps to go, of which value functions are linear combinations.

    Args:
        sample: Trajectories from whose features the units are taken. Units are rounded, so that they hardly depend on
            any single trajectory.
        scale: Length scale of the random features in standard deviations.
        agent_value: Whether the last column of the features is the agent's value.
    """

    def __init__(self, sample: Sample, scale: float, *, agent_value: bool, horizon: int, gamma: float) -> None:
        self.horizon, self.gamma, self._agent_value = horizon, gamma, agent_value
        rows = sample.features[sample.to_go(horizon) > 0]
        # Starts may lie farther apart than the states that follow, where a policy brings all to the same place.
        starts = sample.features[np.cumsum(sample.trajectories.steps + 1) - sample.trajectories.steps - 1]
        mean, deviation = rows.mean(axis=0), np.maximum(rows.std(axis=0), starts.std(axis=0))
        varies = deviation > 1e-9 * (1 + np.abs(mean))
        self._scale = np.where(varies, 2.0 ** np.rint(np.log2(np.where(varies, deviation, 1.0))), 1.0)
        self._mean = np.rint(2 * mean / self._scale) * self._scale / 2
        count = rows.shape[1] - agent_value
        random = np.random.default_rng(0)
        width = min(_WIDTH, max(len(rows) // 2, 8))
        self._directions = random.standard_normal((count, width)) * np.sqrt(3 / max(count, 1)) / scale
        self._phases = random.uniform(0, 2 * np.pi, width)
        self.free = np.arange(2 * (1 + agent_value + count + width)) % (1 + agent_value + count + width) <= agent_value

    def __call__(self, features: Floats, steps_to_go: Steps) -> Floats:
        """The functions at rows of features, one column each."""
        columns = self._columns(features)
        return np.concatenate([columns, columns * self._share(steps_to_go)[:, None]], axis=1)

    def value(self, coefficients: Floats, features: Floats, steps_to_go: Steps) -> Floats:
        """A linear combination of the functions at rows of features, without writing the columns twice."""
        halves = coefficients.reshape(2, -1).T
        parts = [self._columns(features[i : i + _SLAB]) @ halves for i in range(0, len(features), _SLAB)]
        level, slope = np.concatenate(parts).T
        values: Floats = level + self._share(steps_to_go) * slope
        return values

    def _columns(self, features: Floats) -> Floats:
        standardised = np.clip((features - self._mean) / self._scale, -_LIMIT, _LIMIT)
        numbers, agent_value = np.split(standardised, [standardised.shape[1] - self._agent_value], axis=1)
        waves = np.cos(numbers @ self._directions + self._phases) * np.sqrt(2 / self._phases.size)
        return np.concatenate([np.ones((len(numbers), 1)), agent_value, numbers, waves], axis=1)

    def _share(self, steps_to_go: Steps) -> Floats:
        """Discounted steps to go over those of the whole horizon."""
        steps = steps_to_go.astype(np.float64)
        if self.gamma == 1:
            return steps / self.horizon
        share: Floats = (1 - self.gamma**steps) / (1 - self.gamma**self.horizon)
        return share


@dataclass(eq=False)
class Normal:
    """Sums over trajectories that a regression needs.

    Truncated trajectories lack the rewards after their end. A first fit on the complete ones estimates these, and later
    fits on all estimate them better. So the sums over both are kept apart.
    """

    complete: Floats  # products of the columns, over the rows of trajectories that ran to the horizon or terminated
    truncated: Floats  # the same over the rows of the others
    targets: Floats  # products of the columns with the rewards to come, over complete and over truncated trajectories
    ends: Floats  # products of the columns with those at the end of the trajectory, discounted, over truncated ones
    weights: Floats  # sums of the weights of the rows, of complete and of truncated trajectories

    @classmethod
    def of(cls, basis: Basis, sample: Sample) -> "Normal":
        """The sums over the trajectories of a sample."""
        size, batch = basis.free.size, sample.trajectories
        total = cls(
            np.zeros((size, size)), np.zeros((size, size)), np.zeros((2, size)), np.zeros((size, size)), np.zeros(2)
        )
        to_go, returns = sample.to_go(basis.horizon), _returns(sample, basis.gamma)
        ends = np.cumsum(batch.steps + 1)
        whole = (batch.lengths == basis.horizon) | sample.terminated
        per_slab = max(1, _SLAB // (basis.horizon + 1))
        for first in range(0, len(batch), per_slab):
            rows = slice(ends[first] - batch.steps[first] - 1, ends[min(first + per_slab, len(batch)) - 1])
            columns = basis(sample.features[rows], to_go[rows]) * (to_go[rows] > 0)[:, None]
            # Errors at late steps count gamma^2t in the variance. The full discount would leave too little there.
            weights = basis.gamma ** ((basis.horizon - to_go[rows]) / 2) * (to_go[rows] > 0)
            trajectory = np.repeat(np.arange(len(batch)), batch.steps + 1)[rows]
            total._add(columns, weights, returns[rows], whole[trajectory], trajectory, basis.gamma)
        return total

    def _add(
        self,
        columns: Floats,
        weights: Floats,
        returns: Floats,
        whole: NDArray[np.bool_],
        trajectory: Steps,
        gamma: float,
    ) -> None:
        weighted = columns * weights[:, None]
        for kind, used in enumerate((whole, ~whole)):
            if used.any():
                (self.complete, self.truncated)[kind][...] += weighted[used].T @ columns[used]
                self.targets[kind] += weighted[used].T @ returns[used]
                self.weights[kind] += weights[used].sum()
        if not whole.all():
            first = np.flatnonzero(np.diff(trajectory, prepend=-1))
            last = np.append(first[1:], trajectory.size) - 1
            steps = np.repeat(last, last - first + 1) - np.arange(trajectory.size)
            sums = np.add.reduceat(weighted * (gamma**steps * ~whole)[:, None], first, axis=0)
            self.ends += sums.T @ columns[last]

    def __add__(self, other: "Normal") -> "Normal":
        mine, theirs = vars(self), vars(other)
        return Normal(**{name: mine[name] + theirs[name] for name in mine})

    def solve(self, free: Truths, *penalties: float) -> list[Floats]:
        """Coefficients of the columns for each penalty."""
        from scipy.linalg import lu_factor, lu_solve  # slow to import

        at_first = np.diag(np.where(free, _FREE, _FIRST_PENALTY) * self.weights[0])
        first, targets = np.linalg.solve(self.complete + at_first, self.targets[0]), self.targets.sum(axis=0)
        found = []
        for penalty in penalties:
            gram = self.complete + self.truncated + np.diag(np.where(free, _FREE, penalty) * self.weights.sum())
            factors, coefficients = lu_factor(gram, check_finite=False), first
            for _ in range(_ROUNDS if self.weights[1] else 1):
                coefficients = lu_solve(factors, targets + self.ends @ coefficients, check_finite=False)
            found.append(coefficients)
        return found

    def error(self, coefficients: Floats) -> float:
        """The squared error of a regression on complete trajectories, up to a constant."""
        return float(coefficients @ self.complete @ coefficients - 2 * coefficients @ self.targets[0])


def fit(parts: Sequence[Normal], free: Truths) -> Floats:
    """Coefficients of the regression on all parts of the data, with the penalty that is best for parts left out.

    How much to shrink depends on the problem: smooth values without noise want little, noisy ones much.
    """
    together = sum(parts[1:], parts[0])
    if len(parts) == 1:
        return together.solve(free, _FIRST_PENALTY)[0]
    errors = np.zeros(len(_PENALTIES))
    for place, part in enumerate(parts):
        first, *more = (other for at, other in enumerate(parts) if at != place)
        rest = sum(more, first)
        errors += [part.error(solved) for solved in rest.solve(free, *_PENALTIES)]
    return together.solve(free, _PENALTIES[int(errors.argmin())])[0]


def _returns(sample: Sample, gamma: float) -> Floats:
    """Discounted rewards to come at every row of the features, up to the trajectory's end."""
    steps, rewards = sample.trajectories.steps, sample.trajectories.rewards
    returns = np.zeros((len(steps), int(steps.max()) + 1))
    for t in range(int(steps.max()) - 1, -1, -1):
        returns[:, t] = np.where(steps > t, rewards[:, t] + gamma * returns[:, t + 1], 0.0)
    return returns[np.arange(returns.shape[1]) <= steps[:, None]]
