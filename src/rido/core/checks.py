"""Checks of arguments. Each error names the argument, the requirement and the value."""

import functools
import inspect
import operator
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

P = ParamSpec("P")
R = TypeVar("R")
Rule = Callable[[str, Any], Any]
"""Takes the name of an argument and its value; returns the value converted, or raises a ValueError."""

MOST_TRANSITIONS = 10**15  # transitions of a budget at most. Beyond 2^53, 9e15, counts are not exact in floats
MOST_STEPS = 10**8  # steps of a horizon at most: schedules have a count for each
LARGEST = 1e100  # rewards are below this in size, so that squares of returns are within float64
LARGEST_RETURN = LARGEST * MOST_STEPS  # values of critics are below this in size


def checked(**special: Rule | None) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Returns a decorator for public functions: arguments are checked and converted by the rules for their names.

    A name means the same in every public function, see ``_RULES``; what is a ``bool`` must be True or False. None is
    left alone where it is the default.

    Args:
        **special: rules of one function; None for an argument that the function checks itself.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        parameters = inspect.signature(function).parameters
        convert = checker(parameters, special)

        @functools.wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            positional = [convert(name, value) for name, value in zip(parameters, args, strict=False)]
            named = {name: convert(name, value) for name, value in kwargs.items()}
            return function(*positional, *args[len(positional) :], **named)  # type: ignore[arg-type]

        return wrapper

    return decorate


def checker(parameters: Mapping[str, inspect.Parameter], special: Mapping[str, Rule | None]) -> Rule:
    """Returns what checks and converts a value by the name of its parameter, see :func:`checked`."""
    flags = {name: flag for name, each in parameters.items() if each.annotation in _FLAGS}
    known = {name: rule for name, rule in {**_RULES, **flags, **special}.items() if name in parameters and rule}
    optional = {name for name in known if parameters[name].default is None}

    def convert(name: str, value: Any) -> Any:
        return value if name not in known or (value is None and name in optional) else known[name](name, value)

    return convert


def shown(value: Any) -> str:
    """Returns a value as one line of at most 80 characters, for messages."""
    try:
        return " ".join(repr(value).split())[:80]
    except Exception:  # of an integer of thousands of digits, or of a class of the user's own
        return f"a {type(value).__name__}"


def number(value: Any) -> float:
    """Returns a real number as a float; NaN for everything else."""
    if isinstance(value, (str, bytes, bytearray)) or getattr(value, "ndim", 0) != 0:
        return np.nan
    try:
        return float(value)
    except Exception:  # a method __float__ of the user's own may raise anything
        return np.nan


def integer(name: str, value: Any, *, least: int, most: int | None = None) -> int:
    """Returns ``value`` as an int of at least ``least`` and at most ``most``."""
    try:
        whole = operator.index(value)
    except Exception:
        whole = int(found) if (found := number(value)).is_integer() else least - 1
    if whole < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {shown(value)}")
    if most is not None and whole > most:
        raise ValueError(f"{name} must be at most {most:.0e}, got {shown(value)}")
    return whole


def _rule(requirement: str, convert: Callable[[Any], R | None]) -> Callable[[str, Any], R]:
    """Returns a checker that returns what ``convert`` makes of a value, and refuses where that is None or an error."""

    def check(name: str, value: Any) -> R:
        try:
            found = convert(value)
        except Exception:
            found = None
        if found is None:
            raise ValueError(f"{name} must be {requirement}, got {shown(value)}")
        return found

    return check


def _real(requirement: str, holds: Callable[[float], bool]) -> Callable[[str, Any], float]:
    return _rule(requirement, lambda value: found if holds(found := number(value)) else None)


discount = _real("in (0, 1]", lambda value: 0 < value <= 1)
probability = _real("between 0 and 1", lambda value: 0 < value < 1)
not_negative = _real("at least 0 and finite", lambda value: 0 <= value < np.inf)
positive = _real("positive and finite", lambda value: 0 < value < np.inf)
finite = _real("a finite number", lambda value: abs(value) < np.inf)
flag = _rule(
    "True or False", lambda value: bool(value) if isinstance(value, (bool, int, np.bool_)) and value in (0, 1) else None
)
text: Callable[[str, Any], Any] = _rule("a text", lambda value: value if isinstance(value, str) else None)
function: Callable[[str, Any], Any] = _rule("a function", lambda value: value if callable(value) else None)
name_or_function: Callable[[str, Any], Any] = _rule(
    "a name or a function", lambda value: value if isinstance(value, str) or callable(value) else None
)
path: Callable[[str, Any], Any] = _rule(
    "a path",
    lambda value: value if b"\0" not in os.fsencode(name := os.fspath(value)) and "\n" not in name else None,
)


def made_folder(name: str, value: str | Path) -> Path:
    """Returns a folder, which is made if it is not there."""
    folder = Path(value)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(
            f"{name} must be a folder that can be made, got {shown(str(folder))}: {error.strerror}"
        ) from error
    return folder


keywords: Callable[[str, Any], dict[str, Any]] = _rule(
    "a dictionary of arguments by name",
    lambda value: dict(value) if isinstance(value, Mapping) and all(isinstance(key, str) for key in value) else None,
)


def choice(name: str, value: Any, options: tuple[str, ...]) -> str:
    """Returns ``value`` if it is one of ``options``."""
    if not isinstance(value, str) or value not in options:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, options))}, got {shown(value)}")
    return str(value)


def instance(name: str, value: Any, *kinds: type) -> Any:
    """Returns ``value`` if it is an instance of one of ``kinds``."""
    if not isinstance(value, kinds):
        expected = " or ".join(kind.__name__ for kind in kinds)
        raise ValueError(f"{name} must be of the type {expected}, got {shown(value)}")
    return value


def called(name: str, value: Callable[..., R], *arguments: Any, **settings: Any) -> R:
    """Calls a function that the user gave, and blames it for what it raises."""
    try:
        return value(*arguments, **settings)
    except (ValueError, ImportError, OSError, RuntimeError):  # which name what is wrong
        raise
    except Exception as error:
        raise ValueError(f"{name} must not raise an error, but raised {shown(error)}") from error


def metric(name: str, value: Any) -> str | tuple[float, ...] | None:
    """Returns ``value`` if it is "scaled" or weights."""
    if value is None or (isinstance(value, str) and value == "scaled"):
        return value
    return tuple(finite_vector(name, value).tolist())


def numbers(name: str, values: Any) -> NDArray[np.float64]:
    """Returns ``values`` as an array of floats, of any shape."""
    try:
        array = np.asarray(values)
        if array.dtype.kind in "fiubO":  # numpy would convert complex numbers, dates and texts too
            return array.astype(np.float64, copy=False)
    except Exception:  # ragged lists, or a method __array__ or __float__ of the user's own
        pass
    raise ValueError(f"{name} must be an array of numbers, got {shown(values)}")


def first_beyond(values: NDArray[np.float64], limit: float = LARGEST) -> tuple[int, ...] | None:
    """Returns the place of the first number that is not finite and below the limit in size, or None."""
    if not values.size or (values.min() > -limit and values.max() < limit):
        return None
    return tuple(np.argwhere(~(np.abs(values) < limit))[0].tolist())


def beyond(name: str, value: float, where: str = "", limit: float = LARGEST) -> ValueError:
    """Returns the error for a number that is not finite and below the limit in size."""
    if not np.isfinite(value):
        return ValueError(f"{name} must be finite, got {value}{where}")
    border = f"{limit:.0e}".replace("+", "")
    return ValueError(f"{name} must be below {border} in size, got {value:g}{where}: rescale the rewards")


def finite_vector(name: str, values: ArrayLike, *, length: int | None = None) -> NDArray[np.float64]:
    """Returns ``values`` as a non-empty one-dimensional float array without NaN or infinity."""
    array = numbers(name, values)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} must be a non-empty one-dimensional array, got shape {array.shape}")
    if length is not None and array.size != length:
        raise ValueError(f"{name} must have {length} entries, got {array.size}")
    if not np.isfinite(array).all():
        first = int(np.argmin(np.isfinite(array)))
        raise ValueError(f"{name} must be finite, got {array[first]} at index {first}")
    return array


def positive_vector(name: str, values: ArrayLike, *, length: int | None = None) -> NDArray[np.float64]:
    """Returns ``values`` as a finite vector whose entries are all above zero."""
    array = finite_vector(name, values, length=length)
    if array.min() <= 0:
        raise ValueError(f"{name} must be positive, got {array.min()} at index {int(array.argmin())}")
    return array


def counts(name: str, values: ArrayLike) -> NDArray[np.int64]:
    """Returns ``values`` as a non-empty vector of non-negative int64 numbers."""
    exact = isinstance(values, np.ndarray) and values.dtype.kind in "iu"
    array: NDArray[Any] = np.asarray(values) if exact else numbers(name, values)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} must be a non-empty one-dimensional array, got shape {array.shape}")
    whole: NDArray[np.int64] = (array if exact else np.where(np.abs(array) < 2**62, array, -1)).astype(
        np.int64, copy=False
    )
    if whole.min() < 0 or not (exact or np.array_equal(whole, array)):
        raise ValueError(f"{name} must be non-negative integers, got {shown(array.tolist())}")
    return whole


def reward_range(name: str, value: Any) -> tuple[float, float]:
    """Returns ``value`` as (low, high) with finite low < high."""
    try:
        low, high = (number(edge) for edge in value)
    except Exception:  # not two, or a method __iter__ of the user's own
        low = high = np.nan
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise ValueError(f"{name} must be (low, high) with low < high, got {shown(value)}")
    if max(-low, high) > LARGEST:
        raise beyond(name, high if high > -low else low)
    return low, high


def _integers(least: int, most: int | None = None) -> Rule:
    return functools.partial(integer, least=least, most=most)


_FLAGS = (bool, "bool", bool | None, "bool | None")  # annotations of what must be True or False
_MOST_AT_ONCE = 10**6  # environments, processes and actors: more than any machine has
_RULES: dict[str, Rule] = {  # what an argument must be, by its name
    "horizon": _integers(1, MOST_STEPS),
    "budget": _integers(1, MOST_TRANSITIONS),
    "gamma": discount,
    "reward_range": reward_range,
    "seed": _integers(0),
    "num_envs": _integers(1, _MOST_AT_ONCE),
    "workers": _integers(1, _MOST_AT_ONCE),
    "env_kwargs": keywords,
    **dict.fromkeys(("confidence", "delta"), probability),
    **dict.fromkeys(("tolerance", "time_budget", "reset_cost", "reset_price"), not_negative),
    **dict.fromkeys(("until", "step_timeout"), positive),
    **dict.fromkeys(("run", "folder", "log_path", "best_model_save_path"), path),
    **dict.fromkeys(("lockstep", "leading"), _integers(0)),
    "metric": metric,
    "noise": functools.partial(choice, options=("variance", "deviation")),
    "stop": function,
    "simulator": name_or_function,
    "plan_for": text,
}
