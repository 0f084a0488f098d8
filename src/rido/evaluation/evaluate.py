"""evaluate(): how good is a policy? Checks what was asked for, and hands it to the loop that collects."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from rido.core import checks
from rido.evaluation.components import Components, check_gammas
from rido.evaluation.extension import Goal, all_goals
from rido.evaluation.loop import Task, run_task
from rido.evaluation.result import Evaluation
from rido.evaluation.time_budget import TimeBudget, time_spent
from rido.predictors.base import Critic
from rido.predictors.selection import RESET_SHARE
from rido.record.fingerprint import identify
from rido.simulators import factory
from rido.simulators.base import Simulator, close, describe
from rido.simulators.components import TransitionFunction, check_components
from rido.simulators.factory import SimulatorName
from rido.simulators.identity import environment_name, identities
from rido.simulators.sobol import Starts, refuse_without_points
from rido.strategies import Strategy
from rido.strategies.names import STRATEGIES, StrategyName

CriticName = Literal["policy", "fit", "auto"]

_SUMMED_BUDGET = 1_000_000  # transitions beyond which rewards stay on a device that can sum them up
_SUMMED_HORIZON = 4096  # steps up to which it can: sums are T x T tables


@checks.checked(gamma=None, max_resets=partial(checks.integer, least=2))
def evaluate(
    env: Any,
    policy: Any = None,
    *,
    gamma: float | Sequence[float],
    horizon: int | None = None,
    components: Sequence[str] | TransitionFunction | None = None,
    plan_for: str | None = None,
    end_on_truncation: bool = False,
    env_kwargs: Mapping[str, Any] | None = None,
    deterministic: bool = True,
    reward_range: tuple[float, float] | None = None,
    budget: int | None = None,
    time_budget: float | None = None,
    until: float | None = None,
    max_resets: int | None = None,
    reset_cost: float = 0.0,
    strategy: StrategyName | Strategy | Callable[..., Strategy] = "adaptive",
    critic: CriticName | Callable[..., Any] | None = None,
    starts: Starts = "random",
    seed: int | None = None,
    reseed: bool = True,
    num_envs: int | None = None,
    workers: int = 1,
    simulator: SimulatorName | Callable[..., Simulator] | None = None,
    step_timeout: float | None = None,
    run: str | Path | None = None,
    progress: bool | None = None,
    trust: bool = False,
) -> Evaluation:
    """Estimates the expected discounted return of a policy with the least error for a budget of transitions.

    Arguments come in three groups: what to estimate (to ``reward_range``), how much to spend (to ``reset_cost``), and
    how to collect.

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
        horizon: steps over which the return is summed. If not given, as many as leave out 0.1% of the return
            of constant rewards, or the environment's own time limit if that is less; a function that makes an
            environment is called once more for it. A longer horizon lifts that limit, and the result says so.
        components: what else to estimate from the same trajectories, see docs/components.md: names in ``info``, such as
            ``("cost",)``, or a function of observation, action, reward, next observation and info that returns a
            dictionary of numbers. Vector rewards have a component for each entry, which names here rename. Not
            available with a critic.
        plan_for: the component that trajectory lengths are planned for, which ``value`` and ``until`` are about too;
            "all" (the default with several) for all of them, each in units of the standard deviation of its return.
        end_on_truncation: whether the environment's own truncation ends an episode, after which all rewards are 0, as
            in SB3's ``evaluate_policy``. If not, the time limit is lifted, and another truncation is an error.
        env_kwargs: arguments of the environment, with an id.
        deterministic: whether an agent takes its most likely action or samples one.
        reward_range: lowest and highest possible reward. The result then has a ``guaranteed_interval`` too, which holds
            for any such rewards. It is much wider, and not available with a critic.
        budget: transitions to spend; never exceeded, but for at most 100 (in each of two workers) that rehearse what
            runs side by side, see docs/warnings.md. Needed unless there is a ``time_budget``.
        time_budget: seconds to spend, from when packages are imported and environments made. What steps and resets cost
            is measured first, and plans weigh it; the transitions that this takes are counted. The time may be exceeded
            a little, because a started trajectory always finishes.
        until: stop when the 95% interval is at most this much to either side; the budget is then the most to spend.
            With strategy "adaptive" only.
        max_resets: the most resets that estimate the critic's expectation over first states. There are as many as
            make them 5% of the variance; if not given, at most two for each transition of the budget.
        reset_cost: what such a reset costs in transitions. Where it does, at most a tenth of the budget goes there.
        strategy: "adaptive", "uniform", "robust" or "rido"; one with settings of its own, such as
            ``rido.Adaptive(unbiased=True)``; or a function of horizon, budget and gamma that returns a strategy.
        critic: a value function as a control variate: only its residual is sampled. A wrong one costs precision, not
            correctness. A function ``V(observations, steps_to_go)`` on batches; "policy" for the agent's own; "fit" for
            ones that are fitted again after each phase, for each of three teams of trajectories on the other two;
            "auto" for the agent's own at first and then what promises the least error, which may be none. In JAX it is
            a function of one observation, and runs on the device.
        starts: "sobol" takes the random numbers of resets from a low-discrepancy sequence (Sobol's, scrambled), which
            covers the possible starts more evenly than independent ones. It gains where returns depend smoothly on the
            start; see docs/starts.md.
        seed: what all randomness comes from; drawn and reported if not given.
        reseed: whether each trajectory's reset gets a seed of its own. Where seeding takes most of the time, as in
            Atari games, False seeds each environment once. The result is then not reproducible, and warns of it.
        num_envs: environments to run side by side, in each worker, where the policy is known to act on batches; a
            policy of one observation acts in one environment. It does not change the result.
        workers: processes to collect in. They do not change the result, and pay where a step of the environment is
            slow; see :class:`rido.simulators.parallel.processes.WorkerSimulator`.
        simulator: "gymnasium", "workers", "envpool", "ray", "jax", or a function that makes a simulator and takes what
            they take, such as ``partial(RaySimulator, address="auto")``.
        step_timeout: seconds without a single step or reset after which collecting counts as stuck. It is tried once
            more; then an error names the trajectory, its seed and its step. A call in this process cannot be
            interrupted, so one worker collects where ``workers`` is 1, with the same result. If not given, workers
            wait for 300 seconds, and this process for ever.
        run: a file that records the run. If it exists, the run resumes; with a larger budget or a smaller ``until``
            it is extended, unless it has a critic or a time budget. Policies, critics and simulators are known by
            their content, or by an attribute ``fingerprint`` if they have one.
        progress: whether to show a progress bar; if not given, when standard error is a terminal.
        trust: whether the files of an SB3 zip may run code when they are loaded. Agents made of the classes of SB3,
            torch, Gymnasium and numpy load without; see :func:`rido.policies.sb3_zip.load_agent`.

    Returns:
        The estimate, its error bars, and where the samples went.

    Example:
        >>> result = evaluate("rido/LQG-v0", budget=2000, gamma=0.9, horizon=50, seed=1)
        >>> result.transitions
        2000
    """
    gammas, asked = check_gammas(gamma), check_components(components)
    gamma = max(gammas)
    if simulator != "jax":
        env = factory.import_environment(env)
    own = factory.is_simulator(env)
    if own:
        factory.refuse_ignored(
            policy=policy,
            env_kwargs=env_kwargs,
            num_envs=num_envs,
            workers=workers,
            simulator=simulator,
            step_timeout=step_timeout,
            deterministic=deterministic,
            end_on_truncation=end_on_truncation,
            reseed=reseed,
            components=asked,
        )
    ends: dict[str, Any] = dict(end_on_truncation=end_on_truncation, reseed=reseed)
    env, simulator, horizon = factory.resolve_environment(
        env, horizon, gamma, env_kwargs=env_kwargs, simulator=simulator, **ends
    )
    if asked is not None and not factory.runs_gymnasium(simulator):
        raise ValueError(
            f"components must come with Gymnasium environments, in this process, in workers or on Ray, got {simulator=}"
        )
    settings, until = _resolve_strategy(strategy, until, has_critic=critic is not None)
    make = settings.begin if isinstance(settings, Strategy) else partial(_begin, settings)
    if reward_range is not None and critic is not None:
        raise ValueError(f"reward_range must come without a critic, whose residual has no range, got {critic!r}")
    checks.choice("starts", starts, get_args(Starts))
    if budget is None and time_budget is None:
        raise ValueError("budget must be given, in transitions, or time_budget, in seconds")
    if budget is not None:
        make(horizon=horizon, budget=budget, gamma=gamma)  # raises before anything is started

    def prepare(running: Simulator) -> Task:
        timing, size, chosen = None, budget or 0, make
        columns = Components.resolve(describe(running).components, gammas, plan_for)
        if columns is not None and (critic is not None or reward_range is not None):
            given = "a critic, which is a value function of the reward alone" if critic is not None else "reward_range"
            raise ValueError(f"components, vector rewards and several gamma must come without {given}")
        able, control, on_device = describe(running), critic, critic is None
        known = settings.options if isinstance(settings, Strategy) else {}
        accepts = settings.accepts if isinstance(settings, Strategy) else frozenset()
        if "lockstep" in accepts and able.in_time_of_one and not known.get("lockstep"):
            chosen = partial(chosen, lockstep=able.in_time_of_one)
        if able.remembers():
            if until is not None:
                raise ValueError(
                    f"until must be None with {able.policy.name if able.policy else policy}, which remembers earlier "
                    "calls, so that its trajectories cannot be cut: give it a method reset()"
                )
            chosen, size = STRATEGIES["uniform"]().begin, max(size - size % horizon, horizon)
        if time_budget is not None:
            timing = TimeBudget.measure(
                running,
                horizon=horizon,
                seconds=time_budget,
                keep_for_resets=critic is not None,
                seed=seed,
                before=time_spent(run),
                budget=budget,
            )
            size = timing.first_budget(horizon)
            if "reset_price" in accepts and not known.get("reset_price"):
                chosen = partial(chosen, reset_price=timing.costs.reset_price)
        first = chosen(horizon=horizon, budget=size, gamma=gamma)
        goals = [Goal.of(first)] if time_budget is not None else all_goals(run, first)
        if len(goals) > 1:  # a run that is extended is replayed from its beginning
            if "until" in accepts:
                chosen = partial(chosen, until=goals[0].until)
            first = chosen(horizon=horizon, budget=goals[0].budget, gamma=gamma)
        if starts == "sobol":
            refuse_without_points(running, reseed=reseed)
        if able.jax_critics and callable(critic):
            from rido.predictors.jax import JaxCritic

            control = critic if isinstance(critic, Critic) else JaxCritic(critic)
            on_device = isinstance(control, JaxCritic)
        large = horizon <= _SUMMED_HORIZON and first.budget > _SUMMED_BUDGET and starts == "random"
        needed = run is not None or columns is not None  # the rewards themselves
        summing = able.summarises and on_device and large and not needed
        if summing and reward_range is not None:
            raise ValueError(
                f"reward_range must come with run=FILE or a budget of at most {_SUMMED_BUDGET:,} transitions, beyond "
                f"which a device keeps the rewards to itself, got {first.budget:,}"
            )
        return Task(
            make=chosen,
            strategy=first,
            goals=tuple(goals),
            critic=control,
            sobol=starts == "sobol",
            summing=summing,
            max_resets=2 * first.budget if max_resets is None else max_resets,
            reset_cost=reset_cost,
            first_budget=first.budget,
            until=until,
            reward_range=reward_range,
            seed=seed,
            run=run,
            progress=progress,
            timing=timing,
            components=columns,
        )

    if own:
        return run_task(prepare(env), env, environment_name(env), {} if run is None else identities(env, env))
    running: Any = factory.simulator_maker(
        env,
        simulator,
        workers=workers,
        step_timeout=step_timeout,
        horizon=horizon,
        gamma=gamma,
        env_kwargs=env_kwargs,
        num_envs=num_envs,
        deterministic=deterministic,
        trust=trust,
        **(ends if asked is None else {**ends, "components": asked}),
    )(policy)
    try:
        configuration = {
            "env_kwargs": repr(dict(env_kwargs or {})),
            "deterministic": deterministic,
            "end_on_truncation": bool(end_on_truncation),
            "reseed": bool(reseed),
            **({} if run is None else identities(env, running)),
        }
        if run is not None and callable(asked):
            configuration["components_fingerprint"] = identify("components", asked)
        name = None if isinstance(env, str) else describe(running).environment
        result = run_task(prepare(running), running, name or environment_name(env), configuration)
    finally:
        warnings = close(running)
    return replace(result, warnings=(*result.warnings, *warnings))


def _begin(strategy: Callable[..., Strategy], **settings: Any) -> Strategy:
    """Returns what a function of the user makes."""
    made: Strategy = checks.instance("strategy", checks.called("strategy", strategy, **settings), Strategy)
    return made


def _resolve_strategy(
    strategy: str | Strategy | Callable[..., Strategy], until: float | None, *, has_critic: bool
) -> tuple[Strategy | Callable[..., Strategy], float | None]:
    """Returns settings of a strategy, or a function that makes one, and the width at which to stop."""
    if isinstance(strategy, str):
        checks.choice("strategy", strategy, get_args(StrategyName))
        strategy = STRATEGIES[strategy]()
    if not isinstance(strategy, Strategy):
        checks.function("strategy", strategy)
    elif strategy.begun:
        raise ValueError("strategy must leave horizon, budget and gamma to evaluate(), got one that has them")
    if isinstance(strategy, Strategy) and "until" in strategy.accepts:
        if until is not None and strategy.until is not None:
            raise ValueError(f"until must be given once, got {until!r} and the strategy's {strategy.until!r}")
        until = strategy.until if until is None else until
        if until is not None:
            # Resets for a critic come last, and add their share to the variance.
            share = RESET_SHARE if has_critic else 0.0
            strategy = strategy.changed(until=until * math.sqrt(1 - share))
    elif until is not None:
        name = type(strategy).__name__.lower() if isinstance(strategy, Strategy) else strategy
        raise ValueError(f"until works only with strategy 'adaptive' or your own that accepts it, not {name!r}")
    return strategy, until
