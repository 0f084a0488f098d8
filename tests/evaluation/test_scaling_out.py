"""evaluate() in several processes and with a budget of time."""

from functools import partial

import pytest

import rido
from environments import Counted, count_seconds
from helpers import needs
from rido.simulators.gymnasium import GymnasiumSimulator
from traps import tanh_policy, zeros


def test_workers_do_not_change_the_result():
    settings = dict(budget=5000, gamma=0.95, horizon=40, seed=1)
    one = rido.evaluate("Pendulum-v1", tanh_policy, **settings)
    two = rido.evaluate("Pendulum-v1", tanh_policy, workers=2, **settings)
    assert (two.value, two.standard_error, two.schedule) == (one.value, one.standard_error, one.schedule)
    assert (two.policy, two.environment, two.reproducible) == (one.policy, one.environment, True)


def test_workers_serve_critics(agents_dir):
    agent = agents_dir / "ppo" / "Pendulum-v1" / "Pendulum-v1.zip"
    settings = dict(budget=5000, gamma=0.9, horizon=40, seed=1, critic="policy")
    one, two = (rido.evaluate("Pendulum-v1", agent, workers=workers, **settings) for workers in (1, 2))
    assert (two.value, two.standard_error) == (one.value, one.standard_error)


@pytest.mark.filterwarnings("ignore:.*Box (low|high)'s precision")
def test_simulators_are_named_or_made():
    needs("envpool", "envpool")
    from rido.simulators.envpool import EnvPoolSimulator

    settings = dict(budget=5000, gamma=0.95, horizon=40, seed=1)
    named = rido.evaluate("Pendulum-v1", tanh_policy, simulator="envpool", **settings)
    made = rido.evaluate("Pendulum-v1", tanh_policy, simulator=partial(EnvPoolSimulator, threads=1), **settings)
    assert named.value == made.value and named.reproducible
    unseeded = partial(EnvPoolSimulator, reseed=False)
    result = rido.evaluate("Pendulum-v1", tanh_policy, simulator=unseeded, **settings)
    assert not result.reproducible and "the seed does not control" in result.warnings[0]
    with pytest.raises(ValueError, match=r"simulator must be one of 'gymnasium', .*, got 'cluster'"):
        rido.evaluate("Pendulum-v1", tanh_policy, simulator="cluster", **settings)


@pytest.mark.parametrize("strategy", ["adaptive", "uniform", "rido"])
def test_a_time_budget_may_be_all_there_is(strategy, monkeypatch):
    count_seconds(monkeypatch)
    result = rido.evaluate(Counted, zeros, time_budget=0.5, gamma=0.9, horizon=50, strategy=strategy, seed=3)
    assert 4500 < result.transitions < 5500  # of 0.1 ms each
    assert not result.reproducible and any("speed of the machine" in warning for warning in result.warnings)


def test_the_first_of_both_budgets_ends_a_run():
    result = rido.evaluate("rido/LQG-v0", time_budget=60, budget=3000, gamma=0.9, horizon=50, seed=3)
    assert result.transitions == 3000


def test_a_run_with_a_time_budget_goes_on_and_repeats(tmp_path, monkeypatch):
    count_seconds(monkeypatch)
    settings = dict(policy=zeros, time_budget=0.5, gamma=0.9, horizon=50, run=tmp_path / "run.rido", seed=3)
    first = rido.evaluate(Counted, **settings)
    calls, collect = [], GymnasiumSimulator.collect
    monkeypatch.setattr(GymnasiumSimulator, "collect", lambda self, *a: calls.append(a) or collect(self, *a))
    Counted.taken = 0  # which is part of its content
    again = rido.evaluate(Counted, **settings)
    assert not calls
    assert (again.value, again.standard_error, again.transitions) == (
        first.value,
        first.standard_error,
        first.transitions,
    )
    with pytest.raises(ValueError, match="its time_budget is"):
        rido.evaluate(Counted, **{**settings, "time_budget": 2})


def test_bad_budgets_are_named():
    with pytest.raises(ValueError, match="budget must be given, in transitions, or time_budget, in seconds"):
        rido.evaluate("rido/LQG-v0", gamma=0.9, horizon=50, seed=0)
    with pytest.raises(ValueError, match=r"time_budget must pay for two full trajectories, here about .* got 1e-06"):
        rido.evaluate("rido/LQG-v0", gamma=0.9, horizon=50, time_budget=1e-6, seed=0)
