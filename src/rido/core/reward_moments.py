"""RewardMoments: the moments of rewards of which all are kept."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from rido.core import checks
from rido.core.allocation import Array, tail_sums, unit_of
from rido.core.moments import Contributions, Covariance, Moments
from rido.core.trajectories import Trajectories, count_reached, positions, starts_of

Metric = Literal["scaled"] | Sequence[float] | None

_CONSTANT = 1e-20  # a component did not vary if the variance of its return is below this share of its square
_SLAB = 1 << 18  # rewards processed at once, so that temporary arrays stay in the cache


@dataclass(frozen=True, eq=False)
class Rows:
    """Trajectories whose rewards lie in an array of others: where each begins, and what is taken off each step."""

    flat: Array
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    offset: Array | None = None

    def __call__(self, rows: slice | NDArray[np.int64], width: int) -> Array:
        """Returns a copy of some trajectories as rows; what comes after a trajectory's length is not its own."""
        flat, starts = self.flat, self.starts[rows]
        inside = len(flat) - width
        found: Array
        if (last := int(starts.max())) <= inside:
            step, *tail = flat.strides
            shape = (inside + 1, width, *flat.shape[1:])
            found = np.lib.stride_tricks.as_strided(flat, shape, (step, step, *tail), writeable=False)[starts]
        else:
            found = flat.take(np.minimum(starts[:, None] + np.arange(width), max(last, len(flat) - 1)), axis=0)
        if self.offset is not None:
            found -= self.offset.T[:width]
        return found

    def joined(self, count: int) -> Array:
        """Returns the rewards of the first trajectories, one after the other."""
        lengths = self.lengths[:count]
        entries = np.repeat(self.starts[:count], lengths) + positions(lengths)
        found: Array = self.flat[entries]
        return found if self.offset is None else found - self.offset.T[positions(lengths)]


class RewardMoments(Moments):
    """Means, variances and the weights f_t of rewards from trajectories of mixed lengths.

    Rewards may have several components. Then inner products take the place of products, so that all weights and
    variances are sums over the components, each multiplied by its entry of the metric: ``sum_t f_t / n_t`` is the
    expected squared distance of the estimated returns from the true ones.

    The arrays of rewards are kept as they came, without a copy, and no T x T tables of their products. The inner sum of
    f_t is then a cumulative sum from the end of each trajectory, so weights cost O(transitions) time for any horizon.
    Means are subtracted before anything is squared, so a large common offset of the rewards costs no digits.

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
        self._reached = 0  # steps after which all rewards are zero
        # By the number of bits of their length, so that rows of many are at most twice as long as their trajectories.
        self._rows: dict[int, list[Rows]] = {}

    @classmethod
    def of_signal(cls, parts: "Sequence[RewardMoments]", factors: Sequence[float]) -> "RewardMoments":
        """Returns the moments of a sum of rewards of paired trajectories, each times its factor.

        Args:
            parts: trajectories that were told in the same order and with the same lengths; some may have only the
                first ones, and the signal has those that all have.
            factors: of each part.
        """
        made = cls(parts[0].horizon, gamma=parts[0].gamma)
        for bit in sorted(set.intersection(*(set(part._rows) for part in parts))):
            count = min(sum(rows.lengths.size for rows in part._rows[bit]) for part in parts)
            lengths = parts[0]._lengths_of(bit)[:count]
            made._planned += count_reached(lengths, made.horizon)
            signal = _combined([part._joined(bit, count) for part in parts], factors)
            made._rows[bit] = [Rows(signal, starts_of(lengths), lengths)]
        made._reached = max(part._reached for part in parts)
        # Parts with more trajectories than the signal have taken steps that are not part of it.
        taken = [part._taken for part in parts if part._planned[0] == made._planned[0]]
        made._taken = -(-np.sum(taken, axis=0) // len(taken))
        return made

    def empty(self) -> Self:
        return type(self)(self.horizon, gamma=self.gamma, metric=self._metric)

    def update(
        self,
        trajectories: Trajectories,
        steps: NDArray[np.int64] | None = None,
        rows: NDArray[np.bool_] | None = None,
    ) -> None:
        """Adds a batch of trajectories.

        Args:
            trajectories: the rewards, or another signal of the trajectories.
            steps: transitions that the trajectories took, where the signal goes on after their end.
            rows: which of the trajectories; all if not given.
        """
        checks.instance("trajectories", trajectories, Trajectories)
        if trajectories.lengths.max() > self.horizon:
            raise ValueError(
                f"trajectories must be no longer than the horizon {self.horizon}, got {trajectories.lengths.max()}"
            )
        chosen = slice(None) if rows is None else np.flatnonzero(rows)
        lengths = trajectories.lengths[chosen]
        if not lengths.size:
            return
        starts = starts_of(trajectories.lengths)[chosen]
        self._known_sums = None
        self._reached = max(self._reached, int(trajectories.steps[chosen].max()))
        self._planned += count_reached(lengths, self.horizon)
        self._taken += count_reached((trajectories.steps if steps is None else steps)[chosen], self.horizon)
        bits = np.frexp(lengths.astype(np.float64))[1]
        for bit in np.unique(bits).tolist():
            part = bits == bit
            self._rows.setdefault(bit, []).append(Rows(trajectories.flat, starts[part], lengths[part]))

    def merge(self, other: "RewardMoments") -> None:
        checks.instance("other", other, RewardMoments)
        if (other.horizon, other.gamma) != (self.horizon, self.gamma):
            raise ValueError(
                f"other must have horizon {self.horizon} and gamma {self.gamma}, got {other.horizon} and {other.gamma}"
            )
        known = self._known_sums if self._rows else 0.0
        self._known_sums = None if known is None else known + other._sums
        self._planned += other._planned
        self._taken += other._taken
        self._reached = max(self._reached, other._reached)
        for bit, rows in other._rows.items():
            self._rows.setdefault(bit, []).extend(rows)

    def centred(self) -> Self:
        other = self.empty()
        other._planned, other._taken, other._reached = self._planned, self._taken, self._reached
        for bit, parts in self._rows.items():
            other._rows[bit] = [
                replace(part, offset=self.means if part.offset is None else part.offset + self.means) for part in parts
            ]
        other._known_sums = np.zeros_like(self._sums)
        return other

    @property
    def _sums(self) -> Array:
        """Sum of the rewards of each step, which does not depend on the batches in which they were told."""
        if self._known_sums is None:
            shape = next((rows[0].flat.shape[1:] for rows in self._rows.values()), ())
            self._known_sums = np.zeros((*shape, self.horizon))
            for rows, _ in self._slabs(np.zeros_like(self._known_sums)):
                self._known_sums[..., : rows.shape[-1]] += rows.sum(axis=-2)
        return self._known_sums

    @property
    def means(self) -> Array:
        with np.errstate(invalid="ignore"):
            means: Array = self._sums / self._planned
        return means

    def _squares(self) -> Array:
        squares = np.zeros_like(self._sums)
        for rows, _ in self._slabs(self.means):
            squares[..., : rows.shape[-1]] += np.einsum("...it,...it->...t", rows, rows)
        return self.over_components(squares)

    def _squares_and_products(self, covariance: Covariance) -> tuple[Array, Array]:
        squares, products = np.zeros((2, *self._sums.shape))
        divisors = self._divisors if covariance == "paired" else self._planned
        offsets = np.zeros_like(self._sums) if covariance == "paired" else self.means
        scale = self.discounts / divisors
        for rows, reached in self._slabs(self.means):
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
        lengths, first = self.lengths, 0
        for rows, _ in self._slabs(self.means):
            width, count = rows.shape[-1], rows.shape[-2]
            own = rows * scale[:width]
            terms = rows * (2 * tail_sums(own) - own) * self.discounts[:width]
            order = np.argsort(-lengths[first : first + count], kind="stable")  # in turn, so as many of each length
            terms = self.over_components(terms)[order]
            whole = count - count % folds
            found = terms[:whole].reshape(-1, folds, width).sum(axis=0)
            found[: count - whole] += terms[whole:]
            weights[:, :width] += np.roll(found, first, axis=0)
            first += count
        return weights

    @property
    def components(self) -> int:
        """Number of components of the rewards."""
        return len(self._sums) if self._sums.ndim > 1 else 1

    def component(self, index: int) -> "RewardMoments":
        """Returns the moments of one component."""
        index = checks.integer("index", index, least=0, most=self.components - 1)
        if self._sums.ndim == 1:
            return self
        part = RewardMoments(self.horizon, gamma=self.gamma)
        part._planned, part._taken = self._planned, self._taken
        part._known_sums, part._reached = self._sums[index], self._reached
        for bit, parts in self._rows.items():
            part._rows[bit] = [
                Rows(
                    each.flat[:, index], each.starts, each.lengths, None if each.offset is None else each.offset[index]
                )
                for each in parts
            ]
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
        parts = [np.einsum("...t,t", rows, coefficients[: rows.shape[-1]]) for rows, _ in self._slabs(centre)]
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
        return np.concatenate([self._lengths_of(bit) for bit in sorted(self._rows)])

    def _lengths_of(self, bit: int) -> NDArray[np.int64]:
        return np.concatenate([rows.lengths for rows in self._rows[bit]])

    def _joined(self, bit: int, count: int) -> Array:
        """Returns the rewards of the first trajectories whose lengths have this many bits, one after the other."""
        parts = self._rows[bit]
        before = np.cumsum([0, *(part.lengths.size for part in parts)])
        return np.concatenate([part.joined(max(0, count - done)) for part, done in zip(parts, before, strict=False)])

    @property
    def full_length(self) -> Array:
        """Rewards of the trajectories that were planned to the horizon, one row each."""
        parts = self._rows.get(self.horizon.bit_length(), [])
        full = [
            replace(part, starts=part.starts[place], lengths=part.lengths[place])
            for part in parts
            if (place := part.lengths == self.horizon).any()
        ]
        if not full:
            return np.zeros((*self._sums.shape[:-1], 0, self.horizon))
        return np.concatenate([_leading(part(slice(None), self.horizon)) for part in full], axis=-2)

    def _slabs(self, centre: Array) -> Iterator[tuple[Array, NDArray[np.bool_]]]:
        """Yields as many rows at a time as fit into the cache: rewards less the centre, and which steps were planned.

        Entries after a trajectory's planned length are zero. Late steps that no trajectory took, and at which the
        centre is zero, are left out. Which trajectories come together does not depend on the batches they came in.
        """
        varied = np.flatnonzero(centre.reshape(-1, self.horizon).any(axis=0))
        reached = max(1, self._reached, *(varied[-1:] + 1).tolist())
        for bit in sorted(self._rows):
            parts, lengths = self._rows[bit], self._lengths_of(bit)
            width = min((1 << bit) - 1, self.horizon, reached)
            slab = max(1, _SLAB // width)
            steps, planned = (
                array.astype(np.min_scalar_type(width)) for array in (np.arange(width), np.minimum(lengths, width))
            )
            ends = np.cumsum([part.lengths.size for part in parts])
            for start in range(0, lengths.size, slab):
                stop = min(start + slab, lengths.size)
                found = [
                    part(slice(max(0, start - end + part.lengths.size), stop - end + part.lengths.size), width)
                    for part, end in zip(parts, ends, strict=True)
                    if end > start and end - part.lengths.size < stop
                ]
                rows = _leading(found[0] if len(found) == 1 else np.concatenate(found))
                rows -= centre[..., None, :width]
                mask = steps < planned[start:stop, None]
                if not mask[:, -1].all():
                    np.copyto(rows, 0.0, where=~mask)
                yield rows, mask


def _leading(rows: Array) -> Array:
    """Returns rows with the components, if there are several, as the first axis."""
    return rows if rows.ndim == 2 else np.ascontiguousarray(np.moveaxis(rows, -1, 0))


def _combined(rows: Sequence[Array], factors: Sequence[float]) -> Array:
    """Returns the sum of rewards, each times its factor; factors of 1 and -1 need no extra array."""
    (total, factor), *others = zip(rows, factors, strict=True)
    total = total if factor == 1 else factor * total
    for each, factor in others:
        total = total - each if factor == -1 else total + factor * each
    return total
