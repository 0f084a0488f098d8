"""Summaries: what a batch of trajectories comes to, for simulators that keep rewards on their device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rido.moments import Moments

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Summary:
    """Sums over trajectories of mixed lengths, with d the rewards less a given centre.

    A few T x T tables stand for any number of trajectories, and two summaries with one centre add up.

    Attributes:
        planned: trajectories that were planned to take each step.
        taken: trajectories that took each step, fewer than planned where the environment ended some before.
        centre: the number that was subtracted from the rewards of each step, near their mean.
        sums: entry (t, u) is the sum of d_t over the trajectories planned to take u, for t <= u. Others mean nothing.
        products: entry (t, u) is the sum of d_t d_u over the same, for t <= u. Others mean nothing.
        cubes: the sum of d_t^3.
        fourths: the sum of d_t^4.
    """

    planned: NDArray[np.int64]
    taken: NDArray[np.int64]
    centre: Array
    sums: Array
    products: Array
    cubes: Array
    fourths: Array

    @property
    def transitions(self) -> int:
        """Transitions that were taken in all."""
        return int(self.taken.sum())

    def counts(self, horizon: int) -> NDArray[np.int64]:
        """Returns how many trajectories are planned to take each step, as :meth:`rido.Trajectories.counts` does."""
        return self.planned

    def centred_on(self, centre: Array) -> Summary:
        """Returns the same sums of rewards less another number each."""
        if np.array_equal(centre, self.centre):
            return self
        shift, counts = centre - self.centre, self.planned
        first, second = np.diag(self.sums), np.diag(self.products)
        return Summary(
            counts,
            self.taken,
            centre,
            self.sums - counts * shift[:, None],
            self.products - shift[:, None] * first - self.sums * shift + counts * shift[:, None] * shift,
            self.cubes - 3 * shift * second + 3 * shift**2 * first - counts * shift**3,
            self.fourths - 4 * shift * self.cubes + 6 * shift**2 * second - 4 * shift**3 * first + counts * shift**4,
        )

    def __add__(self, other: Summary) -> Summary:
        other = other.centred_on(self.centre)
        return Summary(
            self.planned + other.planned,
            self.taken + other.taken,
            self.centre,
            self.sums + other.sums,
            self.products + other.products,
            self.cubes + other.cubes,
            self.fourths + other.fourths,
        )


class SummedMoments(Moments):
    """What :class:`rido.RewardMoments` tells, from sums instead of the rewards.

    What needs single trajectories is replaced: the sampling variance of the weights is that of normal rewards, the
    degrees of freedom of the error are those of the full-length trajectories, and its skewness is not known. Where
    there are so many trajectories that their rewards had better stay where they are, none of this matters.

    Args:
        horizon: number of time steps T.
        gamma: discount factor in (0, 1].
    """

    _total: Summary | None = None

    def update(self, summary: Summary) -> None:
        """Takes in a batch of trajectories."""
        self._total = summary if self._total is None else self._total + summary
        self._planned, self._taken = self._total.planned, self._total.taken

    @property
    def means(self) -> Array:
        """Mean reward of each step; NaN where there is no sample."""
        with np.errstate(invalid="ignore"):
            means: Array = self._all.centre + np.diag(self._all.sums) / self._planned
        return means

    @property
    def variances(self) -> Array:
        """Unbiased variance of the reward of each step."""
        self._require_pairs("variances")
        return self._squares() / (self._planned - 1)

    def _squares_and_products(self, covariance: Literal["paired", "paper"]) -> tuple[Array, Array]:
        products = self._centred_products()
        squares = np.maximum(np.diag(products), 0)
        if covariance == "paired":
            products = products * (self.discounts / (self._planned - 1))
        else:
            offsets = np.diag(self._all.sums) / self._planned
            products += (self._all.sums - offsets[:, None] * self._planned) * self.means
            products = products * (self.discounts / self._planned)
        return squares, np.triu(products, 1).sum(axis=1)

    def weights_with_variances(self) -> tuple[Array, Array]:
        """Returns the paired weights f_t, and the sampling variance that each would have if rewards were normal.

        A weight is the sum over trajectories of ``y_t z_t`` with ``z_t = y_t / n_t + 2 sum_{u>t} y_u / n_u`` of
        discounted, centred rewards y. The variance of a product of normal numbers is the product of their variances
        plus their squared covariance, and ``sum_i Var(z_t) = (2 f_t - Var(y_t)) / n_t + 4 sum_{u>t} f_u / n_u``.
        """
        weights = self.weights()
        own, parts = self.discounts**2 * self.variances, weights / self._planned
        later = np.cumsum(parts[::-1])[::-1] - parts
        others = np.maximum(2 * parts - own / self._planned + 4 * later, 0)
        return weights, own * others + weights * parts

    def error_parts(self) -> tuple[Array, Array]:
        """Returns the variance of the estimated return, with the degrees of freedom of the full-length trajectories."""
        scale = self.discounts / np.sqrt(self._planned * (self._planned - 1.0))
        products = np.triu(scale[:, None] * self._centred_products() * scale)
        variance = max(2 * float(products.sum()) - float(np.trace(products)), 0.0)
        return np.array([variance]), np.array([self._planned[-1] - 1.0])

    @property
    def kurtosis(self) -> float:
        """Kurtosis of the rewards; see :attr:`rido.moments.Moments.kurtosis`."""
        around, counts = self._all.centred_on(self.means), self._planned
        squares = np.maximum(np.diag(around.products), 0)
        parts = self.discounts**2 * squares / counts**2
        seen = parts > 1e-20 * parts.max()
        if not seen.any():
            return float("nan")
        return float(np.average(counts[seen] * around.fourths[seen] / squares[seen] ** 2, weights=parts[seen]))

    @property
    def skewness(self) -> float:
        """Not known."""
        return float("nan")

    @property
    def _all(self) -> Summary:
        if self._total is None:
            raise ValueError("moments need at least one batch of trajectories, got none")
        return self._total

    def _squares(self) -> Array:
        squares: Array = np.maximum(np.diag(self._all.products) - np.diag(self._all.sums) ** 2 / self._planned, 0)
        return squares

    def _centred_products(self) -> Array:
        """Returns ``sum_i y_t y_u`` over the trajectories that reach u, for t <= u; others mean nothing."""
        products: Array = self._all.products - self._all.sums * (np.diag(self._all.sums) / self._planned)
        return products
