import gymnasium as gym
import numpy as np
import pytest
from scipy.linalg import solve_discrete_are

from rido.simulators.envs import LinearPolicy, lqg

GAMMA, HORIZON, ROWS = 0.9, 20, 40_000


def rollout(policy, horizon, rows, *, seed=0, **kwargs):
    envs = gym.make_vec("rido/LQG-v0", num_envs=rows, **kwargs)
    states, _ = envs.reset(seed=seed)
    first = states[:, 0]
    rewards = np.empty((rows, horizon))
    for t in range(horizon):
        states, rewards[:, t], *_ = envs.step(policy(states))
    return first, rewards


@pytest.fixture(scope="module", params=["variance", "deviation"])
def collected(request):
    policy = LinearPolicy(lqg.riccati_gain(GAMMA))
    return request.param, *rollout(policy, HORIZON, ROWS, noise=request.param)


@pytest.mark.parametrize("gamma", [0.05, 0.5, 0.9, 0.999, 1.0])
def test_gain_solves_the_riccati_equation(gamma):
    root = np.sqrt([[gamma]])  # discounting by gamma is scaling the system by its square root
    cost = solve_discrete_are(root, root, np.eye(1), np.eye(1)).item()
    assert lqg.riccati_gain(gamma) == pytest.approx(gamma * cost / (1 + gamma * cost), rel=1e-10)


def test_gain_is_optimal():
    best = lqg.expected_return(400, 0.9)
    for shift in (-0.01, 0.01):
        assert lqg.expected_return(400, 0.9, gain=lqg.riccati_gain(0.9) + shift) > best


def test_expected_return_matches_simulation(collected):
    # False alarm: |z| > 4.5 has probability 7e-6; seeds are fixed.
    noise, first, rewards = collected
    returns = rewards @ GAMMA ** np.arange(HORIZON)
    # The first state explains almost all the variance: its part is known, which makes the check sharp.
    residuals = returns - lqg.value(first, HORIZON, GAMMA, noise=noise)
    assert abs(residuals.mean()) < 4.5 * residuals.std() / np.sqrt(ROWS)
    assert residuals.std() < 0.1 * returns.std()
    expected = lqg.expected_return(HORIZON, GAMMA, noise=noise)
    assert abs(returns.mean() - expected) < 4.5 * returns.std() / np.sqrt(ROWS)


def test_noise_is_read_as_asked():
    # Without control and without a start, Var(s_1 - s_0) = 2 parameter or 2 parameter^2.
    # The sample variance of 20,000 normal variates is within 5% but for probability 6e-7.
    for noise, expected in (("variance", 0.2), ("deviation", 0.02)):
        envs = gym.make_vec("rido/LQG-v0", num_envs=20_000, noise=noise)
        before, _ = envs.reset(seed=1)
        after, rewards, *_ = envs.step(np.zeros((20_000, 1)))
        assert np.var(after - before) == pytest.approx(expected, rel=0.05)
        assert np.mean(rewards - before[:, 0] ** 2) == pytest.approx(expected / 2, rel=0.05)


def test_weights_match_simulation(collected):
    # Sample covariances of 40,000 trajectories; each weight is a covariance of R_t with what follows, whose standard
    # error is estimated from 40 batches. |z| > 5 for any of 20 weights: about 20 * P(|t_39| > 5) = 3e-4; seeds fixed.
    noise, _, rewards = collected
    discounted = rewards * GAMMA ** np.arange(HORIZON)
    later = np.cumsum(discounted[:, ::-1], axis=1)[:, ::-1] - discounted
    estimates = []
    for own, rest in zip(np.split(discounted, 40), np.split(later, 40), strict=True):
        own, rest = own - own.mean(axis=0), rest - rest.mean(axis=0)
        estimates.append((own * (own + 2 * rest)).sum(axis=0) / (len(own) - 1))
    estimates = np.array(estimates)
    error = estimates.std(axis=0, ddof=1) / np.sqrt(40)
    z = (estimates.mean(axis=0) - lqg.weights(HORIZON, GAMMA, noise=noise)) / error
    assert np.abs(z).max() < 5


def test_weights_add_up_to_the_variance_of_the_return():
    # Var(V(s_0)) is A^2 Var(s_0^2); what is left is noise, at most a few units here.
    weights = lqg.weights(HORIZON, GAMMA)
    curvature = lqg.value(1.0, HORIZON, GAMMA) - lqg.value(0.0, HORIZON, GAMMA)
    start = curvature**2 * (80**4 / 5 - (80**2 / 3) ** 2)
    assert 0 < weights.sum() - start < 1e-3 * start


def test_value_of_no_steps_is_zero_and_of_one_is_the_mean_reward():
    states = np.array([[-2.0], [0.0], [3.0]])
    assert np.array_equal(lqg.value(states, 0, 0.9), np.zeros((3, 1)))
    assert lqg.value(states, 1, 0.9, gain=0.5) == pytest.approx(1.25 * states**2 + 0.1)


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="gamma must be"):
        lqg.riccati_gain(1.5)
    with pytest.raises(ValueError, match="horizon must be"):
        lqg.expected_return(0, 0.9)
