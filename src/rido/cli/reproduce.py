"""``rido reproduce``: the paper's experiments, done again."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from rido.cli.options import Output, command, option


@command(interrupted=lambda given: "stopped; the same command goes on where it was")
def reproduce_command(
    section: Annotated[
        str, typer.Argument(help="main, schedules, beta, batch, additional, theory, runtime, or all.")
    ] = "all",
    runs: Annotated[int, option("Repetitions of every point; the paper had 1,000.", min=10)] = 100,
    out: Annotated[Path, option("Folder for data, pictures and the page.")] = Path("reproduction"),
    agents: Annotated[str | None, option('A folder of RL Baselines3 Zoo agents, or "hub" to download them.')] = None,
    processes: Annotated[int | None, option("Processes to work in (default: one per core).", min=1)] = None,
) -> Output:
    """Reproduce the paper: every figure and table, and a verdict on each of its claims.

    All data, the pictures and a page are written to a folder. A command that was stopped goes on where it was.
    """
    from rido.paper import reproduce

    claims = reproduce(section, runs=runs, out=out, agents=agents, processes=processes)
    lines = [f"{claim.verdict:>20}  {claim.text}\n{'':>20}  {claim.numbers}" for claim in claims]
    lines.append(f"page, pictures and data: {out / 'README.md'}")
    return Output({"out": str(out), "claims": [asdict(claim) for claim in claims]}, "\n".join(lines))
