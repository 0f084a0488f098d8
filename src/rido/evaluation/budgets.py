"""What a run may spend: budgets of transitions or an interval to reach, and seconds.

A finished run goes on with a larger budget, or until its interval is narrower. Its file keeps these goals in the order
in which they were given. Each is reached before the next one is set, whenever that was given. So the numbers depend on
the sequence of goals alone, not on where a run was stopped.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, astuple, dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from rido.core import checks
from rido.evaluation.collector import Collector
from rido.record.database import RunFileError, recognise
from rido.record.header import EvaluationHeader
from rido.record.runfile import RunFile
from rido.simulators.base import Simulator, trajectory_seeds
from rido.strategies import Strategy

_MEASURING = 0.02  # share of a time budget for measuring what steps and resets cost
_MEASURED = 0.05  # largest share of a budget of transitions for measuring
_LEAST_LENGTHS = 4  # steps of a measured trajectory over all lengths, if the transitions pay for them
_RESET_TIME = 0.1  # share of a time budget kept for the resets of a critic
_MOST_TRAJECTORIES = 256  # trajectories of one measurement at most
_GROWTH = 16  # length of the measured trajectories, as a multiple of the length before
_STREAM = 7  # stream of seeds for measuring: these trajectories are thrown away and must not come again


@dataclass(frozen=True)
class Costs:
    """What trajectories cost when many are collected at once."""

    per_step: float  # seconds of a step
    per_reset: float  # seconds of beginning a trajectory
    transitions: int = 0  # what measuring took
    starting: float = 0.0  # seconds of rollouts that were not timed: environments were made, or programs compiled

    @property
    def reset_price(self) -> float:
        """What beginning a trajectory costs, in steps."""
        return self.per_reset / self.per_step

    def rate(self, length: float) -> float:
        """Returns transitions per second of trajectories of this length."""
        return length / (self.per_reset + self.per_step * length)


def measure_costs(simulator: Simulator, horizon: int, seconds: float, entropy: int, most: int | None = None) -> Costs:
    """Measures what steps and resets cost, with trajectories that are thrown away.

    They are of one step first and then ever longer, and their times are split as ``resets * per_reset + steps *
    per_step`` with the least relative error. Because none of them is used for the estimate, plans that rest on these
    costs select nothing. A simulator in lockstep runs as many at once as take about the time of one, and each length
    twice, because the first time it may compile programs.

    Args:
        simulator: what is measured.
        horizon: the longest trajectory.
        seconds: measuring ends when it has taken so long, but not before two lengths were tried.
        entropy: what the seeds come from.
        most: transitions to take at most, at least 2; as many as it takes if not given.
    """
    able = simulator.capabilities
    count = min(simulator.num_envs, max(_MOST_TRAJECTORIES, able.in_time_of_one))
    if most is not None:
        count = max(1, min(count, most // _LEAST_LENGTHS))
    seeds = trajectory_seeds(entropy, 0, count, stream=_STREAM)
    times = 2 if able.lockstep else 1

    def roll_out(length: int) -> tuple[int, float]:
        started = time.perf_counter()
        batch = simulator.rollout(np.full(count, length), seeds)
        return batch.transitions, max(time.perf_counter() - started, 1e-9)

    # The first rollout makes environments, which is no reset.
    transitions, starting = roll_out(1)
    rows, length, spent = [], 1, 0.0
    while True:
        if able.lockstep and length > 1:
            taken, seconds_taken = roll_out(length)
            transitions, starting = transitions + taken, starting + seconds_taken
        taken, seconds_taken = roll_out(length)
        rows.append([count / seconds_taken, taken / seconds_taken])
        spent += seconds_taken
        transitions += taken
        affordable = horizon if most is None else (most - transitions) // (times * count)
        longer = min(_GROWTH * length, horizon, affordable)
        if longer <= length or (length > 1 and spent >= seconds):
            break
        length = longer
    from scipy.optimize import nnls  # not by `import rido`

    (per_reset, per_step), _ = nnls(np.array(rows), np.ones(len(rows)))
    if per_step == 0:  # only a single length was measured, or steps cost nothing beside resets
        per_reset, per_step = 0.0, float(np.mean([1 / transitions for _, transitions in rows]))
    return Costs(float(per_step), float(per_reset), transitions, starting)


@dataclass
class Clock:
    """Turns seconds into budgets of transitions, a half of what is left at a time.

    The rate at which transitions come depends on the planned lengths, on early ends and on what else the machine
    does. So each plan may spend what half of the seconds left will pay for at the latest rate, and the last one
    all. A started trajectory always finishes: dropping slow ones would bias the estimate. The time may therefore be
    exceeded a little, as far as the rate is wrong for the last plan.
    """

    seconds: float  # to spend in all
    horizon: int  # of a full trajectory; what is left when it does not pay for one stays unspent
    _: KW_ONLY
    elapsed: float = 0.0  # by the part of the run that was recorded
    now: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._end = self.now() + self.seconds - self.elapsed

    @property
    def left(self) -> float:
        """Seconds left, at least 0."""
        return max(0.0, self._end - self.now())

    def budget(self, spent: int, rate: float) -> int:
        """Returns the transitions that may have been spent after the next plan.

        Args:
            spent: transitions so far.
            rate: latest transitions per second.
        """
        affordable = min(self.left * rate, float(checks.MOST_TRANSITIONS))
        if affordable < self.horizon:
            return spent
        half = affordable / 2
        return spent + int(half if half >= 2 * self.horizon else affordable)


@dataclass(frozen=True)
class TimeBudget:
    """How much time there is, and what it pays for."""

    seconds: float  # to spend in all
    costs: Costs  # of steps and resets
    clock: Clock  # what is left for trajectories
    ends: float  # when everything is to be over, by ``time.monotonic()``
    most: int | None  # transitions at most, if they are limited too, without those that measuring took
    first: int | None  # the budget that the first plan was for, where a run resumes

    @classmethod
    def measure(cls, simulator: Simulator, horizon: int, options: Mapping[str, Any]) -> "TimeBudget":
        """Measures costs, unless the run in a file resumes: then they are those that were measured before."""
        import scipy.optimize
        import scipy.special  # noqa: F401 - what planning imports is no part of the time

        seconds, run, budget = options["time_budget"], options["run"], options["budget"]
        first, spent, costs = None, 0.0, None
        if run is not None and recognise(Path(run)) is not None:
            with RunFile.read(run) as file:
                spent = sum(piece.seconds for piece in file.pieces())
                if isinstance(file.header, EvaluationHeader) and file.header.costs:
                    first, costs = file.header.first_budget, Costs(**file.header.costs)
        started = time.monotonic()
        if costs is None:
            measured = None if budget is None else max(2, int(_MEASURED * budget))
            costs = measure_costs(simulator, horizon, _MEASURING * seconds, options["seed"] or 0, measured)
            started += costs.starting
        elapsed = spent + time.monotonic() - started
        share = 1.0 if options["critic"] is None else 1 - _RESET_TIME
        clock = Clock(share * seconds, horizon, elapsed=elapsed)
        left = None if budget is None else budget - costs.transitions
        return cls(seconds, costs, clock, time.monotonic() + seconds - elapsed, left, first)

    @property
    def budget(self) -> int | None:
        """Transitions at most, with those that measuring took."""
        return None if self.most is None else self.most + self.costs.transitions

    def first_budget(self, horizon: int) -> int:
        """Returns what the time would pay for if all trajectories had full length, the budget at most."""
        if self.first is not None:
            return self.first
        if self.most is not None and self.most < 2 * horizon:
            raise ValueError(
                f"budget must pay for two full trajectories, {2 * horizon} steps, and {self.costs.transitions} to "
                f"measure what a step costs, got {self.budget}"
            )
        affordable = int(min(self.clock.left * self.costs.rate(horizon), checks.MOST_TRANSITIONS))
        if affordable < 2 * horizon:
            least = self.seconds - self.clock.left + 2 * horizon / self.costs.rate(horizon)
            raise ValueError(
                f"time_budget must pay for two full trajectories, here about {least:.3g} seconds with what comes "
                f"before them, got {self.seconds:g}"
            )
        return affordable if self.most is None else min(affordable, self.most)

    def next_budget(self, strategy: Strategy, collector: Collector, reserve: int) -> int:
        """Returns the transitions that the strategy may have spent after its next plan, with a reserve for resets."""
        taken, seconds = collector.latest
        rate = taken / seconds if seconds > 0 else self.costs.rate(strategy.horizon)
        if collector.round == 1:  # what follows the pilot may be much shorter trajectories, at a rate not seen yet
            rate = min(rate, self.costs.rate(1))
        budget = self.clock.budget(strategy.spent, rate)
        if strategy.spent == 0:  # without two full trajectories there is no estimate, even if fitting took the time
            budget = max(budget, 2 * strategy.horizon)
        if self.most is not None:
            budget = min(budget, self.most - reserve - collector.transitions + strategy.spent)
        return budget

    def affordable_resets(self) -> float:
        """Returns the resets that the rest of the time pays for."""
        left = max(0.0, self.ends - time.monotonic())
        return left / self.costs.per_reset if self.costs.per_reset > 0 else math.inf


@dataclass(frozen=True)
class Goal:
    """What a run is to spend or to reach."""

    budget: int  # transitions in all
    until: float | None = None  # half-width of the 95% interval at which to stop; None to spend the budget

    @classmethod
    def of(cls, strategy: Strategy) -> "Goal":
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
