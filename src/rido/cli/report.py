"""``rido report``: a page about a recorded run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rido.cli.console import JsonOption, one_line_errors, print_json, stdout_to_stderr


def report_command(
    run: Annotated[Path, typer.Argument(help="A file that rido evaluate --run or rido compare --run wrote.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file to write.")] = Path("report.html"),
    as_json: JsonOption = False,
) -> None:
    """Write a self-contained HTML page about a recorded run."""
    with one_line_errors(), stdout_to_stderr():
        from rido.comparison.compare import read_comparison
        from rido.evaluation.recorded import read_run
        from rido.plots.report import write_comparison, write_report
        from rido.record.header import ComparisonHeader
        from rido.record.runfile import RunFile

        with RunFile.read(run) as file:
            compared = isinstance(file.header, ComparisonHeader)
        if compared:
            write_comparison(read_comparison(run), output)
        else:
            write_report(read_run(run), output)
    if as_json:
        print_json({"run": str(run), "report": str(output)})
    else:
        print(f"report of {run}: {output}")
