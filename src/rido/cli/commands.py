"""All commands under one name."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rido import __version__
from rido.cli.compare import compare_command
from rido.cli.envs import envs_command
from rido.cli.evaluate import evaluate_command
from rido.cli.plan import plan_command
from rido.cli.report import report_command
from rido.cli.reproduce import reproduce_command

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="How good is a policy? Its expected return, with the least error for a given number of transitions.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rido {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Options of ``rido`` itself, before any command."""


app.command("evaluate")(evaluate_command)
app.command("compare")(compare_command)
app.command("plan")(plan_command)
app.command("report")(report_command)
app.command("reproduce")(reproduce_command)
app.command("envs")(envs_command)


def main() -> None:
    """Entry point of the ``rido`` command."""
    sys.path.insert(0, "")  # policies and environments of the working directory, as in ``python -m``
    app()
