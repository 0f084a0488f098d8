"""Numbers are printed to the digits that their error allows."""

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rido.core.digits import to_digits


@pytest.mark.parametrize(
    ("numbers", "texts"),
    [
        ((123.4321, 121.9321, 124.9321), ("123.4", "121.9", "124.9")),
        ((3320.09, 3216.79, 3426.5), ("3320", "3220", "3430")),
        ((9.96, 0.0, 19.92), ("10", "0", "20")),  # a half-width of 9.96 rounds to 10
        ((-0.04, -15.0, 15.0), ("0", "-15", "15")),
        ((0.25, 0.0, 0.5), ("0.25", "0.00", "0.50")),
        ((500.0, 499.99, 500.01), ("500.000", "499.990", "500.010")),
        ((12345678.0, 1e7, 1.5e7), ("1.23e+7", "1.00e+7", "1.50e+7")),
        ((0.0, -1e-9, 1e-9), ("0", "-1.0e-9", "1.0e-9")),
        ((1e308, -1.797e308, 1.797e308), ("1.0e+308", "-1.8e+308", "1.8e+308")),
        ((5.25, -math.inf, math.inf), ("5.25", "-inf", "inf")),
        ((5.25, 5.25, 5.25), ("5.25", "5.25", "5.25")),
    ],
)
def test_examples(numbers, texts):
    assert to_digits(*numbers) == texts


@given(st.floats(-1e12, 1e12), st.floats(1e-2, 1e12))
def test_two_digits_of_the_half_width_are_kept(value, half_width):
    """The last digit is worth from 1/100 to 1/10 of the half-width, and every number is rounded to it."""
    low, high = value - half_width, value + half_width
    half_width = (high - low) / 2
    for number, text in zip((value, low, high), to_digits(value, low, high), strict=True):
        assert abs(float(text) - number) <= 0.051 * half_width + 1e-15 * abs(number)
        assert Decimal(text) == 0 or Decimal(text).as_tuple().exponent >= min(0, math.log10(half_width) - 2.01)
