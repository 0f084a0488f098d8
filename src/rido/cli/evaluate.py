"""``rido evaluate``: how good is a policy in an environment?"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from rido.cli.console import (
    EnvArgument,
    EnvKwargOption,
    JsonOption,
    PolicyOption,
    one_line_errors,
    parse_arguments,
    print_json,
    sparkline,
)
from rido.evaluation.evaluate import evaluate


def evaluate_command(
    env: EnvArgument,
    gamma: Annotated[float, typer.Option(help="Discount factor in (0, 1].")],
    budget: Annotated[int | None, typer.Option(help="Transitions to spend.")] = None,
    time_budget: Annotated[float | None, typer.Option(help="Seconds to spend, instead of transitions or too.")] = None,
    horizon: Annotated[
        int | None, typer.Option(help="Steps of a full trajectory (default: from gamma and the time limit).")
    ] = None,
    policy: PolicyOption = None,
    strategy: Annotated[str, typer.Option(help="adaptive, uniform, robust or rido.")] = "adaptive",
    until: Annotated[float | None, typer.Option(help="Stop when the 95% interval is this much to either side.")] = None,
    critic: Annotated[
        str | None, typer.Option(help="Let a value function help: policy (the agent's own), fit or auto.")
    ] = None,
    reward_range: Annotated[
        tuple[float, float] | None,
        typer.Option(metavar="LOW HIGH", help="Bounds of the rewards, for an interval that is guaranteed."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same result.")] = None,
    num_envs: Annotated[int | None, typer.Option(help="Environments side by side.")] = None,
    workers: Annotated[int, typer.Option(help="Processes to collect in.")] = 1,
    ray: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Collect on a Ray cluster; 'local' starts one here.")
    ] = None,
    envpool: Annotated[bool, typer.Option("--envpool", help="Collect with EnvPool.")] = False,
    simulator: Annotated[
        str | None,
        typer.Option(help="gymnasium, workers, envpool, ray, or jax: on a GPU if there is one, with a policy in JAX."),
    ] = None,
    stochastic: Annotated[bool, typer.Option("--stochastic", help="Sample the agent's actions.")] = False,
    env_kwarg: EnvKwargOption = None,
    run: Annotated[Path | None, typer.Option(help="Record the run in this file, or go on with it.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate the expected return of a policy in an environment."""
    kept = f"the same command goes on from {run}" if run else "nothing was kept; with --run FILE it could go on"
    with one_line_errors(interrupted=f"stopped; {kept}"):
        result = evaluate(
            env,
            policy,
            budget=budget,
            time_budget=time_budget,
            gamma=gamma,
            horizon=horizon,
            strategy=strategy,
            until=until,
            critic=critic,
            reward_range=reward_range,
            seed=seed,
            num_envs=num_envs,
            workers=workers,
            simulator=_simulator(simulator, ray, envpool),
            deterministic=not stochastic,
            run=run,
            env_kwargs=parse_arguments(env_kwarg),
        )
    if as_json:
        print_json(result.to_dict())
        return
    counts = result.schedule.counts
    print(result.summary())
    print(f"samples per step, {counts[0]:,} of the first to {counts[-1]:,} of the last: {sparkline(counts)}")


def _simulator(name: str | None, ray: str | None, envpool: bool) -> Any:
    """Returns what collects: a name or a simulator to be made; None for what fits environment and workers."""
    if sum([name is not None, ray is not None, envpool]) > 1:
        raise ValueError("simulator must be given once, got more than one of --simulator, --ray and --envpool")
    if ray is None:
        return "envpool" if envpool else name
    from rido.simulators.parallel.ray import RaySimulator

    return partial(RaySimulator, address=None if ray == "local" else ray)
