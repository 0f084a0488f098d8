"""evaluate(): brings a strategy and a simulator together, and says how good the policy is."""

from __future__ import annotations

import math
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rido import _checks
from rido.estimate import Estimate
from rido.progress import Progress
from rido.runfile import Piece, RunFile, RunFileError
from rido.schedule import Schedule
from rido.simulators.base import SimulationError, Simulator, trajectory_seeds
from rido.strategies import Rido, Robust, Strategy, Uniform
from rido.trajectories import Trajectories, concatenate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STRATEGIES: dict[str, Callable[..., Strategy]] = {"uniform": Uniform, "robust": Robust, "rido": Rido}

_PIECE_SECONDS = 2.0  # schedules are collected and recorded in pieces of about this long: what a crash may cost


@dataclass(frozen=True)
class Evaluation:
    """How good a policy is.

    Attributes:
        estimate: the estimated return with its error bars.
        schedule: planned samples of each time step.
        transitions: transitions taken in all.
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
            "warnings": list(self.warnings),
        }

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws how many samples each time step got; needs the extra ``plot``."""
        from rido.plots import plot_schedule

        return plot_schedule(self.schedule, ax=ax)


def evaluate(
    env: Any,
    policy: Any = None,
    *,
    budget: int,
    gamma: float,
    horizon: int | None = None,
    strategy: str | Callable[..., Strategy] = "rido",
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
        strategy: "uniform", "robust", "rido", or a function of horizon, budget and gamma that returns a
            strategy.
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
    horizon = _horizon(env, horizon, gamma)
    make = _STRATEGIES.get(strategy) if isinstance(strategy, str) else strategy
    if make is None:
        _checks.choice("strategy", strategy, tuple(_STRATEGIES))
    chosen = make(horizon=horizon, budget=budget, gamma=gamma)  # type: ignore[misc]
    if seed is not None:
        seed = _checks.integer("seed", seed, least=0)
    if hasattr(env, "rollout"):
        return _evaluate(env, chosen, type(env).__name__, "its own policy", True, {}, seed, run, progress)

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
        return _evaluate(simulator, chosen, name, acting.name, acting.reproducible, configuration, seed, run, progress)
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


def _evaluate(
    simulator: Simulator,
    strategy: Strategy,
    environment: str,
    policy: str,
    reproducible: bool,
    configuration: Mapping[str, Any],
    seed: int | None,
    run: str | Path | None,
    progress: bool | None,
) -> Evaluation:
    """Runs the loop of asking, collecting and telling, and puts the result together."""
    record = None
    if run is not None:
        fresh = secrets.randbits(64)
        record = RunFile(
            run,
            {
                "environment": environment,
                "policy": policy,
                "strategy": type(strategy).__name__.lower(),
                "horizon": strategy.horizon,
                "budget": strategy.budget,
                "gamma": strategy.gamma,
                "options": strategy.options,
                **configuration,
                "seed": seed,
            },
            defaults={"seed": fresh},
        )
        seed = record.configuration["seed"]
    entropy = secrets.randbits(64) if seed is None else seed
    collector = _Collector(simulator, entropy, record)
    planning = -time.perf_counter()
    with Progress(strategy.budget, shown=progress) as bar:
        try:
            while (schedule := strategy.ask()) is not None:
                strategy.tell(collector.collect(schedule, bar))
                estimate = strategy.estimate()
                bar.show(estimate)
                collector.finish_round(strategy.spent, estimate)
        finally:
            if record is not None:
                record.close()
    planning += time.perf_counter()
    return Evaluation(
        estimate=strategy.estimate(),
        transitions=strategy.spent,
        trajectories=collector.trajectories,
        uniform_transitions=_uniform_transitions(strategy),
        strategy=type(strategy).__name__.lower(),
        environment=environment,
        policy=policy,
        seed=entropy,
        reproducible=reproducible,
        seconds=collector.seconds,
        planning_seconds=max(0.0, planning - collector.busy_seconds),
        warnings=() if reproducible else (f"{policy} draws random numbers that the seed does not control",),
    )


class _Collector:
    """Collects schedules in pieces, from the run file what it has, the rest from the simulator."""

    def __init__(self, simulator: Simulator, entropy: int, record: RunFile | None) -> None:
        self._simulator = simulator
        self._entropy = entropy
        self._record = record
        self._recorded = deque(record.pieces() if record is not None else ())
        self._round = 0
        self._transitions = 0
        self.trajectories = 0
        self.seconds = 0.0  # of all pieces, recorded ones too
        self.busy_seconds = 0.0  # spent here and now

    def collect(self, schedule: Schedule, bar: Progress) -> Trajectories:
        """Returns trajectories of all lengths of a schedule."""
        started = time.perf_counter()
        lengths, parts, done = schedule.lengths, [], 0
        while done < lengths.size:
            piece = self._recorded.popleft() if self._recorded else self._simulate(lengths[done:])
            part = piece.trajectories
            if piece.round != self._round or not np.array_equal(part.lengths, lengths[done : done + len(part)]):
                raise RunFileError("run file was recorded by another version of rido, which planned otherwise")
            parts.append(part)
            done += len(part)
            self.trajectories += len(part)
            self.seconds += piece.seconds
            self._transitions += part.transitions
            bar.advance(part.transitions)
        self.busy_seconds += time.perf_counter() - started
        return concatenate(parts)

    def finish_round(self, transitions: int, estimate: Estimate) -> None:
        """Notes how far the run is."""
        if self._record is not None and not self._recorded:
            self._record.note_progress(
                self._round, transitions, self.trajectories, estimate.value, estimate.standard_error
            )
        self._round += 1

    def _simulate(self, lengths: Any) -> Piece:
        """Collects the first of these lengths: one for each environment, and more if they are quick."""
        rate = self._transitions / self.seconds if self.seconds > 0 else 0.0
        count = int(np.searchsorted(np.cumsum(lengths), rate * _PIECE_SECONDS))
        count = min(max(count, self._simulator.num_envs), lengths.size)
        seeds = trajectory_seeds(self._entropy, self.trajectories, count)
        started = time.perf_counter()
        try:
            trajectories = self._simulator.rollout(lengths[:count], seeds)
        except SimulationError as error:
            index = self.trajectories + error.trajectory
            raise SimulationError(index, error.step, error.seed, error.reason) from error.__cause__
        piece = Piece(self._round, trajectories, time.perf_counter() - started)
        if self._record is not None:
            self._record.append(piece)
        return piece


def _uniform_transitions(strategy: Strategy) -> float:
    """Returns what full-length trajectories would cost for the standard error that was reached."""
    moments, error = strategy.moments, strategy.estimate().standard_error
    if not 0 < error < math.inf:
        return math.nan
    variance = float(moments.weights().sum())  # of the return of one trajectory
    return variance / error**2 * float(moments.survival.sum()) if variance > 0 else math.nan


def _horizon(env: Any, horizon: int | None, gamma: float) -> int:
    if horizon is not None:
        return _checks.integer("horizon", horizon, least=1)
    limit = None
    if isinstance(env, str):
        from rido.simulators.environments import find_spec

        limit = find_spec(env).max_episode_steps
    elif getattr(env, "spec", None) is not None:
        limit = env.spec.max_episode_steps
    return limit if limit is not None and (gamma == 1 or limit < horizon_for(gamma)) else horizon_for(gamma)


def _environment_name(env: Any) -> str:
    if isinstance(env, str):
        return env
    spec = getattr(env, "spec", None)
    return spec.id if spec is not None else getattr(env, "__qualname__", type(env).__name__)
