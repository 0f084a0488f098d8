"""The estimator of J, its variance and its intervals."""

import math

import numpy as np
import pytest
from scipy import stats

from helpers import random_batch
from processes import autoregressive, lqg
from rido import Estimate, RewardMoments, Schedule, Trajectories
from rido.core.guarantee import guaranteed_interval
from rido.strategies.diagnostics import interval_warnings


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
    assert result.skewness == pytest.approx(stats.skew(returns) / math.sqrt(30), rel=1e-9)


def test_symmetric_returns_give_the_textbook_t_interval():
    rewards = np.random.default_rng(0).normal(size=(15, 8)).cumsum(axis=1)
    rewards = np.concatenate([rewards, -rewards])
    returns = rewards @ 0.95 ** np.arange(8)
    result = estimate(Trajectories(rewards, np.full(30, 8)), 8, 0.95)
    low, high = stats.t.interval(0.9, 29, returns.mean(), stats.sem(returns))
    found = result.interval(0.9)
    np.testing.assert_allclose(found, (low, high), atol=0.05 * (high - low))
    assert found[1] - found[0] > high - low  # one more of the largest contribution is reckoned with, in part


def success_rate(successes, trajectories):
    rewards = np.zeros((trajectories, 3))
    rewards[:successes, 2] = 1.0
    return estimate(Trajectories(rewards, np.full(trajectories, 3)), 3, 1.0)


@pytest.mark.parametrize(("successes", "trajectories"), [(1, 50), (4, 40), (100, 200), (199, 200)])
def test_success_rates_have_wilsons_interval_up_to_terms_of_one_over_n(successes, trajectories):
    found = success_rate(successes, trajectories).interval()
    wilson = stats.binomtest(successes, trajectories).proportion_ci(method="wilson")
    near, far = (0, 1) if successes < trajectories / 2 else (1, 0)
    assert found[near] == pytest.approx(wilson[near], abs=4 / trajectories**1.5)
    # One more like the rare outcomes is reckoned with, which matters where there are one or two of them.
    assert found[far] == pytest.approx(wilson[far], abs=12 / trajectories**1.5)
    assert abs(found[far] - successes / trajectories) > abs(wilson[far] - successes / trajectories)


@pytest.mark.parametrize("rate", [0.05, 0.2, 0.5, 0.95])
def test_intervals_of_success_rates_hold(rate):
    """Exactly, by summing over all outcomes of 60 trajectories: at least 0.92 where the t interval falls to 0.81."""
    outcomes = np.arange(61)
    held = []
    for successes in outcomes:
        low, high = success_rate(successes, 60).interval()
        held.append(low <= rate <= high)
    assert stats.binom.pmf(outcomes, 60, rate) @ held > 0.92


def test_equal_trajectories_leave_room_for_what_was_not_seen():
    """Three over n of twice the value: 20 trajectories exclude outcomes of probability 0.139 with 95% confidence."""
    same = success_rate(20, 20)
    assert same.standard_error == 0 and same.nothing_varied
    low, high = same.interval()
    assert low == pytest.approx(1 + 2 * math.log(0.05) / 20) and high == pytest.approx(1 - 2 * math.log(0.05) / 20)
    assert 0.85**20 < 0.05 < 0.87**20
    assert success_rate(0, 20).interval() == (-math.inf, math.inf)


def test_rounding_errors_are_no_variance():
    rewards = np.full((10, 7), 0.1) * np.array([1, 3, 7, 11, 13, 17, 19])
    rewards[5:] = rewards[5:] * (1 + 1e-16) + 1e-17
    result = estimate(Trajectories(rewards, np.full(10, 7)), 7, 0.9)
    assert result.standard_error == 0 and result.interval()[0] < result.value < result.interval()[1]


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
    settings = dict(horizon=horizon, gamma=gamma, confidence=0.9)
    plain = Trajectories(np.ones((schedule.trajectories, horizon)), schedule.lengths)
    t = np.arange(horizon)
    d = gamma**t * (gamma**t + gamma ** (t + 1) - 2 * gamma**horizon) / (1 - gamma)
    expected = 3 * math.sqrt(0.5 * math.log(2 / 0.1) * np.sum(d / schedule.counts))
    low, high = guaranteed_interval([plain], reward_range=(-1, 2), **settings)
    assert (high - low) / 2 == pytest.approx(expected)
    truth = 0.5 * np.sum(gamma**t)
    inside = 0
    for _ in range(1000):
        rewards = np.repeat(rng.integers(0, 2, (schedule.trajectories, 1)), horizon, axis=1)
        batch = Trajectories(rewards, schedule.lengths)
        low, high = guaranteed_interval([batch], reward_range=(0, 1), **settings)
        inside += low <= truth <= high
    assert inside >= 900


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


def test_teams_are_averaged_with_equal_weight_whatever_their_counts():
    """Against the definition: contributions of each trajectory around the mean of the teams' means."""
    batches = [random_batch(seed, 6, size) for seed, size in ((1, 9), (2, 20), (3, 14))]
    teams = [RewardMoments(6, gamma=0.9) for _ in batches]
    for team, batch in zip(teams, batches, strict=True):
        team.update(batch)
    result = Estimate.from_moments(*teams)
    values = [Estimate.from_moments(team).value for team in teams]
    assert result.value == pytest.approx(np.mean(values))
    means = np.mean([team.means for team in teams], axis=0)
    counts = np.sum([team.counts for team in teams], axis=0)
    shares = [
        sum(
            0.9**t * (rewards[t] - means[t]) / (3 * team.counts[t]) * math.sqrt(counts[t] / (counts[t] - 1))
            for t in range(length)
        )
        for team, batch in zip(teams, batches, strict=True)
        for rewards, length in zip(batch.rewards, batch.lengths, strict=True)
    ]
    shares = np.array(shares)
    assert result.standard_error == pytest.approx(math.sqrt(shares @ shares))
    assert result.skewness == pytest.approx(np.sum(shares**3) / (shares @ shares) ** 1.5)
    assert result.effective_trajectories == pytest.approx((shares @ shares) ** 2 / np.sum(shares**4))
    assert result.schedule == Schedule(counts)


def test_independent_values_add_their_variance():
    rng = np.random.default_rng(0)
    own = estimate(Trajectories(rng.normal(size=(20, 3)), np.full(20, 3)), 3, 1.0)
    values = rng.normal(5, 2, 30)
    both = own.plus(values)
    assert both.value == pytest.approx(own.value + values.mean())
    assert both.standard_error == pytest.approx(math.hypot(own.standard_error, stats.sem(values)))
    assert 19 < both.degrees_of_freedom < 48


def warnings_of(rewards, lengths=None):
    moments = RewardMoments(rewards.shape[1], gamma=1.0)
    moments.update(Trajectories(rewards, np.full(len(rewards), rewards.shape[1]) if lengths is None else lengths))
    return interval_warnings(Estimate.from_moments(moments))


def test_warnings_name_what_breaks_the_interval():
    rng = np.random.default_rng(0)
    normal = rng.normal(size=(50, 4))
    assert warnings_of(normal) == ()
    assert "too few trajectories: the error bar rests on about 3" in warnings_of(normal[:3])[0]
    assert "too few trajectories: the error bar rests on about 1" in warnings_of(normal[:1])[0]
    assert "all 20 full-length trajectories gave the same rewards" in warnings_of(np.ones((20, 4)))[0]
    rare = normal + 50 * (np.arange(50) == 7)[:, None]
    assert "1 of 50 trajectories makes up most of the error" in warnings_of(rare)[0]
    # Skewed as they are, 20 failures among 100 trajectories are enough to know their frequency.
    failures = np.ones((100, 30)) * (np.arange(100) % 5 != 0)[:, None]
    assert warnings_of(failures) == ()
