"""evaluate(): how good is a policy? Checks what was asked for, and hands it to the loop that collects."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Unpack, get_args

from rido.core import checks
from rido.core.options import ESTIMATE, SPEND, Option, declares, takes
from rido.evaluation.budgets import Goal, TimeBudget, all_goals
from rido.evaluation.components import Components, check_gammas
from rido.evaluation.loop import EvaluationTask, run_task
from rido.evaluation.problem import Problem
from rido.evaluation.result import Evaluation
from rido.predictors.base import Critic
from rido.predictors.selection import RESET_SHARE
from rido.record.fingerprint import identify
from rido.simulators import factory
from rido.simulators.base import Simulator
from rido.simulators.components import TransitionFunction, check_components
from rido.simulators.options import OWN, Options
from rido.simulators.sobol import refuse_without_points
from rido.strategies import Strategy
from rido.strategies.names import STRATEGIES, StrategyName

CriticName = Literal["policy", "fit", "auto"]

_SUMMED_BUDGET = 1_000_000  # transitions beyond which rewards stay on a device that can sum them up
_SUMMED_HORIZON = 4096  # steps up to which it can: sums are T x T tables


@declares
class EvaluateOptions(Options, total=False):
    """Options of evaluate(), beside those that other functions take too.

    Args:
        components: what else to estimate from the same trajectories: names in ``info``, such as ``("cost",)``, or a
            function of observation, action, reward, next observation and info that returns a dictionary of numbers.
            Vector rewards have a component for each entry, which names here rename. Not available with a critic. See
            docs/components.md.
        plan_for: the component that trajectory lengths are planned for. It is also that of ``value`` and ``until``;
            "all" (the default with several) plans for all of them, each in units of the standard deviation of its
            return.
        reward_range: lowest and highest possible reward, for an interval that is guaranteed. The result's
            ``guaranteed_interval`` holds for any such rewards. It is much wider, and not available with a critic.
        budget: transitions to spend. It is never exceeded, but for at most 100 (in each of two workers) that rehearse
            what runs side by side, see docs/warnings.md. Needed unless there is a ``time_budget``.
        time_budget: seconds to spend, instead of transitions or too. They begin when packages are imported and
            environments made. What steps and resets cost is measured first, and plans weigh it; the transitions that
            this takes are counted. The time may be exceeded a little, because a started trajectory always finishes.
        until: stop when the 95% interval is at most this much to either side. The budget is then the most to spend.
            With strategy "adaptive" only.
        max_resets: the most resets that estimate the critic's expectation over first states. There are as many as make
            them 5% of the variance; if not given, at most two for each transition of the budget.
        reset_cost: what such a reset costs in transitions. If it is above 0, at most a tenth of the budget goes there.
        strategy: what decides on the lengths of trajectories: "adaptive", "uniform", "robust" or "rido"; one with its
            own settings, such as ``rido.Adaptive(unbiased=True)``; or a function of horizon, budget and gamma that
            returns a strategy.
        critic: a value function as a control variate: only its residual is sampled. A wrong one costs precision, not
            correctness. A function ``V(observations, steps_to_go)`` on batches; "policy" for the agent's own; "fit" for
            ones that are fitted again after each phase, for each of three teams of trajectories on the other two;
            "auto" for the agent's own at first and then what promises the least error, which may be none. In JAX it is
            a function of one observation, and runs on the device.
        run: a file that records the run, from which it resumes. With a larger budget or a smaller ``until`` it is
            extended, unless it has a critic or a time budget. Policies, critics and simulators are known by their
            content, or by an attribute ``fingerprint`` if they have one.
    """

    components: Annotated[
        Sequence[str] | TransitionFunction | None,
        Option(
            None,
            ESTIMATE,
            rule=lambda name, value: check_components(value),
            switch=("--component", "A number in info to estimate too, such as cost; may be repeated."),
            refused={OWN: "name them in its attribute components"},
        ),
    ]
    plan_for: Annotated[str | None, Option(None, ESTIMATE)]
    reward_range: Annotated[tuple[float, float] | None, Option(None, ESTIMATE)]
    budget: Annotated[int | None, Option(None, SPEND)]
    time_budget: Annotated[float | None, Option(None, SPEND)]
    until: Annotated[float | None, Option(None, SPEND)]
    max_resets: Annotated[
        int | None, Option(None, SPEND, rule=partial(checks.integer, least=2, most=checks.MOST_TRANSITIONS))
    ]
    reset_cost: Annotated[float, Option(0.0, SPEND)]
    strategy: Annotated[
        StrategyName | Strategy | Callable[..., Strategy],
        Option("adaptive", switch=("--strategy", "What decides on the lengths of trajectories.")),
    ]
    critic: Annotated[CriticName | Callable[..., Any] | None, Option(None)]
    run: Annotated[
        str | Path | None, Option(None, switch=("--run", "Record the run in this file, resume it, or extend it."))
    ]


@takes(EvaluateOptions, gamma=lambda name, value: check_gammas(value))
def evaluate(
    env: Any, policy: Any = None, *, gamma: float | Sequence[float], **options: Unpack[EvaluateOptions]
) -> Evaluation:
    """Estimates the expected discounted return of a policy with the least error for a budget of transitions.

    Options come in three groups: what to estimate, how much to spend (from ``budget``), and how to collect.

    Args:
        env: a Gymnasium id, a function that makes an environment, an environment, a VectorEnv without autoreset, an
            environment in JAX (see :func:`rido.jax.adapt`), or any simulator of your own with a method
            ``rollout(lengths, seeds)``; or the "module:attribute" of one.
        policy: an SB3 model or the path of its zip, an npz, an ONNX file, "hf:org/name" on the hub, an agent that comes
            with rido ("rido:pendulum"), a torch module, an object with ``predict``, a function of one
            observation or of a batch (see :func:`rido.batched`), "random", or "module:attribute" (see
            :func:`rido.policies.resolve.resolve_policy`); in JAX a function of one observation.
            Not needed for the paper's domains (``rido/LQG-v0`` and so on) and simulators of your own.
        gamma: discount factor in (0, 1]; several estimate all of them from the same trajectories.

    Returns:
        The estimate, its error bars, and where the samples went.

    Example:
        >>> result = evaluate("rido/LQG-v0", budget=2000, gamma=0.9, horizon=50, seed=1)
        >>> result.transitions
        2000
    """
    gammas: Any = gamma  # checked
    method = Method.of(options["strategy"], options["until"], has_critic=options["critic"] is not None)
    if options["reward_range"] is not None and options["critic"] is not None:
        raise ValueError(
            f"reward_range must be None with a critic, whose residual has no range, got {options['reward_range']}"
        )
    if options["budget"] is None and options["time_budget"] is None:
        raise ValueError("budget must be given, in transitions, or time_budget, in seconds")
    problem = Problem.resolve(env, max(gammas), options, EvaluateOptions)
    if problem.own and policy is not None:
        raise ValueError(f"policy must be None with {OWN}, got {checks.shown(policy)}: it acts by itself")
    simulated = problem.options["simulator"]
    if options["components"] is not None and not factory.runs_gymnasium(simulated):
        raise ValueError(
            f"components need Gymnasium environments in this process, in workers or on Ray, got simulator={simulated!r}"
        )
    if options["budget"] is not None:  # raises before anything is started
        method = replace(method, first=method.begin(problem, options["budget"]))
    closing: list[str] = []
    with problem.simulate(policy, closing) as simulator:
        configuration = problem.configuration()
        if options["run"] is not None:
            configuration |= problem.fingerprints(simulator)
            if callable(options["components"]):
                configuration["components_fingerprint"] = identify("components", options["components"])
        columns = Components.resolve(simulator.capabilities.components, gammas, options["plan_for"])
        task = _task(problem, simulator, options, method, columns)
        result = run_task(task, simulator, problem.name(simulator), configuration)
    return replace(result, warnings=(*result.warnings, *closing))


@dataclass(frozen=True)
class Method:
    """How strategies are made."""

    make: Callable[..., Strategy]  # makes one for a horizon, a budget and a discount factor
    open: frozenset[str] = frozenset()  # settings that it accepts and that the user left open
    until: float | None = None  # half-width of the 95% interval at which to stop
    first: Strategy | None = None  # one for the whole budget, if that is known

    @classmethod
    def of(cls, strategy: Any, until: float | None, *, has_critic: bool) -> Method:
        """Checks what evaluate() was given as ``strategy`` and ``until``."""
        make: Callable[..., Strategy]
        known: Mapping[str, Any] = {}
        accepts: frozenset[str] = frozenset()
        if isinstance(strategy, str):
            kind = STRATEGIES[checks.choice("strategy", strategy, get_args(StrategyName))]
            name, make, accepts = strategy, kind, kind.accepts
        elif isinstance(strategy, Strategy):
            if strategy.begun:
                raise ValueError("strategy must leave horizon, budget and gamma open, got one that has them")
            name, known, accepts = type(strategy).__name__.lower(), strategy.options, strategy.accepts
            make = strategy.begin
        else:
            name, make = strategy, partial(_begin, checks.function("strategy", strategy))
        if until is not None and "until" not in accepts:
            raise ValueError(f"until works only with strategy 'adaptive' or your own that accepts it, not {name!r}")
        if known.get("until") is not None:
            if until is not None:
                raise ValueError(f"until must be given once, got {until!r} and the strategy's {known['until']!r}")
            until = known["until"]
        if until is not None:
            # Resets for a critic come last, and add their share to the variance.
            make = partial(make, until=until * math.sqrt(1 - (RESET_SHARE if has_critic else 0.0)))
        return cls(make, accepts - {each for each, value in known.items() if value and each != "until"}, until)

    def begin(self, problem: Problem, budget: int, **settings: Any) -> Strategy:
        """Returns a strategy that begins to spend a budget."""
        if self.first is not None and self.first.budget == budget and not settings:
            return self.first
        return self.make(horizon=problem.horizon, budget=budget, gamma=problem.gamma, **settings)


def _begin(strategy: Callable[..., Strategy], **settings: Any) -> Strategy:
    made: Strategy = checks.instance("strategy", checks.called("strategy", strategy, **settings), Strategy)
    return made


def _task(
    problem: Problem, simulator: Simulator, options: EvaluateOptions, method: Method, columns: Components | None
) -> EvaluationTask:
    """Returns what the loop is to do, decided by what the simulator can do."""
    able, horizon, critic, run = simulator.capabilities, problem.horizon, options["critic"], options["run"]
    if columns is not None and (critic is not None or options["reward_range"] is not None):
        given = "a critic, which is a value function of the reward alone" if critic is not None else "reward_range"
        raise ValueError(f"components, vector rewards and several gamma do not go with {given}")
    settings: dict[str, Any] = {}
    if "lockstep" in method.open and able.in_time_of_one:
        settings["lockstep"] = able.in_time_of_one
    size, timing = options["budget"] or 0, None
    if able.remembers():
        if method.until is not None:
            raise ValueError(
                f"until must be None with {able.policy.name if able.policy else 'a policy'}, which remembers earlier "
                "calls, so that its trajectories cannot be cut: give it a method reset()"
            )
        method, settings, size = Method(STRATEGIES["uniform"]), {}, max(size - size % horizon, horizon)
    if options["time_budget"] is not None:
        timing = TimeBudget.measure(simulator, horizon, options)
        size = timing.first_budget(horizon)
        if "reset_price" in method.open:
            settings["reset_price"] = timing.costs.reset_price
    first = method.begin(problem, size, **settings)
    goals = [Goal.of(first)] if timing is not None else all_goals(run, first)
    if len(goals) > 1:  # a run that is extended is replayed from its beginning
        if "until" in method.open:
            settings["until"] = goals[0].until
        first = method.begin(problem, goals[0].budget, **settings)
    sobol = options["starts"] == "sobol"
    if sobol:
        refuse_without_points(simulator)
    on_device = critic is None
    if able.jax_critics and callable(critic):
        from rido.predictors.jax import JaxCritic

        critic = critic if isinstance(critic, Critic) else JaxCritic(critic)
        on_device = isinstance(critic, JaxCritic)
    large = horizon <= _SUMMED_HORIZON and first.budget > _SUMMED_BUDGET and not sobol
    summing = able.summarises and on_device and large and run is None and columns is None  # these need rewards
    if summing and options["reward_range"] is not None:
        raise ValueError(
            f"reward_range needs run=FILE or a budget of at most {_SUMMED_BUDGET:,} transitions, beyond which a device "
            f"keeps the rewards to itself, got {first.budget:,}"
        )
    make = partial(method.make, **settings)
    return EvaluationTask(options, make, first, tuple(goals), critic, method.until, summing, timing, columns)
