"""What is still to come of a return, predicted from the rewards so far: a control variate that needs nothing else.

A truncated trajectory lacks its tail at random, because its length was planned before it began. So for any functions
b_k of what was seen of a trajectory up to step k, with b_{-1} = b_{T-1} = 0,

    J_hat = sum_k mean over {i: h_i > k} of D_ik,      D_ik = gamma^k R_ik + b_k(i) - b_{k-1}(i)

is unbiased: the b telescope. With b_k = E[tail | seen so far] it is the efficient estimator for such monotone missing
data (Robins and Rotnitzky, 1995). The residuals D take the place of the rewards in plans and estimates. What a bad b
costs is precision, not correctness, if it was not fitted on the trajectories that it is applied to: each team's b comes
from the other teams.

Here b changes at the ends of blocks of steps. It is a ridge regression on the mean reward of the last block, of the one
before it and of all steps so far, for trajectories that go on; for those that ended it is 0. Regressions are fitted
backwards, on the rewards of the next block and the prediction at its end, so truncated trajectories serve as far as
they go. All that this needs are sums over trajectories that can be added up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rido.core.allocation import Array
from rido.core.reward_moments import RewardMoments
from rido.core.trajectories import Trajectories, concatenate, pad

Integers = NDArray[np.int64]

_BLOCKS = 50  # in which rewards are summed up, over the steps that matter
_REACH = 1e-4  # discount at which predictions end
_RIDGE = 2.0  # trajectories without any relation of the features to the tail that each regression is mixed with
_LIMIT = 4.0  # deviations of a feature beyond which predictions do not extrapolate
_FEATURES = 4  # with the constant
_FREE = 1e-9  # ridge of the constant, which is not shrunk
_CONSTANT = 1e-9  # a feature does not vary if its variance is below this share of its square


@dataclass(frozen=True, eq=False)
class Prediction:
    """The functions b of one team.

    Attributes:
        centres: of the features at the end of each block.
        scales: of the features; infinite where they do not vary.
        coefficients: of the standardised features, a row for each block but the last.
    """

    centres: Array
    scales: Array
    coefficients: Array

    def __call__(self, features: Array) -> Array:
        """Returns the predictions for trajectories that go on, a column for each block but the last."""
        standardised = np.clip((features - self.centres) / self.scales, -_LIMIT, _LIMIT)
        standardised[..., 0] = 1.0
        predicted: Array = np.einsum("ijp,jp->ij", standardised, self.coefficients)
        return predicted


class RewardsSoFar:
    """Learns to predict the tails of trajectories, and makes their residuals.

    Args:
        horizon: number of time steps T.
        gamma: discount factor.
        teams: number of teams, each of which has its own predictions.
    """

    def __init__(self, horizon: int, gamma: float, teams: int) -> None:
        self.horizon, self.gamma = horizon, gamma
        reach = horizon if gamma == 1 else min(horizon, math.ceil(math.log(_REACH) / math.log(gamma)))
        ends = np.unique(np.rint(np.linspace(0, reach, min(_BLOCKS, reach) + 1)).astype(np.int64))
        self._starts, self._ends = ends[:-1], ends[1:]
        self._told: list[list[Trajectories]] = [[] for _ in range(teams)]
        # Of each team and block but the last, over its trajectories: the sums of x x', of x x_next' and of x y.
        self._sums = np.zeros((teams, self._ends.size - 1, _FEATURES, 2 * _FEATURES + 1))
        self._unit = 0.0, 0.0  # centre and size of the first rewards, so that sums keep digits

    def add(self, trajectories: Trajectories, teams: Integers) -> None:
        """Takes in trajectories, given the team of each."""
        if not any(self._told):
            self._unit = float(trajectories.flat.mean()), float(trajectories.flat.std()) or 1.0
        for team in np.unique(teams).tolist():
            part = trajectories.select(teams == team)
            self._told[team].append(part)
            self._sums[team] += self._sums_of(part)

    def predictions(self) -> list[Prediction]:
        """Returns for each team the prediction that was learned from the others."""
        return [self._solve(self._sums.sum(axis=0) - own) for own in self._sums]

    def moments(self) -> list[RewardMoments]:
        """Returns the moments of each team's residuals."""
        found = []
        for told, prediction in zip(self._told, self.predictions(), strict=True):
            told[:] = [concatenate(told)]
            moments = RewardMoments(self.horizon, gamma=self.gamma)
            moments.update(self.residuals(told[0], prediction), told[0].steps)
            found.append(moments)
        return found

    def _features(self, trajectories: Trajectories) -> tuple[Array, Array]:
        """Returns the features of trajectories at the end of each block, and their discounted rewards in it."""
        width = int(self._ends[-1])
        rows = pad(trajectories.flat, trajectories.lengths, max(width, int(trajectories.lengths.max())))[:, :width]
        sizes = self._ends - self._starts
        offsets = np.arange(width) - np.repeat(self._starts, sizes)
        rewards = np.add.reduceat(rows * self.gamma**offsets, self._starts, axis=1)
        sums = np.add.reduceat(rows, self._starts, axis=1)
        centre, size = self._unit
        means = (sums / sizes - centre) / size
        before = np.concatenate([means[:, :1], means[:, :-1]], axis=1)
        overall = (np.cumsum(sums, axis=1) / self._ends - centre) / size
        return np.stack([np.ones_like(means), means, before, overall], axis=-1), rewards

    def _sums_of(self, trajectories: Trajectories) -> Array:
        """Returns sums over the trajectories that go on and are planned to take the next block, for each block."""
        features, rewards = self._features(trajectories)
        alive, planned = trajectories.steps[:, None] >= self._ends, trajectories.lengths[:, None] >= self._ends
        x = features[:, :-1] * (alive[:, :-1] & planned[:, 1:])[..., None]
        x_next = features[:, 1:] * (alive & planned)[:, 1:, None]
        right = np.concatenate([features[:, :-1], x_next, rewards[:, 1:, None]], axis=-1)
        sums: Array = np.einsum("ijp,ijq->jpq", x, right)
        return sums

    def _solve(self, sums: Array) -> Prediction:
        """Returns the regressions of all blocks, from the last one backwards."""
        squares, following, targets = np.split(sums, [_FEATURES, 2 * _FEATURES], axis=-1)
        place, blocks = np.arange(_FEATURES), len(sums)
        count = np.maximum(squares[:, :1, 0], 1.0)
        centres, spread = squares[:, 0] / count, squares[:, place, place] / count
        variances = spread - centres**2
        scales: Array = np.sqrt(np.where(variances > _CONSTANT * spread, variances, np.inf))
        centres[:, 0], scales[:, 0] = 0.0, 1.0
        # The standardised features are z = A x, because the first of x is 1.
        change = np.zeros((blocks, _FEATURES, _FEATURES))
        change[:, place, place], change[:, 1:, 0] = 1 / scales, -(centres / scales)[:, 1:]
        gram = change @ squares @ change.transpose(0, 2, 1)
        gram[:, place, place] += np.where(place == 0, _FREE, _RIDGE)
        coefficients = np.asarray(np.linalg.solve(gram, change @ targets)[..., 0], dtype=np.float64)
        discounts = self.gamma ** (self._ends[1:-1] - self._ends[:-2])[:, None, None]
        carried = discounts * np.linalg.solve(gram[:-1], change[:-1] @ following[:-1] @ change[1:].transpose(0, 2, 1))
        for block in range(blocks - 2, -1, -1):
            coefficients[block] += carried[block] @ coefficients[block + 1]
        return Prediction(centres, scales, coefficients)

    def residuals(self, trajectories: Trajectories, prediction: Prediction) -> Trajectories:
        """Returns the residuals D of trajectories, divided by gamma^k, in the place of their rewards.

        That a trajectory ended shows at the first planned step that it does not take. There b becomes 0, so a residual
        may have one step more than its trajectory took.
        """
        features, _ = self._features(trajectories)
        lengths, steps = trajectories.lengths, trajectories.steps
        changes = (steps[:, None] >= self._ends[:-1]) & (lengths[:, None] >= self._ends[:-1])
        predicted = np.where(changes, prediction(features[:, :-1]), 0.0)
        first = np.cumsum(lengths) - lengths
        flat = trajectories.flat.astype(np.float64, copy=True)
        discount = self.gamma ** (self._ends[:-1] - np.concatenate([[0], self._ends[:-2]]))
        before = np.concatenate([np.zeros((len(lengths), 1)), predicted[:, :-1]], axis=1) / discount
        rows, blocks = np.nonzero(changes)
        flat[first[rows] + self._ends[blocks] - 1] += self.gamma * (predicted - before)[rows, blocks]
        # b ends: at the last block's end, or where the trajectory did.
        over = int(self._ends[-1])
        last = changes.sum(axis=1) - 1
        end = np.where(steps < lengths, np.minimum(steps, over - 1), over - 1)
        rows = np.flatnonzero((last >= 0) & (end < lengths))
        flat[first[rows] + end[rows]] -= predicted[rows, last[rows]] * self.gamma ** (
            self._ends[last[rows]] - end[rows]
        ).astype(np.float64)
        return Trajectories.of_checked(flat, lengths, np.minimum(steps + 1, lengths))
