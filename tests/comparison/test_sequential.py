"""Boundaries of repeated looks, against simulated Brownian motions."""

import numpy as np
import pytest
from scipy.special import ndtri

from rido.comparison.sequential import SpendingBoundary

TIMES = [20 * 1.3**look for look in range(14)]


def crossed(levels, times, repetitions=100_000, drift=0.0):
    """The share of Brownian motions that exceed the boundary at one of the looks."""
    rng = np.random.default_rng(0)
    motion, found, last = np.zeros(repetitions), np.zeros(repetitions, dtype=bool), 0.0
    for level, time in zip(levels, times, strict=True):
        motion += rng.normal(drift * (time - last), np.sqrt(time - last), repetitions)
        last = time
        found |= motion / np.sqrt(time) > -ndtri(level)
    return found.mean()


@pytest.mark.parametrize("alpha", [0.025, 0.025 / 8])
def test_all_looks_together_spend_alpha(alpha):
    """100,000 repetitions: a false alarm of 4.5 standard errors has a probability below 1e-5."""
    looks = SpendingBoundary(alpha)
    levels = [looks.level(time, time / TIMES[-1]) for time in TIMES]
    assert looks.spent == pytest.approx(alpha)
    assert crossed(levels, TIMES) == pytest.approx(alpha, abs=4.5 * np.sqrt(alpha / 100_000))


def test_a_single_look_is_a_plain_test():
    assert SpendingBoundary(0.05).level(100, 1.0) == pytest.approx(0.05)


def test_a_look_without_new_data_may_spend_the_rest():
    """It is as if the last look had been taken with all of alpha."""
    once, again = SpendingBoundary(0.05), SpendingBoundary(0.05)
    expected = [once.level(10, 0.1), once.level(50, 1.0)][-1]
    again.level(10, 0.1)
    assert again.level(50, 0.5) < expected
    assert again.level(50, 1.0) == pytest.approx(expected)


def test_a_clear_difference_is_found_early_however_generous_the_budget():
    levels = {budget: SpendingBoundary(0.025).level(20, 20 / budget) for budget in (1e3, 1e9)}
    assert levels[1e9] > levels[1e3] / 20


def test_looks_go_forward():
    looks = SpendingBoundary(0.05)
    looks.level(10, 0.1)
    with pytest.raises(ValueError, match="at the last look, 10, got 9"):
        looks.level(9, 0.2)
