"""Budgets: what was taken is what is reported, by the count of the environment itself, and never too much."""

from functools import partial

import numpy as np
import pytest

import rido
from environments import Counted, count_seconds
from rido.evaluation.budgets import measure_costs
from rido.evaluation.recorded import read_run
from rido.simulators.gymnasium import GymnasiumSimulator


def act(observations):
    return np.zeros(len(observations), dtype=int)


def value(observations, steps_to_go):
    return steps_to_go * observations[:, 0]


def counted(death=0.0, **settings):
    """Evaluates; returns the result and the transitions that the environment counted."""
    Counted.taken = 0
    settings = {"budget": 2000, "gamma": 0.95, "horizon": 30, "seed": 1, **settings}
    result = rido.evaluate(partial(Counted, death=death), act, **settings)
    return result, Counted.taken


@pytest.mark.parametrize(
    "settings",
    [
        dict(),
        dict(death=0.2),
        dict(death=0.2, num_envs=3),
        dict(death=0.2, strategy="uniform"),
        dict(death=0.2, strategy="robust"),
        dict(death=0.2, strategy="rido"),
        dict(critic="fit"),
        dict(critic="fit", death=0.1),
        dict(critic="auto", death=0.1),
        dict(critic=value, death=0.1),
        dict(until=20.0),
        dict(until=1e-6, death=0.1),
        dict(workers=1),
        dict(time_budget=60.0),
        dict(time_budget=60.0, death=0.2),
        dict(time_budget=60.0, critic="fit"),
        dict(time_budget=60.0, strategy="uniform", num_envs=1),
        dict(time_budget=0.5, budget=None),
        dict(time_budget=0.5, budget=None, death=0.2, critic="fit"),
    ],
    ids=lambda settings: "-".join(f"{k}={getattr(v, '__name__', v)}" for k, v in settings.items()) or "default",
)
def test_what_is_reported_is_what_was_taken(settings, monkeypatch):
    count_seconds(monkeypatch)
    result, taken = counted(**settings)
    assert result.transitions == taken > 0
    least = 0 if "until" in settings else 1900
    # The policy takes batches: beyond the budget, at most 100 transitions rehearse what runs side by side.
    assert settings.get("budget", 2000) is None or least <= taken <= 2100


def test_a_budget_with_a_time_budget_pays_for_measuring(tmp_path):
    """With 200 environments of 100 steps, measuring as long as it likes takes more than the budget."""
    settings = dict(budget=2000, horizon=100, num_envs=200, time_budget=60.0, run=tmp_path / "run.rido")
    result, taken = counted(**settings)
    assert result.transitions == taken <= 2100  # the rehearsal comes beyond the budget
    recorded = read_run(tmp_path / "run.rido")
    assert recorded.evaluation.transitions == recorded.transitions[-1] == taken
    again, none = counted(**settings)
    assert again.transitions == taken and none == 0 and again.value == result.value


def test_a_budget_that_measuring_leaves_too_little_of_is_refused():
    with pytest.raises(ValueError, match=r"budget must pay for two full trajectories, 60 steps, and \d+ to measure"):
        counted(budget=60, time_budget=60.0)


@pytest.mark.parametrize("most", [2, 3, 17, 100, 1000])
def test_measuring_keeps_to_its_transitions(most):
    Counted.taken = 0
    simulator = GymnasiumSimulator(Counted, act, horizon=100, num_envs=16)
    costs = measure_costs(simulator, 100, 60.0, entropy=0, most=most)
    assert costs.transitions == Counted.taken - simulator.found.rehearsed <= most
    assert costs.per_step > 0


@pytest.mark.parametrize("time_budget", [None, 60.0])
@pytest.mark.parametrize("reset_cost", [0.5, 10.0, 150.0])
def test_resets_that_cost_transitions_are_paid_from_the_budget(reset_cost, time_budget):
    result, taken = counted(critic=value, reset_cost=reset_cost, time_budget=time_budget)
    assert result.resets >= 2
    assert result.transitions == taken + np.ceil(result.resets * reset_cost) <= 2100
