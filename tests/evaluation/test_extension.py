"""Runs that go on with a larger budget, or until a narrower interval, after they were finished."""

import math
import signal
from functools import partial

import numpy as np
import pytest

import rido
from environments import Mortal
from helpers import assert_calibrated
from interrupted import act, doomed_run, pieces, slow_run, start
from rido import Adaptive, Rido, Trajectories
from rido.evaluation import source
from rido.evaluation.recorded import read_run
from rido.record.database import RunFileError
from rido.simulators.base import trajectory_seeds
from rido.simulators.gymnasium import GymnasiumSimulator

SETTINGS = dict(gamma=0.95, horizon=30, seed=1)


def mortal(path, budget, **settings):
    return rido.evaluate(partial(Mortal, death=0.1), act, budget=budget, run=path, **{**SETTINGS, **settings})


def numbers(result):
    return result.value, result.standard_error, result.interval(), result.transitions, result.schedule


@pytest.mark.parametrize("strategy", ["uniform", "robust", "rido", "adaptive"])
def test_an_extended_run_is_that_of_a_strategy_whose_budget_changes(strategy, tmp_path):
    """The independent answer: the same trajectories, asked for and told by hand."""
    budgets, path = (300, 310, 900), tmp_path / "a.rido"
    by_hand = rido.strategies.names.STRATEGIES[strategy](horizon=30, budget=budgets[0], gamma=0.95)
    simulator, collected = GymnasiumSimulator(partial(Mortal, death=0.1), act, horizon=30), 0
    for budget in budgets:
        by_hand.change_budget(budget)
        while (schedule := by_hand.ask()) is not None:
            seeds = trajectory_seeds(1, collected, schedule.trajectories)
            by_hand.tell(simulator.rollout(schedule.lengths, seeds))
            collected += schedule.trajectories
        result = mortal(path, budget, strategy=strategy)
        assert (result.value, result.standard_error) == (by_hand.estimate().value, by_hand.estimate().standard_error)
        assert 0 <= result.transitions - by_hand.spent <= 100  # of the rehearsal
        assert result.trajectories == collected
        assert numbers(read_run(path).evaluation) == numbers(result)
        assert numbers(mortal(path, budget, strategy=strategy)) == numbers(result)  # repeats, collects nothing
    assert 840 < result.transitions <= 1000


def test_parallelism_does_not_change_an_extended_run(tmp_path):
    found = set()
    for number, settings in enumerate([dict(num_envs=1), dict(num_envs=7), dict(workers=2)]):
        path = tmp_path / f"{number}.rido"
        mortal(path, 300, num_envs=2 + number)
        found.add(mortal(path, 900, **settings).value)
    assert len(found) == 1


def test_a_run_that_was_stopped_reaches_its_first_budget_before_the_next(tmp_path, monkeypatch):
    expected = [mortal(tmp_path / "undisturbed.rido", budget, num_envs=1) for budget in (300, 900)][1]
    path, original = tmp_path / "stopped.rido", GymnasiumSimulator.collect
    monkeypatch.setattr(source, "_PIECE_SECONDS", 1e-6)
    for budget, calls in ((300, 3), (900, 8), (900, 50)):  # stopped twice within the first budget, then beyond
        left = [None] * calls

        def limited(self, *arguments, left=left):
            if not left:
                raise KeyboardInterrupt
            left.pop()
            return original(self, *arguments)

        monkeypatch.setattr(GymnasiumSimulator, "collect", limited)
        with pytest.raises(KeyboardInterrupt):
            mortal(path, budget, num_envs=1)
    assert read_run(path).evaluation.transitions > 300
    monkeypatch.setattr(GymnasiumSimulator, "collect", original)
    assert numbers(mortal(path, 900, num_envs=1)) == numbers(expected)


def test_kill_at_any_moment_of_an_extension_loses_nothing(tmp_path):
    path, undisturbed = tmp_path / "killed.rido", tmp_path / "undisturbed.rido"
    recorded = []
    for each in (path, undisturbed):
        slow_run(each, budget=600)
    for calls in (0, 10):
        child = start(doomed_run, slow_run, (path, None, 1500), calls, 0.005)
        child.join()
        recorded.append(pieces(path))
        assert child.exitcode == -signal.SIGKILL and recorded[-1] == list(range(len(recorded[-1])))
    assert len(recorded[0]) < len(recorded[1])
    assert slow_run(path, budget=1500) == slow_run(undisturbed, budget=1500)


def test_a_narrower_interval_extends_a_run(tmp_path):
    path = tmp_path / "a.rido"
    evaluate = partial(rido.evaluate, "rido/LQG-v0", budget=1500, gamma=0.9, horizon=10, seed=1, run=path)
    wide, narrow = evaluate(until=400.0), evaluate(until=240.0)
    assert wide.transitions < narrow.transitions < 1500 and narrow.trajectories > wide.trajectories
    assert narrow.estimate.half_width() <= 240 < wide.estimate.half_width()
    assert numbers(read_run(path).evaluation) == numbers(narrow)
    ended = evaluate(until=10.0)
    assert "farther than until=10" in ended.warnings[-1] and read_run(path).evaluation.warnings == ended.warnings


@pytest.mark.parametrize(
    ("first", "then", "message"),
    [
        (dict(), dict(budget=299), "budget must be at least its 300 transitions, got 299"),
        (dict(until=50.0), dict(until=60.0), "until must be at most its 50, got 60.0"),
        (dict(until=50.0), dict(), "until must be at most its 50, got None"),
        (dict(), dict(until=60.0, budget=600), "until must be None as before, got 60.0"),
        (dict(critic="fit"), dict(critic="fit", budget=600), "its critic and the resets were planned for 300"),
        (dict(strategy=Adaptive(unbiased=True)), None, "its strategy plans only once for 300 transitions"),
        (dict(strategy=Rido(beta="theory")), None, "its strategy plans only once for 300 transitions"),
        (dict(time_budget=5.0), dict(budget=600), "its time_budget is 5.0, not None"),
        (dict(), dict(budget=600, horizon=20), "its horizon is 30, not 20"),
        (dict(), dict(budget=600, gamma=0.9), "its gamma is 0.95, not 0.9"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(first, then, message, tmp_path):
    path = tmp_path / "a.rido"
    result = mortal(path, **{"budget": 300, **first})
    with pytest.raises(RunFileError, match=message) as caught:
        mortal(path, **{"budget": 300, **({**first, "budget": 600} if then is None else then)})
    assert "\n" not in str(caught.value) and "give another file name" in str(caught.value)
    if "time_budget" not in first:
        assert numbers(mortal(path, **{"budget": 300, **first})) == numbers(result)


def test_a_guaranteed_interval_holds_for_all_that_was_collected(tmp_path):
    settings = dict(gamma=0.9, horizon=10, seed=1, reward_range=(-99.0, 99.0), run=tmp_path / "a.rido")
    first = rido.evaluate("rido/FirstStep-v0", budget=500, **settings)
    then = rido.evaluate("rido/FirstStep-v0", budget=5000, **settings)
    widths = [high - low for low, high in (first.guaranteed_interval, then.guaranteed_interval)]
    assert widths[1] < widths[0] and read_run(tmp_path / "a.rido").evaluation.guaranteed_interval == (
        then.guaranteed_interval
    )


def test_extended_runs_are_calibrated():
    """A chain that pays 1 in its second state, whose value is exact; from 10 to 20 to 60 full-length trajectories.

    The check fails by chance twice in 10,000. ``results/extension.md`` has more of them.
    """
    leave, come, gamma, horizon = 0.1, 0.3, 0.9, 20
    transitions = np.array([[1 - come, come], [leave, 1 - leave]])
    truth = sum(gamma**t * np.linalg.matrix_power(transitions, t)[0, 1] for t in range(horizon))

    def rewards(rng, count):
        states = np.zeros((count, horizon), dtype=int)
        for t in range(1, horizon):
            moves = rng.random(count) < np.where(states[:, t - 1] == 0, come, leave)
            states[:, t] = states[:, t - 1] ^ moves
        return states.astype(float)

    results = []
    for seed in range(60):
        rng, strategy = np.random.default_rng(seed), Adaptive(horizon=horizon, budget=10 * horizon, gamma=gamma)
        for budget in (10, 20, 60):
            strategy.change_budget(budget * horizon)
            while (schedule := strategy.ask()) is not None:
                strategy.tell(Trajectories(rewards(rng, schedule.trajectories), schedule.lengths))
        results.append(strategy.estimate())
    assert_calibrated(results, truth)
    covered = np.mean([low <= truth <= high for low, high in (result.interval() for result in results)])
    assert covered > 0.95 - 4 * math.sqrt(0.95 * 0.05 / len(results))
