"""The references of commands and options, made from these themselves and added to the pages ``cli`` and ``api``."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import typer
from sphinx.application import Sphinx

import rido
from rido.cli import app as cli
from rido.study import study

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


def taken() -> str:
    """Returns a table of options and the functions that take them, and why the others do not."""
    functions = {
        "evaluate": rido.evaluate,
        "compare": rido.compare,
        "Suite.run": rido.Suite.run,
        "gradient": rido.gradient,
        "study": study,
        "check": rido.check,
    }
    takers: dict[str, set[str]] = {}
    for name, function in functions.items():
        for option in function.__options__:  # type: ignore[attr-defined]
            takers.setdefault(option, set()).add(name)
    lines = [f"| option | {' | '.join(functions)} |", f"|---|{'---|' * len(functions)}"]
    for option, known in takers.items():
        lines.append(f"| `{option}` | {' | '.join('x' if name in known else '' for name in functions)} |")
    lines.append("")
    for name, function in functions.items():
        reasons: dict[str, list[str]] = {}
        for option, reason in function.__without__.items():  # type: ignore[attr-defined]
            reasons.setdefault(reason, []).append(f"`{option}`")
        lines += [f"- `{name}` does not take {', '.join(left)}: {reason}." for reason, left in reasons.items()]
    return "\n".join([*lines, ""])


_PAGES = {"cli": reference, "api": taken}


def _append(app: Sphinx, page: str, source: list[str]) -> None:
    if page in _PAGES:
        source[0] += _PAGES[page]()


def setup(app: Sphinx) -> dict[str, bool]:
    """Adds the reference when the page is read; it is read at every build, for a command may have changed."""
    app.connect("source-read", _append)
    app.connect("env-get-outdated", lambda *changes: list(_PAGES))
    return {"parallel_read_safe": True}
