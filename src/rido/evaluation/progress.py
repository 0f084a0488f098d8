"""A progress bar with the estimate so far, for people who watch a terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rido.core.digits import to_digits
from rido.core.estimate import Estimate

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress


class Progress:
    """Shows how much of a budget is spent and what is known so far; nothing where nobody would see it.

    Args:
        budget: transitions in all.
        shown: whether to show anything; if None, when standard error is a terminal.
    """

    def __init__(self, budget: int, *, shown: bool | None) -> None:
        self._budget = budget
        self.shown = sys.stderr.isatty() if shown is None else shown
        self._bar: RichProgress | None = None

    def __enter__(self) -> Progress:
        if self.shown:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as RichProgress

            text = TextColumn("{task.description}", markup=False)
            columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), text)
            self._bar = RichProgress(*columns, console=Console(stderr=True), transient=True)
            self._bar.add_task("", total=self._budget)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, transitions: int) -> None:
        """Moves on by some transitions."""
        if self._bar is not None:
            self._bar.advance(self._bar.task_ids[0], transitions)

    def show(self, estimate: Estimate) -> None:
        """Shows an estimate beside the bar, with the interval that a result prints."""
        if self._bar is not None:
            value, low, high = to_digits(estimate.value, *estimate.interval())
            self.describe(f"{value}, 95% interval [{low}, {high}]")

    def describe(self, text: str) -> None:
        """Shows a text beside the bar."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], description=text)
