"""Unbiased: two halves of the data, each planned once from the other half's pilot."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rido.core.allocation import fill
from rido.strategies.adaptive import Adaptive
from rido.strategies.division import Counts, Division
from rido.strategies.planning import learn


class Unbiased(Adaptive):
    """Plans for the two halves in turn: a pilot for each, then the rest of each from what the other's pilot told.

    The counts of a half do not depend on its own rewards, so its own estimate is that of a schedule fixed beforehand,
    which is unbiased (Section 3 of the paper). What early ends in one half's pilot left unspent goes to the other half,
    for the same reason. What they leave unspent after the pilots stays unspent.

    Args:
        **settings: those of :class:`rido.Adaptive`, which makes it with ``unbiased=True``.
    """

    accepts = frozenset({"reset_price"})
    _least_trajectories = 6
    name = "adaptive"

    def __init__(self, **settings: Any) -> None:
        if settings.get("until") is not None:
            raise ValueError("until must be None where unbiased is True: stopping when it looks good is a bias")
        super().__init__(**{**settings, "unbiased": True})

    def _division(self, *, replicated: bool, cross_fitted: bool) -> Division:
        return Division.of(2, self.budget / self.horizon, replicated=replicated, cross_fitted=cross_fitted)

    @property
    def extendable(self) -> bool:
        """No: each half is planned once."""
        return False

    def _plan(self, left: int) -> list[Counts]:
        affordable = self.budget / self.horizon
        count = max(2, int(min(max(self.settings.least_pilot, math.sqrt(affordable)), affordable / 4)))
        plan = pilot = self._pilot_part(count, max(2, count // 2))
        if self.rounds == 4:
            return []
        if self.rounds > 1:
            other = self._moments_of([self._told[3 - self.rounds]])
            lesson = learn(other, reset_price=self.reset_price, settings=self.settings)
            left = (self.budget + self.rounds % 2) // 2 - other.transitions
            if lesson.truncates:
                plan = fill(lesson.weights, math.inf, pilot, costs=lesson.costs, limit=left, pooled=False)
            else:
                plan = np.full(self.horizon, left // self.horizon)
        none = np.zeros_like(plan)
        return [none, plan] if self.rounds % 2 else [plan, none]
