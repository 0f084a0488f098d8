"""``rido evaluate``: how good is a policy in an environment?"""

from __future__ import annotations

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
from rido.cli.options import (
    COLLECT,
    SPEND,
    EndOnTruncationOption,
    EnvPoolOption,
    HorizonOption,
    NoReseedOption,
    NumEnvsOption,
    RayOption,
    RunOption,
    SeedOption,
    SimulatorOption,
    StartsOption,
    StepTimeoutOption,
    StochasticOption,
    WorkersOption,
    chosen_simulator,
    stopped,
)
from rido.evaluation.evaluate import CriticName, evaluate
from rido.strategies.names import STRATEGIES, StrategyName


def evaluate_command(
    env: EnvArgument,
    gamma: Annotated[
        list[float],
        typer.Option(help="Discount factor in (0, 1]; several share the trajectories.", rich_help_panel=ESTIMATE),
    ],
    policy: PolicyOption = None,
    trust: TrustOption = False,
    horizon: HorizonOption = None,
    component: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A number in info to estimate too, such as cost; may be repeated.",
            rich_help_panel=ESTIMATE,
        ),
    ] = None,
    plan_for: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The component that lengths are planned for.", rich_help_panel=ESTIMATE),
    ] = None,
    end_on_truncation: EndOnTruncationOption = False,
    env_kwarg: EnvKwargOption = None,
    stochastic: StochasticOption = False,
    reward_range: Annotated[
        tuple[float, float] | None,
        typer.Option(
            metavar="LOW HIGH",
            help="Bounds of the rewards, for an interval that is guaranteed.",
            rich_help_panel=ESTIMATE,
        ),
    ] = None,
    budget: Annotated[int | None, typer.Option(help="Transitions to spend.", rich_help_panel=SPEND)] = None,
    time_budget: Annotated[
        float | None, typer.Option(help="Seconds to spend, instead of transitions or too.", rich_help_panel=SPEND)
    ] = None,
    until: Annotated[
        float | None,
        typer.Option(help="Stop when the 95% interval is this much to either side.", rich_help_panel=SPEND),
    ] = None,
    strategy: Annotated[
        StrategyName, typer.Option(help="What decides on the lengths of trajectories.", rich_help_panel=COLLECT)
    ] = "adaptive",
    strategy_kwarg: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A setting of the strategy, such as unbiased=True or beta=2; may be repeated.",
            rich_help_panel=COLLECT,
        ),
    ] = None,
    critic: Annotated[
        CriticName | None,
        typer.Option(
            help="A value function as control variate: the agent's own, a fitted one, or what helps.",
            rich_help_panel=COLLECT,
        ),
    ] = None,
    starts: StartsOption = "random",
    seed: SeedOption = None,
    no_reseed: NoReseedOption = False,
    num_envs: NumEnvsOption = None,
    workers: WorkersOption = 1,
    simulator: SimulatorOption = None,
    ray: RayOption = None,
    envpool: EnvPoolOption = False,
    step_timeout: StepTimeoutOption = None,
    run: RunOption = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate the expected return of a policy in an environment."""
    with one_line_errors(interrupted=stopped(run)), stdout_to_stderr():
        result = evaluate(
            env,
            policy,
            trust=may_run_code(policy, trust),
            gamma=gamma,
            horizon=horizon,
            components=component or None,
            plan_for=plan_for,
            end_on_truncation=end_on_truncation,
            env_kwargs=parse_arguments("env-kwarg", env_kwarg),
            deterministic=not stochastic,
            reward_range=reward_range,
            budget=budget,
            time_budget=time_budget,
            until=until,
            strategy=make_strategy(strategy, strategy_kwarg),
            critic=critic,
            starts=starts,
            seed=seed,
            reseed=not no_reseed,
            num_envs=num_envs,
            workers=workers,
            simulator=chosen_simulator(simulator, ray, envpool),
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
