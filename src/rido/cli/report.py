"""``rido report``: a page about a recorded run."""

from pathlib import Path
from typing import Annotated

import typer

from rido.cli.options import Output, command, option


@command()
def report_command(
    run: Annotated[Path, typer.Argument(help="A file that rido evaluate --run or rido compare --run wrote.")],
    output: Annotated[Path, option("The HTML file to write.", None, "--output", "-o")] = Path("report.html"),
) -> Output:
    """Write a self-contained HTML page about a recorded run."""
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
    return Output({"run": str(run), "report": str(output)}, f"report of {run}: {output}")
