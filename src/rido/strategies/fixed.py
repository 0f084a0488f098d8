"""Uniform, Robust and Oracle: strategies that do not depend on rewards."""

import math

import numpy as np
from numpy.typing import ArrayLike

from rido.core import checks
from rido.core.allocation import fill, hoeffding_weights
from rido.core.schedule import Schedule
from rido.strategies.base import Strategy

_MORE = 1.1  # trajectories that are planned, over those that the budget is expected to pay for


class Uniform(Strategy):
    """Full-length trajectories only: plain Monte Carlo evaluation.

    A budget that pays for no further one stays unspent. A last trajectory that is cut would do harm where returns vary
    less than rewards: fuel that is spent on the way, and a reward at the goal that nobody misses.
    """

    def _plan(self, left: int) -> Schedule | None:
        if left < self.horizon:
            return None
        count = left // self.horizon
        if self.spent < self.trajectories * self.horizon:  # early ends pay for more
            count = math.ceil(_MORE * left * self.trajectories / self.spent)
        return Schedule(np.full(self.horizon, count))


class Oracle(Strategy):
    """The best schedule for known weights f_t, (6) of the paper.

    Args:
        weights: f_t of every step.
        costs: price of a sample of each step, the share of trajectories still alive; 1 if not given.
        horizon: number of time steps T; the number of weights if not given.
        budget: transitions to spend, at least one full trajectory.
        gamma: discount factor in (0, 1].
    """

    @checks.checked()
    def __init__(
        self,
        *,
        weights: ArrayLike,
        costs: ArrayLike | None = None,
        horizon: int | None = None,
        budget: int | None = None,
        gamma: float | None = None,
    ) -> None:
        self._weights = checks.finite_vector("weights", weights, length=horizon)
        self._costs = None if costs is None else checks.positive_vector("costs", costs, length=self._weights.size)
        super().__init__(
            horizon=self._weights.size if budget is not None else None,
            budget=budget,
            gamma=gamma,
            weights=self._weights.tolist(),
            costs=None if self._costs is None else self._costs.tolist(),
        )

    def _plan(self, left: int) -> Schedule:
        history = self.moments.counts
        first = np.full(self.horizon, 1 if history[-1] == 0 else 0)
        price = float(np.sum(first if self._costs is None else first * self._costs))
        return Schedule(
            first + fill(self._weights, left - price, history + first, costs=self._costs, limit=left - int(first.sum()))
        )


class Robust(Oracle):
    """The schedule that minimises the generalised Hoeffding bound, (2) of the paper.

    Args:
        horizon: number of time steps T.
        budget: transitions to spend, at least one full trajectory.
        gamma: discount factor in (0, 1].
    """

    def __init__(self, *, horizon: int | None = None, budget: int | None = None, gamma: float | None = None) -> None:
        Strategy.__init__(self, horizon=horizon, budget=budget, gamma=gamma)

    def _begin(self) -> None:
        self._weights, self._costs = hoeffding_weights(self.horizon, self.gamma), None
