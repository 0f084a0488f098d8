"""Budgets with costly resets, widths that are missed, and results as JSON, at the edges of what numbers allow."""

import json
import math
from itertools import product

import numpy as np
import pytest

import rido
from rido.evaluation.recorded import read_run
from rido.simulators.bank import BankSimulator


class CountingBank(BankSimulator):
    """A bank that counts transitions and resets."""

    taken = resets = 0

    def collect(self, request):
        batch = super().collect(request)
        self.taken += batch.trajectories.transitions
        self.resets += len(request.seeds) if request.wants == "starts" else 0
        return batch


def bank(scale=1.0, horizon=10, rows=400):
    """Trajectories whose first observation tells a part of the return."""
    rng = np.random.default_rng(0)
    rewards = rng.standard_normal((rows, horizon))
    observations = np.repeat(rewards.sum(axis=1)[:, None, None], horizon + 1, axis=1)
    return CountingBank(scale * rewards, None, observations)


def value(observations, steps_to_go):
    return 0.5 * observations[:, 0] * steps_to_go / 10


SETTINGS = dict(budget=2000, gamma=0.95, horizon=10, seed=3)


CASES = list(product([0.1, 7.3, 300.0, 900.0], [value, "fit", "auto"], ["adaptive", "uniform", "robust", "rido"]))
TOO_FEW = [case for case in CASES if case[1] == "fit" and (case[0] == 900.0 or case[2] == "robust")]  # to fit on


@pytest.mark.parametrize(("reset_cost", "critic", "strategy"), [case for case in CASES if case not in TOO_FEW])
def test_costly_resets_never_exceed_the_budget(reset_cost, critic, strategy):
    simulator = bank()
    result = rido.evaluate(simulator, critic=critic, reset_cost=reset_cost, strategy=strategy, **SETTINGS)
    assert result.resets == simulator.resets
    assert result.transitions == simulator.taken + math.ceil(simulator.resets * reset_cost) <= 2000


@pytest.mark.parametrize("critic", [value, "fit", "auto"])
@pytest.mark.parametrize("reset_cost", [1000.0, 991.0, 1e300])
def test_a_budget_that_pays_for_no_two_resets_is_refused_before_anything_is_spent(reset_cost, critic):
    simulator = bank()
    with pytest.raises(ValueError, match=r"budget must pay for 2 resets at reset_cost=.* got 2000") as caught:
        rido.evaluate(simulator, critic=critic, reset_cost=reset_cost, **SETTINGS)
    assert "\n" not in str(caught.value) and simulator.taken == simulator.resets == 0


def test_a_width_that_capped_resets_miss_is_said(tmp_path):
    settings = {**SETTINGS, "budget": 10**6, "critic": value}
    met = rido.evaluate(bank(), until=0.1, **settings)
    assert met.estimate.half_width() <= 0.1 and not any("until" in warning for warning in met.warnings)
    missed = rido.evaluate(bank(), until=0.1, max_resets=20, run=tmp_path / "run.db", **settings)
    assert missed.resets == 20 and missed.estimate.half_width() > 0.1
    for result in (missed, read_run(tmp_path / "run.db").evaluation):
        assert sum("farther than until=0.1" in warning for warning in result.warnings) == 1


def test_a_generous_budget_does_not_cost_with_a_critic():
    spent = [
        rido.evaluate(bank(), critic=critic, until=0.2, **{**SETTINGS, "budget": budget}).transitions
        for critic in (value, "auto")
        for budget in (10**5, 10**8)
    ]
    assert spent[1] <= 1.2 * spent[0] and spent[3] <= 1.2 * spent[2]


@pytest.mark.parametrize("scale", [0.0, 1e-320, 1e-300, 1.0, 1e45, 1e98])
@pytest.mark.parametrize("options", [{}, {"critic": "auto"}, {"critic": "fit"}, {"strategy": "uniform", "budget": 19}])
def test_results_are_json(scale, options):
    result = rido.evaluate(bank(scale), **{**SETTINGS, **options})
    shown = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert shown["value"] == result.value
    assert result.summary()
    if options.get("budget") == 19:
        assert shown["standard_error"] is shown["interval_low"] is shown["uniform_transitions"] is None
    elif scale and not options:
        assert 0 < shown["standard_error"] < math.inf and shown["critic_gain"] is None


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e98])
def test_guaranteed_intervals_are_json(scale):
    result = rido.evaluate(bank(scale), reward_range=(-6 * scale, 6 * scale), **SETTINGS)
    low, high = json.loads(json.dumps(result.to_dict(), allow_nan=False))["guaranteed_interval"]
    assert low < result.value < high
    widest = rido.evaluate(bank(scale), reward_range=(-6e98, 1e100), **SETTINGS)
    json.dumps(widest.to_dict(), allow_nan=False)


def test_a_run_that_was_read_is_json(tmp_path):
    rido.evaluate(bank(), run=tmp_path / "run.db", **SETTINGS)
    json.dumps(read_run(tmp_path / "run.db").evaluation.to_dict(), allow_nan=False)


@pytest.mark.parametrize("scale", [1e-60, 1e98])
def test_a_critic_serves_rewards_of_any_size(scale):
    """The same seeds and the same critic, but for the unit: the same schedule and the same gain."""
    plain, far = (
        rido.evaluate(
            bank(unit), critic=lambda seen, to_go, unit=unit: unit * value(seen, to_go), max_resets=500, **SETTINGS
        )
        for unit in (1.0, scale)
    )
    assert far.schedule == plain.schedule and far.resets == plain.resets
    assert far.standard_error == pytest.approx(scale * plain.standard_error)
    assert far.critic_gain == pytest.approx(plain.critic_gain)
    assert far.uniform_transitions == pytest.approx(plain.uniform_transitions)


def test_a_critic_over_a_single_trajectory_says_that_the_error_is_unknown():
    result = rido.evaluate(bank(), critic=value, strategy="uniform", **{**SETTINGS, "budget": 10})
    assert math.isfinite(result.value) and math.isinf(result.standard_error) and result.resets == 20
