"""Trajectories: the rewards of one batch, as a simulator returns them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rido.core import checks


@dataclass(frozen=True, eq=False, init=False)
class Trajectories:
    """Rewards of trajectories of different planned lengths.

    A trajectory that the environment ended before its planned length has reward 0 from there on. These zeros count
    as samples up to the planned length and no further: counting them up to the horizon would select trajectories by
    their outcome and bias the estimate.

    Args:
        rewards: shape (trajectories, at least the longest length), where entries beyond a trajectory's length are
            ignored; or one-dimensional, the planned steps of one trajectory after the other. Rewards with d components
            have shape (trajectories, at least the longest length, d); see also :meth:`from_flat`.
        lengths: planned length of each trajectory.
        steps: transitions that each trajectory took, fewer than planned where the environment ended it; the
            planned lengths if not given.

    Attributes:
        flat: rewards of the planned steps of one trajectory after the other, shape (steps,) or (steps, d) (read-only).
        lengths: planned length of each trajectory (read-only).
        steps: transitions that each trajectory took (read-only).

    Example:
        >>> batch = Trajectories([[1.0, 2.0, 3.0], [4.0, 0.0, 0.0]], [3, 1])
        >>> batch.flat, batch.transitions
        (array([1., 2., 3., 4.]), 4)
    """

    flat: NDArray[np.float64]
    lengths: NDArray[np.int64]
    steps: NDArray[np.int64]

    def __init__(self, rewards: ArrayLike, lengths: ArrayLike, steps: ArrayLike | None = None) -> None:
        flat, lengths = np.array(checks.numbers("rewards", rewards)), checks.counts("lengths", lengths).copy()
        if flat.ndim > 1:
            if flat.ndim > 3 or flat.shape[0] != lengths.size or flat.shape[1] < lengths.max():
                raise ValueError(
                    f"rewards must have a row for each of {lengths.size} trajectories and at least {lengths.max()} "
                    f"columns, got shape {flat.shape}"
                )
            planned = np.arange(flat.shape[1]) < lengths[:, None]
            flat = flat.reshape(-1, *flat.shape[2:]) if planned.all() else flat[planned]
        self._set(flat, lengths, steps)

    @classmethod
    @checks.checked()
    def from_flat(
        cls, flat: NDArray[np.float64], lengths: ArrayLike, steps: ArrayLike | None = None, *, copy: bool = True
    ) -> "Trajectories":
        """Returns trajectories whose rewards come as :attr:`flat`, shape (steps,) or (steps, d).

        Without a copy, nobody may change the arrays that are given.
        """
        flat, lengths = checks.numbers("rewards", flat), checks.counts("lengths", lengths)
        flat = flat.copy() if copy else flat
        made = cls.__new__(cls)
        made._set(flat, lengths.copy() if copy else lengths, steps)
        return made

    def _set(self, flat: NDArray[np.float64], lengths: NDArray[np.int64], steps: ArrayLike | None) -> None:
        steps = lengths if steps is None else checks.counts("steps", steps).copy()
        if lengths.min() < 1:
            raise ValueError(f"lengths must be at least 1, got 0 for trajectory {int(lengths.argmin())}")
        if steps.shape != lengths.shape:
            raise ValueError(f"steps must be one number for each of {lengths.size} trajectories, got {steps.size}")
        if (steps > lengths).any():
            row = int((steps > lengths).argmax())
            raise ValueError(f"steps must be at most the planned length {lengths[row]}, got {steps[row]}")
        if flat.ndim not in (1, 2) or len(flat) != lengths.sum():
            raise ValueError(f"rewards must hold {lengths.sum()} planned steps, got shape {flat.shape}")
        if steps is not lengths and (steps < lengths).any():
            flat[positions(lengths) >= np.repeat(steps, lengths)] = 0
        if (place := checks.first_beyond(flat)) is not None:
            row = int(np.searchsorted(np.cumsum(lengths), place[0], side="right"))
            where = f" in trajectory {row} at step {positions(lengths)[place[0]]}"
            raise checks.beyond("rewards", float(flat[place]), where)
        self._keep(flat, lengths, steps)

    def _keep(self, flat: NDArray[np.float64], lengths: NDArray[np.int64], steps: NDArray[np.int64]) -> None:
        for name, array in (("flat", flat), ("lengths", lengths), ("steps", steps)):
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    @classmethod
    def of_checked(
        cls, flat: NDArray[np.float64], lengths: NDArray[np.int64], steps: NDArray[np.int64]
    ) -> "Trajectories":
        """Returns trajectories of arrays that were checked before, rewards after early ends being 0."""
        made = cls.__new__(cls)
        made._keep(flat, lengths, steps)
        return made

    @property
    def rewards(self) -> NDArray[np.float64]:
        """The rewards as rows, with zeros after each trajectory's planned length."""
        return pad(self.flat, self.lengths, int(self.lengths.max()))

    @property
    def transitions(self) -> int:
        """Transitions that were taken in all."""
        return int(self.steps.sum())

    def counts(self, horizon: int) -> NDArray[np.int64]:
        """Returns how many of the trajectories are planned to take each step."""
        return count_reached(self.lengths, checks.integer("horizon", horizon, least=1, most=checks.MOST_STEPS))

    def __len__(self) -> int:
        return self.lengths.size

    def select(self, rows: NDArray[np.bool_]) -> "Trajectories":
        """Returns the trajectories for which ``rows`` is true."""
        if not isinstance(rows, np.ndarray):
            checks.numbers("rows", rows)
        rows = np.asarray(rows)
        if rows.dtype != bool or rows.shape != self.lengths.shape:
            raise ValueError(f"rows must be {len(self)} times True or False, got {checks.shown(rows)}")
        if rows.all():
            return self
        first, count = int(rows.argmax()), int(np.count_nonzero(rows))
        if count and rows[first : first + count].all():  # one after the other: no copy
            ends = np.cumsum(self.lengths)
            start = int(ends[first - 1]) if first else 0
            place = slice(first, first + count)
            flat = self.flat[start : int(ends[first + count - 1])]
            return Trajectories.of_checked(flat, self.lengths[place], self.steps[place])
        flat = self.flat[np.repeat(rows, self.lengths)]
        return Trajectories.of_checked(flat, self.lengths[rows], self.steps[rows])


def concatenate(batches: "list[Trajectories]") -> Trajectories:
    """Returns all trajectories of several batches as one, in their order."""
    if len(batches) == 1:
        return batches[0]
    parts = ([getattr(batch, name) for batch in batches] for name in ("flat", "lengths", "steps"))
    return Trajectories.of_checked(*map(np.concatenate, parts))


def count_reached(lengths: NDArray[np.int64], horizon: int) -> NDArray[np.int64]:
    """Returns how many trajectories of these lengths take each step."""
    return np.cumsum(np.bincount(lengths, minlength=horizon + 1)[:0:-1])[::-1]


def pad(flat: NDArray[np.float64], lengths: NDArray[np.int64], width: int) -> NDArray[np.float64]:
    """Returns trajectories that are stored one after the other as rows, filled up with zeros."""
    if lengths.size and lengths.min() == width:
        return flat.reshape(lengths.size, width, *flat.shape[1:])
    rows = np.zeros((lengths.size, width, *flat.shape[1:]))
    rows[np.arange(width) < lengths[:, None]] = flat
    return rows


def starts_of(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the index at which each piece begins, for pieces of these sizes one after the other in an array.

    Example:
        >>> starts_of(np.array([3, 1, 2]))
        array([0, 3, 4])
    """
    starts: NDArray[np.int64] = np.cumsum(sizes) - sizes
    return starts


def positions(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the position of each entry within its piece, for pieces of these sizes one after the other in an array.

    Example:
        >>> positions(np.array([3, 1, 2]))
        array([0, 1, 2, 0, 0, 1])
    """
    return np.arange(sizes.sum()) - np.repeat(starts_of(sizes), sizes)
