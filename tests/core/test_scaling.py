"""Rewards of any size within float64: estimates next to closed forms and to the same rewards in ordinary units."""

import math

import numpy as np
import pytest

from rido import Estimate, RewardMoments, Trajectories, allocate
from rido.core import checks
from rido.core.allocation import fill
from rido.core.guarantee import guaranteed_interval
from rido.core.moments import rescale
from rido.core.scaling import excess_exponent, scaled_number

EXPONENTS = (-1000, -700, -300, 300, 700, 1000)


def moments_of(rewards, lengths=None, *, gamma=0.9):
    rewards = np.asarray(rewards, dtype=float)
    moments = RewardMoments(rewards.shape[1], gamma=gamma)
    moments.update(Trajectories(rewards, np.full(len(rewards), rewards.shape[1]) if lengths is None else lengths))
    return moments


@pytest.mark.parametrize("size", [5e-324, 1e-300, 1e-40, 1.0, 1e40, 1e300, 1.7e308])
def test_the_unit_brings_every_size_into_a_range_of_fourth_powers(size):
    brought = scaled_number(size, -excess_exponent(size))
    assert 1e-200 < brought**4 < 1e200
    assert (excess_exponent(size) == 0) == (1e-45 < size < 1e45)
    assert scaled_number(brought, excess_exponent(size)) == size


def test_no_size_is_no_unit():
    assert excess_exponent(0.0) == excess_exponent(math.inf) == excess_exponent() == 0


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_estimates_follow_the_unit_of_the_rewards(exponent):
    rng = np.random.default_rng(0)
    rewards, lengths = rng.standard_exponential((40, 6)), rng.permutation([6] * 25 + [2] * 15)
    plain = Estimate.from_moments(moments_of(rewards[:20], lengths[:20]), moments_of(rewards[20:], lengths[20:]))
    far = np.ldexp(rewards, exponent)
    other = Estimate.from_moments(moments_of(far[:20], lengths[:20]), moments_of(far[20:], lengths[20:]))
    found = (other.value, other.standard_error, other.largest_contribution, *other.interval(), other.half_width())
    expected = (plain.value, plain.standard_error, plain.largest_contribution, *plain.interval(), plain.half_width())
    np.testing.assert_allclose(np.ldexp(found, -exponent), expected, rtol=1e-9)
    ratios = ("degrees_of_freedom", "skewness", "effective_trajectories")
    np.testing.assert_allclose(*([getattr(each, name) for name in ratios] for each in (other, plain)), rtol=1e-9)
    values = rng.standard_normal(9)
    added, sum_far = plain.plus(values), other.plus(np.ldexp(values, exponent))
    expected = np.ldexp([added.value, added.standard_error], exponent)
    np.testing.assert_allclose([sum_far.value, sum_far.standard_error], expected, rtol=1e-9)
    assert sum_far.degrees_of_freedom == pytest.approx(added.degrees_of_freedom)


def test_ordinary_moments_come_back_as_they_are():
    moments = moments_of(np.random.default_rng(0).standard_normal((5, 3)))
    assert rescale(moments) == ((moments,), 0)
    assert rescale(moments_of(np.zeros((5, 3))))[1] == 0


def test_rewards_that_only_a_tiny_discount_lets_through_still_vary():
    """gamma^90 is 1e-270, whose square is 0 in float64."""
    rewards = np.zeros((50, 91))
    rewards[:, 90] = np.random.default_rng(1).standard_normal(50)
    estimate = Estimate.from_moments(moments_of(rewards, gamma=1e-3))
    assert estimate.standard_error == pytest.approx(rewards[:, 90].std(ddof=1) / math.sqrt(50) * 1e-270, rel=1e-9)


def test_late_rewards_without_weight_hide_no_early_ones():
    """Rewards of 1e300 at a discount of 0 stand beside the rewards of 1e-300 that make up the return."""
    rng = np.random.default_rng(2)
    rewards = 1e300 * rng.standard_normal((30, 200))
    rewards[:, :150] = 0
    rewards[:, 0] = 1e-300 * rng.standard_normal(30)
    estimate = Estimate.from_moments(moments_of(rewards, gamma=1e-5))
    assert estimate.standard_error == pytest.approx(rewards[:, 0].std(ddof=1) / math.sqrt(30), rel=1e-9)
    assert estimate.value == pytest.approx(rewards[:, 0].mean())


def test_means_exist_where_the_sums_overflow():
    moments = moments_of([[1e308, -1e308], [1e308, -1.5e308], [1.2e308, -1e308]], gamma=1.0)
    np.testing.assert_allclose(moments.means / 1e308, [3.2 / 3, -3.5 / 3])
    estimate = Estimate.from_moments(moments)
    assert estimate.value == pytest.approx(-0.1e308)
    assert estimate.standard_error == pytest.approx(np.std([0, -0.5, 0.2], ddof=1) / math.sqrt(3) * 1e308)


def test_a_return_that_overflows_is_an_error():
    with pytest.raises(ValueError, match="the return must be finite, but its sum of rewards overflows float64"):
        Estimate.from_moments(moments_of([[1e308, 1e308], [1.1e308, 1e308]], gamma=1.0))


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_guarantees_follow_the_unit_of_the_rewards(exponent):
    rng = np.random.default_rng(3)
    batches = [Trajectories(rng.random((20, 4)), [4] * 10 + [2] * 10) for _ in range(3)]
    far = [Trajectories(np.ldexp(batch.flat, exponent), batch.lengths) for batch in batches]
    settings = dict(horizon=4, gamma=0.9)
    plain = guaranteed_interval(batches, reward_range=(0, 1), **settings)
    other = guaranteed_interval(far, reward_range=(0, math.ldexp(1.0, exponent)), **settings)
    np.testing.assert_allclose(np.ldexp(other, -exponent), plain, rtol=1e-12)


def test_a_range_wider_than_float64_is_an_error():
    with pytest.raises(ValueError, match="reward_range must have a width within float64"):
        checks.reward_range("reward_range", (-1e308, 1e308))


@pytest.mark.parametrize("exponent", (-1000, 1000))
def test_schedules_do_not_depend_on_the_unit_of_the_weights(exponent):
    weights = np.array([9.0, 4.0, -1.0, 1.0])
    far = np.ldexp(weights, exponent)
    np.testing.assert_array_equal(allocate(far, 50), allocate(weights, 50))
    np.testing.assert_array_equal(fill(far, 5000, [1, 1, 1, 1]), fill(weights, 5000, [1, 1, 1, 1]))


@pytest.mark.parametrize("beta", [1.0, 5.0])
@pytest.mark.parametrize("covariance", ["paired", "paper"])
def test_weights_in_another_unit_are_the_same(covariance, beta):
    moments = moments_of(np.random.default_rng(4).random((12, 5)), [5] * 8 + [3] * 4)
    weights = moments.in_units(7).weights(covariance, beta, (-2.0, 3.0))
    np.testing.assert_allclose(weights * 2.0**14, moments.weights(covariance, beta, (-2.0, 3.0)), rtol=1e-9)
