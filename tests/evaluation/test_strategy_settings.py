"""Strategies with settings of their own: what evaluate() and the command line make of them."""

from functools import partial

import pytest

import rido

LQG = dict(budget=3000, gamma=0.9, horizon=50, seed=1)


@pytest.mark.parametrize(
    ("settings", "function"),
    [
        (rido.Adaptive(unbiased=True), partial(rido.Adaptive, unbiased=True)),
        (rido.Rido(beta=2.0, batch=300), partial(rido.Rido, beta=2.0, batch=300)),
        (rido.Robust(), rido.Robust),
        (rido.Oracle(weights=[1.0] * 50), partial(rido.Oracle, weights=[1.0] * 50)),
    ],
)
def test_settings_do_what_a_function_that_makes_the_strategy_does(settings, function):
    given, made = (rido.evaluate("rido/LQG-v0", strategy=strategy, **LQG) for strategy in (settings, function))
    assert given.value == made.value and given.schedule == made.schedule
    assert not settings.begun  # the same settings serve again


def test_settings_of_until_are_those_of_evaluate():
    ours = rido.evaluate("rido/LQG-v0", strategy=rido.Adaptive(until=300.0), **{**LQG, "budget": 200_000})
    theirs = rido.evaluate("rido/LQG-v0", until=300.0, **{**LQG, "budget": 200_000})
    assert ours.value == theirs.value and ours.transitions == theirs.transitions < 200_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(strategy=rido.Uniform(horizon=50, budget=3000, gamma=0.9)), "strategy must leave horizon, budget and"),
        (dict(strategy=rido.Adaptive(until=1.0), until=2.0), "until must be given once, got 2.0 and .* 1.0"),
        (
            dict(strategy=rido.Uniform(), until=2.0),
            "until works only with .*, not 'uniform'",
        ),
        (dict(strategy=rido.Adaptive(unbiased=True), until=2.0), "until works only with .*, not 'unbiased'"),
    ],
)
def test_settings_that_contradict_each_other(options, message):
    with pytest.raises(ValueError, match=message):
        rido.evaluate("rido/LQG-v0", **options, **LQG)


def test_settings_alone_collect_nothing():
    with pytest.raises(ValueError, match=r"ask\(\) needs a strategy with horizon, budget and gamma"):
        rido.Adaptive().ask()
    with pytest.raises(ValueError, match="horizon, budget and gamma must be given together"):
        rido.Adaptive(budget=100)


def test_a_budget_changes_by_request_only():
    strategy = rido.Uniform(horizon=10, budget=100, gamma=1.0)
    with pytest.raises(AttributeError):
        strategy.budget = 50
    strategy.change_budget(50)
    assert strategy.budget == strategy.ask().transitions == 50
