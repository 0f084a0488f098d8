"""Rewards of several components: sums over components of what each gives by itself, and errors that go together."""

import numpy as np
import pytest

import rido
from rido.core.estimate import Estimate
from rido.core.joint import JointEstimate
from rido.core.reward_moments import RewardMoments

HORIZON, GAMMA = 4, 0.9
MIX = np.array([[1.0, 0.0, 0.5], [0.3, 1.0, 0.0], [0.0, 0.0, 2.0]])


def draw(rng, lengths):
    """Rewards of three components, correlated with each other and over time; the third is twice as large."""
    common = rng.normal(size=(len(lengths), 1, 3))
    return rido.Trajectories((rng.normal(size=(len(lengths), HORIZON, 3)) + common) @ MIX, lengths)


def moments_of(batch, metric=None):
    moments = RewardMoments(HORIZON, gamma=GAMMA, metric=metric)
    moments.update(batch)
    return moments


@pytest.fixture(scope="module")
def batch():
    return draw(np.random.default_rng(1), [*range(1, HORIZON + 1)] * 4)


class TestMoments:
    def test_weights_are_the_sum_over_components(self, batch):
        metric = [1.0, 2.0, 0.5]
        moments = moments_of(batch, metric)
        single = [rido.Trajectories.from_flat(batch.flat[:, index], batch.lengths) for index in range(3)]
        parts = [moments_of(part) for part in single]
        expected = sum(weight * part.weights() for weight, part in zip(metric, parts, strict=True))
        np.testing.assert_allclose(moments.weights(), expected)
        np.testing.assert_allclose(moments.weights_by_fold(3).sum(axis=0), expected)
        np.testing.assert_allclose(
            moments.variances, sum(w * part.variances for w, part in zip(metric, parts, strict=True))
        )
        for index, part in enumerate(parts):
            np.testing.assert_array_equal(moments.component(index).weights(), part.weights())

    def test_the_scaled_metric_does_not_depend_on_units(self, batch):
        other = rido.Trajectories.from_flat(batch.flat * [1000.0, 1.0, 0.01], batch.lengths)
        np.testing.assert_allclose(moments_of(other, "scaled").weights(), moments_of(batch, "scaled").weights())

    def test_a_component_that_never_varies_does_not_count(self, batch):
        flat = batch.flat.copy()
        flat[:, 0] = 3.7
        found = moments_of(rido.Trajectories.from_flat(flat, batch.lengths), "scaled")
        assert found.metric[0] == 0 and (found.metric[1:] > 0).all()

    def test_huge_rewards_do_not_overflow(self, batch):
        huge = moments_of(rido.Trajectories.from_flat(batch.flat * 2.0**320, batch.lengths))
        found = JointEstimate.from_teams([[huge]])
        expected = JointEstimate.from_teams([[moments_of(batch)]])
        np.testing.assert_allclose(found.values, expected.values * 2.0**320)


class TestJointEstimate:
    def test_the_diagonal_is_each_component_by_itself(self, batch):
        teams = [moments_of(batch), moments_of(draw(np.random.default_rng(2), [HORIZON] * 5))]
        found = JointEstimate.from_teams([[team] for team in teams])
        for index, estimate in enumerate(found.estimates):
            alone = Estimate.from_moments(*(team.component(index) for team in teams))
            assert estimate == alone
            assert found.covariance[index, index] == pytest.approx(alone.standard_error**2)

    @pytest.mark.parametrize("replicated", [False, True])
    def test_the_covariance_is_that_of_the_values(self, replicated):
        """1,500 repetitions: each entry is known to about 5% of the variances."""
        rng, values, covariances = np.random.default_rng(3), [], []
        for _ in range(1500):
            batches = [draw(rng, [HORIZON, HORIZON, 2, 1]) for _ in range(4)]
            groups = [moments_of(batch) for batch in batches]
            found = JointEstimate.from_teams([groups] if replicated else [[group] for group in groups])
            values.append(found.values)
            covariances.append(found.covariance)
        true = np.cov(np.transpose(values))
        np.testing.assert_allclose(np.mean(covariances, axis=0), true, rtol=0, atol=0.2 * np.diag(true).min())

    def test_simultaneous_intervals_of_independent_components(self):
        """Without correlation, 0.95 together is the third root of 0.95 for each."""
        flat = np.vstack([np.eye(3), -np.eye(3)])
        moments = RewardMoments(1, gamma=1.0)
        moments.update(rido.Trajectories.from_flat(flat, np.ones(6, dtype=int)))
        found = JointEstimate.from_teams([[moments]])
        wanted = [estimate.interval(0.95 ** (1 / 3)) for estimate in found.estimates]
        np.testing.assert_allclose(found.intervals(0.95, simultaneous=True), wanted, rtol=1e-3)

    def test_simultaneous_intervals_hold_together(self):
        """Of 400,000 normal vectors with these correlations, 95% lie within the bounds: 0.002 is 6 standard errors."""
        rng = np.random.default_rng(5)
        mix = rng.normal(size=(6, 4))  # singular
        covariance = mix @ mix.T
        estimates = tuple(
            Estimate(0.0, np.sqrt(variance), np.inf, rido.Schedule([1000]), 1.0, False)
            for variance in np.diag(covariance)
        )
        found = JointEstimate(estimates, covariance).intervals(0.95, simultaneous=True)
        highest = np.array([high for _, high in found])
        inside = (np.abs(rng.normal(size=(400_000, 4)) @ mix.T) <= highest).all(axis=1)
        assert inside.mean() == pytest.approx(0.95, abs=0.002)
        assert JointEstimate(estimates, covariance).intervals(0.95, simultaneous=True) == found

    def test_simultaneous_intervals_of_equal_components_are_plain_ones(self, batch):
        same = rido.Trajectories.from_flat(batch.flat[:, [0, 0]], batch.lengths)
        found = JointEstimate.from_teams([[moments_of(same)]])
        np.testing.assert_allclose(found.intervals(0.95, simultaneous=True), found.intervals(0.95), rtol=1e-3)


def test_a_strategy_plans_for_what_it_serves():
    """Only the first component varies late, so plans that serve it are longer."""
    spent = {}
    for name, metric in {"early": [0.0, 1.0], "late": [1.0, 0.0]}.items():
        rng, strategy = np.random.default_rng(4), rido.Adaptive(horizon=20, budget=4000, gamma=1.0)
        strategy.set_objective(metric, leading=1)
        while (schedule := strategy.ask()) is not None:
            rewards = np.zeros((schedule.trajectories, 20, 2))
            rewards[:, -1, 0], rewards[:, 0, 1] = rng.normal(size=(2, schedule.trajectories))
            strategy.tell(rido.Trajectories(rewards, schedule.lengths))
        spent[name] = strategy.estimate().schedule.trajectories
        joint = strategy.joint()
        assert joint.estimates[1] == strategy.estimate()
        errors = [estimate.standard_error for estimate in joint.estimates]
        np.testing.assert_allclose(np.sqrt(np.diag(joint.covariance)), errors)
    assert spent["early"] > 3 * spent["late"]
