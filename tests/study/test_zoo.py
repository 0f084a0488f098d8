"""Processes of the zoo against closed forms."""

import numpy as np
import pytest
from reward_processes import HELD_OUT, ZOO, random_process

from rido.study.strategies import true_weights as weights

BY_NAME = {process.name: process for process in ZOO}


def sampled_weights(name, trajectories=40_000):
    process = BY_NAME[name]
    rewards, _ = process.sample(np.random.default_rng(0), trajectories)
    return weights(rewards, process.gamma), process


@pytest.mark.parametrize(("name", "rho"), [("AR(1) 0.9", 0.9), ("AR(1) -0.8", -0.8), ("AR(1) 0.9, discounted", 0.9)])
def test_autoregressions_have_the_weights_of_a_geometric_series(name, rho):
    """Sampling errors are about 1% of the largest weight; 6% is 6 of them."""
    found, process = sampled_weights(name)
    t = np.arange(process.horizon)
    expected = [
        process.gamma**s * (process.gamma**s + 2 * np.sum(process.gamma ** t[s + 1 :] * rho ** (t[s + 1 :] - s)))
        for s in t
    ]
    np.testing.assert_allclose(found, expected, atol=0.06 * max(expected))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("first only", lambda t: (t == 0) * 1.0),
        ("last only", lambda t: (t == 49) * 1.0),
        ("white, discounted", lambda t: 0.9 ** (2 * t)),
        ("decaying noise", lambda t: (50.0 - t) ** 2),
        ("growing noise", lambda t: (t + 1.0) ** 2),
        ("middle only", lambda t: ((t >= 20) & (t < 25)) * 1.0),
        ("random walk", lambda t: (t + 1.0) * (1 + 2 * (49 - t))),
        ("deterministic", lambda t: 0.0 * t),
    ],
)
def test_weights_are_those_of_the_definition(name, expected):
    """Sampling errors are up to 3% of the largest weight; 15% is 5 of them."""
    found, process = sampled_weights(name)
    expected = expected(np.arange(process.horizon))
    np.testing.assert_allclose(found, expected, atol=0.15 * max(expected.max(), 1e-9))


def test_hedged_rewards_have_almost_no_variance_in_sum():
    found, _ = sampled_weights("hedged")
    assert found.sum() == pytest.approx(50 * 0.03**2, rel=0.1)
    assert np.abs(found).sum() > 25


@pytest.mark.parametrize("process", [*ZOO, *(random_process(seed) for seed in range(40))], ids=lambda p: p.name)
def test_samples_are_whole_and_end_where_they_say(process):
    rewards, steps = process.sample(np.random.default_rng(0), 50)
    assert rewards.shape == (50, process.horizon) and np.isfinite(rewards).all()
    assert 1 <= steps.min() <= steps.max() <= process.horizon
    assert not rewards[np.arange(process.horizon) >= steps[:, None]].any()


def test_a_seed_names_a_process():
    first, again, other = (random_process(seed) for seed in (HELD_OUT, HELD_OUT, HELD_OUT + 1))
    draws = [process.sample(np.random.default_rng(1), 5)[0] for process in (first, again, other)]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert draws[0].shape != draws[2].shape or not np.array_equal(draws[0], draws[2])


def test_names_are_unique_and_cover_the_kinds_of_interest():
    assert len(BY_NAME) == len(ZOO) >= 26
    assert any(not process.light_tailed for process in ZOO)
