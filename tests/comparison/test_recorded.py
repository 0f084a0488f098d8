"""Comparing recorded episodes: pairs, Welch's test, success rates, and several policies at once."""

import csv
import json
import math

import numpy as np
import pytest
from scipy import stats

import rido
from rido.comparison.recorded import compare_results
from rido.comparison.tables import ResultsError


def _write(path, returns, seeds=None, name="return"):
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow([name] if seeds is None else [name, "seed"])
        rows.writerows([[one] for one in returns] if seeds is None else zip(returns, seeds, strict=True))
    return path


def test_episodes_with_the_same_seed_are_pairs_in_any_order(tmp_path):
    rng = np.random.default_rng(0)
    common, noise = rng.normal(0, 100, 60), rng.normal(0, 1, (2, 60))
    old, new = common + noise[0], common + 1 + noise[1]
    order = rng.permutation(60)
    files = [_write(tmp_path / "old.csv", old, range(60)), _write(tmp_path / "new.csv", new[order], order)]
    found = compare_results(files)
    assert found.best == "new" and found.ranking == ("new", "old") and list(found.exits) == ["old"]
    difference, paired = found.difference("new", "old"), stats.ttest_rel(new, old)
    assert difference.value / difference.standard_error == pytest.approx(paired.statistic)
    assert difference.degrees_of_freedom == pytest.approx(paired.df)
    assert found.pairing_gain("new", "old") == pytest.approx((old.var() + new.var()) / (new - old).var())
    assert "120 episodes; new and old: 60 pairs with the same seed" in found.summary()
    assert found.values["new"].value == pytest.approx(new.mean())

    apart = compare_results({"old": old, "new": new})
    assert not apart.decided and "new and old: unpaired, no seeds to pair them by" in apart.summary()
    assert math.isnan(apart.pairing_gain("new", "old"))


def test_only_the_matching_seeds_are_paired(tmp_path):
    rng = np.random.default_rng(1)
    returns = {name: rng.normal(size=30) for name in "ab"}
    files = {name: _write(tmp_path / name, returns[name], range(at, at + 30)) for at, name in ((0, "a"), (10, "b"))}
    found = compare_results(files)
    differences = returns["a"][10:] - returns["b"][:20]
    assert found.difference("a", "b").value == pytest.approx(differences.mean())
    assert found.difference("b", "a").standard_error == pytest.approx(stats.sem(differences))
    assert found.values["a"].value == pytest.approx(returns["a"].mean())
    assert "20 pairs" in found.summary()

    files["b"] = _write(tmp_path / "b", returns["b"], range(20, 50))  # 10 of 30 seeds match
    found = compare_results(files)
    assert found.difference("a", "b").value == pytest.approx(returns["a"].mean() - returns["b"].mean())
    assert "unpaired, too few of the same seed" in found.summary()


@pytest.mark.parametrize("scale", [1.0, 1e-200, 1e97])
def test_an_unpaired_difference_is_welchs(scale):
    rng = np.random.default_rng(2)
    one, two = rng.normal(3, 1, 400), rng.normal(0, 5, 150)
    found = compare_results({"one": one * scale, "two": two * scale}).difference("one", "two")
    welch = stats.ttest_ind(one, two, equal_var=False)
    assert found.value / found.standard_error == pytest.approx(welch.statistic)
    assert found.degrees_of_freedom == pytest.approx(welch.df)
    low, high = (end / scale for end in found.interval(0.95))
    expected = welch.confidence_interval(0.95)
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=0.1 * (expected.high - expected.low))


def test_skewness_of_an_unpaired_difference_is_that_of_both():
    rng = np.random.default_rng(3)
    one, two = rng.exponential(size=50), 2 * rng.exponential(size=80)
    found = compare_results({"one": one, "two": two}).difference("one", "two")
    # As one sample of contributions to the error, each with the sign it has in the difference.
    parts = np.concatenate([(one - one.mean()) / math.sqrt(50 * 49), -(two - two.mean()) / math.sqrt(80 * 79)])
    assert found.standard_error == pytest.approx(math.sqrt((parts**2).sum()))
    assert found.skewness == pytest.approx((parts**3).sum() / (parts**2).sum() ** 1.5)
    assert found.effective_trajectories == pytest.approx((parts**2).sum() ** 2 / (parts**4).sum())
    assert found.largest_contribution == pytest.approx(max(parts, key=abs))


def test_successes_get_exact_intervals(tmp_path):
    success = {"a": [1] * 18 + [0] * 2, "b": [1] * 10 + [0] * 10}
    found = compare_results({name: _write(tmp_path / name, one, name="success") for name, one in success.items()})
    assert found.best == "a" and found.warnings == ()
    expected = stats.binomtest(18, 20).proportion_ci(0.95, method="exact")
    assert found.values["a"].interval(0.95) == pytest.approx(tuple(expected))
    assert found.interval("a") == pytest.approx(tuple(stats.binomtest(18, 20).proportion_ci(0.975, method="exact")))
    low, high = found.difference("a", "b").interval(0.95)
    assert 0 < low < 0.4 < high < 0.7
    assert found.difference("b", "a").interval(0.95) == (-high, -low)


def test_successes_with_the_same_seeds_are_compared_by_the_pairs_that_differ(tmp_path):
    def info(name, successes):
        episodes = [
            {"episode_ix": i, "sum_reward": 1.0, "max_reward": 1.0, "success": bool(one), "seed": 1000 + i}
            for i, one in enumerate(successes)
        ]
        (tmp_path / name).mkdir()
        path = tmp_path / name / "eval_info.json"
        path.write_text(json.dumps({"per_episode": episodes, "aggregated": {}}))
        return path

    hard = np.arange(50) % 5 == 0
    worse = hard | (np.arange(50) < 10)  # fails where the other fails, and 8 times more
    found = compare_results([info("act", ~hard), info("pi0", ~worse)])
    assert found.ranking == ("act/eval_info", "pi0/eval_info") and found.best == "act/eval_info"
    assert "50 pairs" in found.summary()
    low = found.difference("act/eval_info", "pi0/eval_info").interval(0.95)[0]
    unpaired = compare_results({"act": ~hard, "pi0": ~worse})
    assert low > 0 > unpaired.difference("act", "pi0").interval(0.95)[0] and unpaired.best is None


def test_outcomes_of_any_two_values_are_rates_of_the_larger():
    wins = np.array([1, 1, 1, 0, 1, 1, 0, 1, 1, 1])
    plain, scaled = (
        compare_results({"a": wins * unit + at, "b": (1 - wins) * unit + at}) for unit, at in ((1, 0), (20, -10))
    )
    assert scaled.best == plain.best == "a"
    for name in "ab":
        expected = [20 * end - 10 for end in plain.values[name].interval()]
        assert scaled.values[name].interval() == pytest.approx(expected)
    assert scaled.difference("a", "b").interval() == pytest.approx(
        [20 * end for end in plain.difference("a", "b").interval()]
    )


def test_policies_that_each_give_one_value_are_not_two_valued():
    found = compare_results({"a": [500.0] * 30, "b": [490.0] * 30})
    assert type(found.values["a"]) is rido.Estimate
    assert found.best == "a" and any("same rewards" in warning for warning in found.warnings)
    assert compare_results({"a": [1] * 30, "b": [0] * 30}).difference("a", "b").interval()[1] == 1
    assert compare_results({"a": [True] * 30, "b": [True] * 30}).values["a"].interval()[1] == 1


def test_episodes_of_one_seed_count_as_one(tmp_path):
    rng = np.random.default_rng(4)
    start = rng.normal(size=12)
    returns = np.repeat(start, 5) + rng.normal(0, 0.1, 60)
    files = {
        name: _write(tmp_path / name, returns + at, np.repeat(range(12), 5)) for name, at in (("a", 0), ("b", 0.01))
    }
    found = compare_results(files)
    means = returns.reshape(12, 5).mean(axis=1)
    assert found.values["a"].standard_error == pytest.approx(stats.sem(means))
    assert found.trajectories == 120 and "60 episodes of 12 seeds" in found.summary()


@pytest.mark.parametrize("success", [False, True])
def test_no_policy_is_called_the_best_too_often_where_all_are_equal(success):
    """An error of 5% over 100 repetitions exceeds 13 by chance in 1 of 2,000 cases."""
    rng = np.random.default_rng(5)
    wrong = 0
    for _ in range(100):
        draws = rng.random((6, 25)) < 0.8 if success else rng.normal(size=(6, 25))
        wrong += compare_results({str(name): one for name, one in enumerate(draws)}).decided
    assert wrong <= 13


def test_the_bounds_of_several_policies_hold_at_once():
    """A difference that two policies show at 95% is not enough among ten."""
    rng = np.random.default_rng(6)
    base = rng.normal(size=50)
    base = (base - base.mean()) / base.std(ddof=1)
    better = base + 2.3 * math.sqrt(2 / 50)  # 2.3 standard errors
    assert compare_results({"base": base, "better": better}).best == "better"
    assert compare_results({"better": better, **{str(i): base - 0.001 * i for i in range(9)}}).best is None


def test_a_tolerance_ends_a_tie():
    rng = np.random.default_rng(7)
    draws = {name: rng.normal(size=200) for name in "ab"}
    assert compare_results(draws).best is None
    found = compare_results(draws, tolerance=0.5)
    assert found.best == found.ranking[0] and not found.exits and "not worse than any other" in found.summary()


def test_the_result_is_a_comparison_like_any_other():
    rng = np.random.default_rng(8)
    found = compare_results(
        {name: rng.normal(at, 1, 30) for name, at in (("a", 0), ("b", 0.1), ("c", -3))}, confidence=0.9
    )
    assert isinstance(found, rido.Comparison) and not found.decided and list(found.eliminated) == ["c"]
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert told["ranking"][2] == "c" and told["transitions"] == 90 and told["policies"][0]["transitions"] == 30
    assert told["horizon"] == told["gamma"] == found.exits["c"].round == 1  # an episode is one step, looked at once
    assert "deciding takes about" in found.summary() and "episodes" in found.summary().splitlines()[0]


@pytest.mark.parametrize(
    "files, message",
    [
        ({"a": [1.0, 2.0]}, "files must be 2 to 100, got 1: a"),
        ("runs", "files must be a list of at least 2 files, got 'runs'"),
        ({"a": [1.0, 2.0], "b": [1.0]}, "returns of b must be at least 2, got 1"),
        ({"a": [1.0, 2.0], "b": [1.0, math.inf]}, "returns of b must be finite, got inf at index 1"),
    ],
)
def test_wrong_arguments_are_named(files, message):
    with pytest.raises(ValueError, match=message):
        compare_results(files)


def test_wrong_files_are_named(tmp_path):
    successes, returns = _write(tmp_path / "a.csv", [0, 1], name="success"), _write(tmp_path / "b.csv", [3, 4])
    with pytest.raises(ValueError, match="files must all have successes, as a has, got other returns in b"):
        compare_results([successes, returns])
    with pytest.raises(ResultsError, match=r"none.csv: expected a file of results"):
        compare_results([successes, tmp_path / "none.csv"])


def test_what_a_decision_needs_does_not_depend_on_what_was_collected():
    """The same mean and spread from four times as many episodes: bounds fall with their root."""
    rng = np.random.default_rng(7)
    one, two = (noise - noise.mean() for noise in rng.normal(size=(2, 200)))
    few, more = (compare_results({"a": np.tile(one + 0.05, n), "b": np.tile(two, n)}) for n in (1, 4))
    assert not few.decided and not more.decided and few.needed > 1000
    assert more.needed == pytest.approx(few.needed, rel=0.05)
