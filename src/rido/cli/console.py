"""What all commands share: one line for what went wrong, one JSON object, pictures made of characters."""

import ast
import contextlib
import ctypes
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import typer
from numpy.typing import ArrayLike

from rido._start import INTERRUPTED, stop
from rido.core.extras import missing_package
from rido.policies.loaders import code_needed
from rido.policies.resolve import is_path
from rido.policies.untrusted import UntrustedFileError
from rido.simulators.base import SimulationError

_BLOCKS = "▁▂▃▄▅▆▇█"
_BARS = " ▏▎▍▌▋▊▉█"
_PLAIN_BLOCKS = ".:-=+*#@"  # for terminals that cannot show the others
_PLAIN_BAR = "#"


class CommandError(Exception):
    """What went wrong, in one line, where no message of the error itself would do."""

    code = 1


class Interrupted(CommandError):
    """Ctrl-C, SIGTERM or SIGHUP."""

    code = INTERRUPTED


@contextmanager
def one_line_errors(*, interrupted: str = "stopped") -> Iterator[None]:
    """Turns interrupts and exits into errors; every error ends the command in one line, see :func:`fail_with`."""
    try:
        with _interrupted_by_signals():
            yield
    except KeyboardInterrupt:
        raise Interrupted(interrupted) from None
    except BrokenPipeError as error:  # not of standard output, which nothing was printed to
        raise CommandError(str(error)) from error
    except SystemExit as error:
        if error.code == signal.SIGTERM:  # Ray's handler of SIGTERM exits
            raise Interrupted(interrupted) from None
        text = f"the environment, the policy or a module of theirs called sys.exit({error.code!r:.80})"
        raise CommandError(text) from None


def fail_with(error: BaseException, *, as_json: bool) -> int:
    """Says in one line what was raised, and shows the traceback where RIDO_DEBUG is 1; returns the exit code."""
    if os.environ.get("RIDO_DEBUG") == "1":
        traceback.print_exception(error)
    text = " ".join((missing_package(error) if isinstance(error, ImportError) else str(error)).split())
    expected = isinstance(error, (CommandError, ValueError, ImportError, OSError, SimulationError))
    fail(text if text and expected else f"{type(error).__name__}: {text}".removesuffix(": "), as_json=as_json)
    return error.code if isinstance(error, CommandError) else 1


def fail(text: str, *, as_json: bool) -> None:
    """Says in one line on standard error what went wrong, and as a JSON object on standard output if wanted."""
    print(f"rido: {text}", file=sys.stderr)
    if as_json:
        with contextlib.suppress(OSError, ValueError):  # standard output is closed
            print(json.dumps({"error": text}), flush=True)


@contextmanager
def _interrupted_by_signals() -> Iterator[None]:
    """Makes SIGTERM and SIGHUP interrupt as Ctrl-C does, unless somebody else handles or ignores them.

    A second one ends the process at once.
    """

    def interrupt(*_: object) -> NoReturn:
        for number in before:
            signal.signal(number, stop)
        raise KeyboardInterrupt

    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    here = threading.current_thread() is threading.main_thread()  # only there handlers can be set
    free = (signal.SIG_DFL, signal.default_int_handler, stop)
    before = {number: found for number in numbers if here and (found := signal.getsignal(number)) in free}
    for number in before:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, found in before.items():
            signal.signal(number, found)


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Sends what environments, policies and libraries print to standard error: standard output is for the result.

    It redirects the file descriptor, so prints from C and from child processes are redirected too.
    """
    _flush_stdout()
    with contextlib.redirect_stdout(sys.stderr):
        try:
            kept = os.dup(1)
        except OSError:  # standard output is closed
            kept = None
        try:
            with contextlib.suppress(OSError):
                os.dup2(2, 1)
            yield
        finally:
            _flush_stdout()
            if kept is not None:
                os.dup2(kept, 1)
                os.close(kept)


def drop_stdout() -> None:
    """Drops what is held back for a standard output that nobody reads."""
    with contextlib.suppress(OSError), open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)


def end_stdout() -> None:
    """Sends whatever is printed from now on to standard error: libraries may print while the process exits."""
    _flush_stdout()
    sys.stdout = sys.stderr
    with contextlib.suppress(OSError):
        os.dup2(2, 1)


def _flush_stdout() -> None:
    """Writes out what Python and C hold back for standard output."""
    for stream in (sys.stdout, sys.__stdout__):
        with contextlib.suppress(OSError, ValueError):
            if stream is not None:
                stream.flush()
    with contextlib.suppress(OSError, TypeError, AttributeError):  # where the C library is not found by its symbols
        ctypes.CDLL(None).fflush(None)


def may_run_code(*policies: str | None, trust: bool) -> bool:
    """Whether the files of agents may run code: the user said so, or says so when asked on a terminal, for each.

    Raises:
        UntrustedFileError: the files need it, and the user says no or cannot be asked.
    """
    if trust or os.environ.get("RIDO_TRUST") == "1":
        return True
    found = [code_needed(policy) for policy in policies if policy is not None and is_path(policy)]
    for needed in filter(None, found):
        if not (sys.stdin.isatty() and sys.stderr.isatty() and typer.confirm(f"rido: {needed}. Run it?", err=True)):
            raise UntrustedFileError(needed)
    return any(found)


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
    array = np.asarray(values, dtype=np.float64)
    groups = np.array_split(array, min(width, array.size))
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
    groups = np.array_split(array, min(rows, array.size))
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


def _can_show(characters: str) -> bool:
    try:
        characters.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True
