"""Moments: means, variances and weights f_t of the collected rewards."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from rido.core import checks
from rido.core.allocation import Array, discount_factors, tail_sums
from rido.core.scaling import excess_exponent, scaled
from rido.core.trajectories import Trajectories, count_reached, pad

Covariance = Literal["paired", "paper"]

_ROOM = 64  # exponent by which rewards are scaled down where their sum overflows
_SLAB = 1 << 18  # rewards processed at once, so that temporary arrays stay in the cache


@dataclass(frozen=True, eq=False)
class Contributions:
    """Sums over the contributions x_i of trajectories to the error of an estimate.

    Attributes:
        squares: sum of x_i^2 over the trajectories of each planned length 0, ..., horizon.
        trajectories: number of trajectories of each planned length.
        cubes: sum of x_i^3; NaN where it is not known.
        fourths: sum of x_i^4; NaN where it is not known.
        largest: the x_i that is largest in size; 0 where it is not known.
    """

    squares: Array
    trajectories: NDArray[np.int64]
    cubes: float
    fourths: float
    largest: float

    def __add__(self, other: "Contributions") -> "Contributions":
        return Contributions(
            self.squares + other.squares,
            self.trajectories + other.trajectories,
            self.cubes + other.cubes,
            self.fourths + other.fourths,
            max(self.largest, other.largest, key=abs),
        )


class Moments(ABC):
    """Means, variances and the weights f_t of rewards, learned from batches of trajectories.

    The variance of the estimated return is ``sum_t f_t / n_t`` for n_t samples of step t (Theorem 3.2 of the paper)::

        f_t = gamma^2t Var(R_t) + 2 sum_{u>t} gamma^(t+u) Cov(R_t, R_u)
    """

    def __init__(self, horizon: int, *, gamma: float) -> None:
        self.horizon = checks.integer("horizon", horizon, least=1)
        self.gamma = checks.discount("gamma", gamma)
        self.discounts = discount_factors(self.horizon, self.gamma)
        self._range_scale: Array | None = None  # unit of the range of rewards at each step; None for 1
        self._planned = np.zeros(self.horizon, dtype=np.int64)
        self._taken = np.zeros(self.horizon, dtype=np.int64)

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

    @property
    @abstractmethod
    def sizes(self) -> tuple[float, float]:
        """The largest discounted reward and the largest reward, in size."""

    @abstractmethod
    def in_units(self, exponent: int) -> Self:
        """Returns moments of the discounted rewards in units of 2^exponent, with gamma 1."""

    @property
    def variances(self) -> Array:
        """Unbiased variance of the reward of each step, as in Appendix A.3 of the paper."""
        self._require_pairs("variances")
        return self._squares() / (self._planned - 1)

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
        if not 1 <= beta < np.inf:
            raise ValueError(f"beta must be at least 1 and finite, got {beta!r}")
        self._require_pairs("weights")
        squares, products = self._squares_and_products(covariance)
        # (8) of the paper. C^c does not depend on t, so one cumulative sum gives its discounted sum over u > t.
        bonus = np.sqrt(2 * np.log(beta) / self._planned)
        width: Any = high - low if beta > 1 else 0.0
        if self._range_scale is None:
            own, both = 1.0, width**2
        else:
            own = both = width = width * self._range_scale
        deviations = np.sqrt(squares / (self._planned - 1)) + width * bonus
        later_bonus = self.discounts * 3 * both * bonus
        products += own * (tail_sums(later_bonus) - later_bonus)
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

    @property
    @abstractmethod
    def largest_deviation(self) -> float:
        """Largest deviation of ``sum_{u>=t} gamma^u R_u`` from its mean, over all t and full-length trajectories."""

    @abstractmethod
    def contributions(self, coefficients: Array, centre: Array) -> "Contributions":
        """Returns sums over the contributions of trajectories to the error of ``sum_t coefficients[t] sum_i R_it``.

        Trajectory i contributes ``x_i = sum_t coefficients[t] (R_it - centre[t])`` over its planned steps.
        """

    def _require_pairs(self, what: str) -> None:
        if self._planned[-1] < 2:
            raise ValueError(
                f"{what} need at least 2 trajectories of the full length {self.horizon}, got {self._planned[-1]}"
            )


class RewardMoments(Moments):
    """Means, variances and the weights f_t of rewards from trajectories of mixed lengths.

    All rewards are kept, not T x T tables of their products. The inner sum of f_t is then a cumulative sum from the
    end of each trajectory, so weights cost O(transitions) time and memory for any horizon. Means are subtracted
    before anything is squared, so a large common offset of the rewards costs no digits.

    Args:
        horizon: number of time steps T.
        gamma: discount factor in (0, 1].

    Example:
        >>> moments = RewardMoments(2, gamma=1.0)
        >>> moments.update(Trajectories([[1.0, 5.0], [3.0, 9.0], [5.0, 0.0]], lengths=[2, 2, 1]))
        >>> moments.counts, moments.means
        (array([3, 2]), array([3., 7.]))
        >>> moments.weights()
        array([12.,  8.])
    """

    def __init__(self, horizon: int, *, gamma: float) -> None:
        super().__init__(horizon, gamma=gamma)
        self._sums = np.zeros(self.horizon)
        self._largest = np.zeros(self.horizon)  # reward of each step, in size
        # Rows grouped by the number of bits of their length, so that padding at most doubles the memory.
        self._blocks: dict[int, list[tuple[Array, NDArray[np.int64]]]] = {}

    def update(self, trajectories: Trajectories) -> None:
        if trajectories.lengths.max() > self.horizon:
            raise ValueError(
                f"trajectories must be no longer than the horizon {self.horizon}, got {trajectories.lengths.max()}"
            )
        self._planned += trajectories.counts(self.horizon)
        self._taken += count_reached(trajectories.steps, self.horizon)
        bits = np.frexp(trajectories.lengths.astype(np.float64))[1]
        for bit in np.unique(bits).tolist():
            part = trajectories.select(bits == bit)
            rows = pad(part.flat, part.lengths, min((1 << bit) - 1, self.horizon))
            largest = self._largest[: rows.shape[1]]
            np.maximum(largest, np.maximum(rows.max(axis=0), -rows.min(axis=0)), out=largest)
            with np.errstate(over="ignore", invalid="ignore"):
                self._sums[: rows.shape[1]] += rows.sum(axis=0)
            self._blocks.setdefault(bit, []).append((rows, part.lengths))

    def merge(self, other: "RewardMoments") -> None:
        if (other.horizon, other.gamma) != (self.horizon, self.gamma):
            raise ValueError(
                f"other must have horizon {self.horizon} and gamma {self.gamma}, got {other.horizon} and {other.gamma}"
            )
        with np.errstate(over="ignore", invalid="ignore"):
            self._sums += other._sums
        self._largest = np.maximum(self._largest, other._largest)
        self._planned += other._planned
        self._taken += other._taken
        for bit, blocks in other._blocks.items():
            self._blocks.setdefault(bit, []).extend(blocks)

    @property
    def sizes(self) -> tuple[float, float]:
        return float((self._largest * self.discounts).max()), float(self._largest.max())

    def in_units(self, exponent: int) -> Self:
        other = type(self)(self.horizon, gamma=1.0)
        other._planned, other._taken = self._planned, self._taken
        other._range_scale = scaled(self.discounts, -exponent)
        for bit, blocks in self._blocks.items():
            for rows, lengths in blocks:
                rows = scaled(rows * self.discounts[: rows.shape[1]], -exponent)
                other._sums[: rows.shape[1]] += rows.sum(axis=0)
                other._blocks.setdefault(bit, []).append((rows, lengths))
        return other

    @property
    def means(self) -> Array:
        if not np.isfinite(self._sums).all():  # the sums overflow, the means do not
            rows = (scaled(rows, -_ROOM).sum(axis=0) for blocks in self._blocks.values() for rows, _ in blocks)
            sums = np.sum([np.pad(row, (0, self.horizon - row.size)) for row in rows], axis=0)
            return scaled(sums / self._planned, _ROOM)
        with np.errstate(invalid="ignore"):
            means: Array = self._sums / self._planned
        return means

    def _squares(self) -> Array:
        squares = np.zeros(self.horizon)
        for rows, _ in self._centred():
            squares[: rows.shape[1]] += np.einsum("it,it->t", rows, rows)
        return squares

    def _squares_and_products(self, covariance: Covariance) -> tuple[Array, Array]:
        squares = np.zeros(self.horizon)
        products = np.zeros(self.horizon)
        divisors = self._planned - 1 if covariance == "paired" else self._planned
        offsets = np.zeros(self.horizon) if covariance == "paired" else self.means
        scale = self.discounts / divisors
        for rows, reached in self._centred():
            width = rows.shape[1]
            squares[:width] += np.einsum("it,it->t", rows, rows)
            later = (rows + offsets[:width] * reached) * scale[:width]
            products[:width] += np.einsum("it,it->t", rows, tail_sums(later) - later)
        return squares, products

    def weights_by_fold(self, folds: int) -> Array:
        self._require_pairs("weights")
        # f_t = sum_i y_it (y_it / (n_t - 1) + 2 sum_{u>t} y_iu / (n_u - 1)) with discounted, centred rewards y.
        weights = np.zeros((folds, self.horizon))
        scale = self.discounts / (self._planned - 1)
        fold = np.empty(self.lengths.size, dtype=np.int64)
        fold[np.argsort(-self.lengths, kind="stable")] = np.arange(fold.size) % folds  # equally many of each length
        first = 0
        for rows, _ in self._centred():
            width = rows.shape[1]
            own = rows * scale[:width]
            terms = rows * (2 * tail_sums(own) - own) * self.discounts[:width]
            members = fold[first : first + len(rows)] == np.arange(folds)[:, None]
            weights[:, :width] += members @ terms
            first += len(rows)
        return weights

    @property
    def largest_deviation(self) -> float:
        return float(np.abs(tail_sums((self.full_length - self.means) * self.discounts)).max(initial=0.0))

    def contributions(self, coefficients: Array, centre: Array) -> Contributions:
        terms = np.concatenate([rows @ coefficients[: rows.shape[1]] for rows, _ in self._centred(centre)])
        lengths, size = self.lengths, self.horizon + 1
        return Contributions(
            np.bincount(lengths, terms**2, size).astype(np.float64),
            np.bincount(lengths, minlength=size),
            float(np.sum(terms**3)),
            float(np.sum(terms**4)),
            float(terms[np.abs(terms).argmax()]),
        )

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Planned length of each trajectory, in the order in which they are kept."""
        return np.concatenate([lengths for blocks in self._blocks.values() for _, lengths in blocks])

    @property
    def full_length(self) -> Array:
        """Rewards of the trajectories that were planned to the horizon, one row each."""
        rows = [rows[lengths == self.horizon] for rows, lengths in self._blocks.get(self.horizon.bit_length(), [])]
        return np.concatenate(rows) if rows else np.zeros((0, self.horizon))

    def _centred(self, centre: Array | None = None) -> Iterator[tuple[Array, NDArray[np.bool_]]]:
        """Yields blocks of rows: rewards less the centre of their step, and which steps were planned.

        The centres are the means if not given. Entries after a trajectory's planned length are zero.
        """
        means = self.means if centre is None else centre
        for blocks in self._blocks.values():
            if len(blocks) > 1:
                blocks[:] = [tuple(np.concatenate(arrays) for arrays in zip(*blocks, strict=True))]  # type: ignore[list-item]
            rows, lengths = blocks[0]
            width = rows.shape[1]
            slab = max(1, _SLAB // width)
            for start in range(0, len(rows), slab):
                reached = np.arange(width) < lengths[start : start + slab, None]
                yield np.where(reached, rows[start : start + slab] - means[:width], 0.0), reached


def union(parts: Sequence[Moments]) -> Moments:
    """Returns the moments of all trajectories of several others; a single one as it is."""
    if len(parts) == 1:
        return parts[0]
    together = type(parts[0])(parts[0].horizon, gamma=parts[0].gamma)
    for part in parts:
        together.merge(part)
    return together


def rescale(*teams: Moments, width: float = 0.0) -> tuple[tuple[Moments, ...], int]:
    """Returns moments whose rewards can be squared, and the exponent k of their unit 2^k.

    Squares of rewards such as 1e200 overflow, and those of gamma^t R_t such as 1e-200 underflow. Then these are moments
    of the discounted rewards in units of 2^k, with gamma 1. Moments of ordinary rewards come back as they are.

    Args:
        teams: the moments.
        width: of a range of rewards that is squared too.
    """
    discounted, plain = np.max([team.sizes for team in teams], axis=0).tolist()
    exponent = excess_exponent(max(discounted, width))
    if exponent == 0 and excess_exponent(plain) <= 0:
        return teams, 0
    return tuple(team.in_units(exponent) for team in teams), exponent
