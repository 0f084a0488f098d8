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
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rido.core.allocation import Array
from rido.core.trajectories import Trajectories, pad, positions

Integers = NDArray[np.int64]

_BLOCKS = 50  # in which rewards are summed up, over the steps that matter
_REACH = 1e-4  # discount at which predictions end
_RIDGE = 2.0  # trajectories without any relation of the features to the tail that each regression is mixed with
_LIMIT = 4.0  # deviations of a feature beyond which predictions do not extrapolate
_FEATURES = 4  # with the constant
_CONSTANT = 1e-9  # a feature does not vary if its variance is below this share of its square


@dataclass(eq=False)
class _Sums:
    """Sums over trajectories from which all regressions follow, for each block: of x x', x x_next', x y and 1."""

    squares: Array
    following: Array
    targets: Array

    def __add__(self, other: _Sums) -> _Sums:
        return _Sums(
            self.squares + other.squares, self.following + other.following, self.targets + other.targets
        )


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
        teams: number of teams, each of which has predictions of its own.
    """

    def __init__(self, horizon: int, gamma: float, teams: int) -> None:
        self.gamma = gamma
        reach = horizon if gamma == 1 else min(horizon, math.ceil(math.log(_REACH) / math.log(gamma)))
        ends = np.unique(np.rint(np.linspace(0, reach, min(_BLOCKS, reach) + 1)).astype(np.int64))
        self._starts, self._ends = ends[:-1], ends[1:]
        self._sums: list[_Sums | None] = [None] * teams
        self._unit: tuple[float, float] | None = None  # centre and size of rewards, which keep digits

    def add(self, trajectories: Trajectories, teams: Integers) -> None:
        """Takes in trajectories, given the team of each."""
        if self._unit is None:
            taken = trajectories.flat[positions(trajectories.lengths) < np.repeat(trajectories.steps, trajectories.lengths)]
            self._unit = float(taken.mean()), float(taken.std()) or 1.0
        for team in np.unique(teams).tolist():
            sums, before = self._sums_of(trajectories.select(teams == team)), self._sums[team]
            self._sums[team] = sums if before is None else before + sums

    def _features(self, trajectories: Trajectories) -> tuple[Array, Array]:
        """Returns the features of trajectories at the end of each block, and their discounted rewards in it."""
        width = int(self._ends[-1])
        rows = pad(trajectories.flat, trajectories.lengths, max(width, int(trajectories.lengths.max())))[:, :width]
        sizes = self._ends - self._starts
        offsets = np.arange(width) - np.repeat(self._starts, sizes)
        rewards = np.add.reduceat(rows * self.gamma**offsets, self._starts, axis=1)
        sums = np.add.reduceat(rows, self._starts, axis=1)
        assert self._unit is not None
        centre, size = self._unit
        means = (sums / sizes - centre) / size
        before = np.concatenate([means[:, :1], means[:, :-1]], axis=1)
        overall = (np.cumsum(sums, axis=1) / self._ends - centre) / size
        return np.stack([np.ones_like(means), means, before, overall], axis=-1), rewards

    def _sums_of(self, trajectories: Trajectories) -> _Sums:
        features, rewards = self._features(trajectories)
        alive, planned = trajectories.steps[:, None] >= self._ends, trajectories.lengths[:, None] >= self._ends
        used = (alive[:, :-1] & planned[:, 1:]).astype(np.float64)
        x = features[:, :-1] * used[..., None]
        x_next = features[:, 1:] * (alive[:, 1:] & planned[:, 1:])[..., None]
        return _Sums(
            np.einsum("ijp,ijq->jpq", x, features[:, :-1]),
            np.einsum("ijp,ijq->jpq", x, x_next),
            np.einsum("ijp,ij->jp", x, rewards[:, 1:]),
        )

    def predictions(self) -> list[Prediction] | None:
        """Returns for each team the prediction that was learned from the others; None while a team has nothing."""
        if any(sums is None for sums in self._sums):
            return None
        found = []
        for team in range(len(self._sums)):
            first, *more = (sums for other, sums in enumerate(self._sums) if other != team and sums is not None)
            found.append(self._solve(sum(more, first)))
        return found

    def _solve(self, sums: _Sums) -> Prediction:
        blocks = len(sums.squares)
        count = np.maximum(sums.squares[:, 0, 0], 1.0)
        centres, squares = sums.squares[:, 0] / count[:, None], np.einsum("jpp->jp", sums.squares) / count[:, None]
        variances = squares - centres**2
        varies = variances > _CONSTANT * squares
        scales = np.where(varies, np.sqrt(np.where(varies, variances, 1.0)), np.inf)
        centres[:, 0], scales[:, 0] = 0.0, 1.0
        # The standardised features are z = A x, because the first one is constant.
        change = np.zeros((blocks, _FEATURES, _FEATURES))
        place = np.arange(_FEATURES)
        change[:, place, place] = 1 / scales
        change[:, 1:, 0] = -centres[:, 1:] / scales[:, 1:]
        gram = np.einsum("jpa,jab,jqb->jpq", change, sums.squares, change)
        gram[:, place, place] += np.where(place == 0, 1e-9, _RIDGE)
        inverse = np.linalg.inv(gram)
        targets = np.einsum("jpa,ja->jp", change, sums.targets)
        following = np.einsum("jpa,jab,jqb->jpq", change[:-1], sums.following[:-1], change[1:])
        discounts = self.gamma ** (self._ends[1:] - self._ends[:-1])
        coefficients = np.zeros((blocks, _FEATURES))
        for block in range(blocks - 1, -1, -1):
            known = targets[block]
            if block + 1 < blocks:
                known = known + discounts[block] * (following[block] @ coefficients[block + 1])
            coefficients[block] = inverse[block] @ known
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
