"""Tables in Markdown, in which names of policies and environments are plain text."""

import re
from collections.abc import Iterable, Sequence


def escaped(text: str) -> str:
    """Returns a text in which Markdown finds no markup, on one line."""
    return re.sub(r"([\\`*_\[\]<>|~#&])", r"\\\1", " ".join(text.split()))


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Returns the lines of a table: the first column to the left, the others to the right."""
    ruler = ["---", *("---:" for _ in columns[1:])]
    texts = [[escaped(cell) for cell in row] for row in (columns, *rows)]
    return [f"| {' | '.join(row)} |" for row in (texts[0], ruler, *texts[1:])]
