"""Replay: the estimates of a recorded run, computed again from its trajectories as the run itself computed them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rido.core.estimate import Estimate
from rido.core.trajectories import concatenate
from rido.evaluation.collector import sample_of
from rido.evaluation.components import Components
from rido.evaluation.extension import ask_for_goals, recorded_goals
from rido.evaluation.loop import make_learner, reset_reserve
from rido.policies.base import ValueFunction
from rido.predictors.base import AgentCritic
from rido.predictors.features import FeatureExtractor
from rido.predictors.selection import CriticChoice
from rido.record.records import ADVANTAGES, AGENT_DISCOUNT, INDEPENDENT_STARTS, SOBOL_RESETS, Milestone, Piece
from rido.simulators.sobol import means_of_replicates
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
) -> tuple[Sequence[Estimate | None], bool, Strategy | None]:
    """Computes the estimate after each finished round again.

    Args:
        configuration: what the run is of.
        milestones: the finished rounds.
        rounds: the pieces of each of them, with all columns where there are components; none of the round that took
            the critic's resets.
        resets: the critic's values of the resets.

    Returns:
        The estimates, whether the budget is spent, and the strategy. Where the strategy is a
        user's own, or plans otherwise than the version that recorded the run, there is None for each round.
    """
    unknown = [None] * len(milestones), False, None
    known: dict[str, Callable[..., Strategy]] = {**STRATEGIES, "oracle": Oracle}
    kind = known.get(configuration["strategy"])
    if kind is None:
        return unknown
    settings = {"horizon": configuration["horizon"], "gamma": configuration["gamma"], **configuration["options"]}
    try:
        estimates, spent, strategy = _ask_and_tell(partial(kind, **settings), configuration, milestones, rounds, resets)
    except (_PlannedOtherwiseError, TypeError, ValueError):  # settings or trajectories that the strategy does not take
        return unknown
    for estimate, milestone in zip(estimates, milestones, strict=True):
        found, recorded = ((one.value, one.standard_error) for one in (estimate, milestone))
        if not np.allclose(found, recorded, rtol=_ROUNDING, atol=0, equal_nan=True):  # another strategy of this name
            return unknown
    return estimates, spent, strategy


def _ask_and_tell(
    make: Callable[..., Strategy],
    configuration: Mapping[str, Any],
    milestones: Sequence[Milestone],
    rounds: Sequence[Sequence[Piece]],
    resets: Sequence[NDArray[np.float64]],
) -> tuple[list[Estimate], bool, Strategy]:
    budget = configuration["first_budget"] or configuration["budget"]
    reserve, first = 0, rounds[0][0]
    learns = first.features is not None
    if configuration["resets"] and (first.signal is not None or learns):
        max_resets, reset_cost = configuration["resets"]
        reserve = reset_reserve(max_resets, reset_cost, budget)
    strategy, goals = make(budget=budget - reserve), deque(recorded_goals(configuration)[1:])
    if (components := Components.recorded(configuration)) is not None:
        components.serve(strategy)
    strategy.divide(replicated=configuration["starts"] == "sobol", cross_fitted=learns)
    learner, with_advantages = None, False
    if learns:
        discount = configuration.get(AGENT_DISCOUNT)
        agent = None if discount is None else AgentCritic(ValueFunction(np.asarray, discount))
        choice = CriticChoice(configuration["critic"], extractor=FeatureExtractor(None, agent))
        with_advantages = bool(configuration.get(ADVANTAGES, False))
        learner = make_learner(choice, strategy, configuration[INDEPENDENT_STARTS])
    estimates: list[Estimate] = []
    starts = np.zeros(0)
    for milestone, pieces in zip(milestones, rounds, strict=True):
        if not pieces:
            means = means_of_replicates(np.concatenate(resets), configuration[SOBOL_RESETS])
            estimates.append(strategy.estimate().plus(means))
            continue
        if configuration["time_budget"]:
            strategy.change_budget(configuration[f"budget of round {milestone.round}"])
        schedule = ask_for_goals(strategy, goals)
        batch = concatenate([piece.trajectories for piece in pieces])
        if schedule is None:
            raise _PlannedOtherwiseError
        lengths, groups = strategy.planned
        if not np.array_equal(batch.lengths, lengths[: len(batch)]):
            raise _PlannedOtherwiseError
        if learner is not None:
            learner.add(sample_of(pieces, with_advantages=with_advantages), groups[: len(batch)])
            strategy.tell(batch, signal=learner.learn(), same_means=learner.same_critics)
            starts = learner.starts if learner.critic() is not None else np.zeros(0)
        else:
            signals = [piece.signal for piece in pieces if piece.signal is not None]
            strategy.tell(batch, signal=concatenate(signals) if signals else None)
            starts = np.concatenate([starts, *(piece.starts for piece in pieces if piece.starts is not None)])
        estimates.append(strategy.estimate().plus(starts) if starts.size > 1 else strategy.estimate())
    if configuration["time_budget"]:
        strategy.change_budget(configuration.get(f"budget of round {len(milestones)}", strategy.budget))
    return estimates, ask_for_goals(strategy, goals) is None, strategy
