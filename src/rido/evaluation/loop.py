"""The loop: ask the strategy, collect, tell it, until the budget is spent; then the result."""

from __future__ import annotations

import math
import os
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from rido.core.schedule import Schedule
from rido.evaluation.collector import Collector
from rido.evaluation.components import Components, full_length_returns, leading_moments
from rido.evaluation.extension import Goal, ask_for_goals, record_goals
from rido.evaluation.progress import Progress
from rido.evaluation.result import Evaluation, critic_gain, uniform_transitions
from rido.evaluation.time_budget import Pace, TimeBudget
from rido.predictors.learning import Learner
from rido.predictors.selection import RESET_SHARE, CriticChoice
from rido.record.records import COMPONENTS, NORMALISATION, REHEARSED, REMARKS, REWARD_RANGE
from rido.record.runfile import RunFile
from rido.simulators.base import Simulator
from rido.simulators.sobol import check_seeds
from rido.strategies import Strategy
from rido.strategies.diagnostics import width_warnings

_LEARNING = 10  # full-length trajectories that a budget must pay for before "auto" fits a critic
_LEAST_RESETS = 2  # resets at least: their standard error needs two
_RESET_BUDGET = 0.1  # share of the budget kept for resets where these cost transitions
_BYTES_PER_TRANSITION = 16  # rewards are kept once while they are collected, and once more joined


@dataclass(frozen=True)
class EvaluationTask:
    """What :func:`rido.evaluate` was asked to do, checked.

    Attributes:
        make: makes a strategy for a horizon, a budget and a discount factor.
        strategy: the strategy to begin with, made for the first goal.
        goals: what to spend or to reach; later ones extend a recorded run.
        critic: the control variate that was asked for.
        sobol: whether trajectories start from Sobol points.
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
        components: what is estimated where rewards have several components or there are several discounts.
    """

    make: Callable[..., Strategy]
    strategy: Strategy
    goals: tuple[Goal, ...]
    critic: str | Callable[..., Any] | None
    sobol: bool
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
    components: Components | None

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


def run_task(
    task: EvaluationTask, simulator: Simulator, environment: str, configuration: Mapping[str, Any]
) -> Evaluation:
    """Runs the loop of asking, collecting and telling, and puts the result together."""
    strategy, timing = task.strategy, task.timing
    acting = simulator.capabilities.policy
    policy = "its own policy" if acting is None else acting.name
    choice = CriticChoice.resolve(task.critic, simulator)
    if choice.learns and choice.name == "auto" and strategy.budget < _LEARNING * strategy.horizon:
        choice = CriticChoice("auto")
    if task.components is not None:
        task.components.serve(strategy)
    strategy.divide(replicated=task.sobol, cross_fitted=choice.learns)
    least = strategy.least_budget
    if (choice.critic or choice.extractor) and task.reserve and task.first_budget - task.reserve < least:
        raise ValueError(
            f"budget must pay for {_LEAST_RESETS} resets at reset_cost={task.reset_cost:g} and {least} transitions of "
            f"full-length trajectories, {task.reserve + least} in all, got {task.first_budget}"
        )
    if task.run is None:
        return _run(task, simulator, environment, policy, choice, None)
    described = {
        "environment": environment,
        "policy": policy,
        "strategy": strategy.name,
        "horizon": strategy.horizon,
        "time_budget": [] if timing is None else [timing.seconds],
        "budget": strategy.budget if timing is None else timing.budget,
        "first_budget": None if timing is None else task.first_budget,
        "costs": [] if timing is None else list(astuple(timing.costs)),
        "gamma": strategy.gamma,
        "options": strategy.options,
        "critic": choice.name,
        "critic_fingerprint": choice.fingerprint,
        "starts": "sobol" if task.sobol else "random",
        "resets": [task.max_resets, task.reset_cost] if choice.name != "none" else [],
        **({COMPONENTS: []} if task.components is None else task.components.configuration()),
        **configuration,
        "seed": task.seed,
    }
    with RunFile(
        task.run, described, defaults={} if task.seed is not None else {"seed": secrets.randbits(64)}
    ) as record:
        record_goals(record, task.goals, strategy)
        return _run(task, simulator, environment, policy, choice, record)


def _run(
    task: EvaluationTask,
    simulator: Simulator,
    environment: str,
    policy: str,
    choice: CriticChoice,
    record: RunFile | None,
) -> Evaluation:
    """Runs a task whose run file, if there is one, is open."""
    strategy, able = task.strategy, simulator.capabilities
    normalisation = "" if able.policy is None else able.policy.normalisation
    notes: list[str] = []
    if able.policy is not None and not able.policy.reproducible:
        notes.append(f"{policy} draws random numbers that the seed does not control")
    notes += able.found.notes
    if task.timing is not None:
        notes.append("how much was collected depended on the speed of the machine, not on the seed")
    seed = task.seed if record is None else record.configuration["seed"]
    entropy = secrets.randbits(64) if seed is None else seed
    if record is None or not any(True for _ in record.pieces()):  # a run that resumes has noted it
        notes += check_seeds(simulator, entropy, sobol=task.sobol)
    if record is not None:
        record.set(NORMALISATION, normalisation)
        notes = record.add_notes(notes)
        record.add_notes(able.found.remarks, REMARKS)
    reproducible = not notes
    notes += [*([] if able.policy is None else able.policy.warnings), *choice.notes]
    collector = Collector(
        simulator,
        horizon=strategy.horizon,
        gamma=strategy.gamma,
        entropy=entropy,
        record=record,
        summing=task.summing,
        notes=notes,
        reward_range=task.reward_range,
        replicates=strategy.division.groups if task.sobol else 0,
        components=task.components,
    )
    planning = -time.perf_counter()
    with Progress(task.goals[-1].budget, shown=task.progress) as bar:
        strategy = _spend(task, choice, collector, bar)
    if late := [note for note in collector.notes if note not in notes]:
        reproducible = False
        notes += late if record is None else [note for note in record.add_notes(late) if note not in notes]
    remarks, rehearsed = list(collector.found.remarks), collector.found.rehearsed
    if record is not None:
        rehearsed = int(record.get_or_set(REHEARSED, rehearsed))
        remarks = record.add_notes(remarks, REMARKS)
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
        collector.record_round(estimate, (*strategy.warnings(), *width_warnings(task.until, estimate)))
    plain = leading_moments(strategy.reward_moments(), task.components)
    joint, returns = None, None
    if collector.critic is None and not task.sobol and not task.summing:
        returns = full_length_returns(strategy.collected(), strategy.horizon, strategy.gamma, task.components)
    if task.components is not None:
        joint = task.components.joint(strategy.joint(), estimate)
        estimate = joint.estimates[task.components.leading]
    planning += time.perf_counter()
    return Evaluation(
        estimate=estimate,
        transitions=task.measured + rehearsed + collector.transitions + math.ceil(collector.resets * task.reset_cost),
        trajectories=collector.trajectories,
        **uniform_transitions(plain, estimate),
        strategy=strategy.name,
        starts="sobol" if task.sobol else "random",
        environment=environment,
        policy=policy,
        normalisation=normalisation,
        seed=entropy,
        reproducible=reproducible,
        seconds=collector.seconds,
        planning_seconds=max(0.0, planning - collector.busy_seconds),
        warnings=(*notes, *strategy.warnings(), *width_warnings(task.until, estimate)),
        remarks=tuple(remarks),
        critic="none" if collector.critic is None else collector.critic.name,
        critic_gain=math.nan if collector.critic is None else critic_gain(plain, estimate.standard_error),
        resets=collector.resets,
        reset_seconds=collector.reset_seconds,
        reward_range=task.reward_range,
        guaranteed_interval=guaranteed,
        joint=joint,
        full_length=returns,
        **({} if task.components is None else task.components.fields()),
    )


def _spend(task: EvaluationTask, choice: CriticChoice, collector: Collector, bar: Progress) -> Strategy:
    """Spends the budget; returns the strategy that knows what the estimate rests on."""
    strategy, spent = task.strategy, 0
    if task.reserve and (choice.critic is not None or choice.learns):
        strategy = task.make(horizon=strategy.horizon, budget=strategy.budget - task.reserve, gamma=strategy.gamma)
        strategy.divide(replicated=task.sobol, cross_fitted=choice.learns)
    collector.critic = choice.critic
    learner = None
    if choice.extractor is not None:
        resets = collector.begin_learning(choice.extractor, resets=task.affordable_resets)
        learner = make_learner(choice, strategy, resets)
    pace, goals = Pace(task.timing, strategy.horizon, collector, task.reserve), deque(task.goals[1:])
    while (schedule := ask_for_goals(strategy, goals, pace.ask)) is not None:
        if collector.summing:
            parts = strategy.parts
            sums = [collector.summarise(part, strategy.budget // len(parts), bar) for part in parts]
            signals = [signal for _, signal in sums if signal is not None]
            strategy.tell([rewards for rewards, _ in sums], signal=signals or None)
        else:
            _check_memory(schedule, 1 if task.components is None else len(task.components.labels))
            (lengths, groups), left = strategy.planned, strategy.budget - strategy.spent
            if learner is not None and choice.extractor is not None:
                sample = collector.observe(lengths, groups, choice.extractor, bar, left)
                learner.add(sample, groups[: len(sample.trajectories)])
                strategy.tell(sample.trajectories, signal=learner.learn(), same_means=learner.same_critics)
                collector.use(learner)
            else:
                rewards, signal = collector.collect(lengths, groups, bar, left)
                strategy.tell(rewards, signal=signal)
        if strategy.spent > spent:
            spent = strategy.spent
            if bar.shown or collector.records:
                estimate = strategy.estimate()
                if collector.starts.size > 1:
                    estimate = estimate.plus(collector.starts)
                bar.show(estimate)
                collector.record_round(estimate, strategy.warnings())
            collector.round += 1
    return strategy


def make_learner(choice: CriticChoice, strategy: Strategy, resets: float) -> Learner:
    """Returns what learns the critics of a strategy's teams."""
    assert choice.extractor is not None
    return Learner(
        choice.extractor,
        members=strategy.division.members,
        groups=strategy.division.groups,
        horizon=strategy.horizon,
        gamma=strategy.gamma,
        budget=strategy.budget,
        resets=resets,
        required=choice.name == "fit",
    )


def _check_memory(schedule: Schedule, columns: int) -> None:
    """Refuses a plan whose rewards do not fit into memory, before anything is allocated for it."""
    needed = columns * _BYTES_PER_TRANSITION * (schedule.transitions + schedule.trajectories)
    if hasattr(os, "sysconf") and needed > (there := os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")):
        raise ValueError(
            f"budget or time_budget must be smaller: the next {schedule.transitions:,} transitions need "
            f"{needed / 2**30:,.0f} GiB of memory, and there are {there / 2**30:,.0f}"
        )
