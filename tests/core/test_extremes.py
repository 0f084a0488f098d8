"""Rewards at the border of what is accepted, and far below 1: next to closed forms and to the same rewards near 1."""

import math

import numpy as np
import pytest

from rido import Estimate, RewardMoments, Trajectories, allocate
from rido.core import checks
from rido.core.allocation import fill, unit_of
from rido.core.guarantee import guaranteed_interval
from rido.core.summaries import Summary, SummedMoments

EXPONENTS = (-1000, -700, -300, 150, 300)


def moments_of(rewards, lengths=None, *, gamma=0.9):
    rewards = np.asarray(rewards, dtype=float)
    moments = RewardMoments(rewards.shape[1], gamma=gamma)
    moments.update(Trajectories(rewards, np.full(len(rewards), rewards.shape[1]) if lengths is None else lengths))
    return moments


@pytest.mark.parametrize("reward", [1e100, -1e100, 1e200, -1.7e308])
def test_rewards_beyond_the_border_are_refused(reward):
    message = r"rewards must be below 1e100 in size, got .* in trajectory 1 at step 2: rescale the rewards"
    with pytest.raises(ValueError, match=message) as caught:
        Trajectories([[1.0, 2.0, 3.0], [4.0, 5.0, reward]], [3, 3])
    assert f"{reward:g}" in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(ValueError, match=message):
        Trajectories.from_flat(np.array([1.0, 2.0, 3.0, 4.0, 5.0, reward]), [3, 3])


def test_sums_beyond_the_border_are_refused():
    table = np.array([[1e201, 0.0], [0.0, 1.0]])
    summary = Summary(np.array([2, 2]), np.array([2, 2]), np.zeros(2), np.zeros((2, 2)), table)
    with pytest.raises(
        ValueError, match=r"rewards must be below 1e100 in size, got 3.16228e\+100: rescale the rewards"
    ):
        SummedMoments(2, gamma=0.9).update(summary)


@pytest.mark.parametrize("edges", [(-1e308, 1e308), (0.0, 1e101), (-2e100, 1.0)])
def test_a_range_beyond_the_border_is_refused(edges):
    with pytest.raises(ValueError, match="reward_range must be below 1e100 in size, got"):
        checks.reward_range("reward_range", edges)
    assert checks.reward_range("reward_range", (-1e100, 1e100)) == (-1e100, 1e100)


@pytest.mark.parametrize("size", [5e-324, 1e-300, 1e-40, 1.0, 1e40, 1e300, 1.7e308])
def test_the_unit_brings_every_size_into_a_range_of_fourth_powers(size):
    brought = size / unit_of(size)
    assert 1e-200 < brought**4 < 1e200
    assert (unit_of(size) == 1) == (1e-45 < size < 1e45)
    assert brought * unit_of(size) == size
    assert unit_of(0.0) == unit_of(math.inf) == unit_of() == 1


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


@pytest.mark.parametrize("scales", [(1e-200, 1.0), (1.0, 1e-200), (1e99, 1e-99)])
def test_teams_of_different_sizes_have_the_error_of_the_larger(scales):
    rewards = np.random.default_rng(5).standard_normal((2, 20, 3))
    one, other = (moments_of(scale * part) for scale, part in zip(scales, rewards, strict=True))
    found = Estimate.from_moments(one, other, same_means=False)
    place = int(scales[0] < scales[1])
    alone = Estimate.from_moments((one, other)[place])
    # Twice as many trajectories less two means in place of half of them less one.
    assert found.standard_error == pytest.approx(alone.standard_error / 2 * math.sqrt(40 / 38 * 19 / 20), rel=1e-9)


def test_rewards_that_only_a_tiny_discount_lets_through_still_vary():
    """gamma^90 is 1e-270, whose square is 0 in float64."""
    rewards = np.zeros((50, 91))
    rewards[:, 90] = np.random.default_rng(1).standard_normal(50)
    expected = rewards[:, 90].std(ddof=1) / math.sqrt(50) * 1e-270
    assert Estimate.from_moments(moments_of(rewards, gamma=1e-3)).standard_error == pytest.approx(expected, rel=1e-9)


def test_sums_that_only_a_tiny_discount_lets_through_still_vary():
    rewards = np.zeros((50, 91))
    rewards[:, 90] = np.random.default_rng(1).standard_normal(50)
    counts, sums = np.full(91, 50), np.triu(np.tile(rewards.sum(axis=0)[:, None], (1, 91)))
    moments = SummedMoments(91, gamma=1e-3)
    moments.update(Summary(counts, counts, np.zeros(91), sums, np.triu(rewards.T @ rewards)))
    expected = rewards[:, 90].std(ddof=1) / math.sqrt(50) * 1e-270
    assert Estimate.from_moments(moments).standard_error == pytest.approx(expected, rel=1e-9)


def test_late_rewards_without_weight_hide_no_early_ones():
    """Rewards of 1e99 at a discount of 0 stand beside the rewards of 1e-200 that make up the return."""
    rng = np.random.default_rng(2)
    rewards = 1e99 * rng.standard_normal((30, 200))
    rewards[:, :150] = 0
    rewards[:, 0] = 1e-200 * rng.standard_normal(30)
    estimate = Estimate.from_moments(moments_of(rewards, gamma=1e-5))
    assert estimate.standard_error == pytest.approx(rewards[:, 0].std(ddof=1) / math.sqrt(30), rel=1e-9)
    assert estimate.value == pytest.approx(rewards[:, 0].mean())


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_guarantees_follow_the_unit_of_the_rewards(exponent):
    rng = np.random.default_rng(3)
    batches = [Trajectories(rng.random((20, 4)), [4] * 10 + [2] * 10) for _ in range(3)]
    far = [Trajectories(np.ldexp(batch.flat, exponent), batch.lengths) for batch in batches]
    settings = dict(horizon=4, gamma=0.9)
    plain = guaranteed_interval(batches, reward_range=(0, 1), **settings)
    other = guaranteed_interval(far, reward_range=(0, math.ldexp(1.0, exponent)), **settings)
    np.testing.assert_allclose(np.ldexp(other, -exponent), plain, rtol=1e-12)


@pytest.mark.parametrize("exponent", (-1000, 1000))
def test_schedules_do_not_depend_on_the_unit_of_the_weights(exponent):
    weights = np.array([9.0, 4.0, -1.0, 1.0])
    far = np.ldexp(weights, exponent)
    np.testing.assert_array_equal(allocate(far, 50), allocate(weights, 50))
    np.testing.assert_array_equal(fill(far, 5000, [1, 1, 1, 1]), fill(weights, 5000, [1, 1, 1, 1]))
