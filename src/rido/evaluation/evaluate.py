"""evaluate(): brings a strategy and a simulator together, and says how good the policy is."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rido.core import checks
from rido.core.diagnostics import interval_warnings, width_warnings
from rido.core.estimate import Estimate
from rido.core.schedule import Schedule
from rido.core.trajectories import concatenate
from rido.critics.base import Critic
from rido.critics.fitted import FittedCritic
from rido.critics.selection import RESET_SHARE, CriticChoice
from rido.evaluation.collector import Collector
from rido.evaluation.progress import Progress
from rido.evaluation.result import Evaluation, critic_gain, uniform_transitions
from rido.evaluation.time_budget import Allowance, Pace
from rido.simulators import factory
from rido.simulators.base import Simulator, describe
from rido.simulators.identity import environment_name, identities
from rido.storage.runfile import REWARD_RANGE, RunFile
from rido.strategies import Adaptive, Rido, Robust, Strategy, Uniform

_STRATEGIES: dict[str, Callable[..., Strategy]] = {
    "adaptive": Adaptive,
    "uniform": Uniform,
    "robust": Robust,
    "rido": Rido,
}

_LEAST_PILOT = 5  # trajectories, where a strategy plans everything at once and a critic is to be chosen before
_LEAST_RESETS = 2  # from which their own error can be told
_RESET_BUDGET = 0.1  # share of the budget that is kept for resets where they cost transitions
_SUMMED_BUDGET = 1_000_000  # transitions beyond which rewards stay on a device that can sum them up
_SUMMED_HORIZON = 4096  # steps up to which it can: sums are T x T tables


def evaluate(
    env: Any,
    policy: Any = None,
    *,
    budget: int | None = None,
    gamma: float,
    horizon: int | None = None,
    time_budget: float | None = None,
    strategy: str | Callable[..., Strategy] = "adaptive",
    until: float | None = None,
    critic: str | Callable[..., Any] | None = None,
    max_resets: int | None = None,
    reset_cost: float = 0.0,
    reward_range: tuple[float, float] | None = None,
    seed: int | None = None,
    num_envs: int | None = None,
    workers: int = 1,
    simulator: str | Callable[..., Simulator] | None = None,
    deterministic: bool = True,
    run: str | Path | None = None,
    progress: bool | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
) -> Evaluation:
    """Estimates the expected discounted return of a policy with the least error for a budget of transitions.

    Args:
        env: a Gymnasium id, a function that makes an environment, an environment, a VectorEnv without autoreset, an
            environment in JAX (see :func:`rido.simulators.jax.adapt`), or any simulator of your own with a method
            ``rollout(lengths, seeds)``.
        policy: an SB3 model or the path of its zip, a function of a batch of observations, "random", or
            "module:attribute"; in JAX a function of one observation. Not needed for the paper's domains
            (``rido/LQG-v0`` and so on) and own simulators.
        budget: transitions to spend; never exceeded. Needed unless there is a ``time_budget``.
        gamma: discount factor in (0, 1].
        horizon: steps over which the return is summed. If not given, as many as leave out 0.1% of the return
            of constant rewards, or the environment's own time limit if that is less.
        time_budget: seconds to spend, with all that comes before the first transition. What steps and resets cost is
            measured first, and plans weigh it; the transitions that this takes are counted. The time may be exceeded a
            little, because a started trajectory always finishes.
        strategy: "adaptive", "uniform", "robust", "rido", or a function of horizon, budget and gamma that returns a
            strategy.
        until: stop when the 95% interval is at most this much to either side; the budget is then the most to spend.
            With strategy "adaptive" only.
        critic: a value function to carry the estimate, so that transitions pay only for its errors. It may be
            wrong: that costs precision, not correctness. A function ``V(observations, steps_to_go)`` on batches;
            "policy" for the agent's own; "fit" for one fitted on the first trajectories, which then serve for nothing
            else; "auto" to take what promises the least error, which may be none. In JAX the function is of one
            observation, and runs on the device.
        max_resets: the most resets that estimate the critic's expectation over first states. There are as many as
            make them 5% of the variance; if not given, at most two for each transition of the budget.
        reset_cost: what such a reset costs in transitions. Where it does, at most a tenth of the budget goes there.
        reward_range: lowest and highest possible reward. The result then has a ``guaranteed_interval`` too, which holds
            for any such rewards. It is much wider, and not to be had with a critic.
        seed: what all randomness comes from; drawn and reported if not given.
        num_envs: environments to run side by side, in each worker. It does not change the result.
        workers: processes to collect in. They do not change the result, and pay where a step of the environment is
            slow; see :class:`rido.simulators.parallel.processes.WorkerSimulator`.
        simulator: "gymnasium", "workers", "envpool", "ray", "jax", or a function that makes a simulator and takes what
            they take, such as ``partial(RaySimulator, address="auto")``.
        deterministic: whether an agent takes its most likely action or samples one.
        run: a file that records the run. If it is there already, the run goes on where it was. Policies, critics and
            simulators are known by their content, or by an attribute ``fingerprint`` if they have one.
        progress: whether to show a progress bar; if not given, when standard error is a terminal.
        env_kwargs: arguments of the environment, with an id.

    Returns:
        The estimate, its error bars, and where the samples went.

    Example:
        >>> result = evaluate("rido/LQG-v0", budget=2000, gamma=0.9, horizon=50, seed=1)
        >>> result.transitions
        2000
    """
    gamma = checks.discount("gamma", gamma)
    own = factory.is_simulator(env)
    if own:
        factory.refuse_ignored(
            policy=policy,
            env_kwargs=env_kwargs,
            num_envs=num_envs,
            workers=workers,
            simulator=simulator,
            deterministic=deterministic,
        )
    elif simulator is None and factory.is_in_jax(env):
        simulator = "jax"
    horizon = factory.resolve_horizon(env, horizon, gamma, in_jax=simulator == "jax")
    make = _STRATEGIES.get(strategy) if isinstance(strategy, str) else strategy
    if make is None:
        checks.choice("strategy", strategy, tuple(_STRATEGIES))
    if until is not None:
        if strategy != "adaptive":
            raise ValueError(f"until must come with strategy 'adaptive', got {strategy!r}")
        # Resets for a critic come last, and add their share to the variance.
        share = 0.0 if critic is None else RESET_SHARE
        make = partial(Adaptive, until=until * math.sqrt(1 - share))
    if reward_range is not None:
        reward_range = checks.reward_range("reward_range", reward_range)
        if critic is not None:
            raise ValueError(f"reward_range must come without a critic, whose signal has no range, got {critic!r}")
    if seed is not None:
        seed = checks.integer("seed", seed, least=0)
    if budget is None and time_budget is None:
        raise ValueError("budget must be given, in transitions, or time_budget, in seconds")
    if budget is not None:
        make(horizon=horizon, budget=budget, gamma=gamma)  # type: ignore[misc]  # complains before anything is started
    started = time.monotonic()

    def begin(running: Simulator) -> _Task:
        allowance, size = None, budget
        chosen: Callable[..., Strategy] = make  # type: ignore[assignment]
        if time_budget is not None:
            allowance = Allowance.measure(running, horizon, time_budget, started, critic is not None, seed, run, budget)
            size = allowance.first_budget(horizon)
            if strategy == "adaptive":
                chosen = partial(chosen, reset_price=allowance.costs.reset_price)
        first = chosen(horizon=horizon, budget=size, gamma=gamma)
        able, given, on_device = describe(running), critic, critic is None
        if able.jax_critics and callable(critic):
            from rido.critics.jax import JaxCritic

            given = critic if isinstance(critic, Critic) else JaxCritic(critic)
            on_device = isinstance(given, JaxCritic)
        summing = (
            able.summarises
            and run is None  # which records the rewards
            and on_device
            and horizon <= _SUMMED_HORIZON
            and first.budget > _SUMMED_BUDGET
        )
        if summing and reward_range is not None:
            raise ValueError(
                f"reward_range must come with run=FILE or a budget of at most {_SUMMED_BUDGET:,} transitions, beyond "
                f"which a device keeps the rewards to itself, got {first.budget:,}"
            )
        return _Task(
            make=chosen,
            strategy=first,
            critic=given,
            summing=summing,
            max_resets=2 * first.budget if max_resets is None else checks.integer("max_resets", max_resets, least=2),
            reset_cost=checks.not_negative("reset_cost", reset_cost),
            first_budget=first.budget,
            until=until,
            reward_range=reward_range,
            seed=seed,
            run=run,
            progress=progress,
            allowance=allowance,
        )

    if own:
        identity = {} if run is None else identities(env, env)
        return _evaluate(begin(env), env, environment_name(env), identity)
    running: Any = factory.simulator_kind(simulator, workers)(
        env,
        policy,
        horizon=horizon,
        gamma=gamma,
        env_kwargs=env_kwargs,
        num_envs=num_envs,
        deterministic=deterministic,
    )
    try:
        configuration = {
            "env_kwargs": repr(dict(env_kwargs or {})),
            "deterministic": deterministic,
            **({} if run is None else identities(env, running)),
        }
        name = None if isinstance(env, str) else describe(running).environment
        return _evaluate(begin(running), running, name or environment_name(env), configuration)
    finally:
        running.close()


@dataclass(frozen=True)
class _Task:
    """What is to be done, as :func:`evaluate` was asked to do it."""

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
    allowance: Allowance | None

    @property
    def reserve(self) -> int:
        """Transitions that are kept for resets."""
        if self.critic is None or self.reset_cost == 0:
            return 0
        wanted = min(self.max_resets * self.reset_cost, _RESET_BUDGET * self.first_budget)
        return math.ceil(max(wanted, _LEAST_RESETS * self.reset_cost))

    @property
    def measured(self) -> int:
        """Transitions that went into measuring what steps and resets cost."""
        return 0 if self.allowance is None else self.allowance.costs.transitions


def _evaluate(task: _Task, simulator: Simulator, environment: str, configuration: Mapping[str, Any]) -> Evaluation:
    """Runs the loop of asking, collecting and telling, and puts the result together."""
    strategy, seed = task.strategy, task.seed
    able = describe(simulator)
    acting = able.policy
    policy = "its own policy" if acting is None else acting.name
    notes = (
        []
        if acting is None or acting.reproducible
        else [f"{policy} draws random numbers that the seed does not control"]
    )
    notes += able.notes
    if task.allowance is not None:
        notes.append("how much was collected depended on the speed of the machine, not on the seed")
    judge = CriticChoice.resolve(task.critic, simulator)
    record = None
    if task.run is not None:
        record = RunFile(
            task.run,
            {
                "environment": environment,
                "policy": policy,
                "strategy": type(strategy).__name__.lower(),
                "horizon": strategy.horizon,
                "budget": strategy.budget if task.allowance is None else task.allowance.budget,
                "first_budget": task.first_budget if task.allowance is not None else None,
                "time_budget": [task.allowance.seconds] if task.allowance is not None else [],
                "costs": list(astuple(task.allowance.costs)) if task.allowance is not None else [],
                "gamma": strategy.gamma,
                "options": strategy.options,
                "critic": judge.name,
                "critic_fingerprint": judge.fingerprint,
                "resets": [task.max_resets, task.reset_cost] if judge.name != "none" else [],
                **configuration,
                "seed": seed,
            },
            defaults={"seed": secrets.randbits(64)},
        )
        seed = record.configuration["seed"]
        notes = record.add_notes(notes)
    reproducible = not notes
    notes += judge.notes
    entropy = secrets.randbits(64) if seed is None else seed
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
            strategy = _spend(task, judge, collector, bar)
        estimate, guaranteed = strategy.estimate(), None
        if task.reward_range is not None:
            strategy.budget = task.first_budget  # the one that was known before any reward
            guaranteed = strategy.guaranteed_interval(task.reward_range)
            if record is not None:
                record.remember(REWARD_RANGE, task.reward_range)
        if collector.critic is not None:
            most = task.max_resets
            if task.reset_cost > 0:
                most = max(_LEAST_RESETS, min(most, int(task.reserve / task.reset_cost)))
            if task.allowance is not None and task.allowance.costs.per_reset > 0:
                left = max(0.0, task.allowance.ends - time.monotonic())
                most = max(_LEAST_RESETS, min(most, int(left / task.allowance.costs.per_reset)))
                most = collector.recall("resets", most)
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


def _spend(task: _Task, judge: CriticChoice, collector: Collector, bar: Progress) -> Strategy:
    """Spends the budget; returns the strategy that knows what the estimate rests on."""
    strategy, spent = task.strategy, 0
    if task.reserve and (judge.critic is not None or judge.extractor is not None):
        strategy = task.make(horizon=strategy.horizon, budget=strategy.budget - task.reserve, gamma=strategy.gamma)
    collector.critic = judge.critic
    pace = Pace(task.allowance, strategy.horizon, collector, task.reserve)
    while (schedule := pace.ask(strategy)) is not None:
        if judge.extractor is not None and collector.trajectories == 0:
            strategy = _pilot(task, strategy, schedule, judge, collector, bar)
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


def _pilot(
    task: _Task, strategy: Strategy, schedule: Schedule, judge: CriticChoice, collector: Collector, bar: Progress
) -> Strategy:
    """Collects what a strategy asks for first, decides on a critic by it, and returns the strategy to go on with.

    What a critic was fitted on must not be judged by it: then a new strategy gets what is left of the budget.
    """
    assert judge.extractor is not None
    lengths: NDArray[np.int64] = schedule.lengths
    if schedule.transitions > strategy.budget / 2:  # all is planned at once
        lengths = lengths[: max(_LEAST_PILOT, math.ceil(math.sqrt(strategy.budget / strategy.horizon)))]
    pilot = collector.pilot(lengths, judge.extractor, bar)
    left = strategy.budget - pilot.trajectories.transitions
    collector.critic = judge.decide(pilot, budget=strategy.budget, max_resets=task.max_resets)
    if isinstance(collector.critic, FittedCritic):
        collector.agree(pilot)
        estimate = Estimate.from_moments(collector.plain)
        collector.finish_round(estimate, interval_warnings(estimate))
        return task.make(horizon=strategy.horizon, budget=left, gamma=strategy.gamma)
    if collector.critic is None:
        strategy.budget += task.reserve
    told = [collector.take_in(pilot)]
    if lengths.size < schedule.trajectories:
        told.append(collector.collect(schedule.lengths[lengths.size :], bar))
    strategy.tell(concatenate(told))
    return strategy
