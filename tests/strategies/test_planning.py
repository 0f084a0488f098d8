"""Each mechanism of the planner: what it is for, with it and with the setting that switches it off."""

import numpy as np
import pytest

from helpers import run
from processes import autoregressive, first_step
from rido import Adaptive, RewardMoments, Trajectories, Uniform
from rido.strategies import adaptive
from rido.strategies.planning import learn
from rido.strategies.settings import AdaptiveSettings
from rido.study.strategies import Bank

BARE = {"caution": 0.0, "unseen": 0.0}


def lesson(rewards, steps=None, gamma=1.0, **settings):
    rewards = np.asarray(rewards, dtype=float)
    moments = RewardMoments(rewards.shape[1], gamma=gamma)
    moments.update(Trajectories(rewards, np.full(len(rewards), rewards.shape[1]), steps))
    return learn(moments, settings=AdaptiveSettings(**{**BARE, **settings}))


def expenses(count, horizon=100, seed=0):
    """A cost of 1 a step until the goal, which pays it back: returns vary a thousand times less than rewards."""
    rng = np.random.default_rng(seed)
    steps = rng.integers(20, 60, count)
    rewards = np.where(np.arange(horizon) < steps[:, None], -1.0, 0.0)
    rewards[np.arange(count), steps - 1] += steps + rng.normal(0, 0.3, count)
    return rewards, steps


def test_caution_stops_cuts_after_what_few_trajectories_happen_to_show():
    """White noise has nothing to gain. 30 trajectories seem to show a gain in 78% of samples, with caution in 40%."""
    cut = {}
    for caution in (0.0, 0.75):
        samples = [np.random.default_rng(seed).normal(size=(30, 40)) for seed in range(40)]
        cut[caution] = np.mean([lesson(rewards, caution=caution).truncates for rewards in samples])
    assert cut[0.0] > 0.7 and cut[0.75] < 0.6 * cut[0.0]


def test_unseen_events_are_allowed_for_where_few_events_make_up_the_variance():
    """Three failures of 60, all of them early by chance."""
    rewards = np.random.default_rng(0).normal(0, 0.01, (60, 40))
    rewards[:3, [2, 5, 9]] -= 10.0
    assert lesson(rewards).gain > 3
    assert lesson(rewards, unseen=1.0).gain < 2


def test_few_trajectories_that_go_on_tell_nothing():
    """Four of 60 go on after step 10 and happen to be alike."""
    rng = np.random.default_rng(0)
    steps = np.where(np.arange(60) < 4, 40, rng.integers(2, 10, 60))
    rewards = rng.normal(size=(60, 40)) * (np.arange(40) < 10)
    assert lesson(rewards, steps).gain > 1.3
    assert lesson(rewards, steps, unseen=0.5).gain < 1.2


def test_a_gain_below_the_least_is_none():
    rewards = np.random.default_rng(1).normal(size=(400, 20)) * np.linspace(1.0, 0.8, 20)
    gain = lesson(rewards, least_gain=0.0).gain
    assert 1.0 < gain < 1.1
    assert lesson(rewards, least_gain=0.0).truncates and not lesson(rewards, least_gain=0.1).truncates


def test_steps_that_no_trajectory_reached_cost_nothing_and_share_the_last_count():
    """All end before step 30 of 100: a cut behind them saves nothing, and plans that cut before do not cut there."""
    rng = np.random.default_rng(0)
    steps = np.full(50, 30)
    early = rng.normal(size=(50, 100)) * (np.arange(100) < 5)
    found = lesson(early, steps, unseen=1.0)
    assert found.truncates and found.survival[30:].sum() < 1e-6
    strategy = Adaptive(horizon=100, budget=5000, gamma=1.0)
    Bank(early, gamma=1.0, steps=steps).run(strategy, rng)
    counts = strategy.estimate().schedule.counts
    assert counts[0] > 1.5 * counts[29] and counts[29] - counts[99] <= 1  # the rest pays for no full-length one
    late = rng.normal(size=(50, 100)) * (np.arange(100) == 29)
    assert not lesson(late, steps).truncates


@pytest.mark.parametrize("make", [Adaptive, Uniform])
def test_nothing_is_cut_where_returns_vary_less_than_rewards(make):
    """One trajectory that is cut before the goal would multiply the variance."""
    rewards, steps = expenses(2000)
    bank = Bank(rewards, gamma=1.0, steps=steps)
    for seed in range(10):
        strategy = make(horizon=100, budget=1050, gamma=1.0)
        bank.run(strategy, np.random.default_rng(seed))
        plain = float(bank.weights.sum()) * steps.mean() / strategy.spent
        assert strategy.variance_in(bank.population, bank.weights) < 1.1 * plain
        assert strategy.budget - 100 < strategy.spent


def test_small_budgets_are_plain_episodes():
    lengths = []
    for plain_below in (5.0, 0.0):
        strategy = Adaptive(horizon=100, budget=499, gamma=0.8, settings={"plain_below": plain_below})
        schedules = run(strategy, first_step, np.random.default_rng(0))
        lengths.append(min(schedule.lengths.min() for schedule in schedules))
    assert lengths[0] == 100 > lengths[1]


def test_small_budgets_are_larger_where_the_discount_leaves_something_of_the_later_half():
    for horizon, plain in ((200, False), (100, True)):  # 0.98^194 is 0.02
        strategy = Adaptive(horizon=2 * horizon, budget=13 * horizon, gamma=0.98)
        schedules = run(strategy, first_step, np.random.default_rng(0))
        assert all(schedule.counts[0] == schedule.counts[-1] for schedule in schedules) == plain


def test_few_survivors_have_before_them_what_varies_as_much_as_before():
    """A goal pays 1. Of three that have not reached it by step 30, each may still have as uneven rewards before it."""
    gamma, rng = 0.9, np.random.default_rng(0)
    steps = np.where(np.arange(60) < 3, 40, rng.integers(5, 30, 60))
    rewards = np.zeros((60, 40))
    rewards[np.arange(60), steps - 1] = rng.random(60) < 0.5
    discounts = gamma ** np.arange(40.0)
    worst, scale = 0.0, []
    for step in range(31):
        behind = (rewards * discounts)[:, step:].sum(axis=1)
        alive = np.mean(steps > step)
        worst = max(worst, behind.var(ddof=1) / (alive * discounts[step] ** 2))
        scale.append(worst * alive * discounts[step] ** 2)
    assert scale[30] > 2 * scale[0] * np.mean(steps > 30) * discounts[30] ** 2  # more than what was uneven at the start
    found = lesson(rewards, steps, gamma=gamma, unseen=4.0)
    assert found.unseen[30] == pytest.approx(scale[30], rel=0.02)
    bare = lesson(rewards, steps, gamma=gamma)
    assert not bare.unseen.any() and bare.weights[30:].sum() < 0.25 * found.weights[30:].sum()


def test_a_team_is_planned_from_the_other_teams_alone():
    """Its own rewards change the plans of the others, and not its own."""
    asked = []
    for spread in (0.1, 10.0):
        strategy = Adaptive(horizon=100, budget=4000, gamma=0.9)
        strategy.ask()
        lengths, teams = strategy.planned
        rewards = autoregressive(np.random.default_rng(0), lengths.size, 100)
        first = teams == 0
        assert first.any() and not first.all()
        rewards[first, 20:] *= spread
        strategy.tell(Trajectories(rewards, lengths))
        strategy.ask()
        asked.append(strategy.parts)
    (own, *others), (again, *changed) = asked
    assert len(others) == 2 and own == again and all(a != b for a, b in zip(others, changed, strict=True))


def test_plans_are_made_once_however_early_trajectories_end(monkeypatch):
    """Not for every batch that the budget pays for in any case."""
    calls = []
    monkeypatch.setattr(adaptive, "learn", lambda *a, **k: calls.append(1) or learn(*a, **k))
    strategy = Adaptive(horizon=100, budget=1000, gamma=1.0)
    rewards, steps = expenses(2000)
    Bank(rewards, gamma=1.0, steps=steps).run(strategy, np.random.default_rng(0))
    assert strategy.division.teams == 1
    assert 2 <= len(calls) <= 5 < len(strategy.collected())


def test_the_interval_is_wider_where_unseen_events_may_lie_behind_cuts():
    def failing(rng, count, horizon):
        rewards = rng.normal(0, 0.1, (count, horizon))
        rewards[rng.random(count) < 0.1, 3] -= 10.0
        return rewards

    errors = []
    for doubt in (1.0, 0.0):
        strategy = Adaptive(horizon=40, budget=2000, gamma=0.95, settings={"doubt": doubt})
        run(strategy, failing, np.random.default_rng(0))
        assert strategy.estimate().schedule.counts[0] > strategy.estimate().schedule.counts[-1]
        errors.append(strategy.estimate().standard_error)
    assert 1.02 < errors[0] / errors[1] < 1.5


def test_settings_go_into_the_options_and_come_back():
    strategy = Adaptive(settings=AdaptiveSettings(caution=2.0))
    begun = strategy.begin(horizon=10, budget=100, gamma=0.9)
    assert begun.settings == AdaptiveSettings(caution=2.0) and begun.options["settings"]["caution"] == 2.0
    assert "settings" not in Adaptive().options
