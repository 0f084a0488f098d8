"""What a run file holds beside its header: pieces of a run, decisions, and what a reader should know."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rido.core.trajectories import Trajectories

WHOLE = -1
"""The round of decisions that hold for the whole run."""

NOTES = "notes"
"""Reasons why the same seed may not give the same result."""

DOUBTS = "doubts"
"""Why policies may not be the agents that were trained, or critics not those that were asked for."""

REMARKS = "remarks"
"""What else a reader of the result may want to know."""

WORKERS = "workers"
"""The workers alive, those that there should be, and the time, in seconds since 1970."""


@dataclass(frozen=True)
class Piece:
    """A batch of trajectories of one round.

    Attributes:
        round: Index of the round that they belong to.
        trajectories: The rewards.
        seconds: Time that collecting them took.
        signal: Trajectories with residuals in the place of the rewards, if there are any.
        starts: With a signal: one value for the first observation of each trajectory.
        features: Rows of numbers for each step that was taken and after the last one, if there are any.
        terminated: With features: whether the environment ended each trajectory.
    """

    round: int
    trajectories: Trajectories
    seconds: float
    signal: Trajectories | None = None
    starts: NDArray[np.float64] | None = None
    features: NDArray[np.float64] | None = None
    terminated: NDArray[np.bool_] | None = None
