"""All commands under one name."""

from __future__ import annotations

import sys

import typer

from rido.cli.compare import compare_command
from rido.cli.envs import envs_command
from rido.cli.evaluate import evaluate_command
from rido.cli.plan import plan_command
from rido.cli.report import report_command
from rido.cli.reproduce import reproduce_command

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="How good is a policy? Its expected return, with the least error for a given number of transitions.",
)
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
