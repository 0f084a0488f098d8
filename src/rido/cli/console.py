"""What all commands share: one line for what went wrong, one JSON object, pictures made of characters."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import ArrayLike, NDArray

from rido.simulators.base import SimulationError

ESTIMATE = "What to estimate"
"""Heading of the options that say what the number is of."""

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
EnvArgument = Annotated[str, typer.Argument(help="A Gymnasium id: Pendulum-v1, rido/LQG-v0, module:Env-v0.")]
PolicyOption = Annotated[
    str | None,
    typer.Option(
        help='An agent that comes with rido (rido:pendulum; "rido envs" lists them), an SB3 zip (loading it runs code: '
        'trust it), an agent\'s npz, "random", or module:function.',
        rich_help_panel=ESTIMATE,
    ),
]
EnvKwargOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE", help="An argument of the environment; may be repeated.", rich_help_panel=ESTIMATE
    ),
]

_BLOCKS = "▁▂▃▄▅▆▇█"
_BARS = " ▏▎▍▌▋▊▉█"
_PLAIN_BLOCKS = ".:-=+*#@"  # for terminals that cannot show the others
_PLAIN_BAR = "#"


@contextmanager
def one_line_errors(*, interrupted: str = "stopped") -> Iterator[None]:
    """Turns what a user can cause into one line on standard error and exit code 1.

    Args:
        interrupted: what to say when the user presses Ctrl-C.
    """
    try:
        yield
    except KeyboardInterrupt:
        print(f"rido: {interrupted}", file=sys.stderr)
        raise typer.Exit(1) from None
    except (ValueError, ImportError, OSError, SimulationError) as error:
        print(f"rido: {' '.join(str(error).split())}", file=sys.stderr)
        raise typer.Exit(1) from None


def print_json(content: Mapping[str, Any]) -> None:
    """Prints one JSON object, in which no number is NaN or infinite."""
    print(json.dumps(content, allow_nan=False))


def require_writable(name: str, path: Path) -> None:
    """Makes sure, before any work is done, that a file can be written."""
    try:
        existed = path.exists()
        with path.open("ab"):
            pass
        if not existed:
            path.unlink()
    except OSError as error:
        raise OSError(f"{name} must be a file that can be written, got {path}: {error.strerror}") from error


def parse_arguments(option: str, texts: Sequence[str] | None) -> dict[str, Any]:
    """Splits each NAME=VALUE of an option, where VALUE is a Python literal or else a string."""
    arguments = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(f"{option} must be NAME=VALUE, got {text!r}")
        try:
            arguments[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            arguments[name] = value
    return arguments


def sparkline(values: ArrayLike, width: int = 64) -> str:
    """Draws non-negative numbers as one line of blocks; groups of neighbours share one where there are many.

    Example:
        >>> sparkline([8, 4, 4, 1])
        '█▄▄▁'
    """
    groups = _groups(np.asarray(values, dtype=np.float64), width)
    heights = np.array([group.mean() for group in groups])
    levels = np.ceil(8 * heights / (heights.max() or 1.0)).astype(int).clip(1, 8) - 1
    blocks = _BLOCKS if _can_show(_BLOCKS) else _PLAIN_BLOCKS
    return "".join(blocks[level] for level in levels)


def bars(values: ArrayLike, *, rows: int = 16, width: int = 48) -> str:
    """Draws numbers per time step as bars, one row for each of up to ``rows`` groups of neighbouring steps.

    Example:
        >>> print(bars([4, 2], width=4))
        step 0  4 ████
        step 1  2 ██
    """
    array = np.asarray(values, dtype=np.float64)
    groups = _groups(array, rows)
    means = [float(group.mean()) for group in groups]
    ends = np.cumsum([group.size for group in groups])
    names = [_steps(int(end) - group.size, int(end) - 1) for group, end in zip(groups, ends, strict=True)]
    numbers = [f"{mean:,.0f}" if mean.is_integer() else f"{mean:,.1f}" for mean in means]
    top = max(means) or 1.0
    return "\n".join(
        f"{name:<{max(map(len, names))}}  {number:>{max(map(len, numbers))}} {_bar(mean / top * width)}".rstrip()
        for name, number, mean in zip(names, numbers, means, strict=True)
    )


def _steps(first: int, last: int) -> str:
    return f"step {first}" if first == last else f"steps {first}-{last}"


def _bar(length: float) -> str:
    if not _can_show(_BARS):
        return _PLAIN_BAR * max(1, round(length))
    eighths = max(1, round(8 * length))
    return (_BARS[8] * (eighths // 8) + _BARS[eighths % 8]).rstrip()


def _groups(values: NDArray[np.float64], most: int) -> list[NDArray[np.float64]]:
    return np.array_split(values, min(most, values.size))


def _can_show(characters: str) -> bool:
    try:
        characters.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True
