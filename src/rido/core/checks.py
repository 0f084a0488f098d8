"""Checks of arguments. Each error names the argument, the requirement and the value."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

MOST_TRANSITIONS = 10**15
"""Transitions of a budget at most. Beyond 2^53, 9e15, counts are not exact in floats."""

MOST_STEPS = 10**8
"""Steps of a horizon at most: schedules have a count for each."""


def integer(name: str, value: Any, *, least: int, most: int | None = None) -> int:
    """Returns ``value`` as an int of at least ``least`` and at most ``most``."""
    whole = hasattr(value, "__index__") or (isinstance(value, float) and value.is_integer())
    number = int(value) if whole else least - 1
    if number < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
    if most is not None and number > most:
        raise ValueError(f"{name} must be at most {most:.0e}, got {value!r:.80}")
    return number


def discount(name: str, value: Any) -> float:
    """Returns ``value`` as a discount factor in (0, 1]."""
    if not isinstance(value, (int, float, np.number)) or not 0 < value <= 1:
        raise ValueError(f"{name} must be in (0, 1], got {value!r}")
    return float(value)


def probability(name: str, value: Any) -> float:
    """Returns ``value`` as a number strictly between 0 and 1."""
    if not isinstance(value, (int, float, np.number)) or not 0 < value < 1:
        raise ValueError(f"{name} must be between 0 and 1, got {value!r}")
    return float(value)


def not_negative(name: str, value: Any) -> float:
    """Returns ``value`` as a finite number of at least 0."""
    if not isinstance(value, (int, float, np.number)) or not 0 <= value < np.inf:
        raise ValueError(f"{name} must be at least 0 and finite, got {value!r}")
    return float(value)


def choice(name: str, value: Any, options: tuple[str, ...]) -> str:
    """Returns ``value`` if it is one of ``options``."""
    if value not in options:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, options))}, got {value!r}")
    return str(value)


def finite_vector(name: str, values: ArrayLike, *, length: int | None = None) -> NDArray[np.float64]:
    """Returns ``values`` as a non-empty one-dimensional float array without NaN or infinity."""
    array = np.asarray(values, dtype=np.float64)
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
    array = np.asarray(values)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} must be a non-empty one-dimensional array, got shape {array.shape}")
    whole = array.astype(np.int64, copy=False) if array.dtype.kind in "iu" else _whole(array)
    if whole is None or whole.min() < 0:
        raise ValueError(f"{name} must be non-negative integers, got {array.tolist()!r:.80}")
    return whole


def _whole(array: NDArray[Any]) -> NDArray[np.int64] | None:
    """Returns floats and the like as int64, or None if they are not whole numbers."""
    numbers = np.asarray(array, dtype=np.float64)
    whole = np.where(np.isfinite(numbers), numbers, 0).astype(np.int64)
    return whole if np.array_equal(whole, numbers) else None


def reward_range(name: str, value: Any) -> tuple[float, float]:
    """Returns ``value`` as (low, high) with finite low < high."""
    try:
        low, high = (float(edge) for edge in value)
    except (TypeError, ValueError):
        low = high = np.nan
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise ValueError(f"{name} must be (low, high) with low < high, got {value!r}")
    if not np.isfinite(high - low):
        raise ValueError(f"{name} must have a width within float64, got {value!r}")
    return low, high
