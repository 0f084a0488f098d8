"""The distribution of returns: against known distributions, and from full-length trajectories alone."""

import math
from functools import partial

import numpy as np
import pytest

import rido
from environments import Costly
from interrupted import act
from rido.evaluation.returns import Returns


def sample(rng, size, columns=1):
    values = rng.exponential(size=(size, columns))
    return Returns(tuple("abc"[:columns]), values, values - 1)


class TestAgainstKnownDistributions:
    """Exponential returns: the p-quantile is -log(1 - p), the mean of the lowest p is 1 - q (1 - p) / p."""

    @pytest.mark.parametrize("size", [20, 60])
    def test_intervals_of_quantiles_hold_as_often_as_they_say(self, size):
        """400 repetitions: at least 0.95 on average, below 0.92 with a probability of 0.2%."""
        rng = np.random.default_rng(1)
        for probability in (0.1, 0.5, 0.9):
            true, held = -math.log1p(-probability), 0
            for _ in range(400):
                _, low, high = sample(rng, size).quantile(probability)
                held += low <= true <= high
            assert held / 400 > 0.92

    def test_intervals_of_tails_hold_about_as_often_as_they_say(self):
        """60 repetitions of 100 returns: below 0.8 with a probability of 0.1% if they hold in 0.93."""
        rng, share = np.random.default_rng(2), 0.2
        quantile = -math.log1p(-share)
        lower, upper, held = 1 - quantile * (1 - share) / share, 1 - math.log(share), np.zeros(2)
        for _ in range(60):
            drawn = sample(rng, 100)
            for index, (true, found) in enumerate([(lower, drawn.cvar(share)), (upper, drawn.cvar(share, upper=True))]):
                held[index] += found.low <= true <= found.high
        assert (held / 60 > 0.8).all()

    def test_values_by_brute_force(self):
        drawn = sample(np.random.default_rng(3), 50)
        ordered = np.sort(drawn.values[:, 0])
        assert drawn.quantile(0.5).value == ordered[24]
        assert drawn.cvar(0.2).value == pytest.approx(ordered[:10].mean())
        assert drawn.cvar(0.2, upper=True).value == pytest.approx(ordered[-10:].mean())
        assert drawn.cvar(0.05).value == pytest.approx((ordered[:2].sum() + ordered[2] / 2) / 2.5)
        assert drawn.cvar(0.05)[1:] == (-math.inf, math.inf)  # three returns tell nothing of such a tail
        assert drawn.success(above=1.0).value == drawn.success("a").value == (ordered > 1).mean()

    def test_a_success_rate_has_an_exact_interval(self):
        values = np.array([[1.0]] * 9 + [[0.0]])
        found = Returns(("is_success",), values, values).success("is_success")
        assert found == pytest.approx((0.9, 0.5550, 0.9975), abs=1e-4)  # Clopper and Pearson's


class TestOfEvaluations:
    def test_they_are_those_of_full_length_trajectories(self):
        settings = dict(gamma=(0.8, 0.95), horizon=20, budget=4000, seed=1, components=("cost", "is_success"))
        result = rido.evaluate(partial(Costly, death=0.1), act, **settings)
        found = result.returns
        assert len(found) == result.schedule.counts[-1] < result.trajectories and found.names == result.labels
        mean, error = found.values.mean(axis=0), found.values.std(axis=0) / math.sqrt(len(found))
        for column, estimate in enumerate(result.components.values()):
            assert abs(mean[column] - estimate.value) < 4.5 * (error[column] + estimate.standard_error)
        assert found.quantile(0.5).value == found.quantile(0.5, "reward, gamma 0.95").value
        low, high = found.success("is_success, gamma 0.95", confidence=0.9999)[1:]
        assert low < 0.9**4 < high  # it lives to step 5

    def test_the_returns_of_a_uniform_run_average_to_its_value(self):
        result = rido.evaluate("rido/LQG-v0", budget=1000, gamma=0.9, horizon=20, seed=1, strategy="uniform")
        assert result.returns.values.mean() == pytest.approx(result.value)
        text = result.returns.summary()
        assert "from the 50 trajectories planned to full length, chosen before their rewards were known" in text
        assert "reward: median" in text

    def test_what_cannot_be_is_named(self):
        settings = dict(gamma=0.9, horizon=20, budget=2000, seed=1)
        with pytest.raises(ValueError, match="a run with a critic keeps its residuals alone"):
            rido.evaluate("Pendulum-v1", "random", **settings, critic="fit").returns  # noqa: B018
        found = rido.evaluate("rido/LQG-v0", **settings).returns
        with pytest.raises(ValueError, match="component must be one of 'reward', got 'cost'"):
            found.quantile(0.5, "cost")
        with pytest.raises(ValueError, match="success\\(\\) needs component="):
            found.success()
        with pytest.raises(ValueError, match="returns need at least one trajectory"):
            Returns(("reward",), np.zeros((0, 1)), np.zeros((0, 1))).quantile(0.5)
