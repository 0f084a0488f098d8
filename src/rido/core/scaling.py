"""Scaling: powers of two that keep squares of very large and very small numbers within float64."""

import math

import numpy as np
from numpy.typing import NDArray

_ORDINARY = 150  # numbers between 2^-150 and 2^150, about 1e-45 and 1e45, are used as they are


def excess_exponent(*sizes: float) -> int:
    """Returns the k for which numbers up to these sizes, divided by 2^k, have sums of fourth powers within float64.

    It is 0 for ordinary numbers. Infinite sizes do not count. Dividing by a power of two is exact but for subnormals.

    Example:
        >>> excess_exponent(5.0), excess_exponent(2.0**200), excess_exponent(2.0**-200)
        (0, 51, -49)
    """
    exponent = math.frexp(max((size for size in sizes if math.isfinite(size)), default=0.0))[1]
    return exponent - min(max(exponent, -_ORDINARY), _ORDINARY)


def scaled(values: NDArray[np.float64], exponent: int) -> NDArray[np.float64]:
    """Returns the values times 2^exponent; what overflows is infinite."""
    with np.errstate(over="ignore", under="ignore"):
        result: NDArray[np.float64] = np.ldexp(values, exponent)
    return result


def scaled_number(value: float, exponent: int) -> float:
    """Returns a number times 2^exponent; what overflows is infinite."""
    return float(scaled(np.array(value), exponent)) if exponent else value
