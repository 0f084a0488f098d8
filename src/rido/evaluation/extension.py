"""Extensions: a finished run goes on with a larger budget, or until its interval is narrower.

The run file keeps the goals of a run in the order in which they were given. Each goal is reached before the next one
is set, whenever that was given. So the numbers depend on the sequence of goals alone, not on where a run was stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from itertools import count
from pathlib import Path

from rido.record.database import RunFileError, recognise
from rido.record.header import EvaluationHeader
from rido.record.runfile import RunFile
from rido.strategies import Strategy


@dataclass(frozen=True)
class Goal:
    """What a run is to spend or to reach.

    Attributes:
        budget: transitions in all.
        until: half-width of the 95% interval at which to stop, as the strategy takes it; None to spend the budget.
    """

    budget: int
    until: float | None = None

    @classmethod
    def of(cls, strategy: Strategy) -> Goal:
        """Returns the goal that a strategy was made for."""
        return cls(strategy.budget, strategy.options.get("until"))


def recorded_goals(record: RunFile) -> list[Goal]:
    """Returns the goals of a recorded run, the first one first."""
    header = record.header
    assert isinstance(header, EvaluationHeader)
    goals = [Goal(header.first_budget or header.budget or 0, header.options.get("until"))]
    for number in count(1):
        if (goal := record.decided("goal", number)) is None:
            return goals
        goals.append(Goal(*goal))
    return goals


def all_goals(path: str | Path | None, strategy: Strategy) -> list[Goal]:
    """Returns the goals of the run in this file, if there is one, and that of the strategy if it is another one."""
    goal = Goal.of(strategy)
    if path is None or recognise(Path(path)) is None:
        return [goal]
    with RunFile.read(path) as record:
        header = record.header
        if not isinstance(header, EvaluationHeader) or header.time_budget or header.horizon != strategy.horizon:
            return [goal]  # the file is of another run, as opening it will tell
        goals = recorded_goals(record)
    return goals if goal == goals[-1] else [*goals, goal]


def record_goals(record: RunFile, goals: Sequence[Goal], strategy: Strategy) -> None:
    """Writes a new goal into a run file.

    Raises:
        RunFileError: The goal is less than the one before, or the run cannot be extended.
    """
    known = len(recorded_goals(record))
    if len(goals) == known:
        return
    last, goal = goals[known - 1 :]
    reason = None
    if goal.budget < last.budget:
        reason = f"budget must be at least its {last.budget:,} transitions, got {goal.budget:,}"
    elif (goal.until is None) != (last.until is None) or (goal.until or 0.0) > (last.until or 0.0):
        most = "None as before" if last.until is None else f"at most its {last.until:g}"
        reason = f"until must be {most}, got {goal.until}"
    elif getattr(record.header, "critic", "none") != "none":
        reason = f"its critic and the resets were planned for {last.budget:,} transitions"
    elif not strategy.extendable:
        reason = f"its strategy plans only once for {last.budget:,} transitions"
    if reason is not None:
        raise RunFileError(
            f"run file {record.path} cannot be extended: {reason}; give another file name to start a new run"
        )
    record.decide("goal", lambda: astuple(goal), known)
