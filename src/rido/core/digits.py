"""Digits: an estimate and its interval, printed to the digits that the error allows; numbers as JSON has them."""

import math
from collections.abc import Sequence
from dataclasses import fields
from decimal import Decimal
from typing import Any


def to_digits(value: float, low: float, high: float) -> tuple[str, str, str]:
    """Returns an estimate and the ends of its interval, rounded to two digits of the interval's half-width.

    Where the interval is infinite or has no width, which tells nothing of the digits, there are six.

    Example:
        >>> to_digits(123.4321, 121.9321, 124.9321)
        ('123.4', '121.9', '124.9')
        >>> to_digits(3320.09, 3216.79, 3426.5)
        ('3320', '3220', '3430')
        >>> to_digits(1.23456e-9, 1.1e-9, 1.3e-9)
        ('1.23e-9', '1.10e-9', '1.30e-9')
    """
    half_width = high / 2 - low / 2
    if not 0 < half_width < math.inf:
        return f"{value:.6g}", f"{low:.6g}", f"{high:.6g}"
    numbers = [Decimal(number) for number in (value, low, high)]
    top = max(number.adjusted() for number in numbers if number)  # power of ten of the first digit
    last = max(Decimal(f"{half_width:.1e}").adjusted() - 1, top - 15)  # and of the last; a float has 16 digits
    rounded = [number.quantize(Decimal((0, (1,), last))) for number in numbers]
    if -5 < top < 15 and last < 4:
        first, second, third = (f"{number or abs(number):f}" for number in rounded)  # no -0
    else:
        first, second, third = (f"{number:e}" if number else "0" for number in rounded)
    return first, second, third


def with_interval(value: float, low: float | None, high: float | None) -> str:
    """Returns an estimate with its interval as one text; None stands for an end that is not finite.

    Example:
        >>> with_interval(123.4321, 121.9321, 124.9321)
        '123.4 [121.9, 124.9]'
        >>> with_interval(1.5, None, None)
        '1.5 (no interval yet)'
    """
    if low in (None, -math.inf) and high in (None, math.inf):
        return f"{value:.6g} (no interval yet)"
    shown = to_digits(value, -math.inf if low is None else low, math.inf if high is None else high)
    return f"{shown[0]} [{shown[1]}, {shown[2]}]"


def entries(thing: Any, *, without: Sequence[str] = (), **more: Any) -> dict[str, Any]:
    """Returns the fields that the repr of a dataclass shows, except some, and more, as :func:`plain` does."""
    shown = (each.name for each in fields(thing) if each.repr and each.name not in without)
    return {name: plain(part) for name, part in {**{name: getattr(thing, name) for name in shown}, **more}.items()}


def plain(entry: Any) -> Any:
    """Returns nested dictionaries and lists with None where a number is not finite, as JSON can hold them.

    Example:
        >>> plain({"value": 1.5, "interval": (-float("inf"), 2)})
        {'value': 1.5, 'interval': [None, 2]}
    """
    if isinstance(entry, dict):
        return {name: plain(part) for name, part in entry.items()}
    if isinstance(entry, (list, tuple)):
        return [plain(part) for part in entry]
    return None if isinstance(entry, float) and not math.isfinite(entry) else entry
