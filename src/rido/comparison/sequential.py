"""Repeated looks at growing data: how much of the error probability each look may spend."""

import math

import numpy as np

from rido.core.allocation import Array

_EVENLY = 0.25  # share of alpha that is spent evenly over the looks
_GROWTH = 1.2  # transitions between looks grow by about this factor
_POINTS = 201  # of the grid on which the distribution of a statistic is followed


class SpendingBoundary:
    """A test that looks at a difference again and again, and rarely finds one where there is none.

    The estimate of a difference that is 0, divided by its standard error, moves like a Brownian motion B(s) / sqrt(s)
    of the transitions s behind it. The test ends at the first look at which it exceeds a boundary. Boundaries are such
    that the probability of ending by look j is ``alpha`` times a spending function (Lan and DeMets, 1983), which is
    found by following the distribution of B over the looks at which the test went on (Armitage, McPherson and Rowe,
    1969).

    A quarter of alpha is spent evenly over the looks, whose transitions grow by a constant factor, so that a clear
    difference is found early however generous the budget. The rest is spent in proportion to the transitions, so that a
    small difference keeps most of the power that one look at the end would have.

    Args:
        alpha: probability of a false alarm on one side, over all looks.

    Attributes:
        spent: probability of a false alarm up to the last look.

    Example:
        >>> boundary = SpendingBoundary(0.025)
        >>> [round(boundary.level(at, at / 1000), 4) for at in (100, 300, 1000)]
        [0.0023, 0.007, 0.0181]
    """

    def __init__(self, alpha: float) -> None:
        self._alpha = alpha
        self._first = math.nan  # share of the budget at the first look
        self._time = 0.0  # transitions at the last look
        self._grid: Array = np.zeros(1)  # values of B at the last look
        self._masses: Array = np.ones(1)  # probabilities of these, where the test went on
        self._before = (self._time, self._grid, self._masses, 0.0)  # the look before, and what was spent by it
        self.spent = 0.0

    def level(self, transitions: float, share: float) -> float:
        """Updates the boundary at this many transitions.

        Args:
            transitions: all that the estimate rests on. Where they are those of the last look, that look is taken
                again, with all of alpha that this share allows.
            share: of the whole budget, which may be that of several tests, that was spent; 1 for the last look.

        Returns:
            The probability with which a normal statistic may exceed the boundary at this look, taken alone. The
            difference is found where the one-sided interval of confidence ``1 - level`` excludes 0.
        """
        from scipy.special import ndtr  # slow to import

        if transitions == self._time > 0:
            self._time, self._grid, self._masses, self.spent = self._before
        if not transitions > self._time:
            raise ValueError(
                f"transitions must not be fewer than at the last look, {self._time:g}, got {transitions:g}"
            )
        self._before = (self._time, self._grid, self._masses, self.spent)
        step, scale = math.sqrt(transitions - self._time), math.sqrt(transitions)
        wanted = max(self._alpha * self._spending(share) - self.spent, 0.0)
        low, boundary = -10 * scale, 10 * scale
        for _ in range(60):  # bisection
            middle = (low + boundary) / 2
            crossing = float(self._masses @ ndtr((self._grid - middle) / step))
            low, boundary = (middle, boundary) if crossing > wanted else (low, middle)
        self.spent += float(self._masses @ ndtr((self._grid - boundary) / step))
        edges = np.linspace(-8 * scale, min(boundary, 8 * scale), _POINTS)
        self._masses = self._masses @ np.diff(ndtr((edges - self._grid[:, None]) / step), axis=1)
        self._grid, self._time = (edges[1:] + edges[:-1]) / 2, float(transitions)
        return float(ndtr(-boundary / scale))

    def _spending(self, share: float) -> float:
        """Returns the share of alpha that may be spent when this share of the budget is."""
        share = min(share, 1.0)
        if math.isnan(self._first):
            self._first = share
        evenly = 1 if share == 1 else math.log(_GROWTH * share / self._first) / math.log(_GROWTH / self._first)
        return _EVENLY * evenly + (1 - _EVENLY) * share
