"""What a run file tells: the result so far, how it came about, and the weights that were found."""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rido.core import checks
from rido.core.estimate import Estimate
from rido.core.schedule import Schedule
from rido.core.trajectories import count_reached
from rido.evaluation.budgets import Clock, Costs, TimeBudget, recorded_goals
from rido.evaluation.components import Components
from rido.evaluation.loop import EvaluationTask, begin, run_from
from rido.evaluation.result import Evaluation
from rido.evaluation.source import EndedError, OtherPlanError, Recorded
from rido.policies.base import ValueFunction
from rido.predictors.base import AgentCritic
from rido.predictors.features import FeatureExtractor
from rido.predictors.selection import RESET_SHARE, CriticChoice
from rido.record.database import RunFileError
from rido.record.header import EvaluationHeader, Piece
from rido.record.runfile import RunFile
from rido.strategies import Oracle, Strategy
from rido.strategies.base import Order
from rido.strategies.division import Division
from rido.strategies.names import STRATEGIES


@dataclass(frozen=True)
class RecordedRun:
    """A run up to the last round that was finished.

    Attributes:
        evaluation: the result.
        transitions: transitions taken up to the end of each round.
        estimates: the estimate at the end of each round.
        weights: the estimated weights f_t, with a critic those of its signal; empty where fewer than two
            full-length trajectories tell of them.
        configuration: what the run is of.
    """

    evaluation: Evaluation
    transitions: tuple[int, ...]
    estimates: tuple[Estimate, ...]
    weights: NDArray[np.float64]
    configuration: dict[str, Any]


class _Followed(Strategy):
    """Asks for the trajectories of a file, whoever planned them, and estimates from all of them together."""

    def __init__(self, *, batches: Sequence[NDArray[np.int64]], **settings: Any) -> None:
        self._batches = deque(batches)
        self._cut = any(lengths.min() < settings["horizon"] for lengths in batches)
        super().__init__(**settings)
        self.change_budget(checks.MOST_TRANSITIONS)  # to the end of the file

    def _division(self, *, replicated: bool, cross_fitted: bool) -> Division:
        self._told_apart = replicated or cross_fitted  # starts as good as independent ones: the error is no smaller
        return super()._division(replicated=False, cross_fitted=cross_fitted)

    def _plan(self, left: int) -> Schedule | None:
        if not self._batches:
            return None
        self._lengths = self._batches.popleft()
        return Schedule(count_reached(self._lengths, self.horizon))

    @property
    def planned(self) -> Order:
        return self._lengths, self._groups_of(self._lengths, self._parts)

    def warnings(self) -> tuple[str, ...]:
        if not (self._cut or self._told_apart):
            return super().warnings()
        warning = (
            "another version of rido or a strategy of your own planned this run: the value is the mean of all its "
            "trajectories, which may differ from the value that the run returned"
        )
        return (warning, *super().warnings())


def read_run(path: str | Path) -> RecordedRun:
    """Reads a run file; one that is being written is fine too.

    All numbers are computed again from the recorded trajectories, by the loop that made them. Where a strategy of the
    user's own or another version of rido planned the run, they are those of all trajectories together, with a warning.

    Args:
        path: the file that ``evaluate(run=...)`` wrote.
    """
    with RunFile.read(path) as file:
        header, pieces = file.header, list(file.pieces())
        if not isinstance(header, EvaluationHeader):
            what = "a comparison, not of an evaluation"
            if header.kind == "suite":
                what = "a suite: rido suite writes a report of each of its runs"
            raise RunFileError(f"run file {path} is of {what}")
        if not pieces:
            raise EndedError(file.path)
        known: dict[str, type[Strategy]] = {**STRATEGIES, "oracle": Oracle}
        kind = known.get(header.strategy)
        try:
            if kind is not None:
                return _read(file, header, pieces, partial(kind, **header.options))
        except (TypeError, ValueError) as error:  # settings, or a plan, of another version
            if isinstance(error, RunFileError) and not isinstance(error, OtherPlanError):
                raise
        batches = [
            np.concatenate([piece.trajectories.lengths for piece in parts])
            for _, parts in groupby(pieces, key=lambda piece: piece.round)
        ]
        return _read(file, header, pieces, partial(_Followed, batches=batches))


def _read(
    file: RunFile, header: EvaluationHeader, pieces: Sequence[Piece], make: Callable[..., Strategy]
) -> RecordedRun:
    """Runs the loop on the pieces of a file, with the strategy that ``make`` makes."""
    goals, edges = recorded_goals(file), file.state("reward_range", None)
    critic, choice = None, CriticChoice(header.critic)
    if pieces[0].features is not None:
        discount, critic = file.decided("agent discount"), header.critic
        agent = None if discount is None else AgentCritic(ValueFunction(np.asarray, discount))
        choice = replace(choice, extractor=FeatureExtractor(None, agent))
    elif pieces[0].signal is not None:
        critic, given = header.critic, AgentCritic(ValueFunction(np.asarray, 1.0))  # its values are recorded
        given.name = header.critic
        choice = replace(choice, critic=given)
    until = goals[-1].until
    if until is not None and header.critic != "none":  # kept narrower for resets
        until /= math.sqrt(1 - RESET_SHARE)
    timing = None
    if header.costs:
        clock = Clock(0.0, header.horizon)
        timing = TimeBudget(header.time_budget or 0.0, Costs(**header.costs), clock, 0.0, None, header.first_budget)
    strategy = make(horizon=header.horizon, budget=goals[0].budget, gamma=header.gamma)
    options: dict[str, Any] = dict(starts=header.starts, max_resets=header.max_resets or 0, progress=False)
    options |= dict(reset_cost=header.reset_cost, reward_range=None if edges is None else (edges[0], edges[1]))
    columns = Components.recorded(header)
    task = EvaluationTask(options, make, strategy, tuple(goals), critic, until, timing=timing, components=columns)
    begin(task, choice)
    names: dict[str, Any] = dict(environment=header.environment, policy=header.policy, seed=header.seed)
    found, strategy, history = run_from(Recorded(file, deque(pieces)), task, choice, **names, wants_history=True)
    moments = strategy.moments
    return RecordedRun(
        evaluation=replace(found, strategy=header.strategy, planning_seconds=math.nan),
        transitions=tuple(transitions for transitions, _ in history),
        estimates=tuple(estimate for _, estimate in history),
        weights=moments.weights() if moments.counts[-1] > 1 else np.zeros(0),
        configuration=header.settings(),
    )
