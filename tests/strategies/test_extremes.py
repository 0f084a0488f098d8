"""Extremes of rewards, budgets and horizons. benchmarks/faults/extremes.py is the full form of the random problems."""

import importlib.util
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from rido import Adaptive, Estimate, RewardMoments, Rido, Trajectories

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "faults" / "extremes.py"


@pytest.fixture
def problems():
    spec = importlib.util.spec_from_file_location("faults_numbers", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(strategy, scale=1.0, seed=0):
    """Spends the budget on noise that decays; returns the schedules."""
    rng, schedules = np.random.default_rng(seed), []
    decay = 0.8 ** np.arange(strategy.horizon)
    while (schedule := strategy.ask()) is not None:
        noise = rng.standard_normal((schedule.trajectories, strategy.horizon))
        strategy.tell(Trajectories(scale * (1 + noise * decay), schedule.lengths))
        schedules.append(schedule)
    return schedules


@pytest.mark.parametrize("seed", range(3))
def test_random_problems_raise_nothing_and_have_useful_errors(problems, seed):
    found = problems.run(60, seed)
    assert {fault: found[fault] for fault in problems.FAULTS} == dict.fromkeys(problems.FAULTS, 0)
    assert (found["ask/tell"], found["evaluate, ordinary"], found["evaluate, extreme"]) == (60, 20, 20)


def test_the_error_is_right_where_a_discount_underflows():
    moments = RewardMoments(3, gamma=1e-200)  # returns of 2e-200 and 5e-200; the third step counts nothing
    moments.update(Trajectories([[1e-200, 1.0, 1.0], [3e-200, 2.0, 1.0]], [3, 3]))
    estimate = Estimate.from_moments(moments)
    assert (estimate.value, estimate.standard_error) == pytest.approx((3.5e-200, 1.5e-200), rel=1e-12, abs=0)


@pytest.mark.parametrize("exponent", [-400, -200, 200, 320])
@pytest.mark.parametrize("make", [Adaptive, Rido])
def test_plans_do_not_depend_on_the_unit_of_the_rewards(make, exponent):
    settings = dict(horizon=20, budget=2000, gamma=0.9)
    plain, far = make(**settings), make(**settings)
    assert run(plain) == run(far, 2.0**exponent)
    assert far.estimate().standard_error == pytest.approx(plain.estimate().standard_error * 2.0**exponent)


@pytest.mark.parametrize("exponent", [-300, 0, 320])
def test_until_and_its_forecast_follow_the_unit_of_the_rewards(exponent):
    strategy = Adaptive(horizon=20, budget=10**6, gamma=0.9, until=0.05 * 2.0**exponent)
    spent = sum(schedule.transitions for schedule in run(strategy, 2.0**exponent))
    plain = Adaptive(horizon=20, budget=10**6, gamma=0.9, until=0.05)
    assert spent == sum(schedule.transitions for schedule in run(plain)) < 10**5
    assert strategy.forecast(0.01 * 2.0**exponent) == pytest.approx(plain.forecast(0.01), rel=1e-6)
    assert strategy.forecast(sys.float_info.min) <= 10**18


def test_a_generous_budget_does_not_cost():
    spent = []
    for budget in (10**5, 10**8, 10**15):
        strategy = Adaptive(horizon=20, budget=budget, gamma=0.9, until=0.1)
        run(strategy)
        assert strategy.estimate().half_width() <= 0.1
        spent.append(strategy.spent)
    assert max(spent) <= 1.2 * min(spent)


@pytest.mark.parametrize("gamma", [1e-3, 0.5, 0.99, 1.0])
@pytest.mark.parametrize("full", [6, 7, 8])
def test_unbiased_runs_need_six_full_length_trajectories_only(full, gamma):
    strategy = Adaptive(horizon=20, budget=20 * full, gamma=gamma, unbiased=True)
    assert len(run(strategy)) == 4
    assert 20 * full - 20 <= strategy.spent <= 20 * full


@pytest.mark.parametrize("gamma", [0.5, 0.9])
@pytest.mark.parametrize("scale", [0.0, 1e-200, 1.0, 1e99])
@pytest.mark.filterwarnings("error")
def test_long_horizons_whose_discounts_underflow(gamma, scale):
    """At 100,000 steps gamma^t is 0 from step 1,075 or 7,073 on. Independent rewards: a closed form for the error."""
    horizon, rng = 100_000, np.random.default_rng(0)
    strategy = Adaptive(horizon=horizon, budget=12 * horizon, gamma=gamma)
    while (schedule := strategy.ask()) is not None:
        flat = scale * rng.standard_normal(int(schedule.lengths.sum()))
        strategy.tell(Trajectories.from_flat(np.clip(flat, -9.9e99, 9.9e99), schedule.lengths))
    found = strategy.estimate()
    assert all(math.isfinite(number) for number in (found.value, found.half_width() if scale else 0.0))
    discounts = gamma ** np.arange(horizon, dtype=float)
    assert found.standard_error == pytest.approx(
        scale * math.sqrt((discounts**2 / found.schedule.counts).sum()), rel=0.5
    )


@pytest.mark.parametrize("scale", [1e-200, 1e99])
@pytest.mark.filterwarnings("error")
def test_constant_rewards_of_any_size(scale):
    for make in (Adaptive, Rido):
        strategy = make(horizon=50, budget=2000, gamma=0.9)
        while (schedule := strategy.ask()) is not None:
            strategy.tell(Trajectories(np.full((schedule.trajectories, 50), scale), schedule.lengths))
        found = strategy.estimate()
        assert found.nothing_varied and found.value == pytest.approx(scale * (1 - 0.9**50) / 0.1)
