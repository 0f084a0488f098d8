"""Gates: their definitions case by case, and how often they are wrong."""

from types import SimpleNamespace

import numpy as np
import pytest

import rido
from rido.evaluation.comparison import Exit
from rido.evaluation.gate import Gate

NOW = 5  # the round that was told last


def known(bounds, dropped=None):
    """What a gate looks at: bounds on each candidate's difference to "old", and (round, leader) of who dropped out."""
    exits = {name: Exit(100, round, leader) for name, (round, leader) in (dropped or {}).items()}
    return SimpleNamespace(
        ranking=(*bounds, "old"),
        exits=exits,
        rewards=SimpleNamespace(rounds=NOW),
        bounds=lambda name, other: bounds[name] if other == "old" else pytest.fail("another baseline"),
        difference=lambda name, other: SimpleNamespace(value=1.5),
    )


@pytest.mark.parametrize(
    ("tolerance", "comparison", "outcome"),
    [
        (0, known({"new": (0.1, 2.0)}), "pass"),
        (0, known({"new": (0.0, 2.0)}), "undecided"),
        (0, known({"new": (-1.0, 2.0)}), "undecided"),
        (0, known({"new": (-np.inf, np.inf)}), "undecided"),
        (0, known({"new": (-2.0, 9.0)}, {"old": (3, "new")}), "pass"),
        (0, known({"new": (-2.0, -1.0)}, {"new": (NOW, "old")}), "fail"),
        (0, known({"new": (-2.0, -1.0)}, {"new": (3, "old")}), "fail"),
        (1, known({"new": (-2.0, 1.0)}), "fail"),
        (1, known({"new": (-2.0, 1.1)}), "undecided"),
        (1, known({"new": (0.2, 0.9)}), "pass"),
        (0, known({"new": (-1.0, 2.0), "other": (0.1, 9.0)}), "pass"),
        (0, known({"new": (-1.0, 2.0), "other": (-3.0, -2.0)}, {"other": (3, "new")}), "undecided"),
        (1, known({"new": (-1.0, 0.5), "other": (-3.0, 1.5)}), "undecided"),
    ],
)
def test_better_means_surely_better(tolerance, comparison, outcome):
    assert Gate("better", "old", tolerance).judge(comparison).outcome == outcome


@pytest.mark.parametrize(
    ("comparison", "outcome"),
    [
        (known({"new": (-1.0, 2.0)}), "pass"),
        (known({"new": (-1.1, 2.0)}), "undecided"),
        (known({"new": (-np.inf, np.inf)}), "undecided"),
        (known({"new": (-1.1, -0.1)}), "fail"),
        (known({"new": (-0.5, -0.1)}, {"new": (NOW, "old")}), "pass"),  # worse, but by less than matters
        (known({"new": (-2.0, -0.1)}, {"new": (NOW, "old")}), "fail"),
        (known({"new": (-2.0, -0.1)}, {"new": (3, "old")}), "fail"),
        (known({"new": (-9.0, 9.0)}, {"old": (3, "new")}), "pass"),
        (known({"new": (-3.0, 2.0), "other": (-0.9, 9.0)}), "pass"),
        (known({"new": (-3.0, 2.0), "other": (-3.0, -2.0)}, {"other": (3, "old")}), "undecided"),
    ],
)
def test_not_worse_means_surely_not_worse_by_more_than_the_tolerance(comparison, outcome):
    assert Gate("not-worse", "old", 1.0).judge(comparison).outcome == outcome


def test_the_reason_is_one_line_with_names_and_numbers():
    assert (
        Gate("better", "old").judge(known({"new": (0.1, 2.0)})).why == "new is better, new - old is 1.5, at least 0.1"
    )
    why = Gate("not-worse", "old", 1.0).judge(known({"new": (-3.0, 2.0)})).why
    assert why == "new - old is 1.5, from -3 to 2; a larger budget may decide"


def test_wrong_settings_are_named():
    with pytest.raises(ValueError, match="gate must be one of"):
        Gate("best", "old")
    with pytest.raises(ValueError, match="tolerance must be positive for gate not-worse"):
        Gate("not-worse", "old")
    with pytest.raises(ValueError, match="baseline must be one of the policies, new, old, got 'none'"):
        Gate("better", "none").judge(known({"new": (0, 1)}))


def raced(gain, seed, budget, stop=lambda known: False):
    """Runs a race of "new" against "old", which is worse by the gain."""
    rng, race = np.random.default_rng(seed), rido.Race(["old", "new"], horizon=1, budget=budget, gamma=1.0)
    while (asked := race.ask()) is not None:
        names, schedule = asked
        common = rng.normal(0, 10, (schedule.trajectories, 1))
        noise = {name: rng.normal(gain * (name == "new"), 1, common.shape) for name in names}
        race.tell({name: rido.Trajectories(common + noise[name], schedule.lengths) for name in names})
        if stop(race.result()):
            break
    return race.result()


def judged(gate, gain, seed):
    """Runs a race until the gate is decided."""
    return gate.judge(raced(gain, seed, 400, lambda known: gate.judge(known).outcome != "undecided")).outcome


@pytest.mark.parametrize("gain", [-0.6, 0.0, 0.6])
def test_without_a_tolerance_the_race_decides(gain):
    """Then a gate is wrong as rarely as a race of two; benchmarks/gates.py counts errors at the edges of tolerances."""
    outcomes = {"new": "pass", "old": "fail", None: "undecided"}
    for seed in range(2):
        found = raced(gain, seed, budget=120)
        assert Gate("better", "old").judge(found).outcome == outcomes[found.best]


@pytest.mark.parametrize(
    ("gate", "gain", "outcome"),
    [
        (Gate("better", "old"), 1.0, "pass"),
        (Gate("better", "old"), -1.0, "fail"),
        (Gate("better", "old", 1.0), -0.1, "fail"),
        (Gate("not-worse", "old", 1.0), 0.0, "pass"),
        (Gate("not-worse", "old", 1.0), -2.0, "fail"),
    ],
)
def test_clear_cases_are_decided(gate, gain, outcome):
    assert {judged(gate, gain, seed) for seed in range(2)} == {outcome}


def test_policies_that_never_differ_are_not_worse_once_there_are_enough_trajectories():
    """The bound is that of rewards that never varied: 2 * 10 * log(1 / level) / n."""
    gate, race = Gate("not-worse", "old", 1.0), rido.Race(["old", "new"], horizon=1, budget=4000, gamma=1.0)
    while (asked := race.ask()) is not None:
        same = rido.Trajectories(np.full((asked[1].trajectories, 1), 10.0), asked[1].lengths)
        race.tell({"old": same, "new": same})
        if gate.judge(race.result()).outcome == "pass":
            break
    found = race.result()
    low, high = found.bounds("new", "old")
    assert low == -high == pytest.approx(20 * np.log(found.level) / (found.trajectories / 2)) and -1 <= low < 0
