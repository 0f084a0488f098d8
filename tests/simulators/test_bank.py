"""Banks: the world is the recorded rows, so everything about it is known."""

import numpy as np
import pytest

import rido
from helpers import assert_calibrated
from rido.simulators import BankSimulator, trajectory_seeds


def bank(rows=40, horizon=6):
    rng = np.random.default_rng(0)
    steps = rng.integers(1, horizon + 1, rows)
    observations = np.arange(rows)[:, None, None] + np.zeros((rows, horizon + 1, 2))
    observations[:, :, 1] = np.arange(horizon + 1)
    return BankSimulator(rng.normal(1, 1, (rows, horizon)), steps, observations)


def test_seeds_pick_rows_evenly_and_shorter_ones_are_prefixes():
    made, seeds = bank(), trajectory_seeds(5, 0, 40_000)
    rows = made.starts(seeds)[:, 0].astype(int)
    counts = np.bincount(rows, minlength=40)
    assert abs(counts - 1000).max() < 5 * np.sqrt(1000)  # false alarm: 1 in 40,000
    full, short = made.rollout(np.full(50, 6), seeds[:50]), made.rollout(np.full(50, 3), seeds[:50])
    np.testing.assert_array_equal(full.rewards[:, :3], short.rewards)
    np.testing.assert_array_equal(short.steps, np.minimum(full.steps, 3))


def test_observations_stand_before_each_step_and_after_the_last():
    made, seeds = bank(), range(100)
    lengths = np.arange(100) % 6 + 1
    seen = made.observe(lengths, seeds)
    rows = np.split(seen.observations, np.cumsum(seen.trajectories.steps + 1)[:-1])
    for part, steps, first in zip(rows, seen.trajectories.steps, made.starts(seeds), strict=True):
        np.testing.assert_array_equal(part[:, 1], np.arange(steps + 1))
        assert (part[:, 0] == first[0]).all()
    early = made.steps[made.starts(seeds)[:, 0].astype(int)]
    np.testing.assert_array_equal(seen.terminated, (early <= lengths) & (early < 6))


def test_the_expected_return_is_what_evaluation_finds():
    made = bank()
    results = [rido.evaluate(made, budget=1000, gamma=0.9, horizon=6, seed=seed) for seed in range(40)]
    assert_calibrated(results, made.expected_return(0.9))


def test_wrong_banks_are_named():
    with pytest.raises(ValueError, match=r"rewards must have shape \(rows, horizon\), got \(3,\)"):
        BankSimulator([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="steps must be from 1 to 2 for each of 1 rows"):
        BankSimulator([[1.0, 2.0]], [3])
    with pytest.raises(ValueError, match=r"observations must have shape \(1, 3, ...\), got \(1, 2, 1\)"):
        BankSimulator([[1.0, 2.0]], observations=np.zeros((1, 2, 1)))
    with pytest.raises(ValueError, match="observations must be in the bank for a critic, got none"):
        BankSimulator([[1.0, 2.0]]).starts([1])
