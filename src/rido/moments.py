"""Moments: what the collected rewards tell of their means, variances and covariances."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rido import _checks
from rido.allocation import discount_factors
from rido.trajectories import Trajectories, count_reached, pad

_SLAB = 1 << 18  # rewards looked at in one go, so that temporary arrays stay in the cache


class Moments(ABC):
    """Means, variances and the weights f_t of rewards, whatever they are learned from.

    The weight of step t is what one sample of it adds to the variance of the estimated return (Theorem 3.2 of the
    paper)::

        f_t = gamma^2t Var(R_t) + 2 sum_{u>t} gamma^(t+u) Cov(R_t, R_u)

    Args:
        horizon: number of time steps T.
        gamma: discount factor in (0, 1].
    """

    def __init__(self, horizon: int, *, gamma: float) -> None:
        self.horizon = _checks.integer("horizon", horizon, least=1)
        self.gamma = _checks.discount("gamma", gamma)
        self.discounts = discount_factors(self.horizon, self.gamma)
        self._planned = np.zeros(self.horizon, dtype=np.int64)
        self._taken = np.zeros(self.horizon, dtype=np.int64)

    @abstractmethod
    def update(self, batch: Any) -> None:
        """Takes in a batch of trajectories."""

    @property
    def counts(self) -> NDArray[np.int64]:
        """Samples n_t of each step, zeros after early ends included up to the planned lengths."""
        return self._planned.copy()

    @property
    def transitions(self) -> int:
        """Transitions taken in all, those that early ends left unspent not counted."""
        return int(self._taken.sum())

    @property
    def survival(self) -> NDArray[np.float64]:
        """Share of the trajectories planned to take step t that the environment had not ended before it."""
        return self._taken / np.maximum(self._planned, 1)

    @property
    @abstractmethod
    def means(self) -> NDArray[np.float64]:
        """Mean reward of each step; NaN where there is no sample."""

    @property
    @abstractmethod
    def variances(self) -> NDArray[np.float64]:
        """Unbiased variance of the reward of each step, as in Appendix A.3 of the paper."""

    def weights(
        self,
        covariance: Literal["paired", "paper"] = "paired",
        beta: float = 1.0,
        reward_range: tuple[float, float] = (0.0, 1.0),
    ) -> NDArray[np.float64]:
        """Returns the estimated weights f_t, with the paper's exploration bonuses for beta > 1.

        Args:
            covariance: "paired" takes both means of a covariance over the trajectories that reach the later
                step, which makes it unbiased and unchanged when all rewards are shifted. "paper" multiplies the
                mean over all samples of the earlier step with that of the later one (Appendix A.3 of the paper).
            beta: robustness level of (8) of the paper; 1 means no bonus.
            reward_range: lowest and highest reward. The paper's bonuses are for [0, 1]; they are scaled by its width.
        """
        _checks.choice("covariance", covariance, ("paired", "paper"))
        low, high = _checks.reward_range("reward_range", reward_range)
        if not 1 <= beta < np.inf:
            raise ValueError(f"beta must be at least 1 and finite, got {beta!r}")
        self._require_pairs("weights")
        squares, products = self._squares_and_products(covariance)
        # (8) of the paper. C^c has no t, so its discounted sum over u > t is one sum from behind.
        bonus = np.sqrt(2 * np.log(beta) / self._planned)
        deviations = np.sqrt(squares / (self._planned - 1)) + (high - low) * bonus
        later_bonus = self.discounts * 3 * (high - low) ** 2 * bonus
        products += np.cumsum(later_bonus[::-1])[::-1] - later_bonus
        weights: NDArray[np.float64] = self.discounts * (self.discounts * deviations**2 + 2 * products)
        return weights

    @abstractmethod
    def _squares_and_products(
        self, covariance: Literal["paired", "paper"]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Returns ``sum_i y_it^2`` and ``sum_{u>t} gamma^u c_tu``, with y the rewards less the means of their steps.

        Because ``sum_i y_iu = 0``, both covariances c_tu are single sums over the i that reach u: "paired" is
        ``sum_i y_it y_iu / (n_u - 1)``, "paper" is ``sum_i y_it R_iu / n_u``.
        """

    @abstractmethod
    def weights_with_variances(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Returns the paired weights f_t, and the sampling variance of each."""

    @abstractmethod
    def error_parts(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Returns independent parts of the variance of the estimated return, and the degrees of freedom of each.

        The variance adds the squares of what each trajectory contributed, ``sum_t gamma^t (R_t - mean_t) / n_t``, each
        term scaled by ``sqrt(n_t / (n_t - 1))`` for the mean that was taken from the same data.
        """

    @property
    @abstractmethod
    def kurtosis(self) -> float:
        """Kurtosis of the rewards, 3 where they are normal: the mean over steps by their part in the error.

        A step's part is ``gamma^2t Var(R_t) / n_t``. NaN where no reward varies.
        """

    @property
    @abstractmethod
    def skewness(self) -> float:
        """Skewness of the estimated return, by what each trajectory contributed; NaN where that is not known."""

    def _require_pairs(self, what: str) -> None:
        if self._planned[-1] < 2:
            raise ValueError(
                f"{what} need at least 2 trajectories of the full length {self.horizon}, got {self._planned[-1]}"
            )


class RewardMoments(Moments):
    """Means, variances and the weights f_t of rewards from trajectories of mixed lengths.

    The rewards themselves are kept, not T x T tables of their products. Then the inner sum of f_t is one sum
    from behind along each trajectory, weights cost O(transitions) time and memory for any horizon, and means are
    subtracted before anything is squared, so that a large common offset of the rewards costs no digits.

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
        # Rows by the number of bits of their length, so that padding never doubles the memory.
        self._blocks: dict[int, list[tuple[NDArray[np.float64], NDArray[np.int64]]]] = {}

    def update(self, trajectories: Trajectories) -> None:
        """Takes in a batch of trajectories."""
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
            self._sums[: rows.shape[1]] += rows.sum(axis=0)
            self._blocks.setdefault(bit, []).append((rows, part.lengths))

    def merge(self, other: "RewardMoments") -> None:
        """Takes in everything another one has seen, in any order and grouping."""
        if (other.horizon, other.gamma) != (self.horizon, self.gamma):
            raise ValueError(
                f"other must have horizon {self.horizon} and gamma {self.gamma}, got {other.horizon} and {other.gamma}"
            )
        self._sums += other._sums
        self._planned += other._planned
        self._taken += other._taken
        for bit, blocks in other._blocks.items():
            self._blocks.setdefault(bit, []).extend(blocks)

    @property
    def means(self) -> NDArray[np.float64]:
        """Mean reward of each step; NaN where there is no sample."""
        with np.errstate(invalid="ignore"):
            means: NDArray[np.float64] = self._sums / self._planned
        return means

    @property
    def variances(self) -> NDArray[np.float64]:
        """Unbiased variance of the reward of each step, as in Appendix A.3 of the paper."""
        self._require_pairs("variances")
        variances = np.zeros(self.horizon)
        for rows in self._centred():
            variances[: rows.shape[1]] += np.einsum("it,it->t", rows, rows)
        return variances / (self._planned - 1)

    def _squares_and_products(
        self, covariance: Literal["paired", "paper"]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        squares = np.zeros(self.horizon)
        products = np.zeros(self.horizon)
        divisors = self._planned - 1 if covariance == "paired" else self._planned
        offsets = np.zeros(self.horizon) if covariance == "paired" else self.means
        scale = self.discounts / divisors
        for rows, reached in self._centred_and_reached():
            width = rows.shape[1]
            squares[:width] += np.einsum("it,it->t", rows, rows)
            later = (rows + offsets[:width] * reached) * scale[:width]
            later = np.cumsum(later[:, ::-1], axis=1)[:, ::-1] - later
            products[:width] += np.einsum("it,it->t", rows, later)
        return squares, products

    def weights_with_variances(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Returns the paired weights f_t, and the sampling variance of each as the same trajectories tell it.

        A paired weight is a sum over trajectories, ``f_t = sum_i phi_it`` with the ``phi_it = y_it (y_it + 2 sum_{u>t}
        y_iu) / (n - 1)`` of discounted, centred rewards y, each divided by the n - 1 of its own later step. Its
        variance is estimated like that of any sum.
        """
        self._require_pairs("weights")
        weights, squares = np.zeros(self.horizon), np.zeros(self.horizon)
        scale = self.discounts / (self._planned - 1)
        for rows in self._centred():
            width = rows.shape[1]
            own = rows * scale[:width]
            terms = rows * (2 * np.cumsum(own[:, ::-1], axis=1)[:, ::-1] - own) * self.discounts[:width]
            weights[:width] += terms.sum(axis=0)
            squares[:width] += np.einsum("it,it->t", terms, terms)
        counts = self._planned
        return weights, (squares - weights**2 / counts) / (1 - 1 / counts)

    def project(self, coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns for each trajectory ``sum_t coefficients[t] * (reward_t - mean_t)`` over its planned steps."""
        return np.concatenate([rows @ coefficients[: rows.shape[1]] for rows in self._centred()])

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Planned length of each trajectory, in the order of :meth:`project`."""
        return np.concatenate([lengths for blocks in self._blocks.values() for _, lengths in blocks])

    def error_parts(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Returns the variance that trajectories of each length h contribute, with n_h - 1 degrees of freedom."""
        lengths = self.lengths
        parts = np.bincount(lengths, self._contributions() ** 2).astype(np.float64)
        return parts, np.maximum(np.bincount(lengths) - 1.0, 1.0)

    @property
    def skewness(self) -> float:
        """Skewness of the estimated return, by what each trajectory contributed; NaN where nothing varies."""
        contributions = self._contributions()
        variance = float(contributions @ contributions)
        return float(np.sum(contributions**3)) / variance**1.5 if variance > 0 else float("nan")

    def _contributions(self) -> NDArray[np.float64]:
        return self.project(self.discounts / np.sqrt(self._planned * (self._planned - 1.0)))

    @property
    def kurtosis(self) -> float:
        """Kurtosis of the rewards, 3 where they are normal: the mean over steps by their part in the error.

        A step's part is ``gamma^2t Var(R_t) / n_t``. NaN where no reward varies.
        """
        squares, fourths = np.zeros(self.horizon), np.zeros(self.horizon)
        for rows in self._centred():
            rows = rows * rows
            squares[: rows.shape[1]] += rows.sum(axis=0)
            fourths[: rows.shape[1]] += np.einsum("it,it->t", rows, rows)
        parts = self.discounts**2 * squares / self._planned**2
        seen = parts > 1e-20 * parts.max()
        if not seen.any():
            return float("nan")
        each = self._planned[seen] * fourths[seen] / squares[seen] ** 2
        return float(np.average(each, weights=parts[seen]))

    @property
    def full_length(self) -> NDArray[np.float64]:
        """Rewards of the trajectories that were planned to the horizon, one row each."""
        rows = [rows[lengths == self.horizon] for rows, lengths in self._blocks.get(self.horizon.bit_length(), [])]
        return np.concatenate(rows) if rows else np.zeros((0, self.horizon))

    def _centred(self) -> Iterator[NDArray[np.float64]]:
        """Yields all rewards less the means of their steps, zero behind each trajectory, in slabs of rows."""
        return (rows for rows, _ in self._centred_and_reached())

    def _centred_and_reached(self) -> Iterator[tuple[NDArray[np.float64], NDArray[np.bool_]]]:
        means = self.means
        for blocks in self._blocks.values():
            if len(blocks) > 1:
                blocks[:] = [tuple(np.concatenate(arrays) for arrays in zip(*blocks, strict=True))]  # type: ignore[list-item]
            rows, lengths = blocks[0]
            width = rows.shape[1]
            slab = max(1, _SLAB // width)
            for start in range(0, len(rows), slab):
                reached = np.arange(width) < lengths[start : start + slab, None]
                yield np.where(reached, rows[start : start + slab] - means[:width], 0.0), reached
