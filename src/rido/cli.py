"""The command line: ``rido evaluate``."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from rido.evaluation import evaluate
from rido.simulators.base import SimulationError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="How good is a policy? Its expected return, with the least error for a given number of transitions.",
)


@app.callback()
def _commands() -> None:
    """Keeps ``evaluate`` a command of its own while it is the only one."""


@app.command("evaluate")
def evaluate_command(
    env: Annotated[str, typer.Argument(help="A Gymnasium id: Pendulum-v1, rido/LQG-v0, module:Env-v0.")],
    budget: Annotated[int, typer.Option(help="Transitions to spend.")],
    gamma: Annotated[float, typer.Option(help="Discount factor in (0, 1].")],
    horizon: Annotated[
        int | None, typer.Option(help="Steps of a full trajectory. [default: from gamma and the time limit]")
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(help='An SB3 zip (loading it runs code: trust it), "random", or module:function.'),
    ] = None,
    strategy: Annotated[str, typer.Option(help="uniform, robust or rido.")] = "rido",
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same result.")] = None,
    num_envs: Annotated[int | None, typer.Option(help="Environments side by side.")] = None,
    stochastic: Annotated[bool, typer.Option("--stochastic", help="Sample the agent's actions.")] = False,
    env_kwarg: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="An argument of the environment; may be repeated.")
    ] = None,
    run: Annotated[Path | None, typer.Option(help="Record the run in this file, or go on with it.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Estimate the expected return of a policy in an environment."""
    try:
        result = evaluate(
            env,
            policy,
            budget=budget,
            gamma=gamma,
            horizon=horizon,
            strategy=strategy,
            seed=seed,
            num_envs=num_envs,
            deterministic=not stochastic,
            run=run,
            env_kwargs=dict(map(_parse_argument, env_kwarg or [])),
        )
    except KeyboardInterrupt:
        print(f"stopped; the same command goes on from {run}" if run else "stopped", file=sys.stderr)
        raise typer.Exit(1) from None
    except (ValueError, ImportError, OSError, SimulationError) as error:
        print(f"rido: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    print(json.dumps(result.to_dict()) if as_json else result.summary())


def _parse_argument(text: str) -> tuple[str, Any]:
    """Splits NAME=VALUE, where VALUE is a Python literal or else a string."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise ValueError(f"env-kwarg must be NAME=VALUE, got {text!r}")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def main() -> None:
    """Entry point of the ``rido`` command."""
    sys.path.insert(0, "")  # policies and environments of the working directory, as in ``python -m``
    app()
