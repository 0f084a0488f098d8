"""Gates: their definitions case by case, and how often they are wrong."""

from types import SimpleNamespace

import numpy as np
import pytest

import rido
from rido.comparison.comparison import Exit
from rido.comparison.gate import Gate

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
        same=lambda name, other: False,
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


def twins(values, tolerance, budget=4000):
    """Runs a race of two policies with the same returns, drawn from these values, until a not-worse gate passes."""
    rng, gate = np.random.default_rng(0), Gate("not-worse", "old", tolerance)
    race = rido.Race(["old", "new"], horizon=1, budget=budget, gamma=1.0)
    while (asked := race.ask()) is not None:
        lengths = asked[1].lengths
        same = rido.Trajectories(rng.choice(values, (lengths.size, 1)), lengths)
        race.tell({"old": same, "new": same})
        if gate.judge(race.result()).outcome == "pass":
            break
    return race.result(), gate.judge(race.result())


@pytest.mark.parametrize("tolerance", [1.0, 2.0])
def test_equal_pairs_pass_at_the_first_look_that_the_tolerance_allows(tolerance):
    """n equal pairs miss a share log(1 / alpha) / n of all starts; a return of 10 may be lost there."""
    found, verdict = twins([10.0], tolerance)
    needed, pairs = 10 * -np.log(0.025) / tolerance, found.trajectories / 2
    assert verdict.outcome == "pass" and needed <= pairs <= 1.21 * needed + 1
    assert found.bounds("new", "old") == pytest.approx((-10 * -np.log(0.025) / pairs, 10 * -np.log(0.025) / pairs))
    assert f"its rewards are those of old in all {pairs:.0f} pairs" in verdict.why


def test_equal_pairs_may_lose_a_return_of_the_size_that_was_seen():
    """Returns of -10 and 10 have a mean near 0, which is not what a start that tells the policies apart may cost."""
    assert twins([-10.0, 10.0], 1.0)[0].trajectories > 2 * 0.9 * 10 * -np.log(0.025)


def test_without_a_budget_for_its_tolerance_a_gate_on_equal_pairs_says_how_much_it_takes():
    found, verdict = twins([10.0], 1.0, budget=40)
    assert verdict.outcome == "undecided" and "its rewards are those of old in all 20 pairs" in verdict.why
    assert "inf" not in verdict.why + found.summary()


@pytest.mark.parametrize("share", [0.03, 0.1])
def test_policies_that_part_on_few_starts_rarely_pass(share):
    """The candidate loses all on a share of the starts, twice what matters: 5% of 40 races, more than 7 in 0.2%."""
    gate, passed = Gate("not-worse", "old", 10 * share / 2), 0
    for seed in range(40):
        rng, race = np.random.default_rng(seed), rido.Race(["old", "new"], horizon=1, budget=500, gamma=1.0)
        while (asked := race.ask()) is not None:
            lengths = asked[1].lengths
            lost = rng.random((lengths.size, 1)) < share
            told = {"old": np.full(lost.shape, 10.0), "new": np.where(lost, 0.0, 10.0)}
            race.tell({name: rido.Trajectories(rewards, lengths) for name, rewards in told.items()})
            if gate.judge(race.result()).outcome != "undecided":
                break
        passed += gate.judge(race.result()).outcome == "pass"
    assert passed <= 7
