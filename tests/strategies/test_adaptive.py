"""Adaptive: close to the oracle, exact with budgets and early ends, unbiased and stopping where asked to."""

import numpy as np
import pytest

from helpers import run
from processes import autoregressive, first_step, last_step, lqg
from rido import Adaptive, Estimate, RewardMoments, Schedule, Trajectories
from rido.study import compare_strategies


@pytest.mark.parametrize(("process", "most"), [(first_step, 1.8), (last_step, 1.4), (lqg, 1.4), (autoregressive, 1.4)])
def test_variance_is_close_to_the_oracles(process, most):
    """Within 40% where uniform is up to 30 times worse; a tail that never varied costs a premium on top of that.

    The mean of 12 runs is 10 standard errors below that.
    """
    bank = process(np.random.default_rng(0), 4000, 40)
    result = compare_strategies(["uniform", "adaptive"], bank, budget=2400, gamma=0.95, repetitions=12)
    assert result["adaptive"].relative_variance < most
    assert result["adaptive"].relative_variance < 1.05 * result["uniform"].relative_variance


def test_the_scale_of_rewards_does_not_matter():
    def scaled(rng, trajectories, horizon):
        return 2.0**40 * autoregressive(rng, trajectories, horizon, mean=0.0)

    def plain(rng, trajectories, horizon):
        return autoregressive(rng, trajectories, horizon, mean=0.0)

    settings = dict(horizon=20, budget=900, gamma=0.97)
    schedules = [run(Adaptive(**settings), process, np.random.default_rng(3)) for process in (plain, scaled)]
    assert schedules[0] == schedules[1]


def test_the_pilot_is_twice_as_large_where_critics_learn_from_it():
    sizes = []
    for cross_fitted in (False, True):
        strategy = Adaptive(horizon=10, budget=2250, gamma=0.9)  # 225 full-length trajectories, the square of 15
        strategy.divide(cross_fitted=cross_fitted)
        sizes.append(strategy.ask().trajectories)
    assert sizes == [15, 30]


def test_the_pilot_is_twice_as_large_where_late_rewards_matter():
    sizes = [Adaptive(horizon=10, budget=2250, gamma=gamma).ask().trajectories for gamma in (0.9, 0.95, 1.0)]
    assert sizes == [15, 30, 30]


def test_the_pilot_is_short_where_the_discount_is_strong():
    pilot = Adaptive(horizon=100, budget=4000, gamma=0.8).ask()
    assert pilot.counts[0] == 6 and pilot.counts[17] == 6 and pilot.counts[18] == pilot.counts[-1] == 4
    assert Adaptive(horizon=100, budget=4000, gamma=0.99).ask().counts.tolist() == [6] * 100
    assert Adaptive(horizon=100, budget=200, gamma=1.0).ask().counts.tolist() == [2] * 100


def test_phases_double_what_was_spent():
    schedules = run(Adaptive(horizon=20, budget=5000, gamma=1.0), autoregressive, np.random.default_rng(0))
    spent = np.cumsum([schedule.transitions for schedule in schedules])
    growth = spent[2:-1] / spent[1:-2]
    np.testing.assert_allclose(growth[:-1], 2.0, atol=0.1)


def test_large_budgets_take_few_plans_and_are_spent_as_well():
    """Independent normal rewards, whose weights are known; half of a percent is more than 1,000 trajectories leave."""
    deviations, budget = np.linspace(3, 1, 20), 2_000_000
    strategy = Adaptive(horizon=20, budget=budget, gamma=0.9)
    schedules = run(
        strategy, lambda rng, count, horizon: rng.normal(size=(count, horizon)) * deviations, np.random.default_rng(0)
    )
    assert schedules[0].trajectories == 3 * (budget // 20 // 100 // 3) and len(schedules) <= 4  # three teams
    weights = 0.81 ** np.arange(20) * deviations**2
    best = Schedule.optimal(weights, budget).variance(weights)
    assert strategy.estimate().schedule.variance(weights) < 1.005 * best


def test_nothing_varies_nothing_breaks():
    def constant(rng, trajectories, horizon):
        return np.full((trajectories, horizon), 7.0)

    strategy = Adaptive(horizon=10, budget=300, gamma=1.0)
    run(strategy, constant, np.random.default_rng(0))
    low, high = strategy.estimate().interval()
    assert strategy.spent == 300 and 50 < low < 70 < high < 90
    assert "same rewards" in strategy.warnings()[0]


def test_early_ends_take_few_rounds_and_the_budget():
    """One step in ten ends the trajectory: full-length plans cost a fiftieth of what they may."""
    rng = np.random.default_rng(0)
    strategy = Adaptive(horizon=500, budget=20_000, gamma=1.0)
    rounds = 0
    while (schedule := strategy.ask()) is not None:
        assert strategy.spent + schedule.transitions <= 20_000
        steps = np.minimum(rng.geometric(0.1, schedule.trajectories), schedule.lengths)
        strategy.tell(Trajectories(np.ones((steps.size, 500)), schedule.lengths, steps))
        rounds += 1
    assert strategy.spent > 20_000 - 500  # what pays for no full-length trajectory is left
    assert rounds < 300


def test_a_reset_price_makes_trajectories_fewer():
    settings = dict(horizon=20, budget=2000, gamma=1.0)
    free, dear = Adaptive(**settings), Adaptive(reset_price=30.0, **settings)
    for strategy in (free, dear):
        run(strategy, lqg, np.random.default_rng(0))
    assert dear.estimate().schedule.trajectories < 0.8 * free.estimate().schedule.trajectories
    assert dear.options == {"unbiased": False, "until": None, "reset_price": 30.0}


def test_unbiased_halves_are_planned_from_each_other_alone():
    """A half's counts must not depend on its own rewards: then its own estimate is unbiased by linearity."""

    def last_plans(first, second):
        strategy = Adaptive(horizon=12, budget=600, gamma=0.95, unbiased=True)
        plans = []
        for process, seed in ((first, 1), (second, 2), (autoregressive, 3), (autoregressive, 4)):
            schedule = strategy.ask()
            plans.append(schedule)
            rewards = process(np.random.default_rng(seed), schedule.trajectories, 12)
            strategy.tell(Trajectories(rewards, schedule.lengths))
        assert strategy.ask() is None and strategy.spent == 600
        return plans[2:]

    plain, changed = last_plans(autoregressive, autoregressive), last_plans(first_step, autoregressive)
    assert plain[0] == changed[0] and plain[1] != changed[1]
    changed = last_plans(autoregressive, first_step)
    assert plain[0] != changed[0] and plain[1] == changed[1]


def test_unbiased_estimate_is_the_mean_of_the_halves():
    strategy = Adaptive(horizon=12, budget=601, gamma=0.95, unbiased=True)
    halves = [RewardMoments(12, gamma=0.95) for _ in range(2)]
    rng = np.random.default_rng(0)
    for which in (0, 1, 0, 1):
        schedule = strategy.ask()
        batch = Trajectories(autoregressive(rng, schedule.trajectories, 12), schedule.lengths)
        strategy.tell(batch)
        halves[which].update(batch)
    values = [Estimate.from_moments(half) for half in halves]
    assert strategy.spent in (600, 601)
    assert strategy.estimate().value == pytest.approx((values[0].value + values[1].value) / 2)
    assert strategy.estimate().standard_error > 0


def test_unbiased_spends_what_the_pilots_left_but_never_more():
    rng = np.random.default_rng(0)
    strategy = Adaptive(horizon=20, budget=1000, gamma=1.0, unbiased=True)
    while (schedule := strategy.ask()) is not None:
        assert strategy.spent + schedule.transitions <= 1000
        steps = np.minimum(rng.geometric(0.1, schedule.trajectories), schedule.lengths)
        strategy.tell(Trajectories(np.ones((steps.size, 20)), schedule.lengths, steps))
    assert 300 < strategy.spent < 1000


def test_until_stops_at_the_width_or_at_the_budget():
    settings = dict(horizon=20, budget=50_000, gamma=0.95)
    wide = Adaptive(until=4.0, **settings)
    run(wide, autoregressive, np.random.default_rng(0))
    low, high = wide.estimate().interval()
    assert high - low <= 8.0 and wide.spent < 10_000
    narrow = Adaptive(until=1e-3, **settings)
    run(narrow, autoregressive, np.random.default_rng(0))
    assert narrow.spent == 50_000


def test_forecast_is_about_what_it_takes():
    strategy = Adaptive(horizon=20, budget=200_000, gamma=0.95, until=1.0)
    with pytest.raises(ValueError, match=r"forecast\(\) needs the rewards of the pilot"):
        strategy.forecast()
    rng = np.random.default_rng(0)
    schedule = strategy.ask()
    strategy.tell(Trajectories(autoregressive(rng, schedule.trajectories, 20), schedule.lengths))
    forecast = strategy.forecast()
    assert strategy.forecast(2.0) < forecast
    run(strategy, autoregressive, rng)
    assert 0.5 < strategy.spent / forecast < 2
    assert strategy.forecast() == strategy.spent


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(budget=15), "budget must pay for 2 full-length trajectories, 20 transitions, got 15"),
        (dict(budget=50, unbiased=True), "budget must pay for 6 full-length trajectories, 60 transitions, got 50"),
        (dict(until=0.0), "until must be positive and finite, got 0.0"),
        (dict(until=1.0, unbiased=True), "until must be None where unbiased is True"),
        (dict(reset_price=-1.0), "reset_price must be at least 0 and finite, got -1.0"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        Adaptive(**{"horizon": 10, "budget": 100, "gamma": 0.9, **settings})


def test_a_device_in_lockstep_gets_two_wide_phases():
    """Where cutting gains little they have full length; where it gains much they do not."""
    for gamma, cut in ((1.0, False), (0.8, True)):
        strategy = Adaptive(horizon=40, budget=200_000, gamma=gamma, lockstep=512)
        asked, rng = [], np.random.default_rng(0)
        while (schedule := strategy.ask()) is not None:
            asked.append(schedule)
            noise = rng.normal(size=(schedule.trajectories, 40)) + rng.normal(size=(schedule.trajectories, 1))
            strategy.tell(Trajectories(noise, schedule.lengths))
        assert len(asked) == 2 and asked[0].trajectories == 512
        assert 0.95 * 200_000 < strategy.spent <= 200_000
        assert (asked[1].counts[-1] < asked[1].counts[0]) == cut
    assert "lockstep" not in Adaptive().options
