"""``rido watch``: a page that follows a run while it goes on."""

from pathlib import Path
from typing import Annotated

import typer

from rido.cli.console import one_line_errors


def watch_command(
    run: Annotated[
        Path, typer.Argument(help="A file that --run names, or the folder of a suite; it may come into being later.")
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page; 0 for any that is free.")] = 8765,
) -> None:
    """Serve a page on this machine that follows a run, until Ctrl-C. It only reads the run's files."""
    with one_line_errors(interrupted="stopped; the run goes on"):
        from rido.integrations.watch import serve

        serve(run, port=port, opened=lambda address: print(f"{run}: {address}", flush=True))
