"""What a run file holds: pieces of a run, the milestones that it reached, and the names of its settings."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rido.core.trajectories import Trajectories

COMPONENTS = "components"
"""Name in the configuration of the names of the components of rewards; none where rewards are numbers."""

NOTES = "notes"
"""Name in the configuration of the reasons why the same seed may not give the same result."""

COMPARISON = "policies compared"
"""Name in the configuration of the names of the policies, where the run is a comparison."""

SUITE_TASK = "suite task"
"""Name in the configuration of the name of a task, where the file has a policy's trajectories in a suite."""

REHEARSED = "rehearsed"  # transitions of the rehearsal
REMARKS = "remarks"
"""Name in the configuration of what else a reader of the result may want to know."""

NORMALISATION = "normalisation"
"""Name in the configuration of what was done to the agent's observations."""

DOUBTS = "doubts"
"""Name in the configuration of a comparison of why policies may not be the agents that were trained."""

REWARD_RANGE = "reward_range"
"""Name in the configuration of the range of rewards that a guaranteed interval was asked for."""

AGENT_DISCOUNT = "agent discount"
"""Name in the configuration of the discount of the agent's value function, where critics learn from it."""

ADVANTAGES = "judged actions"
"""Name in the configuration of whether the last column of the features is what actions were worth beside others."""

INDEPENDENT_STARTS = "independent starts"
"""Name in the configuration of how many independent starts the resets of a critic are worth, where critics learn."""

SOBOL_RESETS = "replicates of resets"
"""Name in the configuration of the number of sequences from which resets take their points; 0 for random resets."""

EXTENSIONS = "extensions"
"""Name in the configuration of what a run was extended to: pairs of a budget and a width, in order."""

FITTED_CRITIC = "fitted critic"
"""Name in the configuration of the first values of critics that learned from the first round, if some did."""

WORKERS = "workers alive"
"""Name in the configuration of the workers alive, those that there should be, and the time, in seconds since 1970."""


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


@dataclass(frozen=True)
class Milestone:
    """The state of a run after a round.

    Attributes:
        round: Index of the round.
        transitions: Transitions taken so far, without the cost of resets.
        trajectories: Trajectories collected so far.
        value: The estimate; this and the next five are those of :class:`rido.core.estimate.Estimate`.
        critic: Name of the critic in use, "none" for plain rewards.
        warnings: What a reader should know before trusting the estimate.
    """

    round: int
    transitions: int
    trajectories: int
    value: float
    standard_error: float
    degrees_of_freedom: float
    skewness: float
    effective_trajectories: float
    largest_contribution: float
    critic: str = "none"
    warnings: tuple[str, ...] = ()


def milestone_from(row: Sequence[Any]) -> Milestone:
    """Return the milestone that a row of the table ``progress`` holds, without its checksum."""
    entries: list[Any] = [math.nan if entry is None else entry for entry in row[:-1]]
    entries.append(tuple(json.loads(row[-1])))
    return Milestone(*entries)
