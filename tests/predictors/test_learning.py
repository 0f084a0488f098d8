"""Critics that keep learning: the regression, the combination, and what they promise."""

import copy
from dataclasses import replace

import numpy as np
import pytest

import rido
from rido.core.reward_moments import RewardMoments
from rido.policies.base import ValueFunction
from rido.predictors.base import AgentCritic, signal_of_values
from rido.predictors.combination import Applied, Combination, Signals, _quadratic
from rido.predictors.features import FeatureExtractor, Sample
from rido.predictors.learning import Learner
from rido.predictors.regression import _PENALTIES, Basis, Normal, fit

HORIZON, GAMMA = 8, 0.9
COUNTS = [np.ones(HORIZON, dtype=int)]


def walks(rng, count, lengths=None):
    """Random walks whose reward is the state: V(s, k) = s (1 - gamma^k) / (1 - gamma)."""
    lengths = np.full(count, HORIZON) if lengths is None else lengths
    states = np.cumsum(rng.normal(size=(count, HORIZON + 1)), axis=1)
    rewards = rido.Trajectories(states[:, :HORIZON], lengths)
    seen = np.arange(HORIZON + 1) <= lengths[:, None]
    return Sample(rewards, np.zeros(count, dtype=bool), states[seen][:, None])


def true_value(features, steps_to_go):
    return features[:, 0] * (1 - GAMMA**steps_to_go) / (1 - GAMMA)


def choose(team, present=None, **settings):
    """The coefficients where everything is still to be collected."""
    return Combination(budget=1000.0, resets=1e9, **settings).choose([team], COUNTS, present)


def learner(extractor=None, **settings):
    options = dict(members=1, groups=3, horizon=HORIZON, gamma=GAMMA, budget=100.0, resets=10_000.0, required=False)
    return Learner(extractor or FeatureExtractor(None, None), **{**options, **settings})


class TestRegression:
    def test_it_solves_the_weighted_ridge_problem_of_complete_trajectories(self):
        sample = walks(np.random.default_rng(0), 40)
        basis = Basis(sample, 1.5, agent_value=False, horizon=HORIZON, gamma=GAMMA)
        found = Normal.of(basis, sample).solve(basis.free, 1e-3)[0]
        to_go = sample.to_go(HORIZON)
        rows, discounts = to_go > 0, GAMMA ** np.arange(HORIZON)
        returns = np.array(
            [r[t:] @ discounts[: HORIZON - t] for r in sample.trajectories.rewards for t in range(HORIZON)]
        )
        design = basis(sample.features[rows], to_go[rows])
        root = np.sqrt(GAMMA ** ((HORIZON - to_go[rows]) / 2))
        penalty = np.sqrt(np.where(basis.free, 1e-9, 1e-3) * (root**2).sum())
        stacked = np.vstack([design * root[:, None], np.diag(penalty)])
        target = np.concatenate([returns * root, np.zeros(penalty.size)])
        expected = np.linalg.lstsq(stacked, target, rcond=None)[0]
        np.testing.assert_allclose(design @ found, design @ expected, rtol=1e-4, atol=1e-4)

    @pytest.mark.parametrize("agent_value", [False, True])
    def test_only_the_constant_and_the_agents_value_are_hardly_shrunk(self, agent_value):
        """They are the columns that stay the same where only the observations change."""
        rng = np.random.default_rng(3)
        sample = walks(rng, 40)
        sample = replace(sample, features=rng.normal(size=(len(sample.features), 3)))
        basis = Basis(sample, 1.0, agent_value=agent_value, horizon=HORIZON, gamma=GAMMA)
        steps, numbers = rng.integers(1, HORIZON + 1, 20), rng.normal(size=(2, 20, 3))
        numbers[:, :, 2] = numbers[0, :, 2]  # the agent's value, or another number of the observation
        if not agent_value:
            numbers[1, :, 2] += 1
        one, other = (basis(rows, steps) for rows in numbers)
        np.testing.assert_array_equal(basis.free, (one == other).all(axis=0))
        assert basis.free.sum() == 2 * (1 + agent_value)

    def test_sums_of_parts_are_those_of_the_whole(self):
        rng = np.random.default_rng(1)
        sample = walks(rng, 30, np.sort(rng.integers(2, HORIZON + 1, 30))[::-1])
        basis = Basis(sample, 1.5, agent_value=False, horizon=HORIZON, gamma=GAMMA)
        first = np.arange(30) % 2 == 0
        parts = Normal.of(basis, sample.select(first)) + Normal.of(basis, sample.select(~first))
        for name, whole in vars(Normal.of(basis, sample)).items():
            np.testing.assert_allclose(getattr(parts, name), whole, rtol=1e-9, atol=1e-9)

    def test_truncated_trajectories_get_the_value_of_their_end(self):
        """With complete trajectories the value is found; truncated ones must not pull it towards 0."""
        rng = np.random.default_rng(2)
        lengths = np.where(np.arange(200) < 60, HORIZON, 2)
        sample = walks(rng, 200, lengths)
        basis = Basis(sample, 4.0, agent_value=False, horizon=HORIZON, gamma=GAMMA)
        found = Normal.of(basis, sample).solve(basis.free, 1e-3)[0]
        states, to_go = np.linspace(-2, 2, 9)[:, None], np.full(9, HORIZON)
        slope, _ = np.polyfit(true_value(states, to_go), basis.value(found, states, to_go), 1)
        assert 0.7 < slope < 1.2  # without the value of their ends it would be 0.3

    def test_starts_that_lie_far_apart_are_told_apart(self):
        """A policy that brings all states to 0: starts are 10 deviations of all states away from it."""
        starts = np.linspace(-100.0, 100.0, 20)
        states = np.concatenate([starts[:, None], np.zeros((20, 400))], axis=1)
        rewards = rido.Trajectories(np.zeros((20, 400)), np.full(20, 400))
        basis = Basis(
            Sample(rewards, np.zeros(20, dtype=bool), states.reshape(-1, 1)),
            1.5,
            agent_value=False,
            horizon=400,
            gamma=1.0,
        )
        columns = basis(starts[:, None], np.full(20, 400))
        assert np.abs(np.diff(columns, axis=0)).max(axis=1).min() > 1e-3

    @pytest.mark.parametrize(("noise", "best"), [(0.0, 1e-7), (30.0, 1e-3)])
    def test_the_penalty_is_the_best_for_parts_left_out(self, noise, best):
        """Of rewards that states tell, the least penalty; of noise, the largest. Errors are those of single rows."""
        rng, half = np.random.default_rng(3), np.arange(60) % 2 == 0
        states = np.repeat(rng.normal(size=(60, 1)), HORIZON + 1, axis=1)  # stay as they begin
        rewards = np.sin(2 * states[:, 1:]) + noise * rng.normal(size=(60, HORIZON))
        lengths = np.full(60, HORIZON)
        whole = Sample(rido.Trajectories(rewards, lengths), np.zeros(60, dtype=bool), states.reshape(-1, 1))
        basis = Basis(whole, 1.5, agent_value=False, horizon=HORIZON, gamma=GAMMA)
        samples = [whole.select(half), whole.select(~half)]
        parts = [Normal.of(basis, sample) for sample in samples]
        errors = []
        for penalty in _PENALTIES:
            total = 0.0
            for part, sample in zip(parts[::-1], samples, strict=True):
                to_go = sample.to_go(HORIZON)
                rows, rewards = to_go > 0, sample.trajectories.rewards
                values = basis.value(part.solve(basis.free, penalty)[0], sample.features[rows], to_go[rows])
                discounts = GAMMA ** np.arange(HORIZON)
                returns = np.array([r[t:] @ discounts[: HORIZON - t] for r in rewards for t in range(HORIZON)])
                total += GAMMA ** ((HORIZON - to_go[rows]) / 2) @ (values - returns) ** 2
            errors.append(total)
        assert _PENALTIES[int(np.argmin(errors))] == best
        np.testing.assert_array_equal(fit(parts, basis.free), (parts[0] + parts[1]).solve(basis.free, best)[0])


class TestCombination:
    def signals(self, functions, seed=0, count=60):
        sample = walks(np.random.default_rng(seed), count)
        to_go, batch = sample.to_go(HORIZON), sample.trajectories
        nothing = rido.Trajectories(np.zeros(batch.flat.size), batch.lengths)
        made = [
            signal_of_values(np.where(to_go > 0, function(sample.features, to_go), 0.0), nothing, gamma=GAMMA)
            for function in functions
        ]
        differences = np.array([one.trajectories.flat for one in made])
        applied = Applied(batch, differences, np.array([one.starts for one in made]))
        return Signals([applied], horizon=HORIZON, gamma=GAMMA), applied

    def test_the_true_value_gets_all_and_noise_nothing(self):
        noise = np.random.default_rng(5)
        functions = [true_value, lambda features, steps_to_go: noise.normal(size=len(features))]
        found = choose(self.signals(functions)[0])
        np.testing.assert_allclose(found, [1.0, 0.0], atol=0.1)

    def test_half_of_the_value_counts_twice(self):
        found = choose(self.signals([lambda f, k: true_value(f, k) / 2])[0])
        np.testing.assert_allclose(found, [2.0], atol=0.1)

    def test_coefficients_are_the_best_for_what_each_team_has(self):
        """The estimate is the mean of the teams: many samples in one do not make up for few in another."""
        own = lambda f, k: true_value(f, k) * (k > HORIZON / 2) - 0.5 * f[:, 0]  # noqa: E731 - wrong in two ways
        team = self.signals([own], count=300)[0]
        counts = [np.where(np.arange(HORIZON) < early, 200, 1) for early in (1, HORIZON // 2, HORIZON - 1)]
        found = Combination(budget=0.0, resets=1e12, required=True).choose([team], counts)
        rewards, difference, both = (team.moments[key].weights() for key in ((0, 0), (1, 1), (0, 1)))
        candidates = np.linspace(0, 2, 2001)
        variances = [
            sum(((rewards + c * (both - rewards - difference) + c**2 * difference) / one).sum() for one in counts)
            for c in candidates
        ]
        assert 0.1 < candidates[np.argmin(variances)] < 1.9
        np.testing.assert_allclose(found, [candidates[np.argmin(variances)]], atol=0.01)

    def test_where_nothing_gains_nothing_is_used(self):
        noise = np.random.default_rng(6)
        functions = [lambda features, steps_to_go: 5 * noise.normal(size=len(features))]
        used = [choose(self.signals(functions, seed)[0]).any() for seed in range(10)]
        assert sum(used) <= 1

    def test_a_critic_that_gains_little_does_not_take_the_place_of_none_nor_none_of_it(self):
        """A value function that explains a tenth of the variance: plans are not thrown over for it, nor for its end."""
        rng = np.random.default_rng(7)
        functions = [lambda f, k: 0.05 * true_value(f, k) + 0.1 * rng.normal(size=len(f))]
        team = self.signals(functions, count=300)[0]
        assert not choose(team).any()
        assert choose(team, [1.0]).any()

    def test_a_useless_critic_is_given_up_although_that_gains_little(self):
        """Coefficients that fit noise look worse than none on other folds; by chance the reverse in some runs."""
        noise = np.random.default_rng(9)
        functions = [lambda features, steps_to_go: noise.normal(size=len(features))]
        teams = [self.signals(functions, seed)[0] for seed in range(20)]
        kept, required = (
            sum(bool(choose(team, [1.0], required=required).any()) for team in teams) for required in (False, True)
        )
        assert required > 5 and kept <= required / 3

    def test_other_means_of_a_team_are_no_variance(self):
        """Critics of teams may differ by a constant; the true value is the best of each all the same."""
        teams = [
            self.signals([lambda f, k, off=off: true_value(f, k) + off], seed)[0] for seed, off in enumerate((0, 99))
        ]
        found = Combination(budget=1000.0, resets=1e9).choose(teams, COUNTS)
        np.testing.assert_allclose(found, [1.0], atol=0.1)

    def test_the_agents_value_is_used_as_it_is_until_it_surely_does_harm(self):
        """The true value and some noise takes away most of the variance; one that is ten times too large adds a lot."""
        rng = np.random.default_rng(8)
        for factor, expected in ((1.0, [1.0]), (10.0, [0.0])):
            functions = [lambda f, k, factor=factor: factor * true_value(f, k) + 0.3 * rng.normal(size=len(f))]
            team = self.signals(functions, count=20)[0]
            found = choose(team, [1.0], agent=True)
            np.testing.assert_array_equal(found, expected)

    def test_a_surely_better_one_takes_the_place_of_the_agents(self):
        own = lambda f, k: 0.2 * true_value(f, k)  # noqa: E731 - a value function
        found = choose(self.signals([own, true_value])[0], [1.0, 0.0], agent=True)
        assert found[1] > 0.8

    def test_a_value_function_that_never_varies_counts_nothing(self):
        found = choose(self.signals([lambda f, k: np.zeros(len(f))])[0], required=True)
        np.testing.assert_array_equal(found, [0.0])

    def test_coefficients_are_at_least_0(self):
        found = choose(self.signals([lambda f, k: -true_value(f, k)])[0], required=True)
        np.testing.assert_array_equal(found, [0.0])

    def test_forms_by_polarisation_are_the_weights_of_the_combination(self):
        team, applied = self.signals([true_value, lambda f, k: np.sin(f[:, 0])])
        mixed = applied.residuals(np.array([0.3, -0.7]))
        forms = _quadratic(team.moments, 3, 5)
        moments = RewardMoments(HORIZON, gamma=GAMMA)
        moments.update(mixed)
        weights = np.einsum("i,fijt,j->t", [1.0, 0.3, -0.7], forms, [1.0, 0.3, -0.7])
        np.testing.assert_allclose(weights, moments.weights(), rtol=1e-9, atol=1e-9)


class TestLearner:
    def test_a_team_learns_nothing_from_itself(self):
        """Other rewards of team 0 leave its own critic as it was."""
        rng = np.random.default_rng(3)
        sample, groups = walks(rng, 60), np.arange(60) % 3
        made = []
        for factor in (1.0, 100.0):
            flat = sample.trajectories.flat * np.repeat(np.where(groups == 0, factor, 1.0), HORIZON)
            changed = Sample(rido.Trajectories(flat, sample.trajectories.lengths), sample.terminated, sample.features)
            one = learner()
            one.add(changed, groups)
            one.learn()
            made.append(one)
        for own, other in zip(made[0]._teams[0].coefficients, made[1]._teams[0].coefficients, strict=True):
            np.testing.assert_array_equal(own, other)
        assert not np.array_equal(made[0]._teams[1].coefficients[0], made[1]._teams[1].coefficients[0])

    def test_start_values_and_residuals_add_up_to_the_returns(self):
        one, sample, groups = learner(required=True), walks(np.random.default_rng(4), 90), np.arange(90) % 3
        one.add(sample, groups)
        moments = one.learn()
        assert one.critic() is not None and one.critic().name == "fit" and not one.same_critics
        discounts = GAMMA ** np.arange(HORIZON)
        returns = sample.trajectories.rewards @ discounts
        by_group = np.concatenate([returns[groups == group] for group in range(3)])
        residual = np.concatenate([part.full_length @ discounts for part in moments])
        np.testing.assert_allclose(one.starts + residual, by_group, rtol=1e-9)

    def test_all_teams_must_gain_at_first_and_most_of_them_later(self, monkeypatch):
        one, rng, used = learner(), np.random.default_rng(5), []
        for gains in ([1, 1, 0], [1, 1, 1], [1, 0, 1], [0, 0, 1], [1, 1, 0]):
            turn = iter(gains)
            answer = lambda *a, turn=turn, **k: np.array([next(turn), 0.0])  # noqa: E731
            monkeypatch.setattr(Combination, "choose", answer)
            count = 30 + one._rows // HORIZON  # enough to fit again
            one.add(walks(rng, count), np.arange(count) % 3)
            one.learn()
            used.append(one.critic() is not None)
        assert used == [False, True, True, False, False]

    def test_the_agents_value_is_used_from_the_start(self):
        """Also where it only looks a little worse than none on few trajectories."""
        agent = AgentCritic(ValueFunction(lambda f: f[:, -1], 1.0))
        sample = walks(np.random.default_rng(6), 12)
        noise = np.random.default_rng(7).normal(size=(len(sample.features), 1))
        one = learner(FeatureExtractor(None, agent))
        one.add(replace(sample, features=np.hstack([0 * noise, 0.3 * noise])), np.arange(12) % 3)
        assert one.same_critics  # no critic yet
        one.learn()
        np.testing.assert_array_equal([team.shares for team in one._teams], [[1.0, 0.0, 0.0]] * 3)
        assert one.same_critics

    def test_chance_gains_of_one_team_leave_it_the_critic_of_the_others(self, monkeypatch):
        agent = AgentCritic(ValueFunction(lambda f: f[:, -1], 1.0))
        one, sample = learner(FeatureExtractor(None, agent)), walks(np.random.default_rng(6), 12)
        one.add(
            Sample(sample.trajectories, sample.terminated, np.repeat(sample.features, 2, axis=1)), np.arange(12) % 3
        )
        turn = iter([[1.0, 0.0, 0.0], [0.3, 0.7, 0.0], [1.0, 0.0, 0.0]])
        monkeypatch.setattr(Combination, "choose", lambda *a: np.array(next(turn)))
        one.learn()
        np.testing.assert_array_equal([team.shares for team in one._teams], [[1.0, 0.0, 0.0]] * 3)

    def test_more_data_make_a_better_critic(self):
        """Variance of the residuals of 300 walks over that of 30."""
        errors = []
        for count in (30, 300):
            one, rng = learner(required=True), np.random.default_rng(7)
            one.add(walks(rng, count), np.arange(count) % 3)
            one.learn()
            fresh = walks(np.random.default_rng(8), 400)
            first = fresh.features[fresh.to_go(HORIZON) == HORIZON]
            to_go = np.full(len(first), HORIZON)
            errors.append(np.mean((one.values(first, to_go) - true_value(first, to_go)) ** 2))
        assert errors[1] < errors[0] / 2


def test_teams_with_the_same_critic_have_the_error_of_teams_without():
    """Means of each step that are the same in all teams are estimated once, not once for each team."""
    rewards = np.random.default_rng(1).normal(size=(200, 10))
    errors = []
    for cross_fitted in (False, True):
        strategy = rido.Adaptive(horizon=10, budget=400, gamma=0.9, settings={"large_pilot": 1.0})
        strategy.divide(cross_fitted=cross_fitted)
        strategy.ask()
        lengths, teams = strategy.planned
        batch, signal = rido.Trajectories(rewards[: lengths.size], lengths), []
        for team in range(strategy.division.groups):
            signal.append(rido.RewardMoments(10, gamma=0.9))
            signal[-1].update(batch.select(teams == team))
        separate = copy.deepcopy(strategy)
        strategy.tell(batch, signal=signal, same_means=True)
        errors.append(strategy.estimate().standard_error)
        separate.tell(batch, signal=signal, same_means=False)
    assert errors[0] == errors[1] != separate.estimate().standard_error


@pytest.mark.parametrize("strategy", ["uniform", "rido", "adaptive"])
def test_every_strategy_takes_a_critic_that_learns(strategy):
    result = rido.evaluate(
        "Pendulum-v1", "rido:pendulum", gamma=0.9, horizon=40, budget=2000, critic="auto", strategy=strategy, seed=0
    )
    assert result.critic in ("fit", "policy") and result.schedule.counts[0] * 40 >= 2000 - 40
