"""The estimator of J, its variance and its intervals."""

import math

import numpy as np
import pytest
from scipy import stats

from helpers import random_batch
from processes import autoregressive, lqg
from rido import Estimate, RewardMoments, Schedule, Trajectories


def estimate(batch, horizon, gamma):
    moments = RewardMoments(horizon, gamma=gamma)
    moments.update(batch)
    return Estimate.from_moments(moments)


def test_the_value_is_the_papers_first_equation():
    batch = random_batch(1, 7, 12)
    counts = [int(np.sum(batch.lengths > t)) for t in range(7)]
    expected = sum(0.9**t / counts[t] * batch.rewards[i, t] for i in range(len(batch)) for t in range(batch.lengths[i]))
    assert estimate(batch, 7, 0.9).value == pytest.approx(expected, rel=1e-12)


def test_uniform_schedules_give_the_textbook_mean_and_standard_error():
    rewards = np.random.default_rng(0).normal(size=(30, 8)).cumsum(axis=1)
    returns = rewards @ 0.95 ** np.arange(8)
    result = estimate(Trajectories(rewards, np.full(30, 8)), 8, 0.95)
    assert result.value == pytest.approx(returns.mean())
    assert result.standard_error == pytest.approx(stats.sem(returns))
    np.testing.assert_allclose(
        result.interval(0.9), stats.t.interval(0.9, 29, returns.mean(), stats.sem(returns)), rtol=1e-9
    )


@pytest.mark.parametrize("process", [lqg, autoregressive])
def test_unbiased_with_variance_sum_of_weights_over_counts(process):
    """Theorem 3.2 of the paper for a fixed schedule. 4,000 repetitions; false alarm 1 in 1,000 for each check."""
    horizon, gamma, repetitions = 12, 0.9, 4000
    rng = np.random.default_rng(7)
    schedule = Schedule([40, 40, 31, 20, 20, 20, 9, 9, 9, 9, 4, 3])
    discounted = process(rng, 400_000, horizon) * gamma ** np.arange(horizon)
    covariance = np.cov(discounted, rowvar=False)
    weights = np.diag(covariance) + 2 * np.tril(covariance, -1).sum(axis=0)
    truth, truth_error = discounted.sum(axis=1).mean(), stats.sem(discounted.sum(axis=1))
    results = [
        estimate(Trajectories(process(rng, 40, horizon), schedule.lengths), horizon, gamma) for _ in range(repetitions)
    ]
    values = np.array([result.value for result in results])
    variance = schedule.variance(weights)
    assert abs(values.mean() - truth) < 3.3 * math.hypot(math.sqrt(variance / repetitions), truth_error)
    kurtosis = stats.kurtosis(values, fisher=False)
    assert abs(values.var(ddof=1) / variance - 1) < 3.5 * math.sqrt((kurtosis - 1) / repetitions) + 0.01
    # The standard error is an estimate of that variance, unbiased up to the scale factors.
    squares = np.array([result.standard_error**2 for result in results])
    assert abs(squares.mean() / variance - 1) < 3.3 * stats.sem(squares) / variance + 0.05


def test_hoeffding_interval_is_that_of_the_paper_and_holds():
    """Its true coverage is far above 0.9, so 1,000 repetitions raise a false alarm less than once in 1e9."""
    horizon, gamma, rng = 10, 0.9, np.random.default_rng(0)
    schedule = Schedule.robust(horizon, 80, gamma=gamma)
    width = estimate(Trajectories(np.ones((schedule.trajectories, horizon)), schedule.lengths), horizon, gamma)
    t = np.arange(horizon)
    d = gamma**t * (gamma**t + gamma ** (t + 1) - 2 * gamma**horizon) / (1 - gamma)
    expected = 3 * math.sqrt(0.5 * math.log(2 / 0.1) * np.sum(d / schedule.counts))
    low, high = width.hoeffding_interval((-1, 2), 0.9)
    assert (high - low) / 2 == pytest.approx(expected)
    truth = 0.5 * np.sum(gamma**t)
    inside = 0
    for _ in range(1000):
        rewards = np.repeat(rng.integers(0, 2, (schedule.trajectories, 1)), horizon, axis=1)
        low, high = estimate(Trajectories(rewards, schedule.lengths), horizon, gamma).hoeffding_interval((0, 1), 0.9)
        inside += low <= truth <= high
    assert inside >= 900


def test_early_ends_widen_the_range_to_zero():
    full = estimate(Trajectories(np.ones((2, 2)), [2, 2]), 2, 1.0)
    ended = estimate(Trajectories(np.ones((2, 2)), [2, 2], steps=[2, 1]), 2, 1.0)
    widths = [np.diff(result.hoeffding_interval((1, 2))) for result in (full, ended)]
    assert widths[1] == pytest.approx(2 * widths[0])


def test_one_full_trajectory_has_no_error_bar():
    result = estimate(Trajectories([[1.0, 2.0]], [2]), 2, 1.0)
    assert result.value == 3
    assert result.standard_error == math.inf and result.interval() == (-math.inf, math.inf)


def test_no_full_trajectory_is_no_estimate():
    with pytest.raises(ValueError, match="an estimate needs at least one trajectory of full length"):
        estimate(Trajectories([[1.0]], [1]), 2, 1.0)
    with pytest.raises(ValueError, match="confidence must be between 0 and 1, got 95"):
        estimate(Trajectories([[1.0]], [1]), 1, 1.0).interval(95)
