"""Rewards so far as a control variate: unbiased whatever is predicted, its regression by definition, and its gain."""

import itertools

import numpy as np
import pytest

from rido import Adaptive, Schedule, Trajectories
from rido.strategies import so_far
from rido.strategies.settings import AdaptiveSettings
from rido.strategies.so_far import RewardsSoFar

ON, OFF = AdaptiveSettings(so_far=0.95), AdaptiveSettings()


def walks(rng, count, horizon, hazard=0.05):
    """Rewards with a mood for each trajectory, and early ends: (rewards, steps)."""
    mood = rng.normal(size=(count, 1))
    steps = np.minimum(rng.geometric(hazard, count), horizon)
    rewards = 1 + mood + rng.normal(size=(count, horizon))
    return rewards * (np.arange(horizon) < steps[:, None]), steps


def told(rewards, steps, lengths):
    return Trajectories(rewards, lengths, np.minimum(steps, lengths))


def learned(rng, horizon, gamma, count=60):
    """What two teams learned of walks of mixed lengths."""
    learner = RewardsSoFar(horizon, gamma, 2)
    lengths = rng.integers(1, horizon + 1, count)
    lengths[: count // 3] = horizon
    learner.add(told(*walks(rng, count, horizon), lengths), np.arange(count) % 2)
    return learner


@pytest.mark.parametrize("gamma", [1.0, 0.8])
@pytest.mark.parametrize("blocks", [2, 4, 50])
def test_residuals_are_unbiased_for_every_length(gamma, blocks, monkeypatch):
    """All trajectories of a process with two outcomes and early ends: the mean of D_k is the same for all h > k."""
    monkeypatch.setattr(so_far, "_BLOCKS", blocks)
    horizon, chance, hazard = 5, 0.3, 0.25
    (prediction, _) = (learner := learned(np.random.default_rng(1), horizon, gamma)).predictions()
    assert np.abs(prediction.coefficients).max() > 0.05
    rows, weights, ends = [], [], []
    for steps in range(1, horizon + 1):
        ended = (1 - hazard) ** (steps - 1) * (hazard if steps < horizon else 1.0)
        for outcome in itertools.product((0.0, 2.0), repeat=steps):
            rows.append([*outcome, *[0.0] * (horizon - steps)])
            weights.append(ended * np.prod([chance if reward else 1 - chance for reward in outcome]))
            ends.append(steps)
    rewards, weights, ends = np.array(rows), np.array(weights), np.array(ends)
    assert weights.sum() == pytest.approx(1)
    means = {}
    for length in range(1, horizon + 1):
        batch = told(rewards, ends, np.full(len(ends), length))
        means[length] = weights @ learner.residuals(batch, prediction).rewards
        np.testing.assert_allclose(means[length], means[1][0] if length == 1 else means[length], rtol=1e-12)
    for length in range(1, horizon):
        np.testing.assert_allclose(means[length], means[horizon][:length], atol=1e-12)
    value = sum((gamma * (1 - hazard)) ** step * 2.0 * chance for step in range(horizon))
    assert means[horizon] @ gamma ** np.arange(horizon) == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize(("horizon", "gamma"), [(1, 1.0), (2, 0.5), (7, 1.0), (300, 0.9), (300, 1.0)])
def test_residuals_of_full_length_trajectories_add_up_to_their_returns(horizon, gamma):
    rng = np.random.default_rng(2)
    learner = learned(rng, horizon, gamma)
    rewards, steps = walks(rng, 40, horizon)
    batch = told(rewards, steps, np.full(40, horizon))
    discounts = gamma ** np.arange(horizon)
    for prediction in learner.predictions():
        residuals = learner.residuals(batch, prediction)
        np.testing.assert_allclose(residuals.rewards @ discounts, rewards @ discounts, atol=1e-9)


@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_the_regression_is_that_of_its_definition(gamma, monkeypatch):
    """Backwards over blocks, a ridge regression on standardised features of those alive and planned to go on."""
    monkeypatch.setattr(so_far, "_BLOCKS", 4)
    rng, horizon = np.random.default_rng(3), 20
    rewards, steps = walks(rng, 50, horizon)
    lengths = rng.choice([7, 10, 15, 20], 50)
    rewards = rewards * (np.arange(horizon) < lengths[:, None])
    learner = RewardsSoFar(horizon, gamma, 2)
    learner.add(told(rewards, steps, lengths), np.ones(50, dtype=int))
    learner.add(told(*walks(rng, 3, horizon), np.full(3, horizon)), np.zeros(3, dtype=int))
    steps = np.minimum(steps, lengths)
    reach = horizon  # gamma^t stays above the limit
    ends = np.rint(np.linspace(0, reach, 5)).astype(int)
    means = np.stack([rewards[:, a:b].mean(axis=1) for a, b in itertools.pairwise(ends)])
    overall = np.stack([rewards[:, :b].mean(axis=1) for b in ends[1:]])
    prediction = learner.predictions()[0]
    later = np.zeros(50)
    for block in (2, 1, 0):
        start, end = ends[block + 1], ends[block + 2]
        used = (steps >= start) & (lengths >= end)
        x = np.stack([means[block], means[max(block - 1, 0)], overall[block]], axis=1)
        target = rewards[:, start:end] @ gamma ** np.arange(end - start)
        target = target + gamma ** (end - start) * np.where(steps >= end, later, 0.0)
        z = x[used]
        centre, scale = z.mean(axis=0), z.std(axis=0)
        z = np.column_stack([np.ones(used.sum()), (z - centre) / scale])
        ridge = np.diag([1e-9, 2, 2, 2])
        found = np.linalg.solve(z.T @ z + ridge, z.T @ target[used])
        later = np.column_stack([np.ones(50), np.clip((x - centre) / scale, -4, 4)]) @ found
        later_used = np.linalg.norm(found)
        ours = prediction.coefficients[block]
        if block == 0:  # its first two features are the same
            assert ours[1] + ours[2] == pytest.approx(found[1] + found[2], rel=1e-6)
        else:
            np.testing.assert_allclose(ours, found, rtol=1e-6, atol=1e-9 * later_used)


def test_the_variance_in_a_population_is_that_of_repeated_runs_of_one_schedule():
    """Trajectories are drawn again with the same counts and predictions; 400 runs leave 7% to a variance."""
    rng = np.random.default_rng(4)
    population = persistent(rng, 3000, 40)[0]
    everything = Trajectories(population, np.full(3000, 40))
    strategy = Adaptive(horizon=40, budget=2000, gamma=1.0, settings=ON)
    while (schedule := strategy.ask()) is not None:
        lengths = schedule.lengths
        strategy.tell(Trajectories(population[rng.integers(3000, size=lengths.size)], lengths))
    assert strategy.explained() > 0.2
    predictions, learner = strategy._so_far.predictions(), strategy._so_far
    values = []
    for _ in range(400):
        teams = []
        for counts, prediction in zip(strategy._team_counts(), predictions, strict=True):
            lengths = Schedule(counts).lengths
            batch = Trajectories(population[rng.integers(3000, size=lengths.size)], lengths)
            teams.append((learner.residuals(batch, prediction).rewards.sum(axis=0) / counts).sum())
        values.append(np.mean(teams))
    assert np.var(values) == pytest.approx(strategy.variance_in(everything), rel=0.3)
    assert np.mean(values) == pytest.approx(population.sum(axis=1).mean(), abs=4 * np.std(values) / 20)


def run(strategy, rng, make):
    """Runs a strategy on a process; returns its squared standard error and value."""
    while (schedule := strategy.ask()) is not None:
        lengths = schedule.lengths
        strategy.tell(told(*make(rng, lengths.size, strategy.horizon), lengths))
    estimate = strategy.estimate()
    return estimate.standard_error**2, estimate.value


def persistent(rng, count, horizon):
    """A level for each trajectory that fades, and noise: early rewards tell what later ones will be."""
    level = rng.normal(size=count)
    rewards = np.empty((count, horizon))
    for step in range(horizon):
        level = 0.99 * level + 0.1 * rng.normal(size=count)
        rewards[:, step] = level + 0.3 * rng.normal(size=count)
    return rewards, np.full(count, horizon)


def noise(rng, count, horizon):
    return rng.normal(size=(count, horizon)), np.full(count, horizon)


def errors(make, settings, runs=8, **problem):
    return np.array([run(Adaptive(**problem, settings=settings), np.random.default_rng(i), make) for i in range(runs)])


def test_persistent_rewards_gain_and_the_estimate_stays_right():
    """The expected return is 0; 8 runs leave the ratio of errors an error of about 0.05."""
    problem = dict(horizon=100, budget=5000, gamma=1.0)
    on, off = errors(persistent, ON, **problem), errors(persistent, OFF, **problem)
    assert on[:, 0].mean() < 0.7 * off[:, 0].mean()
    assert np.abs(on[:, 1].mean()) < 4 * np.sqrt(on[:, 0].mean() / 8)


def test_noise_is_not_predicted():
    problem = dict(horizon=100, budget=5000, gamma=1.0)
    on, off = errors(noise, ON, **problem), errors(noise, OFF, **problem)
    assert on[:, 0].mean() < 1.03 * off[:, 0].mean()
