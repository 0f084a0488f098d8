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
from rido.core.moments import Moments, union
from rido.core.reward_moments import Rows
from rido.core.trajectories import Trajectories, starts_of
from rido.strategies.planning import learn
from rido.strategies.settings import AdaptiveSettings

Integers = NDArray[np.int64]

_BLOCKS = 100  # in which rewards are summed up, over the steps that matter
_REACH = 1e-4  # discount at which predictions end
_SHARED = 5  # blocks over which slopes are shared, to either side with falling weight
_RIDGE = 2.0  # trajectories without any relation of the features to the tail that each regression is mixed with
_LIMIT = 4.0  # deviations of predictions beyond which they do not go
_FEATURES = 7
"""The constant; the mean reward of the last block, of the one before, of all blocks, of the first one, of the best one
and of the worst."""
_CONSTANT = 1e-9  # a feature does not vary if its variance is below this share of its square
_LEAST_SCALE = 0.1  # smallest unit of a feature, in its deviation over all blocks
_ENOUGH = 1000  # trajectories of a team that a regression learns from; more of them tell it little
_CHUNK = 1 << 18  # rewards processed at once


@dataclass(frozen=True, eq=False)
class Predictions:
    """The functions b of all teams.

    Attributes:
        centres: of the features, by team and by block but the last.
        scales: of the features; infinite where they do not vary.
        coefficients: of the standardised features, the constant first.
        limits: the most by which a prediction differs from that for features at their centres.
    """

    centres: Array
    scales: Array
    coefficients: Array
    limits: Array

    def __call__(self, features: Array, team: int) -> Array:
        """Returns a team's predictions for trajectories that go on, by the features at the ends of the first blocks."""
        blocks = features.shape[2]
        centres, scales, coefficients = (
            part[team, :blocks].T for part in (self.centres, self.scales, self.coefficients)
        )
        differences = np.zeros(features.shape[1:])
        for feature, centre, slope in zip(features[1:], centres[1:], (coefficients / scales)[1:], strict=True):
            differences += (feature - centre) * slope
        limits = self.limits[team, :blocks]
        predicted: Array = coefficients[0] + np.clip(differences, -limits, limits)
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
        # Of each team and block but the last, over its trajectories: the sums of x x', of x x_next' and of x y.
        self._sums = np.zeros((teams, self._ends.size - 1, _FEATURES, 2 * _FEATURES + 1))
        self._unit = 0.0, 0.0  # centre and size of the first rewards, so that sums keep digits

    def add(self, trajectories: Trajectories, teams: Integers) -> None:
        """Takes in trajectories, given the team of each, as far as their last blocks do not know enough already."""
        if not self._unit[1]:
            centre, size = float(trajectories.flat.mean()), float(trajectories.flat.std())
            self._unit = centre, size if size > _CONSTANT * abs(centre) else 1.0
        blocks = self._blocks_of(trajectories)
        last = np.minimum(blocks, np.searchsorted(self._ends, trajectories.lengths, side="right")) - 2
        needed = last >= 0
        needed[needed] = self._sums[teams[needed], last[needed], 0, 0] < _ENOUGH
        for team in np.unique(teams[needed]).tolist():
            for rows, count in self._chunks(blocks, np.flatnonzero(needed & (teams == team))):
                sums = self._sums_of(trajectories, rows, count)
                self._sums[team, : len(sums)] += sums

    def predictions(self) -> Predictions:
        """Returns the predictions of each team, learned from the others."""
        return self._solve(self._sums.sum(axis=0) - self._sums)

    def _blocks_of(self, trajectories: Trajectories) -> Integers:
        """Returns how many blocks tell something of each trajectory: those before its end, and one."""
        blocks: Integers = np.minimum(
            np.searchsorted(self._ends, trajectories.steps, side="right") + 1, self._ends.size
        )
        return blocks

    def _chunks(self, blocks: Integers, rows: Integers) -> Iterator[tuple[Integers, int]]:
        """Yields trajectories with about as many blocks, and how many; as many at a time as fit into the cache."""
        for bit in np.unique(bits := np.frexp(blocks[rows].astype(np.float64))[1]).tolist():
            alike = rows[bits == bit]
            count = int(blocks[alike].max())
            size = max(1, _CHUNK // int(self._ends[count - 1]))
            for start in range(0, alike.size, size):
                yield alike[start : start + size], count

    def _features(self, trajectories: Trajectories, chosen: Integers, count: int) -> tuple[Array, Array]:
        """Returns the discounted rewards of the first blocks, and the features at their ends.

        What belongs to blocks that a trajectory is not planned to take whole is arbitrary.
        """
        starts, ends = self._starts[:count], self._ends[:count]
        width = int(ends[-1])
        rows = Rows(trajectories.flat, starts_of(trajectories.lengths), trajectories.lengths)(chosen, width)
        sums = np.add.reduceat(rows, starts, axis=1)
        means = (sums / (ends - starts) - self._unit[0]) / self._unit[1]
        features = np.empty((_FEATURES, *means.shape))
        features[0], features[1], features[4] = 1.0, means, means[:, :1]
        features[2, :, :1], features[2, :, 1:] = means[:, :1], means[:, :-1]
        features[3] = (np.cumsum(sums, axis=1) / ends - self._unit[0]) / self._unit[1]
        np.maximum.accumulate(means, axis=1, out=features[5])
        np.minimum.accumulate(means, axis=1, out=features[6])
        if self.gamma < 1:
            rows *= self.gamma ** (np.arange(width) - np.repeat(starts, ends - starts))
            sums = np.add.reduceat(rows, starts, axis=1)
        return sums, features

    def _sums_of(self, trajectories: Trajectories, chosen: Integers, count: int) -> Array:
        """Returns sums over the trajectories that go on and are planned to take the next block, for each block."""
        rewards, features = self._features(trajectories, chosen, count)
        ends = self._ends[:count, None]
        alive, planned = trajectories.steps[chosen] >= ends, trajectories.lengths[chosen] >= ends
        x = np.ascontiguousarray(features.transpose(2, 0, 1))  # by block, feature and trajectory
        x_next = x[1:] * (alive & planned)[1:, None]
        right = np.concatenate([x[:-1], x_next, rewards.T[1:, None]], axis=1).swapaxes(1, 2)
        sums: Array = (x[:-1] * (alive[:-1] & planned[1:])[:, None]) @ right
        return sums

    def _solve(self, sums: Array) -> Predictions:
        """Returns the regressions of all teams and blocks, from the last block backwards."""
        squares, following, targets = np.split(sums, [_FEATURES, 2 * _FEATURES], axis=-1)
        place, (teams, blocks) = np.arange(_FEATURES), sums.shape[:2]
        count = np.maximum(squares[..., :1, 0], 1.0)
        centres = squares[..., 0] / count
        # Few trajectories that are alike by chance must not make a small unit: it is that of neighbours, too.
        within = np.maximum(squares[..., place, place] - count * centres**2, 0.0)
        overall = within.sum(axis=1, keepdims=True) / np.maximum(count.sum(axis=1, keepdims=True), 1)
        shared = _smoothed(count)
        variances = _smoothed(within) / shared + _LEAST_SCALE**2 * overall
        scales: Array = np.sqrt(np.where(variances > _CONSTANT * centres**2, variances, np.inf))
        centres[..., 0], scales[..., 0] = 0.0, 1.0
        # The standardised features are z = A x, because the first of x is 1.
        change = np.zeros((teams, blocks, _FEATURES, _FEATURES))
        change[..., place, place], change[..., 1:, 0] = 1 / scales, -(centres / scales)[..., 1:]
        right = np.zeros((teams, blocks, _FEATURES, _FEATURES + 1))  # z z_next' and z y; no block after the last
        right[:, :-1, :, :-1] = change[:, :-1] @ following[:, :-1] @ change[:, 1:].swapaxes(-1, -2)
        right[..., -1:] = change @ targets
        # z has mean 0 in its block, so means are separate from slopes, which neighbours share.
        means = right[..., 0, :] / count
        gram = (change @ squares @ change.swapaxes(-1, -2))[..., 1:, 1:]
        gram = _smoothed(gram) + _RIDGE * np.eye(_FEATURES - 1)
        slopes = np.linalg.solve(gram, _smoothed(right[..., 1:, :]))
        found = np.concatenate([means[..., None, :], slopes], axis=-2)
        coefficients, carried = found[..., -1].copy(), found[..., :-1]
        discounts = self.gamma ** (self._ends[1:-1] - self._ends[:-2])
        for block in range(blocks - 2, -1, -1):
            coefficients[:, block] += (
                discounts[block] * (carried[:, block] @ coefficients[:, block + 1, :, None])[..., 0]
            )
        slopes = coefficients[..., 1:]
        explained = np.einsum("kjp,kjpq,kjq->kj", slopes, gram, slopes) / shared[..., 0]
        return Predictions(centres, scales, coefficients, _LIMIT * np.sqrt(np.maximum(explained, 0.0)))

    def residuals(self, trajectories: Trajectories, predictions: Predictions, teams: Integers) -> Trajectories:
        """Returns the residuals of trajectories, given the team of each."""
        residuals, blocks = np.array(trajectories.flat, dtype=np.float64), self._blocks_of(trajectories)
        for team in np.unique(teams).tolist():
            for rows, count in self._chunks(blocks, np.flatnonzero(teams == team)):
                _, features = self._features(trajectories, rows, count)
                predicted = predictions(features[..., : self._ends.size - 1], team)
                if predicted.size:
                    self._to_residuals(residuals, trajectories, rows, predicted)
        steps = np.minimum(trajectories.steps + 1, trajectories.lengths)
        return Trajectories.of_checked(residuals, trajectories.lengths, steps)

    def _to_residuals(self, flat: Array, trajectories: Trajectories, chosen: Integers, predicted: Array) -> None:
        """Makes residuals D, divided by gamma^k, of the rewards of some trajectories, given b at the ends of blocks.

        That a trajectory ended shows at the first planned step that it does not take. There b becomes 0, so a residual
        may have one step more than its trajectory took.
        """
        ends = self._ends[: predicted.shape[1]]
        lengths, steps, first = (
            part[chosen] for part in (trajectories.lengths, trajectories.steps, starts_of(trajectories.lengths))
        )
        changes = (steps[:, None] >= ends) & (lengths[:, None] >= ends)
        predicted = np.where(changes, predicted, 0.0)
        differences = predicted.copy()
        differences[:, 1:] -= predicted[:, :-1] / self.gamma ** (ends[1:] - ends[:-1])
        rows, blocks = np.nonzero(changes)
        flat[first[rows] + ends[blocks] - 1] += self.gamma * differences[rows, blocks]
        # b ends: at the last block's end, or where the trajectory did.
        over = int(self._ends[-1])
        last = changes.sum(axis=1) - 1
        end = np.where(steps < lengths, np.minimum(steps, over - 1), over - 1)
        rows = np.flatnonzero((last >= 0) & (end < lengths))
        flat[first[rows] + end[rows]] -= predicted[rows, last[rows]] * self.gamma ** (
            self._ends[last[rows]] - end[rows]
        ).astype(np.float64)


class Residuals:
    """Residuals of what was told, in place of the rewards where they promise less error.

    Args:
        horizon: number of time steps T.
        gamma: discount factor.
        teams: number of teams.
        settings: constants of the strategy.

    Attributes:
        moments: of each team's residuals, where they are used.
        used: whether they are.
    """

    def __init__(self, horizon: int, gamma: float, teams: int, settings: AdaptiveSettings) -> None:
        self.learner, self._settings = RewardsSoFar(horizon, gamma, teams), settings
        self.moments: list[Moments] = []
        self.used = False
        self.predictions: Predictions | None = None
        self._told: list[tuple[Trajectories, Integers]] = []
        self._transitions, self._learned = 0, (0, 0)  # and those, and batches, that predictions were learned from

    def tell(
        self, told: Sequence[tuple[Trajectories, Integers]], groups: Sequence[Moments], reset_price: float
    ) -> None:
        """Takes in trajectories with the team of each. Where much more is known, predicts anew and chooses again.

        Args:
            told: the trajectories.
            groups: moments of the rewards of each team, with these trajectories.
            reset_price: price of starting a trajectory, in transitions.
        """
        self._told += told
        self._transitions += sum(batch.transitions for batch, _ in told)
        before, batches = self._learned
        if self._transitions < self._settings.relearn * before:
            if self.used:
                self._add(told)
            return
        self.used = False
        if min(int(group.counts[-1]) for group in groups) < 2:
            return
        for batch, teams in self._told[batches:]:
            self.learner.add(batch, teams)
        self._learned = self._transitions, len(self._told)
        self.predictions = self.learner.predictions()
        self.moments = [group.empty() for group in groups]
        self._add(self._told)
        plain, found = (
            learn(union(parts, same_means=same), reset_price=reset_price, settings=self._settings).gain
            for parts, same in ((groups, True), (self.moments, False))
        )
        self.used = plain < self._settings.so_far * found

    def _add(self, told: Sequence[tuple[Trajectories, Integers]]) -> None:
        """Adds the residuals of trajectories to the moments of their teams."""
        assert self.predictions is not None
        for batch, teams in told:
            residuals = self.learner.residuals(batch, self.predictions, teams)
            for team in np.unique(teams).tolist():
                self.moments[team].update(residuals, steps=batch.steps, rows=teams == team)

    def of(self, trajectories: Trajectories, team: int) -> Moments:
        """Returns the moments of the residuals that trajectories would have in a team."""
        assert self.predictions is not None
        found = self.moments[team].empty()
        found.update(self.learner.residuals(trajectories, self.predictions, np.full(len(trajectories), team)))
        return found


def _smoothed(sums: Array) -> Array:
    """Returns sums by team and block with the shares of neighbouring blocks."""
    total = np.array(sums)
    for distance in range(1, min(_SHARED, sums.shape[1] - 1) + 1):
        share = 1 - distance / (_SHARED + 1)
        total[:, distance:] += share * sums[:, :-distance]
        total[:, :-distance] += share * sums[:, distance:]
    return total
