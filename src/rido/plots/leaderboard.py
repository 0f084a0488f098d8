"""The leaderboard of a suite: a page with a report for each run, and the same numbers as Markdown and CSV."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import math
import re
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rido.core import checks
from rido.core.digits import to_digits, with_interval
from rido.plots.comparison import draw_intervals, picture_height, plot_intervals, rows_of
from rido.plots.markdown import escaped, table
from rido.plots.report import draw_svg, template, write_page, write_report
from rido.plots.style import BLUE, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from rido.suite.leaderboard import Leaderboard

_RUNS = "runs"  # folder of the reports


def write_leaderboard(board: Leaderboard, folder: str | Path) -> Path:
    """Writes ``leaderboard.html``, ``.md``, ``.csv`` and a report of each run; needs the extra ``report``."""
    folder = checks.made_folder("folder", Path(folder) / _RUNS).parent
    for task, links in _links(board).items():
        for name, link in links.items():
            write_report(board.run(name, task), folder / link)
    write_page(leaderboard_markdown(board), folder / "leaderboard.md")
    write_page(leaderboard_csv(board), folder / "leaderboard.csv")
    write_page(leaderboard_html(board), folder / "leaderboard.html")
    return folder / "leaderboard.html"


def leaderboard_html(board: Leaderboard) -> str:
    """Returns the leaderboard as one HTML page; needs the extra ``report``."""
    inches = (3.8, picture_height(len(board.ranking)))
    draw: dict[str, Any] = {"Scores over all tasks": partial(plot_scores, board)}
    draw |= {f"Returns in {task}": partial(plot_intervals, board.comparison(task)) for task in board.tasks}
    script, digest = script_and_digest("leaderboard.js")
    return template("leaderboard.html").render(
        found=board.to_dict(),
        summary=board.summary().splitlines()[0],
        links=_links(board),
        pictures={title: draw_svg(picture, title, inches) for title, picture in draw.items()},
        percent=_percent,
        score=_score,
        with_interval=_cell,
        script=script,
        digest=digest,
    )


def script_and_digest(name: str) -> tuple[str, str]:
    """Returns a script of this folder, and the digest by which a page's security policy lets only it run."""
    script = files("rido.plots").joinpath(name).read_text(encoding="utf-8")
    return script, base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


@style()
def plot_scores(board: Leaderboard, ax: Axes | None = None) -> Axes:
    """Draws the score of each policy with its interval; with the confidence all intervals hold at once."""
    ax = rows_of(board.ranking, ax)
    found = [(board.scores[name].value, *board.interval(name)) for name in board.ranking]
    draw_intervals(ax, found, [BLUE] * len(found))
    ax.set_xlabel(f"score, {100 * board.confidence:g}% intervals")
    return ax


def leaderboard_markdown(board: Leaderboard) -> str:
    """Returns the leaderboard as a table in Markdown."""
    found = board.to_dict()
    columns = ["policy", "score", "interquartile mean", "beats", *found["tasks"]]
    rows = [
        (
            row["name"],
            with_interval(row["score"], row["interval_low"], row["interval_high"]),
            f"{row['interquartile_mean']:.4g}",
            f"{len(row['beats'])} of {len(board.ranking) - 1}",
            *(_cell(cell) for cell in row["tasks"].values()),
        )
        for row in found["policies"]
    ]
    head, *_ = board.summary().splitlines()
    spent = f"{board.transitions:,} transitions of a budget of {board.budget:,}, seed {board.seed}"
    lines = [escaped(head), "", *table(columns, rows), "", spent]
    lines += [line for warning in board.warnings for line in ("", f"Warning: {escaped(warning)}")]
    return "\n".join(lines) + "\n"


def leaderboard_csv(board: Leaderboard) -> str:
    """Returns a row for each policy over all tasks, with an empty task, and one for each policy in each task."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    cells = {name: _text_cell(name) for name in (*board.ranking, *board.tasks)}
    writer.writerow(["policy", "task", "score", "value", "interval_low", "interval_high", "transitions"])
    for row in board.to_dict()["policies"]:
        ends = (row["interval_low"], row["interval_high"])
        writer.writerow([cells[row["name"]], "", row["score"], "", *ends, row["transitions"]])
        for task, cell in row["tasks"].items():
            spent = board.rewards[task].transitions_of(row["name"])
            numbers = (cell[name] for name in ("score", "value", "interval_low", "interval_high"))
            writer.writerow([cells[row["name"]], cells[task], *numbers, spent])
    return text.getvalue()


def _text_cell(name: str) -> str:
    """Returns a name behind a quote where a spreadsheet would take it for a formula."""
    return f"'{name}" if name.startswith(("=", "+", "-", "@", "\t", "\r")) else name


def _links(board: Leaderboard) -> dict[str, dict[str, str]]:
    """Returns the report of each run, by task and policy; numbers keep apart names that are alike without symbols."""
    return {
        task: {
            name: f"{_RUNS}/{_plain(task)}-{row}-{_plain(name)}-{column}.html"
            for column, name in enumerate(sorted(board.ranking))
        }
        for row, task in enumerate(board.tasks)
    }


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:40] or "unnamed"


def _percent(chance: float) -> str:
    """Returns a probability for people: never 0 or 100%, which nobody knows."""
    return "< 0.1%" if chance < 0.001 else "> 99.9%" if chance > 0.999 else f"{100 * chance:.3g}%"


def _score(row: dict[str, Any]) -> list[tuple[float | None, str]]:
    """Returns the score of a row and the ends of its interval, each with its text."""
    known = [row["score"], row["interval_low"], row["interval_high"]]
    ends = [end if end is not None else side for end, side in zip(known[1:], (-math.inf, math.inf), strict=True)]
    return list(zip(known, to_digits(row["score"], *ends), strict=True))


def _cell(cell: dict[str, Any]) -> str:
    return with_interval(cell["value"], cell["interval_low"], cell["interval_high"])


def live_html(title: str) -> str:
    """Returns the page that ``rido watch`` serves; it gets the state of the run from ``events`` beside it."""
    script, digest = script_and_digest("live.js")
    return template("live.html").render(title=title, script=script, digest=digest)
