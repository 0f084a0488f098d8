"""Rido does what Algorithm 1 of the paper says."""

import numpy as np
import pytest

from helpers import run
from processes import autoregressive, first_step, last_step
from rido import Rido, Schedule, Trajectories, allocate
from rido.core.allocation import round_down_and_fill, tie_negative_tail


def test_rounds_are_those_of_algorithm_1():
    strategy = Rido(horizon=10, budget=350, gamma=0.9, batch=100)
    schedules = run(strategy, autoregressive, np.random.default_rng(0))
    assert schedules[0] == Schedule.uniform(10, 100)
    assert [schedule.transitions for schedule in schedules] == [100, 100, 100, 50]
    assert all(schedule.counts[-1] >= 1 for schedule in schedules)


def test_each_batch_is_optimal_for_the_papers_estimates_alone():
    strategy = Rido(horizon=10, budget=400, gamma=0.9, batch=100, beta=5.0, reward_range=(-10, 20))
    rng = np.random.default_rng(1)
    strategy.tell(Trajectories(autoregressive(rng, strategy.ask().trajectories, 10), strategy.ask().lengths))
    weights = strategy.moments.weights("paper", beta=5.0, reward_range=(-10, 20))
    expected = round_down_and_fill(allocate(tie_negative_tail(weights), 100), 100)
    np.testing.assert_array_equal(strategy.ask().counts, expected)


def test_theory_beta():
    strategy = Rido(horizon=10, budget=1000, gamma=0.9, batch=100, beta="theory", delta=0.1)
    assert strategy.beta == pytest.approx(6 * (10 + 100) * 1000 * 10 / 0.1)


@pytest.mark.parametrize(("process", "step"), [(first_step, 0), (last_step, 9)])
def test_it_finds_the_step_that_matters(process, step):
    schedules = run(Rido(horizon=10, budget=1000, gamma=1.0, batch=100), process, np.random.default_rng(0))
    last = schedules[-1]
    expected = [91, *[1] * 9] if step == 0 else [10] * 10
    np.testing.assert_array_equal(last.counts, expected)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(batch=19), "batch must be an integer of at least 20, got 19"),
        (dict(budget=19), "budget must pay for 2 full-length trajectories, 20 transitions, got 19"),
        (dict(beta=0.9), 'beta must be at least 1 or "theory", got 0.9'),
        (dict(beta="large"), "beta must be at least 1 or \"theory\", got 'large'"),
        (dict(delta=0), "delta must be between 0 and 1, got 0"),
        (dict(reward_range=(1, 1)), r"reward_range must be \(low, high\) with low < high"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        Rido(**{"horizon": 10, "budget": 100, "gamma": 0.9, **settings})
