"""Schedule: how many samples of each time step, or equivalently how many trajectories of each length."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rido.core import checks
from rido.core.allocation import fill, hoeffding_weights
from rido.core.trajectories import count_reached


@dataclass(frozen=True, eq=False, init=False)
class Schedule:
    """A data collection strategy: how many samples of each time step to collect.

    The counts ``n_t`` of samples per step and the numbers ``m_h`` of trajectories per length say the same:
    ``m_h = n_{h-1} - n_h``. A schedule is immutable. The sum of two schedules collects both.

    Args:
        counts: samples of each time step; whole numbers that never increase.

    Attributes:
        counts: n_t, samples of step t = 0, ..., horizon - 1 (read-only).

    Example:
        >>> schedule = Schedule([3, 2, 2])
        >>> schedule.lengths
        array([3, 3, 1])
        >>> schedule.transitions, schedule.trajectories
        (7, 3)
        >>> schedule + Schedule.uniform(3, 6)
        Schedule(counts=[5, 4, 4])
    """

    counts: NDArray[np.int64]

    def __init__(self, counts: ArrayLike) -> None:
        counts = checks.counts("counts", counts).copy()
        rises = np.flatnonzero(np.diff(counts) > 0)
        if rises.size:
            step = int(rises[0])
            raise ValueError(
                f"counts must never increase, got {counts[step]} at step {step} and {counts[step + 1]} after it"
            )
        counts.flags.writeable = False
        object.__setattr__(self, "counts", counts)

    @classmethod
    @checks.checked()
    def from_lengths(cls, lengths: ArrayLike, horizon: int) -> "Schedule":
        """Returns the schedule that collects trajectories of these lengths, in any order."""
        lengths = checks.numbers("lengths", lengths)
        lengths = checks.counts("lengths", lengths) if lengths.size else np.zeros(0, dtype=np.int64)
        if lengths.size and not 1 <= lengths.min() <= lengths.max() <= horizon:
            raise ValueError(
                f"lengths must be between 1 and the horizon {horizon}, got {lengths.min()} to {lengths.max()}"
            )
        return cls(count_reached(lengths, horizon))

    @classmethod
    @checks.checked()
    def uniform(cls, horizon: int, budget: int) -> "Schedule":
        """Returns full-length trajectories, and a shorter one for the rest of the budget."""
        return cls(budget // horizon + (np.arange(horizon) < budget % horizon))

    @classmethod
    @checks.checked()
    def robust(cls, horizon: int, budget: int, *, gamma: float) -> "Schedule":
        """Returns the schedule that minimises the generalised Hoeffding bound, (2) of the paper.

        It depends on horizon, budget and discount only, and collects at least one full trajectory.
        """
        return cls.optimal(hoeffding_weights(horizon, gamma), budget)

    @classmethod
    @checks.checked(budget=checks.not_negative)
    def optimal(cls, weights: ArrayLike, budget: float, *, costs: ArrayLike | None = None) -> "Schedule":
        """Returns the oracle's schedule: the least variance ``sum_t f_t / n_t`` for known weights f_t.

        It solves problem (6) of the paper: one full trajectory, then one after the other of the length that gains most.

        Args:
            weights: f_t of every step.
            budget: what all samples may cost, at least one full trajectory; transitions where ``costs`` is not given.
            costs: price of one sample of each step; 1 if not given.
        """
        weights = checks.finite_vector("weights", weights)
        costs = None if costs is None else checks.positive_vector("costs", costs, length=weights.size)
        full = float(weights.size if costs is None else costs.sum())
        if not budget >= full:
            raise ValueError(f"budget must pay for one full trajectory, {full:g}, got {budget!r}")
        one = np.ones(weights.size, dtype=np.int64)
        return cls(one + fill(weights, budget - full, one, costs=costs))

    @property
    def horizon(self) -> int:
        """Number of time steps."""
        return self.counts.size

    @property
    def transitions(self) -> int:
        """Number of samples in all."""
        return int(self.counts.sum())

    @property
    def trajectories(self) -> int:
        """Number of trajectories."""
        return int(self.counts[0])

    @property
    def trajectories_by_length(self) -> NDArray[np.int64]:
        """The number m_h of trajectories of length h = 1, ..., horizon."""
        return -np.diff(self.counts, append=0)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The length of each trajectory, longest first."""
        return np.repeat(np.arange(self.horizon, 0, -1), self.trajectories_by_length[::-1])

    def variance(self, weights: ArrayLike) -> float:
        """Returns the variance ``sum_t f_t / n_t`` of the estimator under this schedule, (5) of the paper."""
        weights = checks.finite_vector("weights", weights, length=self.horizon)
        if self.counts[-1] < 1:
            raise ValueError("variance needs at least one trajectory of full length, got none")
        return float(np.sum(weights / self.counts))

    def __add__(self, other: object) -> "Schedule":
        if not isinstance(other, Schedule):
            return NotImplemented
        if other.horizon != self.horizon:
            raise ValueError(f"schedules must have one horizon to be added, got {self.horizon} and {other.horizon}")
        return Schedule(self.counts + other.counts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and np.array_equal(self.counts, other.counts)

    def __hash__(self) -> int:
        return hash(self.counts.tobytes())

    def __repr__(self) -> str:
        return f"Schedule(counts={np.array2string(self.counts, separator=', ', threshold=12)})"
