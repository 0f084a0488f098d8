"""RewardMoments: the moments of rewards of which all are kept."""

from collections.abc import Iterator, Sequence
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from rido.core import checks
from rido.core.allocation import Array, tail_sums, unit_of
from rido.core.moments import Contributions, Covariance, Moments
from rido.core.trajectories import Trajectories, count_reached, pad

Metric = Literal["scaled"] | Sequence[float] | None

_CONSTANT = 1e-20  # a component did not vary if the variance of its return is below this share of its square
_SLAB = 1 << 18  # rewards processed at once, so that temporary arrays stay in the cache


class RewardMoments(Moments):
    """Means, variances and the weights f_t of rewards from trajectories of mixed lengths.

    Rewards may have several components. Then inner products take the place of products, so that all weights and
    variances are sums over the components, each multiplied by its entry of the metric: ``sum_t f_t / n_t`` is the
    expected squared distance of the estimated returns from the true ones.

    All rewards are kept, not T x T tables of their products. The inner sum of f_t is then a cumulative sum from the
    end of each trajectory, so weights cost O(transitions) time and memory for any horizon. Means are subtracted
    before anything is squared, so a large common offset of the rewards costs no digits.

    Args:
        horizon: number of time steps T.
        gamma: discount factor in (0, 1].
        metric: weight of each component in inner products; "scaled" for one over the variance of its return. If not
            given, all are 1.

    Example:
        >>> moments = RewardMoments(2, gamma=1.0)
        >>> moments.update(Trajectories([[1.0, 5.0], [3.0, 9.0], [5.0, 0.0]], lengths=[2, 2, 1]))
        >>> moments.counts, moments.means
        (array([3, 2]), array([3., 7.]))
        >>> moments.weights()
        array([12.,  8.])
    """

    @checks.checked()
    def __init__(self, horizon: int, *, gamma: float, metric: Metric = None) -> None:
        super().__init__(horizon, gamma=gamma)
        self._metric: Metric = metric
        self._known_sums: Array | None = None  # with several components one row for each, as all rewards have
        # Rows grouped by the number of bits of their length, so that padding at most doubles the memory.
        self._blocks: dict[int, list[tuple[Array, NDArray[np.int64]]]] = {}

    @classmethod
    def of_signal(cls, parts: "Sequence[RewardMoments]", factors: Sequence[float]) -> "RewardMoments":
        """Returns the moments of a sum of rewards of paired trajectories, each times its factor.

        Args:
            parts: trajectories that were told in the same order and with the same lengths; some may have only the
                first ones, and the signal has those that all have.
            factors: of each part.
        """
        made = cls(parts[0].horizon, gamma=parts[0].gamma)
        for bit in sorted(set.intersection(*(set(part._blocks) for part in parts))):
            blocks = [part._joined(bit) for part in parts]
            lengths = min((lengths for _, lengths in blocks), key=len)
            rows = _combined([rows[: lengths.size] for rows, _ in blocks], factors)
            made._planned += count_reached(lengths, made.horizon)
            made._add_block(bit, rows, lengths)
        # Parts with more trajectories than the signal have taken steps that are not part of it.
        taken = [part._taken for part in parts if part._planned[0] == made._planned[0]]
        made._taken = -(-np.sum(taken, axis=0) // len(taken))
        return made

    def empty(self) -> Self:
        return type(self)(self.horizon, gamma=self.gamma, metric=self._metric)

    def update(self, trajectories: Trajectories, steps: NDArray[np.int64] | None = None) -> None:
        """Adds a batch of trajectories.

        Args:
            trajectories: the rewards, or another signal of the trajectories.
            steps: transitions that the trajectories took, where the signal goes on after their end.
        """
        checks.instance("trajectories", trajectories, Trajectories)
        if trajectories.lengths.max() > self.horizon:
            raise ValueError(
                f"trajectories must be no longer than the horizon {self.horizon}, got {trajectories.lengths.max()}"
            )
        self._planned += trajectories.counts(self.horizon)
        self._taken += count_reached(trajectories.steps if steps is None else steps, self.horizon)
        bits = np.frexp(trajectories.lengths.astype(np.float64))[1]
        for bit in np.unique(bits).tolist():
            part = trajectories.select(bits == bit)
            rows = pad(part.flat, part.lengths, min((1 << bit) - 1, self.horizon))
            if rows.ndim > 2:
                rows = np.ascontiguousarray(np.moveaxis(rows, -1, 0))
            self._add_block(bit, rows, part.lengths)

    def _add_block(self, bit: int, rows: Array, lengths: NDArray[np.int64]) -> None:
        self._known_sums = None
        self._blocks.setdefault(bit, []).append((rows, lengths))

    def merge(self, other: "RewardMoments") -> None:
        checks.instance("other", other, RewardMoments)
        if (other.horizon, other.gamma) != (self.horizon, self.gamma):
            raise ValueError(
                f"other must have horizon {self.horizon} and gamma {self.gamma}, got {other.horizon} and {other.gamma}"
            )
        self._known_sums = None
        self._planned += other._planned
        self._taken += other._taken
        for bit, blocks in other._blocks.items():
            self._blocks.setdefault(bit, []).extend(blocks)

    def centred(self) -> Self:
        other = self.empty()
        other._planned, other._taken = self._planned, self._taken
        for bit in self._blocks:
            lengths = self._joined(bit)[1]
            rows = np.concatenate([rows for rows, _ in self._slabs(bit, self.means, self.horizon)], axis=-2)
            other._blocks[bit] = [(rows, lengths)]
        other._known_sums = np.zeros_like(self._sums)
        return other

    @property
    def _sums(self) -> Array:
        """Sum of the rewards of each step, which does not depend on the batches in which they were told."""
        if self._known_sums is None:
            shape = next((blocks[0][0].shape[:-2] for blocks in self._blocks.values()), ())
            self._known_sums = np.zeros((*shape, self.horizon))
            for bit in sorted(self._blocks):
                rows, _ = self._joined(bit)
                self._known_sums[..., : rows.shape[-1]] += rows.sum(axis=-2)
        return self._known_sums

    @property
    def means(self) -> Array:
        with np.errstate(invalid="ignore"):
            means: Array = self._sums / self._planned
        return means

    def _squares(self) -> Array:
        squares = np.zeros_like(self._sums)
        for rows, _ in self._centred():
            squares[..., : rows.shape[-1]] += np.einsum("...it,...it->...t", rows, rows)
        return self.over_components(squares)

    def _squares_and_products(self, covariance: Covariance) -> tuple[Array, Array]:
        squares, products = np.zeros((2, *self._sums.shape))
        divisors = self._divisors if covariance == "paired" else self._planned
        offsets = np.zeros_like(self._sums) if covariance == "paired" else self.means
        scale = self.discounts / divisors
        for rows, reached in self._centred():
            width = rows.shape[-1]
            squares[..., :width] += np.einsum("...it,...it->...t", rows, rows)
            later = (rows + offsets[..., None, :width] * reached) * scale[:width]
            products[..., :width] += np.einsum("...it,...it->...t", rows, tail_sums(later) - later)
        return self.over_components(squares), self.over_components(products)

    def weights_by_fold(self, folds: int) -> Array:
        folds = checks.integer("folds", folds, least=1, most=checks.MOST_STEPS)
        self._require_pairs("weights")
        # f_t = sum_i y_it (y_it / (n_t - 1) + 2 sum_{u>t} y_iu / (n_u - 1)) with discounted, centred rewards y.
        weights = np.zeros((folds, self.horizon))
        scale = self.discounts / self._divisors
        fold = np.empty(self.lengths.size, dtype=np.int64)
        fold[np.argsort(-self.lengths, kind="stable")] = np.arange(fold.size) % folds  # equally many of each length
        first = 0
        for rows, _ in self._centred():
            width, count = rows.shape[-1], rows.shape[-2]
            own = rows * scale[:width]
            terms = rows * (2 * tail_sums(own) - own) * self.discounts[:width]
            members = fold[first : first + count] == np.arange(folds)[:, None]
            weights[:, :width] += members @ self.over_components(terms)
            first += count
        return weights

    @property
    def components(self) -> int:
        """Number of components of the rewards."""
        return len(self._sums) if self._sums.ndim > 1 else 1

    def component(self, index: int) -> "RewardMoments":
        """Returns the moments of one component."""
        index = checks.integer("index", index, least=0, most=self.components - 1)
        part = RewardMoments(self.horizon, gamma=self.gamma)
        part._planned, part._taken = self._planned, self._taken
        part._known_sums = self._sums[index]
        for bit, blocks in self._blocks.items():
            part._blocks[bit] = [(rows[index], lengths) for rows, lengths in blocks]
        return part

    def over_components(self, values: Array) -> Array:
        """Returns the sum over components, each times its entry of the metric; values without components as they are.

        Args:
            values: an array whose first axis is that of the components, if there are several.
        """
        if self._sums.ndim == 1:
            return values
        total: Array = np.tensordot(self.metric, values, axes=1)
        return total

    @property
    def metric(self) -> Array:
        """Weight of each component in inner products."""
        if self._metric is None:
            return np.ones(len(self._sums))
        if not isinstance(self._metric, str):
            return np.asarray(self._metric)
        spread = (self.full_length @ self.discounts).var(axis=-1, ddof=1)
        varied = spread > _CONSTANT * (self.means @ self.discounts) ** 2
        inverse: Array = np.divide(1.0, spread, out=np.zeros_like(spread), where=varied)
        return inverse

    def terms(self, coefficients: Array, centre: Array) -> Array:
        """Returns the contribution x_i of each trajectory, see :meth:`contributions`; a row for each component."""
        parts = [rows @ coefficients[: rows.shape[-1]] for rows, _ in self._centred(centre)]
        return np.concatenate(parts, axis=-1)

    def contributions(self, coefficients: Array, centre: Array) -> Contributions:
        terms = self.terms(coefficients, centre)
        lengths, size = self.lengths, self.horizon + 1
        largest = float(terms[np.abs(terms).argmax()])
        terms /= (unit := unit_of(abs(largest)))
        return Contributions(
            unit,
            np.bincount(lengths, terms**2, size).astype(np.float64),
            np.bincount(lengths, minlength=size),
            float(np.sum(terms**3)),
            float(np.sum(terms**4)),
            largest,
        )

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Planned length of each trajectory, in the order in which they are kept."""
        return np.concatenate([lengths for bit in sorted(self._blocks) for _, lengths in self._blocks[bit]])

    @property
    def full_length(self) -> Array:
        """Rewards of the trajectories that were planned to the horizon, one row each."""
        blocks = self._blocks.get(self.horizon.bit_length(), [])
        rows = [rows[..., lengths == self.horizon, :] for rows, lengths in blocks]
        return np.concatenate(rows, axis=-2) if rows else np.zeros((*self._sums.shape[:-1], 0, self.horizon))

    def _centred(self, centre: Array | None = None) -> Iterator[tuple[Array, NDArray[np.bool_]]]:
        """Yields blocks of rows: rewards less the centre of their step, and which steps were planned.

        The centres are the means if not given. Entries after a trajectory's planned length are zero; late steps at
        which everything is zero, because no trajectory took them, are left out.
        """
        means = self.means if centre is None else centre
        varied = np.flatnonzero(means.reshape(-1, self.horizon).any(axis=0))
        reached = max(1, int(np.count_nonzero(self._taken)), *(varied[-1:] + 1).tolist())
        for bit in sorted(self._blocks):
            yield from self._slabs(bit, means, reached)

    def _slabs(self, bit: int, centre: Array, most: int) -> Iterator[tuple[Array, NDArray[np.bool_]]]:
        """Yields the centred rows of a block, ``most`` steps of them, as many rows at a time as fit into the cache."""
        together, planned = self._joined(bit)
        width = min(together.shape[-1], most)
        slab = max(1, _SLAB // width)
        steps, lengths = (array.astype(np.min_scalar_type(width)) for array in (np.arange(width), planned))
        for start in range(0, planned.size, slab):
            reached = steps < lengths[start : start + slab, None]
            rows = together[..., start : start + slab, :width] - centre[..., None, :width]
            if not reached[:, -1].all():
                np.copyto(rows, 0.0, where=~reached)
            yield rows, reached

    def _joined(self, bit: int) -> tuple[Array, NDArray[np.int64]]:
        """Returns all rows of a block and their lengths, which are joined once."""
        blocks = self._blocks[bit]
        if len(blocks) > 1:
            parts, lengths = zip(*blocks, strict=True)
            blocks[:] = [(np.concatenate(parts, axis=-2), np.concatenate(lengths))]
        return blocks[0]


def _combined(rows: Sequence[Array], factors: Sequence[float]) -> Array:
    """Returns the sum of rewards, each times its factor; factors of 1 and -1 need no extra array."""
    (total, factor), *others = zip(rows, factors, strict=True)
    total = total if factor == 1 else factor * total
    for each, factor in others:
        total = total - each if factor == -1 else total + factor * each
    return total
