"""Replay: the estimates of a recorded run, computed again from its trajectories as the run itself computed them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rido.core.estimate import Estimate
from rido.core.moments import RewardMoments
from rido.core.trajectories import concatenate
from rido.critics.base import AgentCritic, Signal
from rido.critics.fitted import agent_value
from rido.evaluation.collector import pilot_of
from rido.evaluation.extension import ask_for_goals, recorded_goals
from rido.evaluation.loop import reset_reserve
from rido.policies.base import ValueFunction
from rido.storage.runfile import AGENT_DISCOUNT, FITTED_CRITIC, Milestone, Piece
from rido.strategies import Oracle, Strategy
from rido.strategies.names import STRATEGIES

_ROUNDING = 1e-6  # largest relative difference to what was recorded; other machines round otherwise


class _PlannedOtherwiseError(Exception):
    """The trajectories of a run are not those that this strategy asks for."""


def replay(
    configuration: Mapping[str, Any],
    milestones: Sequence[Milestone],
    rounds: Sequence[Sequence[Piece]],
    resets: Sequence[NDArray[np.float64]],
) -> tuple[Sequence[Estimate | None], bool]:
    """Computes the estimate after each finished round again.

    Args:
        configuration: what the run is of.
        milestones: the finished rounds.
        rounds: the pieces of each of them; none of the round that took the critic's resets.
        resets: the critic's values of the resets.

    Returns:
        The estimates, and whether the budget is spent. Where the strategy is a user's own, or plans otherwise than the
        version that recorded the run, there is None for each round.
    """
    unknown = [None] * len(milestones), False
    known: dict[str, Callable[..., Strategy]] = {**STRATEGIES, "oracle": Oracle}
    kind = known.get(configuration["strategy"])
    if kind is None:
        return unknown
    settings = {"horizon": configuration["horizon"], "gamma": configuration["gamma"], **configuration["options"]}
    try:
        estimates, spent = _ask_and_tell(partial(kind, **settings), configuration, milestones, rounds, resets)
    except (_PlannedOtherwiseError, TypeError, ValueError):  # settings or trajectories that the strategy does not take
        return unknown
    for estimate, milestone in zip(estimates, milestones, strict=True):
        found, recorded = ((one.value, one.standard_error) for one in (estimate, milestone))
        if not np.allclose(found, recorded, rtol=_ROUNDING, atol=0, equal_nan=True):  # another strategy of this name
            return unknown
    return estimates, spent


def _ask_and_tell(
    make: Callable[..., Strategy],
    configuration: Mapping[str, Any],
    milestones: Sequence[Milestone],
    rounds: Sequence[Sequence[Piece]],
    resets: Sequence[NDArray[np.float64]],
) -> tuple[list[Estimate], bool]:
    budget = configuration["first_budget"] or configuration["budget"]
    reserve, first = 0, rounds[0][0]
    if configuration["resets"] and (first.signal is not None or first.features is not None):
        max_resets, reset_cost = configuration["resets"]
        reserve = reset_reserve(max_resets, reset_cost, budget)
    strategy, goals = make(budget=budget - reserve), deque(recorded_goals(configuration)[1:])
    estimates: list[Estimate] = []
    starts: list[NDArray[np.float64]] = []
    for milestone, pieces in zip(milestones, rounds, strict=True):
        if not pieces:
            estimates.append(strategy.estimate().plus(np.concatenate(resets)))
            continue
        if configuration["time_budget"]:
            strategy.change_budget(configuration[f"budget of round {milestone.round}"])
        schedule = ask_for_goals(strategy, goals)
        told = [piece.trajectories if piece.signal is None else piece.signal for piece in pieces]
        starts += [piece.starts for piece in pieces if piece.starts is not None]
        if pieces[0].features is not None:  # the pilot, by which a critic was chosen
            if FITTED_CRITIC in configuration:  # what it was fitted on serves for nothing else
                pilot = RewardMoments(strategy.horizon, gamma=strategy.gamma)
                for part in told:
                    pilot.update(part)
                estimates.append(Estimate.from_moments(pilot))
                strategy = make(budget=strategy.budget - pilot.transitions)
                continue
            if AGENT_DISCOUNT in configuration:
                signal = _agent_signal(configuration, [piece for piece in pieces if piece.features is not None])
                told = [signal.trajectories, *(piece.signal for piece in pieces if piece.signal is not None)]
                starts = [signal.starts, *starts]
            else:
                strategy.change_budget(strategy.budget + reserve)
        batch = concatenate(told)
        if schedule is None or not np.array_equal(batch.lengths, schedule.lengths):
            raise _PlannedOtherwiseError
        strategy.tell(batch)
        values = np.concatenate([np.zeros(0), *starts])
        estimates.append(strategy.estimate().plus(values) if values.size > 1 else strategy.estimate())
    if configuration["time_budget"]:
        strategy.change_budget(configuration.get(f"budget of round {len(milestones)}", strategy.budget))
    return estimates, ask_for_goals(strategy, goals) is None


def _agent_signal(configuration: Mapping[str, Any], pieces: Sequence[Piece]) -> Signal:
    """Returns the residuals of a pilot under the agent's value function, whose values are among its features."""
    pilot = pilot_of(pieces, True, horizon=configuration["horizon"], gamma=configuration["gamma"])
    return pilot.signal(agent_value(AgentCritic(ValueFunction(np.asarray, configuration[AGENT_DISCOUNT]))))
