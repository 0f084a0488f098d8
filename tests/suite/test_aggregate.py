"""Numbers over several tasks, against closed forms, scipy and rliable."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from helpers import random_batch
from rido.core.estimate import Estimate
from rido.core.reward_moments import RewardMoments
from rido.core.trajectories import Trajectories
from rido.suite.aggregate import interquartile_mean, probability_of_improvement, weighted_sum


def estimate_of(batch, horizon, gamma=1.0):
    moments = RewardMoments(horizon, gamma=gamma)
    moments.update(batch)
    return Estimate.from_moments(moments)


def test_one_task_is_itself_and_halves_of_one_task_are_teams():
    """Two strata of one process with a factor of a half each are what two teams are, whose formulas are their own."""
    moments = [RewardMoments(4, gamma=0.9) for _ in range(2)]
    for seed, one in enumerate(moments):
        one.update(random_batch(seed, 4, 30))
    alone = Estimate.from_moments(moments[0])
    assert weighted_sum([alone], [1.0], [0.0]) == alone
    found = weighted_sum([Estimate.from_moments(one) for one in moments], [0.5, 0.5], [0.0, 0.0])
    assert found.value == pytest.approx(np.mean([Estimate.from_moments(one).value for one in moments]))
    errors = [Estimate.from_moments(one).standard_error for one in moments]
    assert found.standard_error == pytest.approx(math.hypot(*errors) / 2)


def test_the_interval_of_a_weighted_mean_is_welchs():
    """Strata of different sizes and variances, symmetric rewards: Welch's interval, from scipy."""
    rng = np.random.default_rng(0)
    one, other = rng.normal(3, 1, 40), rng.normal(5, 4, 15)
    one, other = (np.concatenate([x, 2 * x.mean() - x]) for x in (one, other))  # no skewness
    parts = [estimate_of(Trajectories(x[:, None], np.ones(x.size, int)), 1) for x in (one, other)]
    plain = [replace(part, largest_contribution=0.0) for part in parts]
    low, high = weighted_sum(plain, [1.0, -1.0], [0.0, 0.0]).interval(0.95)
    expected = stats.ttest_ind(one, other, equal_var=False).confidence_interval(0.95)
    assert (low, high) == pytest.approx((expected.low, expected.high))


def test_a_negative_factor_mirrors_everything():
    parts = [estimate_of(random_batch(seed, 3, 20), 3) for seed in range(3)]
    up, down = (weighted_sum(parts, [sign, 2 * sign, -sign], [0.0] * 3) for sign in (1.0, -1.0))
    low, high = up.interval()
    assert down.value == -up.value and down.interval() == pytest.approx((-high, -low))


def test_a_task_in_which_nothing_varied_has_an_error_all_the_same():
    constant = estimate_of(Trajectories(np.ones((30, 1)), np.ones(30, int)), 1)
    low, high = weighted_sum([constant], [1.0], [0.0]).interval()
    assert (low, high) == pytest.approx(constant.interval(), abs=0.02)  # t instead of normal
    zero = estimate_of(Trajectories(np.zeros((30, 1)), np.ones(30, int)), 1)
    assert weighted_sum([zero], [1.0], [10.0]).standard_error == pytest.approx(10 * math.log(20) / 30 / 1.96)


SHAPES = [(1, 3), (1, 8), (5, 7), (10, 26)]


def two_algorithms(shape):
    rng = np.random.default_rng(shape[0])
    return rng.integers(0, 6, shape).astype(float), rng.integers(0, 6, (shape[0] + 2, shape[1])).astype(float)


@pytest.mark.parametrize("shape", SHAPES)
def test_statistics_are_scipys(shape):
    one, other = two_algorithms(shape)
    assert interquartile_mean(one) == pytest.approx(stats.trim_mean(one, 0.25, axis=None))
    tests = [stats.mannwhitneyu(x, y).statistic / x.size / y.size for x, y in zip(one.T, other.T, strict=True)]
    assert probability_of_improvement(one, other) == pytest.approx(np.mean(tests))


def test_statistics_are_rliables():
    metrics = pytest.importorskip("rliable.metrics", reason="rliable is missing: pip install rliable")
    for shape in SHAPES:
        one, other = two_algorithms(shape)
        assert interquartile_mean(one) == pytest.approx(metrics.aggregate_iqm(one))
        assert probability_of_improvement(one, other) == pytest.approx(metrics.probability_of_improvement(one, other))


def test_other_tasks_are_refused():
    with pytest.raises(ValueError, match=r"same tasks, got shapes \(1, 2\) and \(1, 3\)"):
        probability_of_improvement([[1, 2]], [[1, 2, 3]])
