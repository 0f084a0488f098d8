"""evaluate(): brings a strategy and a simulator together, and says how good the policy is."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rido import _checks
from rido.collection import Collector
from rido.estimate import Estimate
from rido.fitting import RESET_SHARE, FittedCritic, spread
from rido.judging import Judge
from rido.moments import RewardMoments
from rido.progress import Progress
from rido.runfile import RunFile
from rido.schedule import Schedule
from rido.simulators.base import Simulator
from rido.strategies import Adaptive, Rido, Robust, Strategy, Uniform
from rido.trajectories import concatenate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STRATEGIES: dict[str, Callable[..., Strategy]] = {
    "adaptive": Adaptive,
    "uniform": Uniform,
    "robust": Robust,
    "rido": Rido,
}

_LEAST_PILOT = 5  # trajectories, where a strategy plans everything at once and a critic is to be chosen before
_RESET_BUDGET = 0.1  # share of the budget that is kept for resets where they cost transitions


@dataclass(frozen=True)
class Evaluation:
    """How good a policy is.

    Attributes:
        estimate: the estimated return with its error bars.
        schedule: planned samples of each time step that the estimate rests on; the pilot that a critic was fitted on
            is not among them.
        transitions: transitions taken in all, with what resets cost where they do.
        trajectories: trajectories collected.
        uniform_transitions: transitions that full-length trajectories alone would need for the same standard
            error; infinite or NaN where the data does not tell.
        strategy: name of the strategy.
        environment: name of the environment.
        policy: name of the policy.
        seed: what all randomness came from. The same seed gives the same result where it is reproducible.
        reproducible: whether the same seed gives the same result for any number of environments.
        seconds: time that collecting took, planning not counted.
        planning_seconds: time that planning and statistics took.
        warnings: what the reader should know before trusting the numbers.
        critic: name of the critic that carried the estimate: "policy", "fit", a function's name, or "none".
        critic_gain: how many times the variance would have been larger without the critic, at equal transitions and
            under the best schedule for plain rewards; NaN where there is no critic or the data does not tell.
        resets: resets taken for the critic's expectation over first states.
        reset_seconds: time that they took.
    """

    estimate: Estimate
    transitions: int
    trajectories: int
    uniform_transitions: float
    strategy: str
    environment: str
    policy: str
    seed: int
    reproducible: bool
    seconds: float
    planning_seconds: float
    warnings: tuple[str, ...] = ()
    critic: str = "none"
    critic_gain: float = math.nan
    resets: int = 0
    reset_seconds: float = 0.0

    @property
    def value(self) -> float:
        """The estimated expected return."""
        return self.estimate.value

    @property
    def standard_error(self) -> float:
        """The standard error of the value."""
        return self.estimate.standard_error

    @property
    def schedule(self) -> Schedule:
        """Planned samples of each time step."""
        return self.estimate.schedule

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Returns the interval that holds the expected return with about this confidence."""
        return self.estimate.interval(confidence)

    def summary(self) -> str:
        """Returns what was found, in a few lines."""
        low, high = self.interval()
        lines = [
            f"{self.policy} in {self.environment}: {self.value:.6g}, 95% interval [{low:.6g}, {high:.6g}]",
            f"{self.transitions:,} transitions in {self.trajectories:,} trajectories of up to {self.schedule.horizon} "
            f"steps, gamma {self.estimate.gamma:g}, strategy {self.strategy}",
        ]
        if math.isfinite(self.uniform_transitions) and self.strategy != "uniform":
            lines.append(f"uniform evaluation would have needed {self.uniform_transitions:,.0f} transitions for this")
        if self.critic != "none":
            gain = f": {self.critic_gain:.3g} times less variance" if math.isfinite(self.critic_gain) else ""
            lines.append(f"critic {self.critic}{gain}, {self.resets:,} resets in {self.reset_seconds:.2g} s")
        return "\n".join([*lines, *(f"warning: {warning}" for warning in self.warnings)])

    def to_dict(self) -> dict[str, Any]:
        """Returns everything as plain numbers, strings and lists, with None where a number is not finite."""
        low, high = self.interval()
        numbers = {
            "value": self.value,
            "standard_error": self.standard_error,
            "interval_low": low,
            "interval_high": high,
            "uniform_transitions": self.uniform_transitions,
            "critic_gain": self.critic_gain,
        }
        return {
            "environment": self.environment,
            "policy": self.policy,
            "strategy": self.strategy,
            **{name: number if math.isfinite(number) else None for name, number in numbers.items()},
            "confidence": 0.95,
            "gamma": self.estimate.gamma,
            "horizon": self.schedule.horizon,
            "transitions": self.transitions,
            "trajectories": self.trajectories,
            "counts": self.schedule.counts.tolist(),
            "seed": self.seed,
            "reproducible": self.reproducible,
            "seconds": self.seconds,
            "planning_seconds": self.planning_seconds,
            "critic": self.critic,
            "resets": self.resets,
            "reset_seconds": self.reset_seconds,
            "warnings": list(self.warnings),
        }

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws how many samples each time step got; needs the extra ``plot``."""
        from rido.plots import plot_schedule

        return plot_schedule(self.schedule, ax=ax)

    def _repr_html_(self) -> str:
        from rido.report import evaluation_html

        return evaluation_html(self)


def evaluate(
    env: Any,
    policy: Any = None,
    *,
    budget: int,
    gamma: float,
    horizon: int | None = None,
    strategy: str | Callable[..., Strategy] = "adaptive",
    until: float | None = None,
    critic: str | Callable[..., Any] | None = None,
    max_resets: int | None = None,
    reset_cost: float = 0.0,
    seed: int | None = None,
    num_envs: int | None = None,
    deterministic: bool = True,
    run: str | Path | None = None,
    progress: bool | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
) -> Evaluation:
    """Estimates the expected discounted return of a policy with the least error for a budget of transitions.

    Args:
        env: a Gymnasium id, a function that makes an environment, an environment, a VectorEnv without autoreset, or any
            simulator of your own with a method ``rollout(lengths, seeds)``.
        policy: an SB3 model or the path of its zip, a function of a batch of observations, "random", or
            "module:attribute". Not needed for the paper's domains (``rido/LQG-v0`` and so on) and own simulators.
        budget: transitions to spend; never exceeded.
        gamma: discount factor in (0, 1].
        horizon: steps over which the return is summed. If not given, as many as leave out 0.1% of the return
            of constant rewards, or the environment's own time limit if that is less.
        strategy: "adaptive", "uniform", "robust", "rido", or a function of horizon, budget and gamma that returns a
            strategy.
        until: stop when the 95% interval is at most this much to either side; the budget is then the most to spend.
            With strategy "adaptive" only.
        critic: a value function to carry the estimate, so that transitions pay only for its errors. It may be
            wrong: that costs precision, not correctness. A function ``V(observations, steps_to_go)`` on batches;
            "policy" for the agent's own; "fit" for one fitted on the first trajectories, which then serve for nothing
            else; "auto" to take what promises the least error, which may be none.
        max_resets: the most resets that estimate the critic's expectation over first states. There are as many as
            make them 5% of the variance; if not given, at most two for each transition of the budget.
        reset_cost: what such a reset costs in transitions. Where it does, at most a tenth of the budget goes there.
        seed: what all randomness comes from; drawn and reported if not given.
        num_envs: environments to run side by side. It does not change the result.
        deterministic: whether an agent takes its most likely action or samples one.
        run: a file that records the run. If it is there already, the run goes on where it was.
        progress: whether to show a progress bar; if not given, when standard error is a terminal.
        env_kwargs: arguments of the environment, with an id.

    Returns:
        The estimate, its error bars, and where the samples went.

    Example:
        >>> result = evaluate("rido/LQG-v0", budget=2000, gamma=0.9, horizon=50, seed=1)
        >>> result.transitions
        2000
    """
    gamma = _checks.discount("gamma", gamma)
    horizon = resolve_horizon(env, horizon, gamma)
    make = _STRATEGIES.get(strategy) if isinstance(strategy, str) else strategy
    if make is None:
        _checks.choice("strategy", strategy, tuple(_STRATEGIES))
    if until is not None:
        if strategy != "adaptive":
            raise ValueError(f"until must come with strategy 'adaptive', got {strategy!r}")
        # Resets for a critic come last, and add their share to the variance.
        share = 0.0 if critic is None else RESET_SHARE
        make = partial(Adaptive, until=until * math.sqrt(1 - share))
    chosen = make(horizon=horizon, budget=budget, gamma=gamma)  # type: ignore[misc]
    if seed is not None:
        seed = _checks.integer("seed", seed, least=0)
    task = _Task(
        make=make,  # type: ignore[arg-type]
        strategy=chosen,
        critic=critic,
        max_resets=2 * chosen.budget if max_resets is None else _checks.integer("max_resets", max_resets, least=2),
        reset_cost=_checks.not_negative("reset_cost", reset_cost),
        seed=seed,
        run=run,
        progress=progress,
    )
    if hasattr(env, "rollout"):
        return _evaluate(task, env, type(env).__name__, "its own policy", True, {})

    from rido.simulators.gymnasium import GymnasiumSimulator

    simulator = GymnasiumSimulator(
        env,
        policy,
        horizon=horizon,
        gamma=gamma,
        env_kwargs=env_kwargs,
        num_envs=num_envs,
        deterministic=deterministic,
    )
    try:
        acting = simulator.policy
        configuration = {
            "env_kwargs": repr(dict(env_kwargs or {})),
            "deterministic": deterministic,
            "policy_fingerprint": acting.fingerprint,
        }
        name = _environment_name(env)
        return _evaluate(task, simulator, name, acting.name, acting.reproducible, configuration)
    finally:
        simulator.close()


def horizon_for(gamma: float, tolerance: float = 1e-3) -> int:
    """Returns the steps after which a share of at most ``tolerance`` of the return of constant rewards is left.

    The least T with gamma^T <= tolerance, the footnote of Section 2 of the paper with its constant.

    Example:
        >>> horizon_for(0.99)
        688
    """
    gamma = _checks.discount("gamma", gamma)
    if gamma == 1:
        raise ValueError("horizon must be given where gamma is 1 and the environment has no time limit")
    return max(1, math.ceil(math.log(_checks.probability("tolerance", tolerance)) / math.log(gamma)))


@dataclass(frozen=True)
class _Task:
    """What is to be done, as :func:`evaluate` was asked to do it."""

    make: Callable[..., Strategy]
    strategy: Strategy
    critic: str | Callable[..., Any] | None
    max_resets: int
    reset_cost: float
    seed: int | None
    run: str | Path | None
    progress: bool | None

    @property
    def reserve(self) -> int:
        """Transitions that are kept for resets."""
        if self.critic is None or self.reset_cost == 0:
            return 0
        return int(min(self.max_resets * self.reset_cost, _RESET_BUDGET * self.strategy.budget))


def _evaluate(
    task: _Task,
    simulator: Simulator,
    environment: str,
    policy: str,
    reproducible: bool,
    configuration: Mapping[str, Any],
) -> Evaluation:
    """Runs the loop of asking, collecting and telling, and puts the result together."""
    strategy, seed = task.strategy, task.seed
    judge = Judge.resolve(task.critic, simulator)
    record = None
    if task.run is not None:
        record = RunFile(
            task.run,
            {
                "environment": environment,
                "policy": policy,
                "strategy": type(strategy).__name__.lower(),
                "horizon": strategy.horizon,
                "budget": strategy.budget,
                "gamma": strategy.gamma,
                "options": strategy.options,
                "critic": judge.name,
                "resets": [task.max_resets, task.reset_cost] if judge.name != "none" else [],
                **configuration,
                "seed": seed,
            },
            defaults={"seed": secrets.randbits(64)},
        )
        seed = record.configuration["seed"]
    entropy = secrets.randbits(64) if seed is None else seed
    collector = Collector(simulator, horizon=strategy.horizon, gamma=strategy.gamma, entropy=entropy, record=record)
    planning = -time.perf_counter()
    try:
        with Progress(strategy.budget, shown=task.progress) as bar:
            strategy = _spend(task, judge, collector, bar)
        estimate = strategy.estimate()
        if collector.critic is not None:
            most = task.max_resets
            if task.reset_cost > 0:
                most = max(2, min(most, int(task.reserve / task.reset_cost)))
            collector.reset(estimate.standard_error, share=RESET_SHARE, most=most)
            estimate = _with_starts(estimate, collector.starts)
            collector.finish_round(estimate)
    finally:
        if record is not None:
            record.close()
    planning += time.perf_counter()
    unseeded = () if reproducible else (f"{policy} draws random numbers that the seed does not control",)
    return Evaluation(
        estimate=estimate,
        transitions=collector.plain.transitions + math.ceil(collector.resets * task.reset_cost),
        trajectories=collector.trajectories,
        uniform_transitions=uniform_transitions(collector.plain, estimate.standard_error),
        strategy=type(strategy).__name__.lower(),
        environment=environment,
        policy=policy,
        seed=entropy,
        reproducible=reproducible,
        seconds=collector.seconds,
        planning_seconds=max(0.0, planning - collector.busy_seconds),
        warnings=(*unseeded, *judge.notes, *strategy.warnings()),
        critic="none" if collector.critic is None else collector.critic.name,
        critic_gain=math.nan if collector.critic is None else critic_gain(collector.plain, estimate.standard_error),
        resets=collector.resets,
        reset_seconds=collector.reset_seconds,
    )


def _spend(task: _Task, judge: Judge, collector: Collector, bar: Progress) -> Strategy:
    """Spends the budget; returns the strategy that knows what the estimate rests on."""
    strategy, spent = task.strategy, 0
    if task.reserve and (judge.critic is not None or judge.view is not None):
        strategy = task.make(horizon=strategy.horizon, budget=strategy.budget - task.reserve, gamma=strategy.gamma)
    collector.critic = judge.critic
    while (schedule := strategy.ask()) is not None:
        if judge.view is not None and collector.trajectories == 0:
            strategy = _pilot(task, strategy, schedule, judge, collector, bar)
        else:
            strategy.tell(collector.collect(schedule.lengths, bar))
        if strategy.spent > spent:
            spent = strategy.spent
            estimate = _with_starts(strategy.estimate(), collector.starts)
            bar.show(estimate)
            collector.finish_round(estimate)
    return strategy


def _pilot(
    task: _Task, strategy: Strategy, schedule: Schedule, judge: Judge, collector: Collector, bar: Progress
) -> Strategy:
    """Collects what a strategy asks for first, decides on a critic by it, and returns the strategy to go on with.

    What a critic was fitted on must not be judged by it: then a new strategy gets what is left of the budget.
    """
    assert judge.view is not None
    lengths: NDArray[np.int64] = schedule.lengths
    if schedule.transitions > strategy.budget / 2:  # all is planned at once
        lengths = lengths[: max(_LEAST_PILOT, math.ceil(math.sqrt(strategy.budget / strategy.horizon)))]
    pilot = collector.pilot(lengths, judge.view, bar)
    left = strategy.budget - pilot.trajectories.transitions
    collector.critic = judge.decide(pilot, budget=strategy.budget, max_resets=task.max_resets)
    if isinstance(collector.critic, FittedCritic):
        collector.agree(pilot)
        collector.finish_round(Estimate.from_moments(collector.plain))
        return task.make(horizon=strategy.horizon, budget=left, gamma=strategy.gamma)
    if collector.critic is None:
        strategy.budget += task.reserve
    told = [collector.take_in(pilot)]
    if lengths.size < schedule.trajectories:
        told.append(collector.collect(schedule.lengths[lengths.size :], bar))
    strategy.tell(concatenate(told))
    return strategy


def _with_starts(estimate: Estimate, starts: NDArray[np.float64]) -> Estimate:
    """Adds a critic's expectation over first states, independent of the rest, with Satterthwaite's freedom."""
    if starts.size < 2:
        return estimate
    own, others = estimate.standard_error**2, float(starts.var(ddof=1)) / starts.size
    freedom = estimate.degrees_of_freedom
    if math.isfinite(own) and own + others > 0:
        freedom = (own + others) ** 2 / (own**2 / estimate.degrees_of_freedom + others**2 / (starts.size - 1))
    return replace(
        estimate,
        value=estimate.value + float(starts.mean()),
        standard_error=math.sqrt(own + others),
        degrees_of_freedom=freedom,
    )


def uniform_transitions(plain: RewardMoments, error: float) -> float:
    """Returns what full-length trajectories would cost for a standard error, by the moments of plain rewards."""
    if not 0 < error < math.inf or plain.counts[-1] < 2:
        return math.nan
    variance = float(plain.weights().sum())  # of the return of one trajectory
    return variance / error**2 * float(plain.survival.sum()) if variance > 0 else math.nan


def critic_gain(plain: RewardMoments, error: float) -> float:
    """Returns the variance that plain rewards would leave under their best schedule, over that which was reached."""
    if not 0 < error < math.inf or plain.counts[-1] < 2:
        return math.nan
    return spread([plain]) / plain.transitions / error**2


def resolve_horizon(env: Any, horizon: int | None, gamma: float) -> int:
    """Returns the horizon that was asked for, or else the one that gamma and the environment's time limit suggest."""
    if horizon is not None:
        return _checks.integer("horizon", horizon, least=1)
    if isinstance(env, str):
        from rido.simulators.environments import find_spec

        limit = find_spec(env).max_episode_steps
    else:
        limit = getattr(getattr(env, "spec", None), "max_episode_steps", None)
    return limit if limit is not None and (gamma == 1 or limit < horizon_for(gamma)) else horizon_for(gamma)


def _environment_name(env: Any) -> str:
    if isinstance(env, str):
        return env
    own = getattr(env, "__qualname__", type(env).__name__)
    return str(getattr(getattr(env, "spec", None), "id", own))
