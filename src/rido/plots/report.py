"""Reports of runs and comparisons: a single HTML file that loads nothing, for a screen of any size, light or dark."""

from __future__ import annotations

import html
import io
import math
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rido.core.digits import to_digits, with_interval
from rido.core.extras import import_extra
from rido.plots.comparison import picture_height, plot_differences, plot_exits, plot_intervals
from rido.plots.pictures import plot_estimates, plot_schedule, plot_weights
from rido.plots.style import BLUE, GREY, style

if TYPE_CHECKING:
    import jinja2
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from rido.comparison.comparison import Comparison
    from rido.evaluation.recorded import RecordedRun
    from rido.evaluation.result import Evaluation

_INK = "#1d2430"
PAGE_SETTINGS: dict[str, Any] = {  # settings of matplotlib for pictures that become SVG elements
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _INK),
    **{"font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"]},
}
_COLOURS = {_INK: "currentColor", GREY: "currentColor", BLUE: f"var(--main, {BLUE})"}  # in the picture, on the page


def write_report(run: RecordedRun, output: str | Path) -> None:
    """Writes the report of a run as one HTML file; needs the extra ``report``."""
    write_page(report_html(run), output)


def write_comparison(comparison: Comparison, output: str | Path, verdict: str | None = None) -> None:
    """Writes the report of a comparison, with a gate's verdict if any, as one HTML file; needs ``report``."""
    write_page(comparison_html(comparison, verdict), output)


def write_page(page: str, output: str | Path) -> None:
    """Writes a page to a file."""
    try:
        Path(output).write_text(page, encoding="utf-8")
    except OSError as error:
        raise OSError(f"output must be a file that can be written, got {output}: {error.strerror}") from error


def report_html(run: RecordedRun) -> str:
    """Returns the report of a run as one HTML page; needs the extra ``report``."""
    evaluation, uniform = run.evaluation, run.evaluation.uniform_transitions
    pictures = {"Samples per time step": partial(plot_schedule, evaluation.schedule)}
    if run.weights.size:
        pictures["Weight of each time step in the variance"] = partial(plot_weights, run.weights)
    if len(run.estimates) != 1:  # of a run in a suite, only the last one is known
        pictures["Estimate against transitions"] = partial(plot_estimates, run.transitions, run.estimates, label="")
    return template("report.html").render(
        evaluation=evaluation,
        interval=evaluation.interval(),
        shown=to_digits(evaluation.value, *evaluation.interval()),
        guaranteed=to_digits(evaluation.value, *(evaluation.guaranteed_interval or (math.nan, math.nan))),
        uniform=uniform if math.isfinite(uniform) and evaluation.strategy != "uniform" else None,
        pictures={title: draw_svg(draw, title, (3.8, 2.5)) for title, draw in pictures.items()},
        configuration=run.configuration,
        components=_component_rows(evaluation) if evaluation.joint is not None else {},
        returns=evaluation.full_length.quantities() if evaluation.full_length else {},
    )


def _component_rows(evaluation: Evaluation) -> dict[str, tuple[str, str]]:
    together = evaluation.intervals(simultaneous=True)
    return {
        name: (with_interval(estimate.value, *estimate.interval()), with_interval(estimate.value, *together[name]))
        for name, estimate in evaluation.components.items()
    }


def comparison_html(comparison: Comparison, verdict: str | None = None) -> str:
    """Returns the report of a comparison as one HTML page; needs the extra ``report``."""
    pictures = {
        "Value of each policy": plot_intervals,
        "Paired differences to the best": plot_differences,
        "When policies were eliminated": plot_exits,
    }
    inches = (3.8, picture_height(len(comparison.ranking)))
    return template("comparison.html").render(
        found=comparison.to_dict(),
        summary=comparison.summary().splitlines(),
        verdict=verdict,
        pictures={title: draw_svg(partial(draw, comparison), title, inches) for title, draw in pictures.items()},
    )


def require_extras() -> None:
    """Makes sure, before any work is done, that what a report needs is installed."""
    template("page.html")
    with style(extra="report"):
        pass


def evaluation_html(evaluation: Evaluation) -> str:
    """Returns a result as HTML for notebooks: the summary and, where matplotlib is installed, the schedule."""
    lines = "<br>".join(html.escape(line) for line in evaluation.summary().splitlines())
    try:
        picture = draw_svg(partial(plot_schedule, evaluation.schedule), "Samples per time step", (4.4, 1.5))
    except ImportError:
        return f"<div><p>{lines}</p></div>"
    return f'<div><p>{lines}</p><div style="max-width:30em">{picture}</div></div>'


def draw_svg(draw: Callable[..., Axes], title: str, inches: tuple[float, float]) -> str:
    """Returns what ``draw`` draws into axes of this size as an SVG element, see :func:`svg_element`."""
    with style(PAGE_SETTINGS, extra="report"):
        from matplotlib.figure import Figure

        figure = Figure(figsize=inches, layout="constrained")
        draw(ax=figure.subplots())
    return svg_element(figure, title)


def svg_element(figure: Figure, title: str) -> str:
    """Returns a figure as an SVG element that takes the width and the text colour of what is around it.

    Args:
        figure: drawn with :data:`PAGE_SETTINGS`.
        title: what the picture shows, for readers who cannot see it; another one for each picture of a page.
    """
    file = io.StringIO()
    with style(PAGE_SETTINGS | {"svg.hashsalt": title}):
        figure.savefig(file, format="svg", transparent=True)
    content = file.getvalue().partition("</defs>")[2]  # drops the date, and styles for the whole page
    content = re.sub(r' id="[a-zA-Z0-9.]+_\d+"', "", content).replace("xlink:href", "href")  # names of groups repeat
    for colour, on_the_page in _COLOURS.items():
        content = content.replace(colour, on_the_page)
    (width, height), name = (f"{72 * side:g}" for side in figure.get_size_inches()), html.escape(title)
    look = "display:block;width:100%;height:auto;stroke-linejoin:round"
    tag = f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{name}" style="{look}">'
    return f"{tag}<title>{name}</title>{content}"


def template(name: str) -> jinja2.Template:
    """Returns a template of this folder, in which all that is inserted is escaped."""
    import_extra("a report", "jinja2", "report")
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("rido.plots", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    environment.filters["number"] = number_text
    return environment.get_template(name)


def number_text(value: Any, digits: int = 6) -> str:
    """Writes a number for people: thousands separated, with at most this many digits."""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.{digits}g}" if value is not None and math.isfinite(value) else "unknown"
