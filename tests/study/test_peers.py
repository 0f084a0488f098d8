"""The peers of benchmarks/peers: worlds of the published values, unbiased designs with the variance of theory."""

import importlib.util
import itertools
import math
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import rido

FOLDER = Path(__file__).parents[2] / "benchmarks" / "peers"


@pytest.fixture(scope="module")
def script():
    """The script, and its modules ``gridworlds`` and ``samplers``."""
    sys.path.insert(0, str(FOLDER))
    try:
        spec = importlib.util.spec_from_file_location("peers", FOLDER / "__main__.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules["peers"] = module
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(FOLDER))


@pytest.fixture(scope="module")
def worlds(script):
    return sys.modules["gridworlds"]


@pytest.fixture(scope="module")
def samplers(script):
    return sys.modules["samplers"]


def assert_unbiased(values, truth):
    """False alarms once in 10,000."""
    assert abs(values.mean() - truth) < 4 * values.std(ddof=1) / math.sqrt(values.size)


def test_values_are_sums_over_all_paths(worlds):
    world = worlds.slippery(3, 3, seed=0, gamma=0.8, policy="each")
    mean = square = 0.0
    for choices in itertools.product(range(4), repeat=6):
        cell, chance, gained = world.start, 1.0, 0.0
        for step, (action, move) in enumerate(zip(choices[::2], choices[1::2], strict=True)):
            chance *= world.policy[cell, action] * world.chances[cell, action, move]
            gained += 0.8**step * world.rewards[cell, action]
            cell = world.following[cell, move]
        mean, square = mean + chance * gained, square + chance * gained**2
    assert world.value() == pytest.approx(mean) and world.return_variance() == pytest.approx(square - mean**2)


def test_the_maze_has_the_published_values(worlds):
    """From the tables of Zhong et al., 1,000,000 episodes each: the best policy, and the one that always explores."""
    best, random = worlds.maze(0.0), worlds.maze(1.0)
    assert (best.value(), best.return_variance(), best.mean_steps()) == pytest.approx((7.0, 0.0, 6.0), abs=1e-9)
    assert random.value() == pytest.approx(-73.73, abs=4 * math.sqrt(3449 / 1e6))
    assert random.mean_steps() == pytest.approx(51.21, abs=0.15)
    assert random.return_variance() == pytest.approx(3449, rel=0.01)


def test_rido_sees_the_world_as_it_is(worlds):
    world = worlds.maze(0.5, gamma=0.95)
    settings = dict(budget=10_000, gamma=0.95, horizon=100, seed=0, strategy="uniform")
    found = rido.evaluate(worlds.WorldSimulator(world), **settings)
    assert abs(found.value - world.value()) < 4 * found.standard_error  # a false alarm once in 10,000
    assert found.standard_error**2 * found.trajectories == pytest.approx(world.return_variance(), rel=0.2)


@pytest.mark.parametrize("plan", ["doubly_robust_plan", "informed_plan", "doubly_optimal_plan"])
def test_designs_are_unbiased_also_from_little_data(worlds, samplers, plan):
    world, rng = worlds.slippery(4, 6, seed=1, gamma=0.9), np.random.default_rng(0)
    estimates = samplers.Designed(getattr(samplers, plan), counted=True)(world, 300, 250, rng)
    assert_unbiased(estimates, world.value())


def test_variances_are_those_that_the_designs_promise(worlds, samplers):
    """Monte Carlo variances of 40,000 episodes, within four standard errors or so."""
    world, rng = worlds.slippery(4, 6, seed=1, gamma=0.9), np.random.default_rng(0)
    variances = {}
    for name in ("doubly_robust_plan", "informed_plan", "doubly_optimal_plan"):
        plan = getattr(samplers, name)(world)
        cells, actions, _ = samplers.episodes(world, plan.behaviour, 240_000, rng)
        estimates = plan.weigh(world, cells, actions)
        assert_unbiased(estimates, world.value())
        variances[name] = estimates.var()
    # With b = Q what remains is the randomness of moves: under pi, the expected variance of V(s_{t+1}) summed up.
    values = np.concatenate([world.action_values(), np.zeros((1, 16, 4))])
    reached, left = np.eye(16)[world.start], 0.0
    for step in range(6):
        following = (world.policy * values[step + 1]).sum(axis=1)
        pairs = reached[:, None] * world.policy
        left += 0.9 ** (2 * step + 2) * (pairs * (world.expected(following**2) - world.expected(following) ** 2)).sum()
        reached = np.bincount(world.following.ravel(), np.einsum("ca,cam->cm", pairs, world.chances).ravel(), 16)
    assert variances["doubly_robust_plan"] == pytest.approx(left, rel=0.05)
    assert variances["doubly_optimal_plan"] < 0.95 * left < world.return_variance()
    assert variances["informed_plan"] < 0.5 * world.return_variance()


def test_robust_sampling_without_a_step_is_monte_carlo_and_with_one_is_better(worlds, samplers):
    world = worlds.slippery(3, 5, seed=0)
    plain, robust = (
        samplers.robust_sampling(world, 500, 400, np.random.default_rng(0), step) - world.value() for step in (0.0, 1e3)
    )
    assert np.mean(plain**2) * 100 == pytest.approx(world.return_variance(), rel=0.3)
    assert np.mean(robust**2) < 0.6 * np.mean(plain**2)


def test_a_policy_that_does_not_draw_leaves_nothing_to_choose(worlds, samplers):
    world = worlds.slippery(3, 5, seed=0, policy="best")
    for plan in (samplers.informed_plan(world), samplers.doubly_optimal_plan(world)):
        np.testing.assert_allclose(plan.behaviour, np.broadcast_to(world.policy, plan.behaviour.shape))


def test_a_model_of_much_data_is_the_world(worlds, samplers):
    world = worlds.slippery(3, 5, seed=0)
    assert samplers.known(world, 1e9 * world.chances).value() == pytest.approx(world.value(), rel=1e-6)
    untried = samplers.known(world, np.zeros_like(world.chances))
    assert untried.value() == 0 and replace(untried, rewards=world.rewards).value() > 0


def test_the_quick_form_makes_the_page(script, tmp_path):
    for _ in range(2):  # the second time from what was kept
        script.main(["--quick", "--output", str(tmp_path / "peers.md"), "--cells", str(tmp_path)])
    text = (tmp_path / "peers.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if re.match(r"\| 3x3", line)]
    assert len(rows) == 1 and len(re.findall(r"\d+\.\d\d \(\d+\.\d\d\)", rows[0])) == len(
        sys.modules["problems"].METHODS
    )
