"""Statements of the paper that need no simulation."""

import numpy as np
import pytest

from rido import Schedule


@pytest.mark.parametrize("gamma", [0.9, 1.0])
@pytest.mark.parametrize(("horizon", "budget"), [(10, 100), (10, 1000), (50, 5000)])
def test_example_1_uniform_is_optimal_when_only_the_last_step_varies(horizon, budget, gamma):
    weights = np.zeros(horizon)
    weights[-1] = gamma ** (2 * (horizon - 1))
    assert Schedule.optimal(weights, budget) == Schedule.uniform(horizon, budget)


@pytest.mark.parametrize(("horizon", "budget"), [(10, 100), (10, 1003), (50, 5000)])
def test_example_2_everything_goes_to_the_first_step_but_one_trajectory(horizon, budget):
    weights = np.zeros(horizon)
    weights[0] = 1.0
    counts = Schedule.optimal(weights, budget).counts
    np.testing.assert_array_equal(counts, [budget - (horizon - 1), *[1] * (horizon - 1)])


def ratio_to_the_oracle(schedule, weights):
    return schedule.variance(weights) / Schedule.optimal(weights, schedule.transitions).variance(weights)


@pytest.mark.parametrize("horizon", [10, 100, 1000])
def test_uniform_is_worse_by_more_than_half_the_horizon(horizon):
    """Proposition A.13 of the paper: only the first step varies, so uniform loses a factor T (at least T / 2)."""
    weights = np.eye(horizon)[0]
    ratio = ratio_to_the_oracle(Schedule.uniform(horizon, 100 * horizon), weights)
    assert horizon / 2 <= ratio <= horizon


def test_robust_is_worse_by_a_factor_that_grows_with_the_horizon():
    """Proposition A.14 of the paper: the ratio is sum_t sqrt(d_t) / sqrt(d_0), about 2 T / 3 for gamma = 1."""
    ratios = []
    for horizon in (10, 100, 1000):
        weights = np.eye(horizon)[0]
        schedule = Schedule.robust(horizon, 1000 * horizon, gamma=1.0)
        ratios.append(ratio_to_the_oracle(schedule, weights) / horizon)
        t = np.arange(horizon)
        d = 2.0 * (horizon - t) - 1
        assert ratios[-1] * horizon == pytest.approx(np.sum(np.sqrt(d / d[0])), rel=0.02)
    assert min(ratios) > 0.5
