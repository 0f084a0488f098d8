"""Moments: means, variances and weights f_t of the collected rewards."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from rido.core import checks
from rido.core.allocation import Array, discount_factors, tail_sums

Covariance = Literal["paired", "paper"]


@dataclass(frozen=True, eq=False)
class Contributions:
    """Sums over the contributions x_i of trajectories to the error of an estimate."""

    unit: float  # of the sums: a power of two, see :func:`rido.core.allocation.unit_of`
    squares: Array  # sum of (x_i / unit)^2 over the trajectories of each planned length 0, ..., horizon
    trajectories: NDArray[np.int64]  # number of trajectories of each planned length
    cubes: float  # sum of (x_i / unit)^3; NaN where it is not known
    fourths: float  # sum of (x_i / unit)^4; NaN where it is not known
    largest: float  # the x_i that is largest in size; 0 where it is not known

    def __add__(self, other: "Contributions") -> "Contributions":
        unit = max(self.unit, other.unit)
        one, two = self.unit / unit, other.unit / unit
        return Contributions(
            unit,
            self.squares * one**2 + other.squares * two**2,
            self.trajectories + other.trajectories,
            self.cubes * one**3 + other.cubes * two**3,
            self.fourths * one**4 + other.fourths * two**4,
            max(self.largest, other.largest, key=abs),
        )


class Moments(ABC):
    """Means, variances and the weights f_t of rewards, learned from batches of trajectories.

    The variance of the estimated return is ``sum_t f_t / n_t`` for n_t samples of step t (Theorem 3.2 of the paper)::

        f_t = gamma^2t Var(R_t) + 2 sum_{u>t} gamma^(t+u) Cov(R_t, R_u)
    """

    @checks.checked()
    def __init__(self, horizon: int, *, gamma: float) -> None:
        self.horizon = horizon
        self.gamma = gamma
        self.discounts = discount_factors(self.horizon, self.gamma)
        self._planned = np.zeros(self.horizon, dtype=np.int64)
        self._taken = np.zeros(self.horizon, dtype=np.int64)
        self._estimated_means = 1  # of each step: more where each set of trajectories has its own means

    def empty(self) -> Self:
        """Returns moments of the same kind without trajectories."""
        return type(self)(self.horizon, gamma=self.gamma)

    @abstractmethod
    def update(self, batch: Any) -> None:
        """Adds a batch of trajectories."""

    @abstractmethod
    def merge(self, other: Any) -> None:
        """Adds all trajectories of other moments. Order and grouping do not matter."""

    @property
    def counts(self) -> NDArray[np.int64]:
        """Samples n_t of each step, including zeros between an early end and the planned length."""
        return self._planned.copy()

    @property
    def transitions(self) -> int:
        """Transitions taken, without those that early ends left unspent."""
        return int(self._taken.sum())

    @property
    def survival(self) -> Array:
        """Share of the trajectories planned to take step t that the environment had not ended before it."""
        return self._taken / np.maximum(self._planned, 1)

    @property
    @abstractmethod
    def means(self) -> Array:
        """Mean reward of each step; NaN where there is no sample."""

    @abstractmethod
    def centred(self) -> Self:
        """Returns moments of the rewards less the means of their steps."""

    @property
    def variances(self) -> Array:
        """Unbiased variance of the reward of each step, as in Appendix A.3 of the paper."""
        self._require_pairs("variances")
        return self._squares() / self._divisors

    def weights(
        self, covariance: Covariance = "paired", beta: float = 1.0, reward_range: tuple[float, float] = (0.0, 1.0)
    ) -> Array:
        """Returns the estimated weights f_t, with the paper's exploration bonuses for beta > 1.

        Args:
            covariance: "paired" averages both rewards of a covariance over the trajectories that reach the later
                step. It is unbiased and does not change when all rewards are shifted. "paper" multiplies the mean
                over all samples of the earlier step with that of the later one (Appendix A.3 of the paper).
            beta: robustness level of (8) of the paper; 1 means no bonus.
            reward_range: lowest and highest reward. The paper's bonuses are for [0, 1]; they are scaled by its width.
        """
        checks.choice("covariance", covariance, ("paired", "paper"))
        low, high = checks.reward_range("reward_range", reward_range)
        if not 1 <= (beta := checks.number(beta)) < np.inf:
            raise ValueError(f"beta must be at least 1 and finite, got {checks.shown(beta)}")
        self._require_pairs("weights")
        squares, products = self._squares_and_products(covariance)
        # (8) of the paper. C^c does not depend on t, so one cumulative sum gives its discounted sum over u > t.
        bonus = np.sqrt(2 * np.log(beta) / self._planned)
        width = high - low if beta > 1 else 0.0
        deviations = np.sqrt(squares / self._divisors) + width * bonus
        later_bonus = self.discounts * 3 * width**2 * bonus
        products += tail_sums(later_bonus) - later_bonus
        weights: Array = self.discounts * (self.discounts * deviations**2 + 2 * products)
        return weights

    @abstractmethod
    def _squares(self) -> Array:
        """Returns ``sum_i y_it^2``, with y the rewards less the means of their steps."""

    @abstractmethod
    def _squares_and_products(self, covariance: Covariance) -> tuple[Array, Array]:
        """Returns ``sum_i y_it^2`` and ``sum_{u>t} gamma^u c_tu`` with the covariances c_tu.

        Because ``sum_i y_iu = 0``, one sum over the trajectories that reach u gives a covariance: "paired" is
        ``sum_i y_it y_iu / (n_u - 1)``, "paper" is ``sum_i y_it R_iu / n_u``.
        """

    @abstractmethod
    def weights_by_fold(self, folds: int) -> Array:
        """Returns the contribution of each fold of trajectories to the paired weights f_t.

        Returns:
            An array of shape (folds, horizon) whose sum over folds is ``weights()``. Every fold has about the same
            number of trajectories of each length.
        """

    def over_components(self, values: Array) -> Array:
        """Returns the sum over the components of rewards, if they have several; else the values as they are."""
        return values

    @abstractmethod
    def contributions(self, coefficients: Array, centre: Array) -> "Contributions":
        """Returns sums over the contributions of trajectories to the error of ``sum_t coefficients[t] sum_i R_it``.

        Trajectory i contributes ``x_i = sum_t coefficients[t] (R_it - centre[t])`` over its planned steps.
        """

    @property
    def _divisors(self) -> NDArray[np.int64]:
        """Samples of each step less the means that were estimated from them."""
        divisors: NDArray[np.int64] = self._planned - self._estimated_means
        return divisors

    def _require_pairs(self, what: str) -> None:
        if self._planned[-1] < 2:
            raise ValueError(
                f"{what} need at least 2 trajectories of the full length {self.horizon}, got {self._planned[-1]}"
            )


def union(parts: Sequence[Moments], *, same_means: bool = True) -> Moments:
    """Returns the moments of all trajectories of several others; a single one as it is.

    Args:
        parts: the others.
        same_means: whether the expected reward of a step is the same in all parts. If not, each part is centred on its
            own means first, so that differences of means do not look like variance. That needs more full-length
            trajectories than there are parts; with fewer the parts are taken as if their means were the same.
    """
    if len(parts) == 1:
        return parts[0]
    together = parts[0].empty()
    separate = not same_means and sum(int(part.counts[-1]) for part in parts) > len(parts)
    for part in parts:
        together.merge(part.centred() if separate else part)
    together._estimated_means = len(parts) if separate else 1
    return together
