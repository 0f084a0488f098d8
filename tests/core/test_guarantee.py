"""The interval that needs nothing but a reward range."""

import numpy as np
import pytest
from scipy import stats

from helpers import run
from rido import Adaptive, Rido, Robust, Trajectories, Uniform
from rido.core.guarantee import guaranteed_interval


@pytest.mark.parametrize("strategy", [Uniform, Robust])
def test_one_plan_gives_the_papers_hoeffding_interval(strategy):
    chosen = strategy(horizon=12, budget=300, gamma=0.9)
    run(chosen, lambda rng, n, horizon: rng.uniform(-1, 2, (n, horizon)), np.random.default_rng(0))
    assert chosen.guaranteed_interval((-1, 2), 0.9) == pytest.approx(hoeffding(chosen.estimate(), 3, 0.1))


def hoeffding(estimate, width, delta):
    """(2) of the paper: the interval for one plan that was fixed before."""
    gamma, horizon = estimate.gamma, estimate.schedule.horizon
    t = np.arange(horizon)
    d = gamma**t * (gamma**t + gamma ** (t + 1) - 2 * gamma**horizon) / (1 - gamma)
    half_width = width * np.sqrt(np.log(2 / delta) / 2 * np.sum(d / estimate.schedule.counts))
    return estimate.value - half_width, estimate.value + half_width


def coins(rng, trajectories, horizon):
    """As dependent as rewards can be: one rare coin for the whole trajectory."""
    return np.repeat(rng.random((trajectories, 1)) < 0.1, horizon, axis=1).astype(float)


def late_prize(rng, trajectories, horizon):
    """Quiet but for the end, which a pilot that looks early misses."""
    rewards = np.full((trajectories, horizon), 0.5)
    rewards[:, -2:] = rng.random((trajectories, 1)) < 0.05
    return rewards


TRUTHS = {coins: lambda weights: 0.1 * weights.sum(), late_prize: lambda weights: weights @ [*[0.5] * 18, 0.05, 0.05]}


@pytest.mark.parametrize("process", [coins, late_prize])
@pytest.mark.parametrize(
    "make",
    [Adaptive, Rido, lambda **settings: Adaptive(unbiased=True, **settings)],
    ids=["adaptive", "rido", "unbiased"],
)
def test_it_holds_for_adaptive_plans(process, make):
    """At most 30% of intervals may miss; 300 runs raise a false alarm less than once in 1,000."""
    truth = TRUTHS[process](0.95 ** np.arange(20))
    missed, repetitions = 0, 300
    for seed in range(repetitions):
        strategy = make(horizon=20, budget=800, gamma=0.95)
        run(strategy, process, np.random.default_rng(seed))
        low, high = strategy.guaranteed_interval((0, 1), 0.7)
        missed += not low <= truth <= high
    assert missed <= stats.binom.ppf(0.999, repetitions, 0.3)


def test_learning_makes_it_narrower_than_hoeffding():
    def quiet(rng, trajectories, horizon):
        return rng.uniform(0.49, 0.51, (trajectories, horizon))

    strategy = Adaptive(horizon=20, budget=20_000, gamma=0.95)
    run(strategy, quiet, np.random.default_rng(0))
    low, high = strategy.guaranteed_interval((0, 1))
    before = hoeffding(strategy.estimate(), 1, 0.05)
    assert low < 0.5 * np.sum(0.95 ** np.arange(20)) < high
    assert high - low < 0.5 * (before[1] - before[0])


def test_early_ends_widen_the_range_to_zero():
    settings = dict(horizon=2, gamma=1.0, reward_range=(1, 2))
    full = guaranteed_interval([Trajectories(np.ones((2, 2)), [2, 2])], **settings)
    ended = guaranteed_interval([Trajectories(np.ones((2, 2)), [2, 2], steps=[2, 1])], **settings)
    assert np.diff(ended) == pytest.approx(2 * np.diff(full))


def test_rewards_outside_of_the_range_are_named():
    with pytest.raises(ValueError, match=r"reward_range must contain all rewards, got \(0, 1\) and 1 to 3"):
        guaranteed_interval([Trajectories([[1.0, 3.0]], [2])], horizon=2, gamma=1.0, reward_range=(0, 1))


def test_batches_that_leave_too_much_unknown_are_left_out():
    full = Trajectories(np.full((50, 10), 0.5), np.full(50, 10))
    short = Trajectories(np.full((5000, 10), 0.5), np.full(5000, 1))
    settings = dict(horizon=10, gamma=1.0, reward_range=(0, 1), budget=1000)
    assert guaranteed_interval([full], **settings) == guaranteed_interval([full, short], **settings)
