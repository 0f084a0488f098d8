"""The loop: ask the strategy, collect, tell it, until the budget is spent; then the result."""

from __future__ import annotations

import math
import os
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rido.core.estimate import Estimate
from rido.core.schedule import Schedule
from rido.core.trajectories import concatenate
from rido.critics.fitted import FittedCritic
from rido.critics.selection import RESET_SHARE, CriticChoice
from rido.evaluation.collector import Collector
from rido.evaluation.progress import Progress
from rido.evaluation.result import Evaluation, critic_gain, uniform_transitions
from rido.evaluation.time_budget import Pace, TimeBudget
from rido.simulators.base import Simulator, describe, trajectory_seeds
from rido.storage.runfile import NORMALISATION, REWARD_RANGE, RunFile
from rido.strategies import Strategy
from rido.strategies.diagnostics import interval_warnings, width_warnings

_LEAST_PILOT = 5  # trajectories by which a critic is chosen, where the strategy plans everything at once
_LEAST_RESETS = 2  # resets at least: their standard error needs two
_RESET_BUDGET = 0.1  # share of the budget kept for resets where these cost transitions
_BYTES_PER_TRANSITION = 16  # rewards are kept once while they are collected, and once more joined


@dataclass(frozen=True)
class Task:
    """What :func:`rido.evaluate` was asked to do, checked.

    Attributes:
        make: makes a strategy for a horizon, a budget and a discount factor.
        strategy: the strategy to begin with.
        critic: the control variate that was asked for.
        summing: whether rewards stay on the simulator's device, and only sums over them are known.
        max_resets: resets at most.
        reset_cost: transitions that a reset costs.
        first_budget: transitions that the first plan is for.
        until: half-width of the 95% interval at which to stop.
        reward_range: lowest and highest possible reward.
        seed: source of all randomness.
        run: path of the run file.
        progress: whether to show a progress bar.
        timing: the time budget.
    """

    make: Callable[..., Strategy]
    strategy: Strategy
    critic: str | Callable[..., Any] | None
    summing: bool
    max_resets: int
    reset_cost: float
    first_budget: int
    until: float | None
    reward_range: tuple[float, float] | None
    seed: int | None
    run: str | Path | None
    progress: bool | None
    timing: TimeBudget | None

    @property
    def reserve(self) -> int:
        """Transitions that are kept for resets."""
        return 0 if self.critic is None else reset_reserve(self.max_resets, self.reset_cost, self.first_budget)

    @property
    def affordable_resets(self) -> int:
        """Resets that the reserve pays for, at most ``max_resets``."""
        if self.reset_cost == 0:
            return self.max_resets
        most = max(_LEAST_RESETS, int(min(self.max_resets, self.reserve / self.reset_cost)))
        return most - (math.ceil(most * self.reset_cost) > self.reserve)  # by a rounding error

    @property
    def measured(self) -> int:
        """Transitions that went into measuring what steps and resets cost."""
        return 0 if self.timing is None else self.timing.costs.transitions


def reset_reserve(max_resets: int, reset_cost: float, budget: int) -> int:
    """Returns the transitions of a budget that are kept for the resets of a critic."""
    return math.ceil(max(min(max_resets * reset_cost, _RESET_BUDGET * budget), _LEAST_RESETS * reset_cost))


def run_task(task: Task, simulator: Simulator, environment: str, configuration: Mapping[str, Any]) -> Evaluation:
    """Runs the loop of asking, collecting and telling, and puts the result together."""
    strategy, seed = task.strategy, task.seed
    able = describe(simulator)
    acting = able.policy
    policy = "its own policy" if acting is None else acting.name
    normalisation = "" if acting is None else acting.normalisation
    notes = (
        []
        if acting is None or acting.reproducible
        else [f"{policy} draws random numbers that the seed does not control"]
    )
    notes += able.notes
    if task.timing is not None:
        notes.append("how much was collected depended on the speed of the machine, not on the seed")
    choice = CriticChoice.resolve(task.critic, simulator)
    least = strategy.least_budget
    if (choice.critic or choice.extractor) and task.reserve and task.first_budget - task.reserve < least:
        raise ValueError(
            f"budget must pay for {_LEAST_RESETS} resets at reset_cost={task.reset_cost:g} and {least} transitions of "
            f"full-length trajectories, {task.reserve + least} in all, got {task.first_budget}"
        )
    record = None
    if task.run is not None:
        record = RunFile(
            task.run,
            {
                "environment": environment,
                "policy": policy,
                "strategy": type(strategy).__name__.lower(),
                "horizon": strategy.horizon,
                "budget": strategy.budget if task.timing is None else task.timing.budget,
                "first_budget": task.first_budget if task.timing is not None else None,
                "time_budget": [task.timing.seconds] if task.timing is not None else [],
                "costs": list(astuple(task.timing.costs)) if task.timing is not None else [],
                "gamma": strategy.gamma,
                "options": strategy.options,
                "critic": choice.name,
                "critic_fingerprint": choice.fingerprint,
                "resets": [task.max_resets, task.reset_cost] if choice.name != "none" else [],
                **configuration,
                "seed": seed,
            },
            defaults={"seed": secrets.randbits(64)},
        )
        seed = record.configuration["seed"]
        record.set(NORMALISATION, normalisation)
    entropy = secrets.randbits(64) if seed is None else seed
    if record is None or not any(True for _ in record.pieces()):  # a run that resumes has noted it
        notes += able.check_seeds(trajectory_seeds(entropy, 0, 2))
    if record is not None:
        notes = record.add_notes(notes)
    reproducible = not notes
    notes += choice.notes
    collector = Collector(
        simulator,
        horizon=strategy.horizon,
        gamma=strategy.gamma,
        entropy=entropy,
        record=record,
        summing=task.summing,
        notes=notes,
        reward_range=task.reward_range,
    )
    planning = -time.perf_counter()
    try:
        with Progress(strategy.budget, shown=task.progress) as bar:
            strategy = _spend(task, choice, collector, bar)
        if late := [note for note in collector.notes if note not in notes]:
            reproducible = False
            notes += late if record is None else [note for note in record.add_notes(late) if note not in notes]
        estimate, guaranteed = strategy.estimate(), None
        if task.reward_range is not None:
            guaranteed = strategy.guaranteed_interval(task.reward_range)
            if record is not None:
                record.set(REWARD_RANGE, task.reward_range)
        if collector.critic is not None:
            most = task.affordable_resets
            if task.timing is not None and task.timing.costs.per_reset > 0:
                left = max(0.0, task.timing.ends - time.monotonic())
                most = max(_LEAST_RESETS, min(most, int(left / task.timing.costs.per_reset)))
                most = collector.get_or_set("resets", most)
            collector.reset(estimate.standard_error, share=RESET_SHARE, most=most)
            estimate = estimate.plus(collector.starts)
            collector.finish_round(estimate, (*strategy.warnings(), *width_warnings(task.until, estimate)))
    finally:
        if record is not None:
            record.close()
    planning += time.perf_counter()
    return Evaluation(
        estimate=estimate,
        transitions=task.measured + collector.plain.transitions + math.ceil(collector.resets * task.reset_cost),
        trajectories=collector.trajectories,
        **uniform_transitions(collector.plain, estimate),
        strategy=type(strategy).__name__.lower(),
        environment=environment,
        policy=policy,
        normalisation=normalisation,
        seed=entropy,
        reproducible=reproducible,
        seconds=collector.seconds,
        planning_seconds=max(0.0, planning - collector.busy_seconds),
        warnings=(*notes, *strategy.warnings(), *width_warnings(task.until, estimate)),
        critic="none" if collector.critic is None else collector.critic.name,
        critic_gain=math.nan if collector.critic is None else critic_gain(collector.plain, estimate.standard_error),
        resets=collector.resets,
        reset_seconds=collector.reset_seconds,
        reward_range=task.reward_range,
        guaranteed_interval=guaranteed,
    )


def _spend(task: Task, choice: CriticChoice, collector: Collector, bar: Progress) -> Strategy:
    """Spends the budget; returns the strategy that knows what the estimate rests on."""
    strategy, spent = task.strategy, 0
    if task.reserve and (choice.critic is not None or choice.extractor is not None):
        strategy = task.make(horizon=strategy.horizon, budget=strategy.budget - task.reserve, gamma=strategy.gamma)
    collector.critic = choice.critic
    pace = Pace(task.timing, strategy.horizon, collector, task.reserve)
    while (schedule := pace.ask(strategy)) is not None:
        if not collector.summing:
            _check_memory(schedule)
        if choice.extractor is not None and collector.trajectories == 0:
            strategy = _pilot(task, strategy, schedule, choice, collector, bar)
        elif collector.summing:
            strategy.tell([collector.summarise(part, bar) for part in strategy.parts])
        else:
            strategy.tell(collector.collect(schedule.lengths, bar))
        if strategy.spent > spent:
            spent = strategy.spent
            estimate = strategy.estimate()
            if collector.starts.size > 1:
                estimate = estimate.plus(collector.starts)
            bar.show(estimate)
            collector.finish_round(estimate, strategy.warnings())
    return strategy


def _check_memory(schedule: Schedule) -> None:
    """Refuses a plan whose rewards do not fit into memory, before anything is allocated for it."""
    needed = _BYTES_PER_TRANSITION * (schedule.transitions + schedule.trajectories)
    if hasattr(os, "sysconf") and needed > (there := os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")):
        raise ValueError(
            f"budget or time_budget must be smaller: the next {schedule.transitions:,} transitions need "
            f"{needed / 2**30:,.0f} GiB of memory, and there are {there / 2**30:,.0f}"
        )


def _pilot(
    task: Task, strategy: Strategy, schedule: Schedule, choice: CriticChoice, collector: Collector, bar: Progress
) -> Strategy:
    """Collects a pilot, chooses a critic by it, and returns the strategy that spends the rest.

    A fitted critic must not be applied to its own pilot. A new strategy then gets what is left of the budget.
    """
    assert choice.extractor is not None
    lengths: NDArray[np.int64] = schedule.lengths
    if schedule.transitions > strategy.budget / 2:  # all is planned at once
        lengths = lengths[: max(_LEAST_PILOT, math.ceil(math.sqrt(strategy.budget / strategy.horizon)))]
    pilot = collector.pilot(lengths, choice.extractor, bar)
    left = strategy.budget - pilot.trajectories.transitions
    collector.critic = choice.decide(pilot, budget=strategy.budget, max_resets=task.max_resets)
    if isinstance(collector.critic, FittedCritic):
        collector.check_critic(pilot)
        estimate = Estimate.from_moments(collector.plain)
        collector.finish_round(estimate, interval_warnings(estimate))
        return task.make(horizon=strategy.horizon, budget=left, gamma=strategy.gamma)
    if collector.critic is None:
        strategy.change_budget(strategy.budget + task.reserve)
    told = [collector.residual_of(pilot)]
    if lengths.size < schedule.trajectories:
        told.append(collector.collect(schedule.lengths[lengths.size :], bar))
    strategy.tell(concatenate(told))
    return strategy
