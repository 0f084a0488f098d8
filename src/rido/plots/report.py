"""A page about one run: a single HTML file that loads nothing, for a screen of any size, light or dark."""

from __future__ import annotations

import html
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rido.plots.charts import estimates_chart, schedule_chart, weights_chart

if TYPE_CHECKING:
    import jinja2

    from rido.evaluation.recorded import RecordedRun
    from rido.evaluation.result import Evaluation


def write_report(run: RecordedRun, output: str | Path) -> None:
    """Writes the report of a run as one HTML file; needs the extra ``report``.

    Args:
        run: what :func:`rido.evaluation.recorded.read_run` read.
        output: the HTML file to write.
    """
    page = report_html(run)
    try:
        Path(output).write_text(page, encoding="utf-8")
    except OSError as error:
        raise OSError(f"output must be a file that can be written, got {output}: {error.strerror}") from error


def report_html(run: RecordedRun) -> str:
    """Returns the report of a run as one HTML page; needs the extra ``report``."""
    evaluation = run.evaluation
    charts = [schedule_chart(evaluation.schedule), estimates_chart(run.transitions, run.estimates)]
    if run.weights.size:
        charts.insert(1, weights_chart(run.weights))
    uniform = evaluation.uniform_transitions
    return _template().render(
        evaluation=evaluation,
        interval=evaluation.interval(),
        uniform=uniform if math.isfinite(uniform) and evaluation.strategy != "uniform" else None,
        charts=charts,
        configuration=run.configuration,
    )


def evaluation_html(evaluation: Evaluation) -> str:
    """Returns a result as a piece of HTML for notebooks: the summary, and a small picture of the schedule."""
    lines = "<br>".join(html.escape(line) for line in evaluation.summary().splitlines())
    path = html.escape(schedule_chart(evaluation.schedule).shapes[0].path)
    picture = (
        '<svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img" aria-label="samples per time step" '
        f'style="width:24em;max-width:100%;height:4em"><path d="{path}" fill="#4477aa"/></svg>'
    )
    caption = f"samples of steps 0 to {evaluation.schedule.horizon - 1}"
    return f"<div><p>{lines}</p>{picture}<p><small>{caption}</small></p></div>"


def _template() -> jinja2.Template:
    try:
        import jinja2
    except ImportError as error:
        raise ImportError('reports need jinja2: pip install "rido[report]"') from error
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("rido.plots", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    environment.filters["number"] = _number
    return environment.get_template("report.html")


def _number(value: Any) -> str:
    """Writes a number for people: thousands separated, six digits at most."""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.6g}" if math.isfinite(value) else "unknown"
