"""Moments from sums say what moments from the rewards themselves say."""

import numpy as np
import pytest

from helpers import random_batch
from rido import Adaptive, Estimate, RewardMoments, Rido, Trajectories
from rido.summaries import Summary, SummedMoments


def summary(batch, horizon, centre):
    """The definition of every sum, trajectory by trajectory."""
    sums, products = np.zeros((horizon, horizon)), np.zeros((horizon, horizon))
    cubes, fourths, taken = np.zeros(horizon), np.zeros(horizon), np.zeros(horizon, dtype=np.int64)
    for row, length, steps in zip(batch.rewards, batch.lengths, batch.steps, strict=True):
        deviations = row[:length] - centre[:length]
        for u in range(length):
            sums[: u + 1, u] += deviations[: u + 1]
            products[: u + 1, u] += deviations[: u + 1] * deviations[u]
        cubes[:length] += deviations**3
        fourths[:length] += deviations**4
        taken[:steps] += 1
    return Summary(batch.counts(horizon), taken, centre, sums, products, cubes, fourths)


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


def test_sums_say_what_rewards_say(both):
    rewards, sums = both
    np.testing.assert_array_equal(sums.counts, rewards.counts)
    assert sums.transitions == rewards.transitions
    for name in ("means", "variances", "survival", "kurtosis"):
        np.testing.assert_allclose(getattr(sums, name), getattr(rewards, name), rtol=1e-9)
    for covariance in ("paired", "paper"):
        np.testing.assert_allclose(sums.weights(covariance, 2.0), rewards.weights(covariance, 2.0), rtol=1e-9)
    np.testing.assert_allclose(sums.weights_with_variances()[0], rewards.weights_with_variances()[0], rtol=1e-9)
    one, other = Estimate.from_moments(sums), Estimate.from_moments(rewards)
    assert one.value == pytest.approx(other.value, rel=1e-12)
    assert one.standard_error == pytest.approx(other.standard_error, rel=1e-9)
    assert one.early_ends and one.degrees_of_freedom == sums.counts[-1] - 1


def test_sampling_variances_are_those_of_normal_rewards():
    """Of weights from samples of mixed lengths, over 2,000 repetitions: their standard error is 3%."""
    rng, horizon, lengths = np.random.default_rng(0), 5, np.repeat([5, 3, 1], [60, 60, 60])
    root = np.linalg.cholesky(0.6 ** np.abs(np.subtract.outer(np.arange(horizon), np.arange(horizon))))
    weights, said = [], []
    for _ in range(2000):
        batch = Trajectories(rng.normal(size=(lengths.size, horizon)) @ root.T, lengths)
        moments = SummedMoments(horizon, gamma=0.9)
        moments.update(_quick_summary(batch, horizon))
        found, variances = moments.weights_with_variances()
        weights.append(found)
        said.append(variances)
    np.testing.assert_allclose(np.mean(said, axis=0), np.var(weights, axis=0), rtol=0.2)


def _quick_summary(batch, horizon):
    reached = np.arange(horizon) < batch.lengths[:, None]
    rows = batch.rewards * reached
    zeros = np.zeros(horizon)
    counts = batch.counts(horizon)
    return Summary(counts, counts, zeros, rows.T @ reached, rows.T @ rows, (rows**3).sum(axis=0), (rows**4).sum(axis=0))


@pytest.mark.parametrize("make", [Rido, Adaptive, lambda **s: Adaptive(**s, unbiased=True)])
def test_strategies_plan_from_sums_what_they_plan_from_rewards(make):
    """Adaptive smooths by variances that sums know only for normal rewards, so its plans may differ by a little."""
    one, other = (make(horizon=12, budget=3000, gamma=0.9) for _ in range(2))
    rng = np.random.default_rng(0)
    while (schedule := one.ask()) is not None:
        same = other.ask()
        if make is Rido:
            assert same == schedule
        batches = [Trajectories(rng.normal(size=(plan.trajectories, 12)), plan.lengths) for plan in (schedule, same)]
        batches[1] = batches[0] if same == schedule else batches[1]
        one.tell(batches[0])
        other.tell(summary(batches[1], 12, np.zeros(12)))
    assert other.spent == one.spent
    assert other.estimate().standard_error == pytest.approx(one.estimate().standard_error, rel=0.1)
    with pytest.raises(ValueError, match="the rewards were not told, only what they come to"):
        other.state()


def test_moments_of_nothing_say_so():
    with pytest.raises(ValueError, match="moments need at least one batch of trajectories, got none"):
        _ = SummedMoments(3, gamma=0.9).means
