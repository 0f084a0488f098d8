"""What a run file tells: the result so far, how it came about, and the weights that were found."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rido.core.estimate import Estimate
from rido.core.guarantee import guaranteed_interval
from rido.core.joint import JointEstimate
from rido.core.reward_moments import RewardMoments
from rido.core.schedule import Schedule
from rido.core.trajectories import concatenate
from rido.evaluation.components import Components, full_length_returns, leading_moments
from rido.evaluation.extension import recorded_goals
from rido.evaluation.replay import replay
from rido.evaluation.result import Evaluation, critic_gain, uniform_transitions
from rido.evaluation.time_budget import Costs, TimeSpent
from rido.predictors.selection import RESET_SHARE
from rido.record.database import RunFileError, recognise
from rido.record.records import (
    ADVANTAGES,
    AGENT_DISCOUNT,
    COMPARISON,
    FITTED_CRITIC,
    INDEPENDENT_STARTS,
    NORMALISATION,
    NOTES,
    REHEARSED,
    REMARKS,
    REWARD_RANGE,
    SOBOL_RESETS,
    SUITE_TASK,
    WORKERS,
)
from rido.record.runfile import RunFile
from rido.strategies.diagnostics import width_warnings


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


def time_spent(path: str | Path | None) -> TimeSpent:
    """Returns what the run in this file, if there is one, has spent of its time budget."""
    if path is None or recognise(Path(path)) is None:
        return TimeSpent()
    with RunFile.read(path) as file:
        seconds, costs = sum(piece.seconds for piece in file.pieces()), file.configuration.get("costs")
        return TimeSpent(seconds, Costs(*costs) if costs else None, file.configuration.get("first_budget"))


def read_run(path: str | Path) -> RecordedRun:
    """Reads a run file; one that is being written is fine too.

    All numbers are computed again from the recorded trajectories. Only where a strategy of the user's own planned the
    run, its estimates are those that were recorded.

    Args:
        path: the file that ``evaluate(run=...)`` wrote.

    Returns:
        What the file tells.
    """
    with RunFile.read(path) as file:
        if COMPARISON in file.configuration:
            raise RunFileError(f"run file {path} is of a comparison, not of an evaluation")
        if SUITE_TASK in file.configuration:
            raise RunFileError(f"run file {path} is of a suite: rido suite writes a report of each of its runs")
        milestones = list(file.progress())
        finished = {milestone.round for milestone in milestones}
        pieces = [piece for piece in file.pieces() if piece.round in finished]
        resets = list(file.resets())
        configuration = file.configuration
    if not milestones:
        raise RunFileError(f"run file {path} has no finished round yet")
    rounds = [[piece for piece in pieces if piece.round == milestone.round] for milestone in milestones]
    taken = accumulate(sum(piece.trajectories.transitions for piece in parts) for parts in rounds)
    if [milestone.transitions for milestone in milestones] != list(taken):
        raise RunFileError(f"run file {path} lacks trajectories of its finished rounds; resume the run first")
    components = Components.recorded(configuration)
    if components is not None:
        rounds = [
            [replace(piece, trajectories=components.columns(piece.trajectories)) for piece in parts] for parts in rounds
        ]
    replayed, complete, strategy = replay(configuration, milestones, rounds, [starts for starts, _ in resets])
    plain = RewardMoments(configuration["horizon"], gamma=configuration["gamma"])
    for name in (FITTED_CRITIC, AGENT_DISCOUNT, ADVANTAGES, INDEPENDENT_STARTS, SOBOL_RESETS, WORKERS):
        configuration.pop(name, None)
    notes, remarks = configuration.pop(NOTES, []), configuration.pop(REMARKS, [])
    normalisation, rehearsed = configuration.pop(NORMALISATION, ""), configuration.pop(REHEARSED, 0)
    edges = configuration.pop(REWARD_RANGE, None)
    reward_range = None if edges is None else (edges[0], edges[1])
    before = rehearsed + (configuration["costs"][2] if configuration["costs"] else 0)
    estimates: dict[int, Estimate] = {}  # by transitions: the last round may only have taken resets
    for milestone, estimate, parts in zip(milestones, replayed, rounds, strict=True):
        for piece in parts:
            plain.update(piece.trajectories)
        estimates[before + plain.transitions] = estimate or Estimate(
            value=milestone.value,
            standard_error=milestone.standard_error,
            degrees_of_freedom=milestone.degrees_of_freedom,
            schedule=Schedule(plain.counts),
            gamma=plain.gamma,
            early_ends=plain.transitions < plain.counts.sum(),
            skewness=milestone.skewness,
            effective_trajectories=milestone.effective_trajectories,
            largest_contribution=milestone.largest_contribution,
        )
    last = estimates[before + plain.transitions]
    guaranteed = None
    if reward_range is not None:
        guaranteed = guaranteed_interval(
            [concatenate([piece.trajectories for piece in parts]) for parts in rounds if parts],
            horizon=plain.horizon,
            gamma=plain.gamma,
            reward_range=reward_range,
            budget=configuration["first_budget"] or configuration["budget"],
        )
    learned, leading = plain if strategy is None else strategy.moments, leading_moments(plain, components)
    joint, returns = None, None
    if components is not None and (strategy is not None or configuration["starts"] == "random"):
        known = JointEstimate.from_teams([[plain]]) if strategy is None else strategy.joint()
        joint = components.joint(known, last)
        last = joint.estimates[components.leading]
    reset_count = sum(starts.size for starts, _ in resets)
    reset_cost = configuration["resets"][1] if reset_count else 0
    critic = milestone.critic
    if critic == "none" and configuration["starts"] == "random":
        batches = [piece.trajectories for parts in rounds for piece in parts]
        returns = full_length_returns(batches, plain.horizon, plain.gamma, components)
    warnings = milestone.warnings
    if complete and critic == "none":  # with a critic, the last milestone has this warning
        until = recorded_goals(configuration)[-1].until
        if until is not None and configuration["critic"] != "none":  # kept narrower for resets that were not taken
            until /= math.sqrt(1 - RESET_SHARE)
        warnings += width_warnings(until, last)
    evaluation = Evaluation(
        estimate=last,
        transitions=before + plain.transitions + math.ceil(reset_count * reset_cost),
        trajectories=sum(len(piece.trajectories) for piece in pieces),
        **uniform_transitions(leading, last),
        strategy=configuration["strategy"],
        starts=configuration["starts"],
        environment=configuration["environment"],
        policy=configuration["policy"],
        normalisation=normalisation,
        seed=configuration["seed"],
        reproducible=not notes,
        seconds=sum(piece.seconds for piece in pieces),
        planning_seconds=math.nan,
        warnings=warnings,
        remarks=tuple(remarks),
        critic=critic,
        critic_gain=math.nan if critic == "none" else critic_gain(plain, last.standard_error),
        resets=reset_count,
        reset_seconds=sum(seconds for _, seconds in resets),
        reward_range=reward_range,
        guaranteed_interval=guaranteed,
        joint=joint,
        full_length=returns,
        **(components.fields() if components is not None and joint is not None else {}),
    )
    return RecordedRun(
        evaluation=evaluation,
        transitions=tuple(estimates),
        estimates=tuple(estimates.values()),
        weights=learned.weights() if learned.counts[-1] > 1 else np.zeros(0),
        configuration=configuration,
    )
