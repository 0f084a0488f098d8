"""The blocks of docs/recipes.md, run as they stand there."""

import re
from pathlib import Path

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "recipes.md"
_SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks():
    """The blocks of code under each heading."""
    return {heading: _BLOCK.findall(text) for heading, text in _SECTION.findall(_PAGE.read_text(encoding="utf-8"))}


def policy(heading, number=0, **names):
    """Runs a block with the names that its text says the reader has, and returns the policy that it makes."""
    source = blocks()[heading][number]
    exec(compile(source, f"{_PAGE.name}: {heading}", "exec"), names)
    return names["policy"]
