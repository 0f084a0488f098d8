"""Recorded trajectories, drawn with replacement: studies of many repetitions become affordable."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rido.core import checks
from rido.core.trajectories import Trajectories, positions
from rido.simulators.base import NO_TRAJECTORIES, Batch, Capabilities, Request, Simulator
from rido.simulators.requests import checked


class BankSimulator(Simulator):
    """A simulator that draws from a bank of recorded full-length trajectories.

    A seed picks a row, all rows with equal probability, and a shorter trajectory is the beginning of its row. So the
    expected return is known: the mean return of the rows.

    Args:
        rewards: shape (rows, horizon).
        steps: transitions after which the environment terminated each row; the horizon if not given.
        observations: shape (rows, horizon + 1, ...), before each step and after the last one. Only critics need them.

    Attributes:
        rewards: the rewards, zero after each row's end (read-only).
        policy: the policy that acted, for ``critic="policy"``; None if it is not known.

    Example:
        >>> bank = BankSimulator([[1.0, 2.0], [3.0, 4.0]])
        >>> bank.rollout([1, 1, 1], [7, 8, 9]).flat
        array([3., 1., 1.])
        >>> bank.expected_return(0.5)
        3.5
    """

    num_envs = 1 << 16  # drawing is cheap, so ask for many at once
    policy: Any = None

    def __init__(
        self, rewards: ArrayLike, steps: ArrayLike | None = None, observations: ArrayLike | None = None
    ) -> None:
        self.rewards = np.array(rewards, dtype=np.float64)
        if self.rewards.ndim != 2 or self.rewards.size == 0:
            raise ValueError(f"rewards must have shape (rows, horizon), got {self.rewards.shape}")
        rows, horizon = self.rewards.shape
        self.steps = np.full(rows, horizon) if steps is None else checks.counts("steps", steps)
        if self.steps.shape != (rows,) or not 1 <= self.steps.min() <= self.steps.max() <= horizon:
            raise ValueError(
                f"steps must be from 1 to {horizon} for each of {rows} rows, got {checks.shown(self.steps)}"
            )
        self.rewards[np.arange(horizon) >= self.steps[:, None]] = 0
        self.rewards.flags.writeable = False
        self.observations = None if observations is None else np.asarray(observations)
        if self.observations is not None and self.observations.shape[:2] != (rows, horizon + 1):
            shape = self.observations.shape
            raise ValueError(f"observations must have shape ({rows}, {horizon + 1}, ...), got {shape}")

    @property
    def capabilities(self) -> Capabilities:
        """It returns observations if they were recorded."""
        policies = {} if self.policy is None else {"": self.policy}
        observes = self.observations is not None
        return Capabilities(observes=observes, policies=policies, load_policy=lambda name="": self.policy)

    def expected_return(self, gamma: float) -> float:
        """Returns the expected discounted return of a trajectory drawn from the bank."""
        return float(self.rewards.mean(axis=0) @ checks.discount("gamma", gamma) ** np.arange(self.rewards.shape[1]))

    def beginnings(self, rows: NDArray[np.int64], lengths: NDArray[np.int64]) -> Trajectories:
        """Returns the first steps of rows, as many as each trajectory is long."""
        flat = self.rewards.ravel()[np.repeat(rows * self.rewards.shape[1], lengths) + positions(lengths)]
        return Trajectories.of_checked(flat, lengths, np.minimum(self.steps[rows], lengths))

    def collect(self, request: Request) -> Batch:
        """Returns the beginnings of the rows that the seeds pick."""
        rows = self._rows(request.seeds)
        observations: Any = self.observations
        if request.wants != "rewards" and observations is None:
            raise ValueError("observations must be in the bank for a critic, got none")
        if request.wants == "starts":
            return Batch(NO_TRAJECTORIES, observations[rows, 0])
        lengths: NDArray[np.int64] = checked(request, self.rewards.shape[1], takes_points=False).lengths
        trajectories = self.beginnings(rows, lengths.copy())
        if request.wants == "rewards":
            return Batch(trajectories)
        seen = np.arange(observations.shape[1]) <= trajectories.steps[:, None]
        terminated = (self.steps[rows] <= lengths) & (self.steps[rows] < self.rewards.shape[1])
        return Batch(trajectories, observations[rows][seen], terminated)

    def _rows(self, seeds: Sequence[int]) -> NDArray[np.int64]:
        # Mixing makes neighbouring seeds pick unrelated rows (the finaliser of splitmix64).
        mixed = np.array(seeds, dtype=np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return ((mixed ^ (mixed >> np.uint64(31))) % np.uint64(len(self.rewards))).astype(np.int64)
