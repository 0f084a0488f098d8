"""Options that several commands have: what to estimate, and how to collect."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from rido.cli.console import ESTIMATE
from rido.simulators.factory import SimulatorName
from rido.simulators.sobol import Starts

SPEND, COLLECT = "How much to spend", "How to collect"
"""Headings of the options that say when to stop and how to collect."""

GammaOption = Annotated[float, typer.Option(help="Discount factor in (0, 1].", rich_help_panel=ESTIMATE)]
HorizonOption = Annotated[
    int | None,
    typer.Option(help="Steps of a full trajectory (default: from gamma and the time limit).", rich_help_panel=ESTIMATE),
]
EndOnTruncationOption = Annotated[
    bool,
    typer.Option(
        "--end-on-truncation",
        help="Count the environment's own truncation as the end of an episode.",
        rich_help_panel=ESTIMATE,
    ),
]
StochasticOption = Annotated[
    bool, typer.Option("--stochastic", help="Sample the agent's actions.", rich_help_panel=ESTIMATE)
]
StartsOption = Annotated[
    Starts,
    typer.Option(help="Random starts, or evenly spread ones (Sobol points).", rich_help_panel=COLLECT),
]
SeedOption = Annotated[int | None, typer.Option(help="The same seed gives the same result.", rich_help_panel=COLLECT)]
NoReseedOption = Annotated[
    bool,
    typer.Option(
        "--no-reseed",
        help="Seed environments once, where seeding is slow; not reproducible.",
        rich_help_panel=COLLECT,
    ),
]
NumEnvsOption = Annotated[int | None, typer.Option(help="Environments side by side.", rich_help_panel=COLLECT)]
WorkersOption = Annotated[int, typer.Option(help="Processes to collect in.", rich_help_panel=COLLECT)]
SimulatorOption = Annotated[
    SimulatorName | None, typer.Option(help="What collects; jax needs a policy in JAX.", rich_help_panel=COLLECT)
]
RayOption = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Collect on a Ray cluster; 'local' starts one here.", rich_help_panel=COLLECT),
]
EnvPoolOption = Annotated[bool, typer.Option("--envpool", help="Collect with EnvPool.", rich_help_panel=COLLECT)]
StepTimeoutOption = Annotated[
    float | None,
    typer.Option(help="Seconds without a step after which collecting counts as stuck.", rich_help_panel=COLLECT),
]
RunOption = Annotated[
    Path | None, typer.Option(help="Record the run in this file, resume it, or extend it.", rich_help_panel=COLLECT)
]


def stopped(run: Path | None) -> str:
    """Returns what to say when a command with ``--run`` is interrupted."""
    kept = f"the same command resumes {run}" if run else "nothing was kept; with --run FILE it could resume"
    return f"stopped; {kept}"


def chosen_simulator(name: SimulatorName | None, ray: str | None, envpool: bool) -> Any:
    """Returns what collects: a name or a simulator to be made; None for what fits environment and workers."""
    if sum([name is not None, ray is not None, envpool]) > 1:
        raise ValueError("simulator must be given once, got more than one of --simulator, --ray and --envpool")
    if ray is None:
        return "envpool" if envpool else name
    from rido.simulators.parallel.ray import RaySimulator

    return partial(RaySimulator, address=None if ray == "local" else ray)
