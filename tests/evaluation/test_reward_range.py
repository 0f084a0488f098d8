"""reward_range: the guaranteed interval in results, in run files and on the command line."""

import json
from functools import partial

import numpy as np
import pytest
from typer.testing import CliRunner

import rido
from environments import Counted, Mortal
from rido.cli import app
from rido.core.digits import to_digits
from rido.core.guarantee import guaranteed_interval
from rido.evaluation import evaluate as evaluation
from rido.evaluation.recorded import read_run
from rido.plots.report import report_html
from rido.simulators.base import trajectory_seeds
from rido.simulators.gymnasium import GymnasiumSimulator


def act(observations):
    return np.zeros(len(observations), dtype=int)


class Coins:
    """Rewards 0 and 1 with equal chances, never an early end: the return is half of the sum of discounts."""

    num_envs = 64

    def rollout(self, lengths, seeds):
        rewards = [np.random.default_rng(seed).integers(2, size=n) for n, seed in zip(lengths, seeds, strict=True)]
        return rido.Trajectories(np.concatenate(rewards), lengths)


def coins(**settings):
    return rido.evaluate(Coins(), **{"budget": 4000, "gamma": 0.9, "horizon": 20, "seed": 0, **settings})


def test_the_interval_is_hoeffdings_for_a_strategy_that_plans_once():
    """(2) of the paper by hand: half-width sqrt(log(2 / 0.05) / 2 * sum_i range_i^2)."""
    result = coins(strategy="uniform", reward_range=(0, 1))
    discounts = 0.9 ** np.arange(20)
    half_width = np.sqrt(np.log(40) / 2 * 200 * (discounts.sum() / 200) ** 2)
    assert result.guaranteed_interval == pytest.approx((result.value - half_width, result.value + half_width))
    assert result.reward_range == (0.0, 1.0)


@pytest.mark.parametrize("settings", [dict(), dict(strategy="rido"), dict(until=0.3), dict(time_budget=30.0)], ids=str)
def test_it_holds_the_truth_and_is_wider(settings):
    """Fails by chance in less than 5% for each of four, seeds fixed."""
    result = coins(reward_range=(0, 1), **settings)
    low, high = result.guaranteed_interval
    assert low < 0.5 * (1 - 0.9**20) / 0.1 < high
    assert low < result.interval()[0] and result.interval()[1] < high


def test_without_a_range_there_is_none():
    result = coins()
    assert result.guaranteed_interval is None and result.reward_range is None
    assert result.to_dict()["guaranteed_interval"] is None and "guaranteed" not in result.summary()


def test_early_ends_count_as_zeros():
    """Rewards of 3 in a range of 2 to 4: zeros after the end are no rewards, but widen the range."""

    class Constant(Mortal):
        def step(self, action):
            observation, _, *rest = super().step(action)
            return observation, 3.0, *rest

    settings = dict(budget=1000, gamma=1.0, horizon=5, strategy="uniform", seed=0)
    result = rido.evaluate(partial(Constant, death=0.2), act, reward_range=(2, 4), **settings)
    simulator = GymnasiumSimulator(partial(Constant, death=0.2), act, horizon=5)
    assert result.schedule.trajectories > 200 and 995 < result.transitions <= 1100  # beyond the budget, a rehearsal
    low, high = result.guaranteed_interval
    assert low < 3 * np.sum(0.8 ** np.arange(5)) < high
    batch = simulator.rollout(np.full(200, 5), trajectory_seeds(0, 0, 200))
    wide, narrow = (
        guaranteed_interval([batch], horizon=5, gamma=1.0, reward_range=edges) for edges in [(0, 4), (2, 4)]
    )
    assert wide == narrow


def test_a_reward_outside_of_the_range_is_named():
    Counted.taken = 0
    with pytest.raises(ValueError, match=r"reward_range must contain all rewards, got \(0\.0, 3\.0\) and a reward of"):
        rido.evaluate(Counted, act, budget=5000, gamma=0.9, horizon=20, seed=0, reward_range=(0, 3))
    assert Counted.taken < 1000  # it ends with the first piece


@pytest.mark.parametrize("critic", ["auto", "fit", "policy", lambda observations, steps_to_go: steps_to_go])
def test_a_critic_is_refused_before_anything_is_collected(critic):
    Counted.taken = 0
    with pytest.raises(ValueError, match="reward_range must be None with a critic, whose residual has no range, got"):
        rido.evaluate(Counted, act, budget=500, gamma=0.9, horizon=20, reward_range=(-9, 99), critic=critic, seed=0)
    assert Counted.taken == 0


@pytest.mark.parametrize("edges", [(1, 0), (0, 0), (0, np.inf), (0,), 3, "wide"])
def test_ranges_that_are_none_are_refused(edges):
    with pytest.raises(ValueError, match=r"reward_range must be \(low, high\) with low < high, got"):
        coins(reward_range=edges)


def test_rewards_that_stay_on_a_device_are_refused(monkeypatch, tmp_path):
    from rido.jax import lqg

    monkeypatch.setattr(evaluation, "_SUMMED_BUDGET", 500)
    settings = dict(budget=1000, gamma=0.9, horizon=20, seed=0, reward_range=(0, 1e6))
    with pytest.raises(ValueError, match=r"reward_range needs run=FILE or a budget of at most 500"):
        rido.evaluate(lqg(), **settings)
    assert rido.evaluate(lqg(), run=tmp_path / "run.rido", **settings).guaranteed_interval is not None


def test_a_run_file_has_it_too(tmp_path):
    path = tmp_path / "run.rido"
    assert coins(run=path).guaranteed_interval is None and read_run(path).evaluation.guaranteed_interval is None
    result = coins(run=path, reward_range=(0, 1))  # what was collected serves for any range
    recorded = read_run(path)
    assert recorded.evaluation.guaranteed_interval == pytest.approx(result.guaranteed_interval)
    assert recorded.evaluation.reward_range == (0.0, 1.0) and "reward_range" not in recorded.configuration
    assert "guaranteed from" in report_html(recorded)


def test_the_command_line_prints_it():
    arguments = ["evaluate", "rido/LQG-v0", "--budget", "2000", "--gamma", "0.9", "--horizon", "20", "--seed", "1"]
    arguments += ["--reward-range", "0", "20000"]
    expected = rido.evaluate("rido/LQG-v0", budget=2000, gamma=0.9, horizon=20, seed=1, reward_range=(0, 20000))
    low, high = expected.guaranteed_interval
    printed = CliRunner().invoke(app, arguments).stdout
    _, shown_low, shown_high = to_digits(expected.value, low, high)
    assert f"guaranteed for rewards in [0, 20000]: [{shown_low}, {shown_high}]" in printed
    found = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert found["guaranteed_interval"] == [low, high] and found["reward_range"] == [0, 20000]
    wrong = CliRunner().invoke(app, [*arguments[:-1], "10"])
    assert wrong.exit_code == 1 and wrong.stderr.count("\n") == 1
    assert "reward_range must contain all rewards, got (0.0, 10.0) and a reward of" in wrong.stderr
