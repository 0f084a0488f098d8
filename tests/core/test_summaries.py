"""Moments from sums say what moments from the rewards themselves say."""

import numpy as np
import pytest

from helpers import random_batch
from rido import Adaptive, Estimate, RewardMoments, Rido, Trajectories
from rido.core.moments import union
from rido.core.summaries import Summary, SummedMoments


def summary(batch, horizon, centre):
    """The definition of every sum, trajectory by trajectory."""
    sums, products = np.zeros((horizon, horizon)), np.zeros((horizon, horizon))
    taken = np.zeros(horizon, dtype=np.int64)
    for row, length, steps in zip(batch.rewards, batch.lengths, batch.steps, strict=True):
        deviations = row[:length] - centre[:length]
        for u in range(length):
            sums[: u + 1, u] += deviations[: u + 1]
            products[: u + 1, u] += deviations[: u + 1] * deviations[u]
        taken[:steps] += 1
    return Summary(batch.counts(horizon), taken, centre, sums, products)


@pytest.fixture
def both():
    """Three batches, one with early ends, each with a centre of its own."""
    rewards, sums = RewardMoments(12, gamma=0.9), SummedMoments(12, gamma=0.9)
    for seed in range(3):
        batch = random_batch(seed, 12, 40)
        if seed == 1:
            batch = Trajectories(batch.flat, batch.lengths, np.minimum(batch.lengths, 7))
        rewards.update(batch)
        sums.update(summary(batch, 12, np.random.default_rng(seed).normal(size=12)))
    return rewards, sums


def test_parts_with_means_of_their_own_have_the_weights_of_the_rewards():
    rewards, sums = [], []
    for seed in range(2):
        batch = random_batch(seed, 12, 40)
        shifted = Trajectories(batch.flat + 50 * seed, batch.lengths)
        rewards.append(RewardMoments(12, gamma=0.9))
        rewards[-1].update(shifted)
        sums.append(SummedMoments(12, gamma=0.9))
        sums[-1].update(summary(shifted, 12, np.zeros(12)))
    one, other = (union(parts, same_means=False) for parts in (sums, rewards))
    np.testing.assert_allclose(one.weights(), other.weights(), rtol=1e-9)


def test_sums_say_what_rewards_say(both):
    rewards, sums = both
    np.testing.assert_array_equal(sums.counts, rewards.counts)
    assert sums.transitions == rewards.transitions
    for name in ("means", "variances", "survival"):
        np.testing.assert_allclose(getattr(sums, name), getattr(rewards, name), rtol=1e-9)
    for covariance in ("paired", "paper"):
        np.testing.assert_allclose(sums.weights(covariance, 2.0), rewards.weights(covariance, 2.0), rtol=1e-9)
    np.testing.assert_allclose(sums.weights_by_fold(4).sum(axis=0), rewards.weights(), rtol=1e-9)
    one, other = Estimate.from_moments(sums), Estimate.from_moments(rewards)
    assert one.value == pytest.approx(other.value, rel=1e-12)
    assert one.standard_error == pytest.approx(other.standard_error, rel=1e-9)
    assert one.early_ends and one.degrees_of_freedom == pytest.approx(sums.counts[-1] - 1)


@pytest.mark.parametrize("make", [Rido, Adaptive, lambda **s: Adaptive(**s, unbiased=True)])
def test_strategies_plan_from_sums_what_they_plan_from_rewards(make):
    """Adaptive plans from sums without cross-validation, so its plans may differ by a little."""
    one, other = (make(horizon=12, budget=3000, gamma=0.9) for _ in range(2))
    rng = np.random.default_rng(0)
    while (schedule := one.ask()) is not None or other.ask() is not None:  # one may need a round more
        if make is Rido:
            assert other.ask() == schedule
        if schedule is not None:
            batch = Trajectories(rng.normal(size=(schedule.trajectories, 12)), schedule.lengths)
            one.tell(batch)
        if other.ask() is not None:
            parts = [Trajectories(rng.normal(size=(part.trajectories, 12)), part.lengths) for part in other.parts]
            other.tell([summary(part, 12, np.zeros(12)) for part in ([batch] if make is Rido else parts)])
    assert other.spent == pytest.approx(one.spent, abs=12)
    assert other.estimate().standard_error == pytest.approx(one.estimate().standard_error, rel=0.2)
    with pytest.raises(ValueError, match="the rewards were not told, only summaries of them"):
        other.collected()


def test_moments_of_nothing_say_so():
    with pytest.raises(ValueError, match="moments need at least one batch of trajectories, got none"):
        _ = SummedMoments(3, gamma=0.9).means
