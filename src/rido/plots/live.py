"""The live page: follows a run while it goes on."""

from __future__ import annotations

from rido.plots.leaderboard import script_and_digest
from rido.plots.report import template


def live_html(title: str) -> str:
    """Returns the page that ``rido watch`` serves; it gets the state of the run from ``events`` beside it."""
    script, digest = script_and_digest("live.js")
    return template("live.html").render(title=title, script=script, digest=digest)
