"""What is still to come of a return, predicted from the rewards so far: a control variate that needs nothing else.

A truncated trajectory lacks its tail at random, because its length was planned before it began. So for any functions
b_k of what was seen of a trajectory up to step k, with b_{-1} = b_{T-1} = 0,

    J_hat = sum_k mean over {i: h_i > k} of D_ik,      D_ik = gamma^k R_ik + b_k(i) - b_{k-1}(i)

is unbiased: the b telescope. With b_k = E[tail | seen so far] it is the efficient estimator for such monotone missing
data (Robins and Rotnitzky, 1995). The residuals D take the place of the rewards in plans and estimates. What a bad b
costs is precision, not correctness, if it was not fitted on the trajectories that it is applied to: each team's b comes
from the other teams.

Here b changes at the ends of blocks of steps. It is a ridge regression on a few summaries of the rewards so far
(``_FEATURES``), for trajectories that go on; for those that ended it is 0. Regressions are fitted backwards, on the
rewards of the next block and the prediction at its end, so truncated trajectories serve as far as they go. How rewards
and summaries follow from the summaries one block earlier changes slowly with time, so blocks share their slopes with
their neighbours and have only their means for themselves. All that this needs are sums over trajectories.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rido.core.allocation import Array
from rido.core.trajectories import Trajectories, pad, starts_of

Integers = NDArray[np.int64]

_BLOCKS = 100  # in which rewards are summed up, over the steps that matter
_REACH = 1e-4  # discount at which predictions end
_SHARED = 5  # blocks over which slopes are shared, to either side with falling weight
_RIDGE = 2.0  # trajectories without any relation of the features to the tail that each regression is mixed with
_LIMIT = 4.0  # deviations of predictions beyond which they do not go
_FEATURES = 7
"""The constant; the mean reward of the last block, of the one before, of all blocks and of the first one; the largest
and the smallest reward so far."""
_CONSTANT = 1e-9  # a feature does not vary if its variance is below this share of its square
_LEAST_SCALE = 0.1  # smallest unit of a feature, in its deviation over all blocks
_CHUNK = 1 << 18  # rewards processed at once


@dataclass(frozen=True, eq=False)
class Prediction:
    """The functions b of one team.

    Attributes:
        centres: of the features at the end of each block but the last.
        scales: of the features; infinite where they do not vary.
        coefficients: of the standardised features, the constant first.
        limits: the most by which a prediction differs from that for features at their centres.
    """

    centres: Array
    scales: Array
    coefficients: Array
    limits: Array

    def __call__(self, features: Array) -> Array:
        """Returns the predictions for trajectories that go on, a column for each block but the last."""
        standardised = (features - self.centres)[..., 1:] / self.scales[:, 1:]
        differences = np.einsum("ijp,jp->ij", standardised, self.coefficients[:, 1:])
        predicted: Array = self.coefficients[:, 0] + np.clip(differences, -self.limits, self.limits)
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
        self.transitions = 0  # of the trajectories that it learned from
        # Of each team and block but the last, over its trajectories: the sums of x x', of x x_next' and of x y.
        self._sums = np.zeros((teams, self._ends.size - 1, _FEATURES, 2 * _FEATURES + 1))
        self._unit = 0.0, 0.0  # centre and size of the first rewards, so that sums keep digits

    def add(self, trajectories: Trajectories, teams: Integers) -> None:
        """Takes in trajectories, given the team of each."""
        if not self.transitions:
            centre, size = float(trajectories.flat.mean()), float(trajectories.flat.std())
            self._unit = centre, size if size > _CONSTANT * abs(centre) else 1.0
        self.transitions += trajectories.transitions
        for team in np.unique(teams).tolist():
            for part in self._chunks(trajectories.select(teams == team)):
                self._sums[team] += self._sums_of(part)

    def predictions(self) -> list[Prediction]:
        """Returns for each team the prediction that was learned from the others."""
        return [self._solve(self._sums.sum(axis=0) - own) for own in self._sums]

    def _chunks(self, trajectories: Trajectories) -> Iterator[Trajectories]:
        """Yields trajectories, as many at a time as fit into the cache."""
        size, index = max(1, _CHUNK // int(trajectories.lengths.max())), np.arange(len(trajectories))
        for start in range(0, len(trajectories), size):
            yield trajectories.select((index >= start) & (index < start + size))

    def _features(self, trajectories: Trajectories) -> tuple[Array, Array]:
        """Returns the features of trajectories at the end of each block, and their discounted rewards in it."""
        width = int(self._ends[-1])
        rows = pad(trajectories.flat, trajectories.lengths, max(width, int(trajectories.lengths.max())))[:, :width]
        sizes = self._ends - self._starts
        offsets = np.arange(width) - np.repeat(self._starts, sizes)
        rewards = np.add.reduceat(rows * self.gamma**offsets, self._starts, axis=1)
        sums = np.add.reduceat(rows, self._starts, axis=1)
        means = sums / sizes
        features = np.zeros((*means.shape, _FEATURES))
        features[..., 1] = means
        features[:, :1, 2], features[:, 1:, 2] = means[:, :1], means[:, :-1]
        features[..., 3] = np.cumsum(sums, axis=1) / self._ends
        features[..., 4] = means[:, :1]
        features[..., 5] = np.maximum.accumulate(np.maximum.reduceat(rows, self._starts, axis=1), axis=1)
        features[..., 6] = np.minimum.accumulate(np.minimum.reduceat(rows, self._starts, axis=1), axis=1)
        features -= self._unit[0]
        features /= self._unit[1]
        features[..., 0] = 1.0
        return features, rewards

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
        distance = np.abs(np.subtract.outer(np.arange(blocks), np.arange(blocks)))
        shares = np.maximum(0.0, 1 - distance / (_SHARED + 1)) if _SHARED else (distance == 0).astype(np.float64)
        count = np.maximum(squares[:, :1, 0], 1.0)
        centres = squares[:, 0] / count
        # Few trajectories that are alike by chance must not make a small unit: it is that of neighbours, too.
        within = np.maximum(squares[:, place, place] - count * centres**2, 0.0)
        variances = (shares @ within) / (shares @ count) + _LEAST_SCALE**2 * within.sum(axis=0) / count.sum()
        scales: Array = np.sqrt(np.where(variances > _CONSTANT * centres**2, variances, np.inf))
        centres[:, 0], scales[:, 0] = 0.0, 1.0
        # The standardised features are z = A x, because the first of x is 1.
        change = np.zeros((blocks, _FEATURES, _FEATURES))
        change[:, place, place], change[:, 1:, 0] = 1 / scales, -(centres / scales)[:, 1:]
        right = np.zeros((blocks, _FEATURES, _FEATURES + 1))  # z z_next' and z y; there is no block after the last
        right[:-1, :, :-1] = change[:-1] @ following[:-1] @ change[1:].transpose(0, 2, 1)
        right[..., -1:] = change @ targets
        # z has mean 0 and variance 1 in its block, so means are separate from slopes, which neighbours share.
        means = right[:, 0] / count
        gram = (change @ squares @ change.transpose(0, 2, 1))[:, 1:, 1:].reshape(blocks, -1)
        gram = (shares @ gram).reshape(blocks, _FEATURES - 1, -1) + _RIDGE * np.eye(_FEATURES - 1)
        slopes = (shares @ right[:, 1:].reshape(blocks, -1)).reshape(blocks, _FEATURES - 1, -1)
        found = np.concatenate([means[:, None], np.linalg.solve(gram, slopes)], axis=1)
        coefficients, carried = found[..., -1].copy(), found[..., :-1]
        discounts = self.gamma ** (self._ends[1:-1] - self._ends[:-2])
        for block in range(blocks - 2, -1, -1):
            coefficients[block] += discounts[block] * (carried[block] @ coefficients[block + 1])
        slopes = coefficients[:, 1:]
        deviations = np.sqrt(np.einsum("jp,jpq,jq->j", slopes, gram, slopes) / (shares @ count)[:, 0])
        return Prediction(centres, scales, coefficients, _LIMIT * deviations)

    def residuals(self, trajectories: Trajectories, predictions: Sequence[Prediction], teams: Integers) -> Trajectories:
        """Returns the residuals of trajectories, given the predictions of all teams and the team of each."""
        residuals = np.array(trajectories.flat, dtype=np.float64)
        ends = np.cumsum(trajectories.lengths)
        done = 0
        for part in self._chunks(trajectories):
            last = done + len(part)
            features, _ = self._features(part)
            predicted = np.zeros((len(part), self._ends.size - 1))
            for team in np.unique(teams[done:last]).tolist():
                rows = teams[done:last] == team
                predicted[rows] = predictions[team](features[rows, :-1])
            stop = int(ends[last - 1])
            self._to_residuals(residuals[stop - part.flat.size : stop], part, predicted)
            done = last
        steps = np.minimum(trajectories.steps + 1, trajectories.lengths)
        return Trajectories.of_checked(residuals, trajectories.lengths, steps)

    def _to_residuals(self, flat: Array, trajectories: Trajectories, predicted: Array) -> None:
        """Makes residuals D, divided by gamma^k, of rewards, given b at the end of each block but the last.

        That a trajectory ended shows at the first planned step that it does not take. There b becomes 0, so a residual
        may have one step more than its trajectory took.
        """
        lengths, steps = trajectories.lengths, trajectories.steps
        changes = (steps[:, None] >= self._ends[:-1]) & (lengths[:, None] >= self._ends[:-1])
        predicted = np.where(changes, predicted, 0.0)
        first = starts_of(lengths)
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
