"""The reference of the command line, made from the commands themselves and added to the page ``cli``."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import typer
from sphinx.application import Sphinx

from rido.cli import app as cli

_PAGE = "cli"
_MARKUP = re.compile(r"([\\`*_<>\[\]$])")


def reference() -> str:
    """Returns a section for each command: usage, description, and every argument and option by panel."""
    commands: dict[str, Any] = typer.main.get_command(cli).commands  # type: ignore[attr-defined]
    return "\n".join(line for name, command in commands.items() for line in _section(name, command))


def _section(name: str, command: Any) -> Iterator[str]:
    context: Any = typer.Context(command, info_name=f"rido {name}")
    yield f"## rido {name}\n"
    yield f"```text\n{command.get_usage(context).removeprefix('Usage: ')}\n```\n"
    yield _plain(inspect.cleandoc(command.help)) + "\n"
    panels: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(context):
        panel = getattr(parameter, "rich_help_panel", None) or f"{parameter.param_type_name.capitalize()}s"
        panels.setdefault(panel, []).append(parameter.get_help_record(context))
    for panel, records in panels.items():
        yield f"**{panel}**\n"
        for names, text in records:
            yield f"`{names}`\n: {_plain(text)}\n"


def _plain(text: str) -> str:
    return _MARKUP.sub(r"\\\1", text)


def _append(app: Sphinx, page: str, source: list[str]) -> None:
    if page == _PAGE:
        source[0] += reference()


def setup(app: Sphinx) -> dict[str, bool]:
    """Adds the reference when the page is read; it is read at every build, for a command may have changed."""
    app.connect("source-read", _append)
    app.connect("env-get-outdated", lambda *changes: [_PAGE])
    return {"parallel_read_safe": True}
