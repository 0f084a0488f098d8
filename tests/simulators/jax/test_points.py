"""Starts of JAX environments that points decide: those of their numpy and Gymnasium counterparts."""

import numpy as np
import pytest
from scipy import stats
from scipy.stats import qmc

pytest.importorskip("jax", reason='jax is missing: pip install "rido[jax]"')

import jax
import jax.numpy as jnp

from rido.jax import JaxEnv, JaxSimulator, lqg, navigation, pendulum
from rido.simulators import trajectory_seeds
from rido.simulators.gymnasium import GymnasiumSimulator

LENGTHS = np.array([3, 16, 1, 7, 16, 8, 8, 2, 12, 1, 13] * 3)
SEEDS = trajectory_seeds(11, 0, LENGTHS.size)
POINTS = qmc.Sobol(64, rng=1).random(64)[: LENGTHS.size]


def stay(observation):
    return jnp.zeros(1)


@pytest.mark.parametrize(
    ("env", "twin"), [(lqg(), "rido/LQG-v0"), (navigation(), "rido/Navigation-v0"), (pendulum(), "Pendulum-v1")]
)
def test_starts_are_those_of_gymnasium(env, twin):
    policy = stay if env.policy is None else None
    simulator = JaxSimulator(env, policy, horizon=40)
    expected = GymnasiumSimulator(twin, "random", horizon=40).starts(SEEDS, POINTS)
    assert simulator.capabilities.takes_points
    np.testing.assert_allclose(simulator.starts(SEEDS, POINTS), expected, rtol=1e-5, atol=1e-5)


def reset_from(uniforms):
    return uniforms[:2], uniforms[:2]


def reset(key):
    return reset_from(jax.random.uniform(key, (2,)))


def step(key, state, action):
    return state, state, jax.random.normal(key) + state[0], jnp.bool_(False)


@pytest.fixture(scope="module")
def simulator():
    """Of an environment whose rewards are noise and the first number of the point."""
    return JaxSimulator(JaxEnv("Shown", reset, step, reset_from=reset_from), stay, horizon=16, num_envs=16)


def test_trajectories_depend_on_seed_and_point_alone(simulator):
    before = simulator.rollout(LENGTHS, SEEDS).flat
    together = simulator.rollout(LENGTHS, SEEDS, POINTS)
    np.testing.assert_array_equal(simulator.rollout(LENGTHS, SEEDS).flat, before)
    apart = [simulator.rollout(LENGTHS[i : i + 5], SEEDS[i : i + 5], POINTS[i : i + 5]).flat for i in range(0, 33, 5)]
    np.testing.assert_array_equal(np.concatenate(apart), together.flat)
    long = simulator.rollout(np.full(33, 16), SEEDS, POINTS).rewards
    for row, length in enumerate(LENGTHS):
        np.testing.assert_array_equal(long[row, :length], together.rewards[row, :length])
    observed = simulator.observe(LENGTHS, SEEDS, POINTS)
    np.testing.assert_array_equal(observed.trajectories.flat, together.flat)
    firsts = np.concatenate([[0], np.cumsum(LENGTHS + 1)[:-1]])
    np.testing.assert_array_equal(observed.observations[firsts], simulator.starts(SEEDS, POINTS))


def test_the_noise_of_the_steps_does_not_depend_on_the_point(simulator):
    noise = [
        simulator.rollout(np.full(33, 16), SEEDS, points).rewards - simulator.starts(SEEDS, points)[:, :1]
        for points in (None, POINTS, POINTS[::-1])
    ]
    np.testing.assert_allclose(noise[0], noise[1], atol=1e-6)
    np.testing.assert_allclose(noise[1], noise[2], atol=1e-6)


def test_short_points_are_filled_up_with_random_numbers(simulator):
    """The number that a point lacks is uniform: Kolmogorov-Smirnov, a false alarm in 1 of 10,000 cases."""
    seeds, points = trajectory_seeds(3, 0, 1000), qmc.Sobol(1, rng=2).random(1024)[:1000]
    starts = simulator.starts(seeds, points)
    np.testing.assert_allclose(starts[:, 0], points[:, 0], atol=1e-7)
    assert stats.kstest(starts[:, 1], "uniform").pvalue > 1e-4
    assert simulator.starts(seeds[:1], np.full((1, 2), 1 - 2.0**-53)).max() < 1


def test_environments_without_reset_from_take_no_points():
    simulator = JaxSimulator(JaxEnv("Plain", reset, step), stay, horizon=16)
    assert not simulator.capabilities.takes_points
    for request in (lambda: simulator.rollout(LENGTHS, SEEDS, POINTS), lambda: simulator.starts(SEEDS, POINTS)):
        with pytest.raises(ValueError, match="starts='sobol' is not available: this environment's reset"):
            request()
