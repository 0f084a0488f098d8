"""``rido evaluate``: how good is a policy in an environment?"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from rido.cli.console import (
    ESTIMATE,
    EnvArgument,
    EnvKwargOption,
    JsonOption,
    PolicyOption,
    TrustOption,
    may_run_code,
    one_line_errors,
    parse_arguments,
    print_json,
    sparkline,
    stdout_to_stderr,
)
from rido.evaluation.evaluate import CriticName, evaluate
from rido.simulators.factory import SimulatorName
from rido.strategies.names import STRATEGIES, StrategyName

_SPEND, _COLLECT = "How much to spend", "How to collect"


def evaluate_command(
    env: EnvArgument,
    gamma: Annotated[float, typer.Option(help="Discount factor in (0, 1].", rich_help_panel=ESTIMATE)],
    policy: PolicyOption = None,
    trust: TrustOption = False,
    horizon: Annotated[
        int | None,
        typer.Option(
            help="Steps of a full trajectory (default: from gamma and the time limit).", rich_help_panel=ESTIMATE
        ),
    ] = None,
    end_on_truncation: Annotated[
        bool,
        typer.Option(
            "--end-on-truncation",
            help="Count the environment's own truncation as the end of an episode.",
            rich_help_panel=ESTIMATE,
        ),
    ] = False,
    env_kwarg: EnvKwargOption = None,
    stochastic: Annotated[
        bool, typer.Option("--stochastic", help="Sample the agent's actions.", rich_help_panel=ESTIMATE)
    ] = False,
    reward_range: Annotated[
        tuple[float, float] | None,
        typer.Option(
            metavar="LOW HIGH",
            help="Bounds of the rewards, for an interval that is guaranteed.",
            rich_help_panel=ESTIMATE,
        ),
    ] = None,
    budget: Annotated[int | None, typer.Option(help="Transitions to spend.", rich_help_panel=_SPEND)] = None,
    time_budget: Annotated[
        float | None, typer.Option(help="Seconds to spend, instead of transitions or too.", rich_help_panel=_SPEND)
    ] = None,
    until: Annotated[
        float | None,
        typer.Option(help="Stop when the 95% interval is this much to either side.", rich_help_panel=_SPEND),
    ] = None,
    strategy: Annotated[
        StrategyName, typer.Option(help="What decides on the lengths of trajectories.", rich_help_panel=_COLLECT)
    ] = "adaptive",
    strategy_kwarg: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A setting of the strategy, such as unbiased=True or beta=2; may be repeated.",
            rich_help_panel=_COLLECT,
        ),
    ] = None,
    critic: Annotated[
        CriticName | None,
        typer.Option(
            help="A value function as control variate: the agent's own, a fitted one, or what helps.",
            rich_help_panel=_COLLECT,
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="The same seed gives the same result.", rich_help_panel=_COLLECT)
    ] = None,
    no_reseed: Annotated[
        bool,
        typer.Option(
            "--no-reseed",
            help="Seed environments once, where seeding is slow; not reproducible.",
            rich_help_panel=_COLLECT,
        ),
    ] = False,
    num_envs: Annotated[int | None, typer.Option(help="Environments side by side.", rich_help_panel=_COLLECT)] = None,
    workers: Annotated[int, typer.Option(help="Processes to collect in.", rich_help_panel=_COLLECT)] = 1,
    simulator: Annotated[
        SimulatorName | None,
        typer.Option(help="What collects; jax needs a policy in JAX.", rich_help_panel=_COLLECT),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Collect on a Ray cluster; 'local' starts one here.", rich_help_panel=_COLLECT
        ),
    ] = None,
    envpool: Annotated[bool, typer.Option("--envpool", help="Collect with EnvPool.", rich_help_panel=_COLLECT)] = False,
    step_timeout: Annotated[
        float | None,
        typer.Option(help="Seconds without a step after which collecting counts as stuck.", rich_help_panel=_COLLECT),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(help="Record the run in this file, resume it, or extend it.", rich_help_panel=_COLLECT),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate the expected return of a policy in an environment."""
    kept = f"the same command resumes {run}" if run else "nothing was kept; with --run FILE it could resume"
    with one_line_errors(interrupted=f"stopped; {kept}"), stdout_to_stderr():
        result = evaluate(
            env,
            policy,
            trust=may_run_code(policy, trust),
            gamma=gamma,
            horizon=horizon,
            end_on_truncation=end_on_truncation,
            env_kwargs=parse_arguments("env-kwarg", env_kwarg),
            deterministic=not stochastic,
            reward_range=reward_range,
            budget=budget,
            time_budget=time_budget,
            until=until,
            strategy=make_strategy(strategy, strategy_kwarg),
            critic=critic,
            seed=seed,
            reseed=not no_reseed,
            num_envs=num_envs,
            workers=workers,
            simulator=_simulator(simulator, ray, envpool),
            step_timeout=step_timeout,
            run=run,
        )
    if as_json:
        print_json(result.to_dict())
        return
    counts = result.schedule.counts
    print(result.summary())
    print(f"samples per step, {counts[0]:,} of the first to {counts[-1]:,} of the last: {sparkline(counts)}")


def make_strategy(name: StrategyName, settings: list[str] | None) -> Any:
    """Returns the strategy of this name with settings that were given as NAME=VALUE."""
    try:
        return STRATEGIES[name](**parse_arguments("strategy-kwarg", settings))
    except TypeError as error:
        raise ValueError(f"strategy-kwarg must be a setting of {name}, got {settings}: {error}") from error


def _simulator(name: SimulatorName | None, ray: str | None, envpool: bool) -> Any:
    """Returns what collects: a name or a simulator to be made; None for what fits environment and workers."""
    if sum([name is not None, ray is not None, envpool]) > 1:
        raise ValueError("simulator must be given once, got more than one of --simulator, --ray and --envpool")
    if ray is None:
        return "envpool" if envpool else name
    from rido.simulators.parallel.ray import RaySimulator

    return partial(RaySimulator, address=None if ray == "local" else ray)
