"""The loop: ask the strategy, collect, tell it, until the budget is spent; then the result."""

import math
import os
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from rido.core.estimate import Estimate
from rido.core.reward_moments import RewardMoments
from rido.core.schedule import Schedule
from rido.evaluation.budgets import Goal, TimeBudget, record_goals
from rido.evaluation.collector import Collector
from rido.evaluation.components import Components
from rido.evaluation.progress import Progress
from rido.evaluation.result import Evaluation, critic_gain, uniform_transitions
from rido.evaluation.returns import Returns
from rido.evaluation.source import EndedError, Live, Resumed, Source
from rido.predictors.learning import Learner
from rido.predictors.selection import RESET_SHARE, CriticChoice
from rido.record.header import EvaluationHeader
from rido.record.runfile import RunFile
from rido.simulators.base import Simulator
from rido.simulators.components import REWARD
from rido.simulators.sobol import check_seeds
from rido.strategies import Strategy
from rido.strategies.diagnostics import width_warnings

_LEARNING = 10  # full-length trajectories that a budget must pay for before "auto" fits a critic
_LEAST_RESETS = 2  # resets at least: their standard error needs two
_RESET_BUDGET = 0.1  # share of the budget kept for resets where these cost transitions
_BYTES_AT_FIRST = 12  # of memory for each transition at the peak of the first round, see benchmarks/calls.py
_BYTES_LATER = 27  # and of later ones, for each transition so far: their moments join the rewards of all rounds


@dataclass(frozen=True)
class EvaluationTask:
    """What :func:`rido.evaluate` was asked to do, checked."""

    options: Mapping[str, Any]  # of :func:`rido.evaluate`
    make: Callable[..., Strategy]  # makes a strategy for a horizon, a budget and a discount factor
    strategy: Strategy  # the strategy to begin with, made for the first goal
    goals: tuple[Goal, ...]  # what to spend or to reach; later ones extend a recorded run
    critic: str | Callable[..., Any] | None  # the control variate that was asked for
    until: float | None  # half-width of the 95% interval at which to stop
    summing: bool = False  # whether rewards stay on the simulator's device, and only sums over them are known
    timing: TimeBudget | None = None  # the time budget
    components: Components | None = None  # what is estimated, where that is more than the return of plain rewards

    @property
    def sobol(self) -> bool:
        """Whether trajectories start from Sobol points."""
        return bool(self.options["starts"] == "sobol")

    @property
    def max_resets(self) -> int:
        """Resets at most."""
        most: int | None = self.options["max_resets"]
        return 2 * self.goals[0].budget if most is None else most

    @property
    def reserve(self) -> int:
        """Transitions that are kept for resets."""
        price: float = self.options["reset_cost"]
        most = max(min(self.max_resets * price, _RESET_BUDGET * self.goals[0].budget), _LEAST_RESETS * price)
        return 0 if self.critic is None else math.ceil(most)

    @property
    def affordable_resets(self) -> int:
        """Resets that the reserve pays for, at most ``max_resets``."""
        price: float = self.options["reset_cost"]
        if price == 0:
            return self.max_resets
        most = max(_LEAST_RESETS, int(min(self.max_resets, self.reserve / price)))
        return most - (math.ceil(most * price) > self.reserve)  # by a rounding error


def run_task(
    task: EvaluationTask, simulator: Simulator, environment: str, configuration: Mapping[str, Any]
) -> Evaluation:
    """Runs a task with a simulator, and goes on with its run file if there is one."""
    able, choice = simulator.capabilities, CriticChoice.resolve(task.critic, simulator)
    if choice.learns and choice.name == "auto" and task.strategy.budget < _LEARNING * task.strategy.horizon:
        choice = CriticChoice("auto")
    strategy = begin(task, choice)
    least = strategy.least_budget
    first, options = task.goals[0].budget, task.options
    if (choice.critic or choice.extractor) and task.reserve and first - task.reserve < least:
        raise ValueError(
            f"budget must pay for {_LEAST_RESETS} resets at reset_cost={options['reset_cost']:g} and {least} "
            f"transitions of full-length trajectories, {task.reserve + least} in all, got {first}"
        )
    policy = "its own policy" if able.policy is None else able.policy.name
    entropy = secrets.randbits(64) if options["seed"] is None else options["seed"]
    with ExitStack() as stack:
        record = None
        if options["run"] is not None:
            header = _header(task, choice, environment=environment, policy=policy, **configuration)
            record = stack.enter_context(RunFile(options["run"], header, defaults={"seed": entropy}))
            record_goals(record, task.goals, strategy)
            entropy = record.header.seed or 0
        notes = list(able.found.notes)
        if able.policy is not None and not able.policy.reproducible:
            notes.insert(0, f"{policy} draws random numbers that the seed does not control")
        if task.timing is not None:
            notes.append("how much was collected depended on the speed of the machine, not on the seed")
        if record is None or not record.has_pieces:  # a run that resumes has noted it
            notes += check_seeds(simulator, entropy, sobol=task.sobol)
        live = Live(
            simulator,
            entropy,
            horizon=strategy.horizon,
            gamma=strategy.gamma,
            replicates=strategy.division.groups if task.sobol else 0,
            components=task.components,
            notes=notes,
            doubts=[*([] if able.policy is None else able.policy.warnings), *choice.notes],
        )
        if record is not None and options["reward_range"] is not None:
            record.set("reward_range", options["reward_range"])
        source = live if record is None else Resumed(record, live)
        return run_from(source, task, choice, environment=environment, policy=policy, seed=entropy)[0]


def _header(task: EvaluationTask, choice: CriticChoice, **configuration: Any) -> EvaluationHeader:
    strategy, timing, resets = task.strategy, task.timing, choice.name != "none"
    return EvaluationHeader(
        **configuration,
        strategy=strategy.name,
        horizon=strategy.horizon,
        time_budget=None if timing is None else timing.seconds,
        budget=task.goals[0].budget if timing is None else timing.budget,
        first_budget=None if timing is None else task.goals[0].budget,
        costs={} if timing is None else asdict(timing.costs),
        gamma=strategy.gamma,
        options=strategy.options,
        critic=choice.name,
        critic_fingerprint=choice.fingerprint,
        starts=task.options["starts"],
        max_resets=task.max_resets if resets else None,
        reset_cost=task.options["reset_cost"] if resets else 0.0,
        **({} if task.components is None else task.components.configuration()),
        seed=task.options["seed"],
    )


def begin(task: EvaluationTask, choice: CriticChoice, budget: int | None = None) -> Strategy:
    """Returns the task's strategy, or one with another budget, divided as the task needs it."""
    strategy = task.strategy
    if budget is not None:
        strategy = task.make(horizon=strategy.horizon, budget=budget, gamma=strategy.gamma)
    if task.components is not None:
        task.components.serve(strategy)
    strategy.divide(replicated=task.sobol, cross_fitted=choice.learns)
    return strategy


def run_from(
    source: Source,
    task: EvaluationTask,
    choice: CriticChoice,
    *,
    environment: str,
    policy: str,
    seed: int,
    wants_history: bool = False,
) -> tuple[Evaluation, Strategy, list[tuple[int, Estimate]]]:
    """Runs a task, whose strategy is divided, until its budget is spent or its source ends.

    Returns:
        The result, the strategy that knows what it rests on, and, where they are wanted, the transitions and the
        estimate after each round.

    Raises:
        EndedError: a recorded run has no finished round.
    """
    planning, edges = -time.perf_counter(), task.options["reward_range"]
    history: list[tuple[int, Estimate]] | None = [] if wants_history else None
    with Progress(task.goals[-1].budget, shown=task.options["progress"]) as bar:
        collector = Collector(source, bar, edges, task.components)
        strategy, complete = _spend(task, choice, collector, bar, history)
    estimate, guaranteed = strategy.estimate(), None if edges is None else strategy.guaranteed_interval(edges)
    if collector.critic is not None:
        complete = complete and _reset(task, collector, estimate.standard_error)
        estimate = _with_starts(estimate, collector)
        if history:
            history[-1] = (history[-1][0], estimate)
    plain, joint, returns = strategy.reward_moments(), None, None
    columns = task.components or Components((REWARD,), (strategy.gamma,))
    if task.components is not None:
        joint = columns.joint(strategy.joint(), estimate)
        estimate = joint.estimates[columns.leading]
        assert isinstance(plain, RewardMoments)
        plain = plain.component(columns.leading)
    if collector.critic is None and not task.sobol and not task.summing:
        process: dict[str, Any] = dict(horizon=strategy.horizon, gamma=strategy.gamma)
        returns = Returns.of(strategy.collected(), **process, names=columns.labels, leading=columns.leading)
    said = source.said()
    before = said.rehearsed + (0 if task.timing is None else task.timing.costs.transitions)
    planning += time.perf_counter()
    evaluation = Evaluation(
        estimate=estimate,
        transitions=before + collector.transitions + math.ceil(collector.resets * task.options["reset_cost"]),
        trajectories=collector.trajectories,
        **uniform_transitions(plain, estimate),
        strategy=strategy.name,
        starts=task.options["starts"],
        environment=environment,
        policy=policy,
        normalisation=said.normalisation,
        seed=seed,
        reproducible=not said.notes,
        seconds=collector.seconds,
        planning_seconds=max(0.0, planning - collector.busy_seconds),
        warnings=(
            *dict.fromkeys([*said.notes, *said.doubts]),
            *strategy.warnings(),
            *(width_warnings(task.until, estimate) if complete else ()),
        ),
        remarks=(*said.remarks, *_explained(strategy)),
        critic="none" if collector.critic is None else collector.critic.name,
        critic_gain=math.nan if collector.critic is None else critic_gain(plain, estimate.standard_error),
        resets=collector.resets,
        reset_seconds=collector.reset_seconds,
        reward_range=edges,
        guaranteed_interval=guaranteed,
        joint=joint,
        full_length=returns,
        labels=columns.labels,
        plan_for="" if task.components is None else columns.plan_for,
    )
    return evaluation, strategy, [(before + transitions, one) for transitions, one in history or ()]


def _explained(strategy: Strategy) -> list[str]:
    """Returns what to say of a control variate that the strategy chose by itself."""
    share = strategy.explained()
    return [f"rewards so far explain {min(share, 0.99):.0%} of the variance of what was still to come"] if share else []


def _spend(
    task: EvaluationTask,
    choice: CriticChoice,
    collector: Collector,
    bar: Progress,
    history: list[tuple[int, Estimate]] | None,
) -> tuple[Strategy, bool]:
    """Spends the budget; returns the strategy that knows what the estimate rests on, and whether it has all it wants.

    Where a recorded run ends before, the round that it did not finish is left out.
    """
    strategy, spent, learner = task.strategy, 0, None
    if task.reserve and (choice.critic is not None or choice.learns):
        strategy = begin(task, choice, strategy.budget - task.reserve)
    collector.critic = choice.critic
    try:
        if choice.extractor is not None:
            learner = Learner(
                choice.extractor,
                members=strategy.division.members,
                groups=strategy.division.groups,
                horizon=strategy.horizon,
                gamma=strategy.gamma,
                budget=strategy.budget,
                resets=collector.begin_learning(choice.extractor, resets=task.affordable_resets),
                required=choice.name == "fit",
            )
        goals = deque(task.goals[1:])
        while (schedule := _ask(task, strategy, collector, goals)) is not None:
            if task.summing:
                parts = strategy.parts
                sums = [collector.summarise(part, strategy.budget // len(parts)) for part in parts]
                signals = [signal for _, signal in sums if signal is not None]
                strategy.tell([rewards for rewards, _ in sums], signal=signals or None)
            else:
                _check_memory(strategy, schedule, 1 if task.components is None else len(task.components.labels))
                lengths, groups = strategy.planned
                room = strategy.budget - strategy.spent
                if learner is not None and choice.extractor is not None:
                    sample = collector.observe(lengths, groups, choice.extractor, room=room)
                    learner.add(sample, groups[: len(sample.trajectories)])
                    strategy.tell(sample.trajectories, signal=learner.learn(), same_means=learner.same_critics)
                    collector.use(learner)
                else:
                    rewards, signal = collector.collect(lengths, groups, room=room)
                    strategy.tell(rewards, signal=signal)
            if strategy.spent > spent:
                spent = strategy.spent
                if bar.shown or history is not None:
                    estimate = _with_starts(strategy.estimate(), collector)
                    bar.show(estimate)
                    if history is not None:
                        history.append((collector.transitions, estimate))
            collector.round += 1
    except EndedError:
        if not collector.round:
            raise
        return strategy, False
    return strategy, True


def _ask(task: EvaluationTask, strategy: Strategy, collector: Collector, goals: deque[Goal]) -> Schedule | None:
    """Returns what to collect next; None when time is over or the last goal is reached."""
    if (timing := task.timing) is not None:
        known = partial(timing.next_budget, strategy, collector, task.reserve)
        strategy.change_budget(collector.source.decide("budget", known, collector.round))
    schedule = strategy.ask()
    while schedule is None and goals:
        goal = goals.popleft()
        strategy.change_budget(goal.budget)
        if goal.until is not None:
            strategy.change_until(goal.until)
        schedule = strategy.ask()
    return schedule


def _reset(task: EvaluationTask, collector: Collector, error: float) -> bool:
    """Resets for the critic's expectation over starts; returns whether the source had all of it."""
    most = task.affordable_resets
    if task.timing is not None:
        most = int(max(_LEAST_RESETS, min(most, task.timing.affordable_resets())))
    try:
        collector.reset(error, share=RESET_SHARE, most=most)
    except EndedError:
        return False
    return True


def _with_starts(estimate: Estimate, collector: Collector) -> Estimate:
    """Returns the estimate of residuals with the critic's mean over starts, where there is a critic."""
    return estimate.plus(collector.starts) if collector.starts.size > 1 else estimate


def _check_memory(strategy: Strategy, schedule: Schedule, columns: int) -> None:
    """Refuses a plan whose rewards do not fit into memory, before anything is allocated for it."""
    size = schedule.transitions + schedule.trajectories
    needed = columns * (_BYTES_AT_FIRST * size if not strategy.rounds else _BYTES_LATER * (size + strategy.spent))
    if hasattr(os, "sysconf") and needed > (there := os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")):
        raise ValueError(
            f"budget or time_budget must be smaller: the next {schedule.transitions:,} transitions need "
            f"{needed / 2**30:,.0f} GiB of memory, and there are {there / 2**30:,.0f}"
        )
