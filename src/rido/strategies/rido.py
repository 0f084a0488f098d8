"""Rido: the paper's Algorithm 1, Robust and Iterative Data collection strategy Optimization."""

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rido.core import checks
from rido.core.allocation import allocate, round_down_and_fill, tie_negative_tail
from rido.core.schedule import Schedule
from rido.strategies.base import Strategy


class Rido(Strategy):
    """Algorithm 1 of the paper: a uniform batch, then batches planned from the weights estimated so far.

    Every batch after the first solves (7) of the paper, without regard to what was collected before. Variances,
    covariances, exploration bonuses and rounding are the paper's.

    Args:
        horizon: number of time steps T.
        budget: transitions to spend in all.
        gamma: discount factor in (0, 1].
        batch: transitions of one batch, b in the paper, at least two full trajectories. The last batch may be smaller.
            A tenth of the budget if not given.
        beta: robustness level, 1 as in the paper's experiments, or "theory" for the 6 (T + T^2) budget K / delta
            under which its regret theorem holds.
        delta: the probability with which that theorem may fail, used by beta="theory".
        reward_range: lowest and highest reward, which scales the bonuses; the paper's rewards are in [0, 1].
    """

    _least_trajectories = 2

    @checks.checked()
    def __init__(
        self,
        *,
        horizon: int | None = None,
        budget: int | None = None,
        gamma: float | None = None,
        batch: int | None = None,
        beta: float | Literal["theory"] = 1.0,
        delta: float = 0.05,
        reward_range: tuple[float, float] = (0.0, 1.0),
    ) -> None:
        self.delta = delta
        self.reward_range = reward_range
        if not (isinstance(beta, str) and beta == "theory") and not 1 <= checks.number(beta) < math.inf:
            raise ValueError(f'beta must be at least 1 or "theory", got {checks.shown(beta)}')
        options = {"batch": batch, "beta": beta, "delta": self.delta, "reward_range": list(self.reward_range)}
        super().__init__(horizon=horizon, budget=budget, gamma=gamma, **options)

    def _begin(self) -> None:
        least, batch, beta = 2 * self.horizon, self.options["batch"], self.options["beta"]
        self.batch = max(least, self.budget // 10) if batch is None else checks.integer("batch", batch, least=least)
        if beta == "theory":
            rounds = math.ceil(self.budget / self.batch)
            beta = 6 * (self.horizon + self.horizon**2) * self.budget * rounds / self.delta
        self.beta = float(beta)

    @property
    def extendable(self) -> bool:
        """Not with beta="theory", which is computed from the budget."""
        return bool(self.options["beta"] != "theory")

    def _plan(self, left: int) -> Schedule:
        size = min(self.batch, left)
        if self.spent == 0:
            return Schedule.uniform(self.horizon, size)
        weights = self.moments.weights("paper", self.beta, self.reward_range)
        minimum = 1.0 if size >= self.horizon else 0.0
        return Schedule(round_down_and_fill(self._relax(weights, size, minimum), size))

    def _relax(self, weights: NDArray[np.float64], size: int, minimum: float) -> NDArray[np.float64]:
        """Solves the relaxation of (7) of the paper."""
        return allocate(tie_negative_tail(weights), size, minimum=minimum)
