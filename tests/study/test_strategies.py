"""Comparing strategies: known truths, known variances."""

import numpy as np
import pytest

from rido import Schedule, Uniform
from rido.study import compare_strategies
from rido.study.strategies import Bank


@pytest.fixture(scope="module")
def bank():
    rng = np.random.default_rng(0)
    return rng.normal(1, np.linspace(3, 0.1, 12), (3000, 12)) + rng.normal(size=(3000, 1))


def test_truths_are_those_of_the_bank(bank):
    result = compare_strategies(["uniform"], bank, budget=240, gamma=0.9, repetitions=2)
    discounted = bank * 0.9 ** np.arange(12)
    covariance = np.cov(discounted, rowvar=False, ddof=0)
    assert result.truth == pytest.approx(discounted.sum(axis=1).mean())
    np.testing.assert_allclose(result.weights, np.diag(covariance) + 2 * np.tril(covariance, -1).sum(axis=0))
    assert result.weights.sum() == pytest.approx(discounted.sum(axis=1).var())
    uniform = result.weights.sum() / 20 / result.oracle_variance
    assert result["uniform"].relative_variance == pytest.approx(uniform)
    assert result.oracle.transitions == 240 and result.oracle_variance <= Schedule.optimal(
        result.weights, 240
    ).variance(result.weights)


def test_errors_agree_with_the_variance_and_the_interval_covers(bank):
    """500 repetitions; each check fails by chance less than once in 1,000."""
    result = compare_strategies(["uniform", "oracle"], bank, budget=240, gamma=0.9, repetitions=500, seed=3)
    for one in result.results:
        low, high = np.array(one.mse_interval)
        spread = 2 * (high - low)  # 3.9 standard errors to either side
        assert abs(one.mse - one.relative_variance * result.oracle_variance) < spread
        assert abs(one.bias) < 3.3 * one.bias_error
        assert 0.91 < one.coverage < 0.99
        assert one.coverage == pytest.approx(1 - one.uncovered.mean())
    assert 1 <= result["oracle"].relative_variance < 1.02


def test_the_seed_decides_everything_and_strategies_share_it(bank):
    settings = dict(budget=240, gamma=0.9, repetitions=5)
    one = compare_strategies({"a": Uniform, "b": Uniform}, bank, seed=1, **settings)
    two = compare_strategies({"a": Uniform}, bank, seed=1, **settings)
    np.testing.assert_array_equal(one["a"].errors, one["b"].errors)
    np.testing.assert_array_equal(one["a"].errors, two["a"].errors)
    assert not np.array_equal(one["a"].errors, compare_strategies({"a": Uniform}, bank, seed=2, **settings)["a"].errors)


def test_early_ends_are_part_of_the_bank():
    steps = np.array([1, 3, 3, 2])
    bank = Bank(np.ones((4, 3)), steps=steps, gamma=1.0)
    assert bank.truth == pytest.approx(9 / 4)
    np.testing.assert_allclose(bank.survival, [1, 0.75, 0.5])
    batch = bank.draw(np.array([3, 3, 2, 1]), np.random.default_rng(0))
    assert (batch.steps <= batch.lengths).all()
    assert batch.flat.sum() == batch.steps.sum() == batch.transitions
    result = compare_strategies(
        ["uniform", "adaptive"], np.ones((4, 3)), steps=steps, budget=100, gamma=1.0, repetitions=3
    )
    for name in ("uniform", "adaptive"):  # less than one episode may stay unspent
        assert 97 < result[name].transitions <= 100


def test_bands_and_progress(bank):
    calls = []
    result = compare_strategies(
        ["adaptive", "rido"], bank, budget=400, gamma=0.9, repetitions=7, progress=lambda: calls.append(1)
    )
    assert len(calls) == 14
    one = result["adaptive"]
    assert (one.counts_low <= one.counts_high).all() and one.counts.sum() == pytest.approx(400)
    with pytest.raises(KeyError):
        result["nobody"]


def test_a_bank_without_variance_has_no_ratio():
    result = compare_strategies(["uniform"], np.ones((5, 4)), budget=40, gamma=0.9, repetitions=2)
    assert np.isnan(result["uniform"].relative_variance) and result["uniform"].mse < 1e-20
    assert result["uniform"].warned == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(strategies=["best"]), "strategies must be one of 'uniform', .*, got 'best'"),
        (dict(rewards=np.ones(3)), r"rewards must have shape \(rows, horizon\), got \(3,\)"),
        (dict(steps=[0] * 5), "steps must be from 1 to 4"),
        (dict(repetitions=1), "repetitions must be an integer of at least 2, got 1"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        compare_strategies(
            **{"strategies": ["uniform"], "rewards": np.ones((5, 4)), "budget": 40, "gamma": 0.9, **arguments}
        )


def test_a_horizon_that_no_trajectory_reaches_changes_no_optimum(bank):
    """All trajectories end by step 12 of 40: the best schedule is that of a horizon of 12."""
    steps = np.random.default_rng(1).integers(1, 13, len(bank))
    longer = np.pad(bank, [(0, 0), (0, 28)])
    strategies = ["uniform", "robust", "rido", "adaptive", "oracle"]
    result = compare_strategies(strategies, longer, steps=steps, budget=400, gamma=0.9, repetitions=3)
    known = compare_strategies(["oracle"], bank, steps=steps, budget=400, gamma=0.9, repetitions=3)
    assert result.truth == pytest.approx(known.truth)
    assert result.oracle_variance == pytest.approx(known.oracle_variance, rel=1e-3)
    assert [one.name for one in result.results] == strategies
    assert all(np.isfinite(one.relative_variance) and one.transitions <= 400 for one in result.results)
