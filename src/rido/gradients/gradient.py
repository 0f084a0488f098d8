"""gradient(): in which direction does a policy get better? GPOMDP whose trajectories have the best lengths."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, Required, Unpack

import numpy as np
from numpy.typing import NDArray

from rido.core import checks
from rido.core.digits import entries, to_digits
from rido.core.estimate import Estimate
from rido.core.joint import JointEstimate
from rido.core.options import REQUIRED, SPEND, Option, declares, takes
from rido.core.schedule import Schedule
from rido.core.trajectories import concatenate
from rido.evaluation.evaluate import Method
from rido.evaluation.problem import Problem
from rido.evaluation.progress import Progress
from rido.predictors.base import Critic
from rido.predictors.selection import CriticChoice
from rido.simulators import factory
from rido.simulators.base import Batch, SimulationError, close, trajectory_seeds
from rido.simulators.options import WITHOUT, Options
from rido.simulators.sobol import check_seeds
from rido.strategies import Strategy
from rido.strategies.names import StrategyName

if TYPE_CHECKING:
    from rido.policies.differentiable import DifferentiablePolicy
    from rido.simulators.environments_simulator import EnvironmentsSimulator

_DIRECTION_STREAM = 3  # last spawn key of the random numbers that directions are drawn from


@dataclass(frozen=True, eq=False)
class Gradient:
    """An estimate of the gradient of the expected discounted return with respect to a policy's parameters.

    Attributes:
        value: the gradient in the structure of the parameters: a dictionary of arrays by name in torch, the same pytree
            in JAX.
        vector: the same as one vector.
        standard_error: root of the expected squared distance from the true gradient.
        returns: estimate of the expected return, from the same trajectories.
        directions: onto which scores were projected, one row each; the axes where these are no more.
        projections: estimates of the return and of the gradient's projections onto the directions, with covariance.
        transitions: transitions taken.
        trajectories: trajectories collected.
        uniform_transitions: transitions that full-length trajectories would have needed for this error; NaN where the
            data does not tell.
        strategy: name of the strategy.
        baseline: name of the baseline, or "none".
        critic: name of the critic, or "none".
        environment: name of the environment.
        policy: name of the policy.
        seed: what all randomness came from.
        seconds: time that it took.
        warnings: what the reader should know before trusting the numbers.
        remarks: what else the reader may want to know.
    """

    value: Any
    vector: NDArray[np.float64]
    standard_error: float
    returns: Estimate
    directions: NDArray[np.float64]
    projections: JointEstimate
    transitions: int
    trajectories: int
    uniform_transitions: float
    strategy: str
    baseline: str
    critic: str
    environment: str
    policy: str
    seed: int
    seconds: float
    warnings: tuple[str, ...]
    remarks: tuple[str, ...]

    @property
    def norm(self) -> float:
        """Length of the vector."""
        return float(np.linalg.norm(self.vector))

    @property
    def relative_error(self) -> float:
        """The standard error over the length of the vector: the noise-to-signal ratio; above 1 most of it is noise."""
        return self.standard_error / self.norm if self.norm > 0 else math.inf

    @property
    def schedule(self) -> Schedule:
        """Planned samples of each time step."""
        return self.returns.schedule

    def summary(self) -> str:
        """Returns what was found, in a few lines."""
        value, low, high = to_digits(self.returns.value, *self.returns.interval())
        used = {"baseline": self.baseline, "critic": self.critic}
        helped = "".join(f", {name} {what}" for name, what in used.items() if what != "none")
        lines = [
            f"policy gradient of {self.policy} in {self.environment}: {self.vector.size:,} parameters, length "
            f"{self.norm:.4g}, standard error {self.standard_error:.3g}",
            f"expected return {value}, 95% interval [{low}, {high}]",
            f"{self.transitions:,} transitions in {self.trajectories:,} trajectories of up to {self.schedule.horizon} "
            f"steps, gamma {self.returns.gamma:g}, strategy {self.strategy}{helped}",
        ]
        if math.isfinite(self.uniform_transitions) and self.strategy != "uniform":
            needed = float(f"{self.uniform_transitions:.2g}")
            lines.append(f"full-length trajectories would have needed about {needed:,.0f} transitions for this")
        return "\n".join([*lines, *self.remarks, *(f"warning: {warning}" for warning in self.warnings)])

    def to_dict(self) -> dict[str, Any]:
        """Returns everything but the vector as plain numbers, strings and lists, with None where not finite."""
        low, high = self.returns.interval()
        return entries(
            self,
            without=("value", "vector", "returns", "directions", "projections"),
            norm=self.norm,
            relative_error=self.relative_error,
            **{"return": self.returns.value, "return_low": low, "return_high": high},
            parameters=self.vector.size,
            gamma=self.returns.gamma,
            horizon=self.schedule.horizon,
            counts=self.schedule.counts.tolist(),
        )


@declares
class GradientOptions(Options, total=False):
    """Options of gradient(), beside those that other functions take too.

    Args:
        budget: transitions to spend. It is never exceeded. At most 100 more, which are not counted, rehearse what runs
            side by side.
        strategy: "adaptive", "uniform", "robust" or "rido", or one with its own settings, such as
            ``rido.Adaptive(unbiased=True)``.
        baseline: "step" subtracts from the reward to go what trajectories get on average from that step on. It is
            estimated for each of three teams of trajectories from the other two, so that it adds no bias.
        critic: a value function ``V(observations, steps_to_go)`` on batches, whose temporal-difference residuals take
            the place of the rewards; "policy" for the agent's own. A wrong one costs precision, not correctness.
        projections: random directions onto which scores are projected for plans and for the error, which more of them
            make more precise. Policies with no more parameters need no projection.
    """

    budget: Required[Annotated[int, Option(REQUIRED, SPEND)]]
    strategy: Annotated[StrategyName | Strategy, Option("adaptive")]
    baseline: Annotated[Literal["step"] | None, Option(None, rule=partial(checks.choice, options=("step",)))]
    critic: Annotated[Literal["policy"] | Callable[..., Any] | None, Option(None)]
    projections: Annotated[int, Option(16, rule=partial(checks.integer, least=1))]


@takes(GradientOptions, without=WITHOUT["gradient"])
def gradient(env: Any, policy: Any, *, gamma: float, **options: Unpack[GradientOptions]) -> Gradient:
    """Estimates the gradient of the expected discounted return with the least error for a budget of transitions.

    It is GPOMDP's estimate. Time steps that add much to its error get many samples, the others few. Actions are
    sampled.

    Args:
        env: a Gymnasium id, a function that makes an environment, an environment, or a VectorEnv without autoreset.
        policy: a ``torch.nn.Module`` that maps a batch of observations to a ``torch.distributions`` distribution over
            actions, an on-policy model of Stable-Baselines3, or a :class:`rido.jax.StochasticPolicy`.
        gamma: discount factor in (0, 1].

    Returns:
        The gradient, its error, and an estimate of the return.

    Example:
        >>> import torch
        >>> class Gaussian(torch.nn.Linear):
        ...     def forward(self, states):
        ...         return torch.distributions.Normal(super().forward(states), 1.0)
        >>> policy = Gaussian(1, 1, bias=False, dtype=torch.float64)
        >>> found = gradient("rido/LQG-v0", policy, gamma=0.9, horizon=20, budget=2000, seed=0)
        >>> found.value["weight"].shape, found.transitions
        ((1, 1), 2000)
    """
    started = time.perf_counter()
    env = factory.import_environment(env)
    if factory.is_simulator(env) or factory.is_in_jax(env):
        raise ValueError(f"env must be an environment of Gymnasium for a policy gradient, got {checks.shown(env)}")
    if isinstance(options["critic"], str):
        checks.choice("critic", options["critic"], ("policy",))
    problem = Problem.resolve(env, gamma, options)
    spending = _begin(problem, options)
    entropy = secrets.randbits(64) if options["seed"] is None else options["seed"]
    simulator, acting = _open(problem, policy)
    try:
        choice = CriticChoice.resolve(options["critic"], simulator)
        found = _estimate(spending, simulator, acting, choice.critic, entropy, options)
        notes = (*check_seeds(simulator, entropy, sobol=False), *simulator.found.notes)
        remarks = simulator.found.remarks
    finally:
        warnings = close(simulator)
    return Gradient(
        **found,
        strategy=spending.name,
        baseline=options["baseline"] or "none",
        critic=choice.name,
        environment=problem.name(),
        policy=acting.name,
        seed=entropy,
        seconds=time.perf_counter() - started,
        warnings=(*dict.fromkeys(notes), *acting.warnings, *warnings),
        remarks=(*([acting.normalisation] if acting.normalisation else []), *remarks),
    )


def _begin(problem: Problem, options: GradientOptions) -> Strategy:
    cross_fitted = options["baseline"] is not None
    strategy = Method.of(options["strategy"], None, has_critic=False).begin(problem, options["budget"])
    if strategy.until is not None:
        raise ValueError(f"strategy must have until=None: it is about the return, got {strategy.until!r}")
    if strategy.options.get("unbiased") and cross_fitted:
        raise ValueError(
            "baseline must be None with Adaptive(unbiased=True), whose halves are planned before a baseline is known: "
            "give a critic, or use strategy 'adaptive'"
        )
    strategy.divide(cross_fitted=cross_fitted)
    return strategy


def _open(problem: Problem, policy: Any) -> tuple[EnvironmentsSimulator, DifferentiablePolicy]:
    from rido.policies.differentiable import differentiable_policy
    from rido.simulators.environments_simulator import EnvironmentsSimulator
    from rido.simulators.opening import open_environments

    envs = open_environments(problem.env, problem.horizon, problem.options)
    try:
        acting = differentiable_policy(policy, envs.observation_space, envs.action_space)
    except BaseException:
        envs.close()
        raise
    return EnvironmentsSimulator(envs, acting, problem.horizon), acting


def _estimate(
    strategy: Strategy,
    simulator: EnvironmentsSimulator,
    policy: DifferentiablePolicy,
    critic: Critic | None,
    entropy: int,
    options: GradientOptions,
) -> dict[str, Any]:
    """Spends the budget; returns the fields of a :class:`Gradient` that follow from what was collected."""
    from rido.gradients.gpomdp import Gpomdp, random_directions

    generator = np.random.default_rng(np.random.SeedSequence(entropy, spawn_key=(_DIRECTION_STREAM,)))
    directions = random_directions(policy.size, options["projections"], generator)
    horizon, gamma, division = strategy.horizon, strategy.gamma, strategy.division
    estimator = Gpomdp(policy, horizon=horizon, gamma=gamma, directions=directions, critic=critic)
    strategy.set_objective(estimator.metric)
    baselines = None
    with Progress(strategy.budget, shown=options["progress"]) as bar:
        while strategy.ask() is not None:
            signals = []
            for observed, teams in _round(strategy, simulator, entropy):
                signals.append(estimator.add(observed, teams))
                bar.advance(observed.trajectories.transitions)
            batch = concatenate(signals)
            if options["baseline"] is None:
                strategy.tell(batch)
            else:
                baselines = estimator.baselines(division)
                signal = estimator.groups(division, baselines)
                strategy.tell(batch, signal=signal, same_means=not division.cross_fitted)
    joint = strategy.joint()
    variance = float(np.trace(joint.covariance[1:, 1:]))
    return dict(
        value=policy.unflatten(vector := estimator.vector(division, baselines)),
        vector=vector,
        standard_error=math.sqrt(variance),
        returns=strategy.estimate(),
        directions=directions,
        projections=joint,
        transitions=strategy.spent,
        trajectories=strategy.trajectories,
        uniform_transitions=_uniform_transitions(strategy, variance),
    )


def _round(
    strategy: Strategy, simulator: EnvironmentsSimulator, entropy: int
) -> Iterator[tuple[Batch, NDArray[np.int64]]]:
    """Yields the trajectories of a plan and their teams, up to the last one that the budget pays for.

    First come those that it pays for in any case, then those that early ends paid for, and so on.
    """
    lengths, teams = strategy.planned
    first, room = strategy.trajectories, strategy.budget - strategy.spent
    while lengths.size and lengths[0] <= room:
        count = int(np.searchsorted(lengths.cumsum(), room, side="right"))
        try:
            observed = simulator.observe(lengths[:count], trajectory_seeds(entropy, first, count))
        except SimulationError as error:
            raise error.at(first + error.trajectory) from error.__cause__
        yield observed, teams[:count]
        first, room = first + count, room - observed.trajectories.transitions
        lengths, teams = lengths[count:], teams[count:]


def _uniform_transitions(strategy: Strategy, variance: float) -> float:
    """Returns the transitions that full-length trajectories would need for this expected squared error."""
    moments = strategy.moments
    if moments.counts[-1] < 2 or not 0 < variance < math.inf:
        return math.nan
    single = float(moments.weights().sum())
    return single / variance * float(moments.survival.sum()) if single > 0 else math.nan
