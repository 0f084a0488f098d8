"""Summaries: sums over a batch of trajectories, for simulators that keep rewards on their device."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from rido.core import checks
from rido.core.allocation import Array, tail_sums, unit_of
from rido.core.moments import Contributions, Covariance, Moments


@dataclass(frozen=True, eq=False)
class Summary:
    """Sums over trajectories of mixed lengths, with d the rewards less a given centre.

    Two T x T tables hold any number of trajectories. Summaries can be added.

    Attributes:
        planned: trajectories that were planned to take each step.
        taken: trajectories that took each step, fewer than planned where the environment ended some before.
        centre: the number that was subtracted from the rewards of each step, near their mean.
        sums: entry (t, u) for t <= u is the sum of d_t over the trajectories planned to take u; 0 for t > u.
        products: entry (t, u) for t <= u is the sum of d_t d_u over the same trajectories; 0 for t > u.
    """

    planned: NDArray[np.int64]
    taken: NDArray[np.int64]
    centre: Array
    sums: Array
    products: Array

    @property
    def transitions(self) -> int:
        """Transitions that were taken in all."""
        return int(self.taken.sum())

    def counts(self, horizon: int) -> NDArray[np.int64]:
        """Returns how many trajectories are planned to take each step, as :meth:`rido.Trajectories.counts` does."""
        return self.planned

    def centred_on(self, centre: Array) -> Summary:
        """Returns the same sums with another centre."""
        if np.array_equal(centre, self.centre):
            return self
        shift, counts = centre - self.centre, self.planned
        first = np.diag(self.sums)
        return Summary(
            counts,
            self.taken,
            centre,
            np.triu(self.sums - counts * shift[:, None]),
            np.triu(self.products - shift[:, None] * first - self.sums * shift + counts * shift[:, None] * shift),
        )

    def __add__(self, other: Summary) -> Summary:
        other = other.centred_on(self.centre)
        return Summary(
            self.planned + other.planned,
            self.taken + other.taken,
            self.centre,
            self.sums + other.sums,
            self.products + other.products,
        )


class SummedMoments(Moments):
    """The moments of :class:`rido.RewardMoments`, from sums instead of the rewards.

    Sums do not tell trajectories apart. So all folds get equal weights, the degrees of freedom count full-length
    trajectories only, and the skewness is taken as zero. With millions of transitions none of this matters.
    """

    _total: Summary | None = None

    def update(self, summary: Summary) -> None:
        if not (size := math.sqrt(np.abs(summary.products).max(initial=0.0))) < checks.LARGEST:
            raise checks.beyond("rewards", size)
        self._total = summary if self._total is None else self._total + summary
        self._planned, self._taken = self._total.planned, self._total.taken

    def merge(self, other: SummedMoments) -> None:
        self.update(other._all)

    @property
    def means(self) -> Array:
        with np.errstate(invalid="ignore"):
            means: Array = self._all.centre + np.diag(self._all.sums) / self._planned
        return means

    def centred(self) -> Self:
        other, told = self.empty(), self._all.centred_on(self.means)
        other.update(replace(told, centre=np.zeros_like(told.centre)))
        return other

    def _squares(self) -> Array:
        return np.maximum(np.diag(self._all.products) - np.diag(self._all.sums) ** 2 / self._planned, 0)

    def _squares_and_products(self, covariance: Covariance) -> tuple[Array, Array]:
        told, own = self._all, np.diag(self._all.sums)
        squares = np.diag(told.products) - own * own / self._planned
        # sum_i y_it y_iu over the trajectories that reach u is products - sums * offsets; "paper" has R_iu for y_iu.
        offsets = own / self._planned
        if covariance == "paired":
            scale = self.discounts / self._divisors
            later = told.products @ scale - told.sums @ (scale * offsets) - scale * squares
        else:
            scale, means = self.discounts / self._planned, self.means
            shifted = scale * self._planned * means
            later = told.products @ scale + told.sums @ (scale * (means - offsets)) - offsets * tail_sums(shifted)
            later -= scale * squares
        return np.maximum(squares, 0), later

    def weights_by_fold(self, folds: int) -> Array:
        return np.tile(self.weights() / folds, (folds, 1))

    def contributions(self, coefficients: Array, centre: Array) -> Contributions:
        """Returns the variance of all contributions as that of full-length trajectories."""
        told = self._all
        unit = unit_of(float((coefficients * np.sqrt(np.abs(np.diag(told.products)))).max()))
        coefficients = coefficients / unit
        shift = (centre - told.centre) * coefficients
        first = coefficients * np.diag(told.sums)
        # sum_{t<=u} c_t c_u p_tu with the products p around the other centre, and without forming these.
        upper = coefficients @ (told.products @ coefficients - told.sums @ shift)
        upper += np.cumsum(shift) @ (self._planned * shift - first)
        diagonal = (coefficients * np.diag(told.products)) @ coefficients + shift @ (self._planned * shift - 2 * first)
        squares, trajectories = np.zeros(self.horizon + 1), np.zeros(self.horizon + 1, dtype=np.int64)
        squares[-1] = max(2 * float(upper) - float(diagonal), 0.0)
        trajectories[-1] = self._planned[-1]
        return Contributions(unit, squares, trajectories, math.nan, math.nan, 0.0)

    @property
    def _all(self) -> Summary:
        if self._total is None:
            raise ValueError("moments need at least one batch of trajectories, got none")
        return self._total
