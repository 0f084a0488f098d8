"""RIDO in many runs at once is RIDO."""

import numpy as np
import pytest

from rido import RewardMoments, Rido, Trajectories
from rido.paper.many import Sums, many_rido, plan
from rido.study.strategies import Bank, compare_strategies

HORIZON = 8


def some_batches(seed, batches=3):
    """Batches of correlated rewards, longest trajectories first, as counts and full rows."""
    rng = np.random.default_rng(seed)
    for number in range(batches):
        counts = np.sort(rng.integers(2, 30, HORIZON))[::-1] if number else np.full(HORIZON, 5)
        rows = rng.normal(1, 2, (counts[0], HORIZON)) + rng.normal(size=(counts[0], 1))
        yield counts, rows


@pytest.mark.parametrize(("gamma", "beta", "width"), [(1.0, 1.0, 1.0), (0.9, 5.0, 1.0), (0.99, 1000.0, 3.0)])
def test_weights_and_plans_are_those_of_the_strategy(gamma, beta, width):
    runs = 4
    sums = Sums.nothing(runs, HORIZON)
    single = [RewardMoments(HORIZON, gamma=gamma) for _ in range(runs)]
    for batches in zip(*(some_batches(seed) for seed in range(runs)), strict=True):
        most = max(len(rows) for _, rows in batches)
        rewards = np.full((runs, most, HORIZON), 1e6)  # what is behind a trajectory must not be looked at
        counts = np.array([counts for counts, _ in batches])
        for run, (count, rows) in enumerate(batches):
            rewards[run, : len(rows)] = rows
            lengths = np.sum(np.arange(len(rows))[:, None] < count, axis=1)
            single[run].update(Trajectories(rows, lengths))
        sums.add(rewards, counts)
        weights = sums.weights(gamma, beta, width)
        for run, moments in enumerate(single):
            expected = moments.weights("paper", beta, (0.0, width))
            np.testing.assert_allclose(weights[run], expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())
    strategy = Rido(horizon=HORIZON, budget=10_000, gamma=gamma, batch=100, beta=beta, reward_range=(0.0, width))
    for run, moments in enumerate(single):
        strategy._groups, strategy.spent = [moments], moments.transitions
        np.testing.assert_array_equal(plan(weights, 100)[run], strategy._plan(1000).counts)


def test_many_runs_have_the_errors_of_single_ones():
    rewards = np.random.default_rng(0).normal(size=(2000, 10)) * 0.7 ** np.arange(10)
    bank = Bank(rewards, gamma=1.0)
    settings = {"budget": 1000, "gamma": 1.0}
    values, counts = many_rido(rewards, **settings, batch=100, beta=5.0, runs=400, seed=1)
    one_by_one = compare_strategies(
        {"rido": lambda **given: Rido(**given, batch=100, beta=5.0)}, rewards, **settings, repetitions=100
    )["rido"]
    assert np.all(counts.sum(axis=1) == 1000)
    # Means of counts agree, and the errors have the variance that the schedules say. 5 standard errors: 1e-6.
    spread = counts.std(axis=0) * np.sqrt(1 / 400 + 1 / 100) + 0.05
    assert np.all(np.abs(counts.mean(axis=0) - one_by_one.counts) < 5 * spread)
    expected = np.sum(bank.weights / counts, axis=1).mean()
    assert np.mean((values - bank.truth) ** 2) == pytest.approx(expected, rel=5 * np.sqrt(2 / 400))
