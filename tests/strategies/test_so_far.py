"""Rewards so far as a control variate: unbiased whatever is predicted, its regression by definition, and its gain."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from rido import Adaptive, RewardMoments, Schedule, Trajectories
from rido.strategies import so_far
from rido.strategies.settings import AdaptiveSettings
from rido.strategies.so_far import RewardsSoFar

ON, OFF = AdaptiveSettings(), AdaptiveSettings(so_far=0)


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
    predictions = (learner := learned(np.random.default_rng(1), horizon, gamma)).predictions()
    assert np.abs(predictions.coefficients[0]).max() > 0.05
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
        means[length] = weights @ learner.residuals(batch, predictions, np.zeros(len(ends), dtype=int)).rewards
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
    for team in range(2):
        residuals = learner.residuals(batch, learner.predictions(), np.full(40, team))
        np.testing.assert_allclose(residuals.rewards @ discounts, rewards @ discounts, atol=1e-9)


@pytest.mark.parametrize("shared", [0, 2])
@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_the_regression_is_that_of_its_definition(gamma, shared, monkeypatch):
    """Least squares for each block, on rows of its own and of its neighbours, by shares that fall with the distance."""
    monkeypatch.setattr(so_far, "_BLOCKS", 5)
    monkeypatch.setattr(so_far, "_SHARED", shared)
    rng, horizon, count = np.random.default_rng(3), 20, 50
    rewards, steps = walks(rng, count, horizon)
    lengths = rng.choice([8, 12, 16, 20], count)
    rewards = rewards * (np.arange(horizon) < lengths[:, None])
    learner = RewardsSoFar(horizon, gamma, 2)
    batch = told(rewards, steps, lengths)
    learner.add(batch, np.ones(count, dtype=int))
    learner.add(told(*walks(rng, 3, horizon), np.full(3, horizon)), np.zeros(3, dtype=int))
    steps, ends = np.minimum(steps, lengths), np.arange(4, 21, 4)
    sums = rewards.reshape(count, 5, 4).sum(axis=2)
    discounted = (rewards.reshape(count, 5, 4) * gamma ** np.arange(4)).sum(axis=2)
    means = sums / 4
    features = np.stack(
        [
            np.stack(
                [means[:, j], means[:, max(j - 1, 0)], sums[:, : j + 1].sum(axis=1) / ends[j], means[:, 0]], axis=1
            )
            for j in range(5)
        ]
    )
    best = np.stack([means[:, : j + 1].max(axis=1) for j in range(5)])[..., None]
    worst = np.stack([means[:, : j + 1].min(axis=1) for j in range(5)])[..., None]
    features = np.concatenate([features, best, worst], axis=2)
    used = [(steps >= ends[j]) & (lengths >= ends[j] + 4) for j in range(4)]
    share = np.array([[max(0, 1 - abs(i - j) / (shared + 1)) for j in range(4)] for i in range(4)])
    n = np.array([u.sum() for u in used])
    centres = np.array([features[j][used[j]].mean(axis=0) for j in range(4)])
    spread = np.array([((features[j][used[j]] - centres[j]) ** 2).sum(axis=0) for j in range(4)])
    units = np.sqrt(share @ spread / (share @ n)[:, None] + 0.01 * spread.sum(axis=0) / n.sum())
    z = [(features[j] - centres[j]) / units[j] for j in range(4)]
    alive = steps >= ends[:4, None]

    def regression(block, targets):
        """Returns the mean of a target in its block, and slopes by least squares on rows times the root of shares."""
        x = np.concatenate([np.sqrt(share[block, j]) * z[j][used[j]] for j in range(4)])
        y = np.concatenate(
            [np.sqrt(share[block, j]) * (targets[j] - targets[j].mean(axis=0)) for j in range(4) if n[j]]
        )
        x, y = np.vstack([x, np.sqrt(2) * np.eye(6)]), np.vstack([y, np.zeros((6, y.shape[1]))])
        return targets[block].mean(axis=0), np.linalg.lstsq(x, y, rcond=None)[0]

    predictions = learner.predictions()
    features_ours = learner._features(batch, np.arange(count), 5)[1]
    ours = predictions(features_ours[..., :4], 0)
    slopes, constant = None, 0.0
    for block in (3, 2, 1, 0):
        following = []  # what comes in the next block: its features, whether the trajectory goes on, its rewards
        for j in range(4):
            goes_on = alive[j + 1][:, None] if j < 3 else np.zeros((count, 1))
            after = z[j + 1] * goes_on if j < 3 else np.zeros((count, 6))
            following.append(np.hstack([after, goes_on, discounted[:, j + 1, None]])[used[j]])
        mean, slope = regression(block, following)
        weights = np.append(np.zeros(7) if slopes is None else gamma**4 * np.append(slopes, constant), 1.0)
        constant, slopes = mean @ weights, slope @ weights
        rows = used[block]
        limit = 4 * np.sqrt(
            slopes
            @ (sum(share[block, j] * z[j][used[j]].T @ z[j][used[j]] for j in range(4)) + 2 * np.eye(6))
            @ slopes
            / (share[block] @ n)
        )
        expected = constant + np.clip(z[block] @ slopes, -limit, limit)
        np.testing.assert_allclose(ours[rows, block], expected[rows], rtol=1e-7, atol=1e-9)


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
    predictions, learner = strategy._residuals.predictions, strategy._residuals.learner
    values = []
    for _ in range(400):
        teams = []
        for team, counts in enumerate(strategy._team_counts()):
            lengths = Schedule(counts).lengths
            batch = Trajectories(population[rng.integers(3000, size=lengths.size)], lengths)
            residuals = learner.residuals(batch, predictions, np.full(lengths.size, team))
            teams.append((residuals.rewards.sum(axis=0) / counts).sum())
        values.append(np.mean(teams))
    assert np.var(values) == pytest.approx(strategy.variance_in(everything, np.ones(40)), rel=0.3)
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


def constants(rng, count, horizon):
    """Rewards that never change, and steps at which they end."""
    steps = np.minimum(rng.geometric(0.02, count), horizon)
    return (np.arange(horizon) < steps[:, None]) * 1.0, steps


def extremes(rng, count, horizon):
    """Mostly small rewards, some of them very large, of either sign."""
    rewards = rng.normal(size=(count, horizon))
    return np.where(rng.random((count, horizon)) < 0.001, 1e9 * rewards, rewards), np.full(count, horizon)


@pytest.mark.parametrize("make", [noise, constants, extremes])
def test_what_does_not_predict_costs_nothing(make):
    problem = dict(horizon=100, budget=5000, gamma=1.0)
    on, off = errors(make, ON, **problem), errors(make, OFF, **problem)
    assert on[:, 0].mean() < 1.03 * off[:, 0].mean()


def test_predictions_are_used_where_they_gain_a_tenth_only(monkeypatch):
    """By the gains of the cautious plans of rewards and residuals."""
    gains = iter([1.0, 1.09, 1.0, 1.12])
    monkeypatch.setattr(so_far, "learn", lambda *_, **__: SimpleNamespace(gain=next(gains)))
    rng, found = np.random.default_rng(5), []
    for _ in range(2):
        residuals = so_far.Residuals(20, 1.0, 3, ON)
        groups = [RewardMoments(20, gamma=1.0) for _ in range(3)]
        batch, teams = told(*walks(rng, 30, 20), np.full(30, 20)), np.arange(30) % 3
        for team, group in enumerate(groups):
            group.update(batch, rows=teams == team)
        residuals.tell([(batch, teams)], groups, 0.0)
        found.append(residuals.used)
    assert found == [False, True]


def test_predictions_are_learned_again_when_half_as_much_more_is_known():
    rng, residuals = np.random.default_rng(6), so_far.Residuals(20, 1.0, 3, ON)
    groups, seen = [RewardMoments(20, gamma=1.0) for _ in range(3)], []
    for count in (30, 12, 6):
        batch, teams = told(*walks(rng, count, 20, hazard=1e-9), np.full(count, 20)), np.arange(count) % 3
        for team, group in enumerate(groups):
            group.update(batch, rows=teams == team)
        residuals.tell([(batch, teams)], groups, 0.0)
        seen.append(residuals.predictions)
    assert seen[0] is seen[1] is not seen[2]
    assert [int(moments.counts[0]) for moments in residuals.moments] == [16, 16, 16]


def test_a_long_run_learns_from_enough_trajectories_of_each_block(monkeypatch):
    monkeypatch.setattr(so_far, "_ENOUGH", 10)
    rng, learner = np.random.default_rng(7), RewardsSoFar(20, 1.0, 2)
    for _ in range(5):
        learner.add(told(*walks(rng, 16, 20, hazard=1e-9), np.full(16, 20)), np.arange(16) % 2)
    assert learner._sums[:, 0, 0, 0].tolist() == [16, 16]  # two batches of eight; the others were not needed
