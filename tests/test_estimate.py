"""The estimator of J, its variance and its intervals."""

import math

import numpy as np
import pytest
from scipy import stats

from helpers import random_batch
from processes import autoregressive, lqg
from rido import Estimate, RewardMoments, Schedule, Trajectories
from rido.estimate import interval_warnings


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


def test_degrees_of_freedom_are_satterthwaites_over_lengths():
    batch = random_batch(4, 6, 25)
    moments = RewardMoments(6, gamma=0.9)
    moments.update(batch)
    counts, means = moments.counts, moments.means
    parts = {}
    for rewards, length in zip(batch.rewards, batch.lengths, strict=True):
        share = sum(0.9**t * (rewards[t] - means[t]) / math.sqrt(counts[t] * (counts[t] - 1)) for t in range(length))
        parts.setdefault(int(length), []).append(share**2)
    total = sum(map(sum, parts.values()))
    expected = total**2 / sum(sum(values) ** 2 / max(len(values) - 1, 1) for values in parts.values())
    result = Estimate.from_moments(moments)
    assert result.degrees_of_freedom == pytest.approx(expected)
    assert result.standard_error == pytest.approx(math.sqrt(total))


def test_the_mean_of_two_estimates_adds_their_variances():
    rng = np.random.default_rng(0)
    halves = [estimate(Trajectories(rng.normal(size=(n, 3)), np.full(n, 3)), 3, 1.0) for n in (8, 8)]
    both = Estimate.mean(halves)
    assert both.value == pytest.approx((halves[0].value + halves[1].value) / 2)
    assert both.standard_error == pytest.approx(math.hypot(*(half.standard_error for half in halves)) / 2)
    assert 7 <= both.degrees_of_freedom <= 14
    assert both.schedule == Schedule([16, 16, 16])
    equal = Estimate.mean([halves[0], halves[0]])
    assert equal.degrees_of_freedom == pytest.approx(14)


def warnings_of(rewards, lengths=None):
    moments = RewardMoments(rewards.shape[1], gamma=1.0)
    moments.update(Trajectories(rewards, np.full(len(rewards), rewards.shape[1]) if lengths is None else lengths))
    return interval_warnings(moments, Estimate.from_moments(moments))


def test_warnings_name_what_breaks_the_interval():
    rng = np.random.default_rng(0)
    normal = rng.normal(size=(50, 4))
    assert warnings_of(normal) == ()
    assert "too few trajectories: 3 of full length" in warnings_of(normal[:3])[0]
    assert "too few trajectories: 1 of full length" in warnings_of(normal[:1])[0]
    assert "all trajectories gave the same rewards" in warnings_of(np.ones((20, 4)))[0]
    rare = normal + 50 * (np.arange(50) == 7)[:, None]
    assert "heavy tails" in warnings_of(rare)[0]
    # Each step alone is harmless, but one trajectory in ten is bad throughout.
    falls = rng.normal(size=(40, 30)) + 1.5 * (np.arange(40) % 10 == 0)[:, None]
    assert "few trajectories make up much of the error" in warnings_of(falls)[0]
