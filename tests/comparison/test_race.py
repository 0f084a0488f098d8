"""Races through ask and tell: who wins, how often wrongly, and what they spend."""

import numpy as np
import pytest

import rido
from rido.comparison.paired import PairedRewards
from rido.comparison.race import next_round
from rido.core.reward_moments import RewardMoments
from rido.core.trajectories import Trajectories
from rido.strategies.division import Division


def run(race, rewards, rng, *, steps=None):
    """Runs a race; ``rewards`` maps a generator, a name and common random numbers to rewards."""
    while (asked := race.ask()) is not None:
        names, schedule = asked
        shape = (schedule.trajectories, race.horizon)
        common = rng.normal(size=shape)
        told = {name: np.broadcast_to(rewards(name, common, rng), shape) for name in names}
        ends = dict.fromkeys(names)
        if steps is not None:
            ends = {name: np.minimum(steps(rng, shape[0]), schedule.lengths) for name in names}
        race.tell({name: Trajectories(told[name], schedule.lengths, ends[name]) for name in names})
    return race.result()


def level_field(name, common, rng):
    return common + rng.normal(size=common.shape)


@pytest.mark.parametrize("lockstep", [0, 24], ids=["many rounds", "few wide rounds"])
def test_equal_policies_rarely_have_a_winner(lockstep):
    """At most 5% of 40 races; more than 7 have a probability below 0.2% if it is 5%."""
    rng, winners, rounds = np.random.default_rng(0), 0, []
    for _ in range(40):
        race = rido.Race("ab", horizon=1, budget=100, gamma=1.0, lockstep=lockstep)
        winners += run(race, level_field, rng).decided
        rounds.append(race.rounds)
    assert winners <= 7
    assert max(rounds) <= 5 if lockstep else max(rounds) > 5


def test_rare_failures_do_not_make_a_winner():
    """One failure among few trajectories says nothing, however constant the others are."""
    rng, winners = np.random.default_rng(1), 0
    for _ in range(40):
        race = rido.Race("ab", horizon=1, budget=100, gamma=1.0)
        winners += run(race, lambda name, common, rng: rng.random(common.shape) > 0.05, rng).decided
    assert winners <= 7


def test_the_better_policy_wins_by_common_random_numbers():
    """The difference is a twentieth of a return's deviation: unpaired, it takes 3,000 trajectories each."""
    rng = np.random.default_rng(2)

    def rewards(name, common, rng):
        return 10 * common + 0.5 * (name == "b") + rng.normal(0, 0.5, common.shape)

    result = run(rido.Race("abc", horizon=1, budget=3000, gamma=1.0), rewards, rng)
    assert result.best == "b" and result.transitions < 600
    assert result.pairing_gain("b", "a") > 100
    low, high = result.difference("b", "a").interval()
    assert 0 < low < 0.5 < high
    assert set(result.eliminated) == {"a", "c"} and result.ranking[0] == "b"
    assert "b is the best of 3" in result.summary() and "reduced the variance of this difference" in result.summary()


def test_where_common_seeds_gain_nothing_it_says_so():
    rng = np.random.default_rng(4)
    rewards = lambda name, common, rng: rng.normal(size=common.shape)  # noqa: E731
    assert "next to nothing" in run(rido.Race("ab", horizon=2, budget=800, gamma=1.0), rewards, rng).summary()


def late_noise(size):
    """Rewards that differ at first, and late ones that are the same for all policies."""

    def rewards(name, common, rng):
        return np.where(np.arange(50) < 5, rng.normal(0.01 * (name == "b"), 1, common.shape), size * common)

    return rewards


def asked_of(race, rewards, rng):
    """Runs a race; returns the lengths that it asked for in each round."""
    found = []
    while (asked := race.ask()) is not None:
        lengths = asked[1].lengths
        found.append(lengths)
        common = rng.normal(size=(lengths.size, race.horizon))
        race.tell({name: Trajectories(rewards(name, common, rng), lengths) for name in asked[0]})
    return found


def test_lengths_are_planned_by_the_difference():
    """The late rewards of a policy vary, those of the difference do not. The first eight pairs have full length."""
    rounds = asked_of(rido.Race("ab", horizon=50, budget=40_000, gamma=1.0), late_noise(1), np.random.default_rng(4))
    assert np.median(np.concatenate(rounds)) < 10
    first = np.cumsum([len(part) for part in rounds]) <= 8
    assert all((part == 50).all() for part, early in zip(rounds, first, strict=True) if early)


def test_where_unseen_starts_bound_a_difference_pairs_have_full_length():
    """The returns vary thirty times as much as their difference. Only full-length pairs show where policies part."""
    race = rido.Race("ab", horizon=50, budget=20_000, gamma=1.0)
    rounds = asked_of(race, late_noise(10), np.random.default_rng(4))
    early = np.cumsum([len(part) for part in rounds]) <= 60
    assert all((part == 50).all() for part, few in zip(rounds, early, strict=True) if few)
    assert not all((part == 50).all() for part in rounds)


@pytest.mark.parametrize("gamma", [1.0, 0.95])
def test_where_cutting_gains_nothing_all_pairs_have_full_length(gamma):
    """Only the last reward varies. So a race takes what whole episodes would."""
    last = lambda name, common, rng: np.where(np.arange(20) == 19, rng.normal(size=common.shape), 0.0)  # noqa: E731
    race = rido.Race("ab", horizon=20, budget=8000, gamma=gamma)
    assert all((part == 20).all() for part in asked_of(race, last, np.random.default_rng(5)))


def planned(pairs, variances):
    """Returns the lengths planned after these pairs, whose differences are independent with these variances."""
    rows = np.random.default_rng(0).normal(size=(pairs, len(variances))) * np.sqrt(variances)
    moments = RewardMoments(len(variances), gamma=1.0)
    moments.update(Trajectories(rows, np.full(pairs, len(variances))))
    return next_round(moments, 20.0 * len(variances), 10_000 * len(variances)).lengths


def test_no_pair_is_cut_before_the_eighth():
    assert (planned(7, [1.0, *np.zeros(19)]) == 20).all() and (planned(8, [1.0, *np.zeros(19)]) < 20).any()


def test_the_last_transitions_may_be_cut_too():
    """As many as one full-length pair has, where only the first of 20 steps varies."""
    moments = RewardMoments(20, gamma=1.0)
    rows = np.zeros((30, 20))
    rows[:, 0] = np.random.default_rng(0).normal(size=30)
    moments.update(Trajectories(rows, np.full(30, 20)))
    assert next_round(moments, 20, 20).counts[0] > 1
    assert next_round(moments, 20, 19) is None


def test_no_pair_is_cut_for_a_small_gain():
    """Variances that fall linearly from 1 + d to 1 - d leave d^2 / 12 of the variance to gain, about."""
    assert (planned(4000, np.linspace(1.6, 0.4, 20)) == 20).all()
    assert (planned(4000, np.linspace(2.0, 0.01, 20)) < 20).any()


def test_eight_pairs_are_the_fewest_that_decide():
    clear = lambda name, common, rng: 10.0 * (name == "a") + rng.normal(size=common.shape)  # noqa: E731
    for seed in range(10):
        result = run(rido.Race("ab", horizon=1, budget=400, gamma=1.0), clear, np.random.default_rng(seed))
        assert result.best == "a" and result.transitions == 16


def test_the_wrong_policy_rarely_wins_where_the_other_is_a_little_worse_on_most_starts():
    """One is better by 5.6 on most starts, and fails on 7% of them. At most 5% of 60 races, more than 8 in 0.3%.

    A paired t test alone names the wrong one in half of the races.
    """
    rng, wrong = np.random.default_rng(12), 0

    def rewards(name, common, rng):
        fails = (rng.random(common.shape) < 0.07) * rng.uniform(70, 230, common.shape)
        return 100 * common + (name == "a") * (5.6 + 5 * rng.normal(size=common.shape) - fails)

    for _ in range(60):
        wrong += run(rido.Race("ab", horizon=1, budget=300, gamma=1.0), rewards, rng).best == "a"
    assert wrong <= 8


def test_the_budget_is_never_exceeded_and_early_ends_return_transitions():
    rng = np.random.default_rng(5)
    for names in ("ab", "abcdefg"):
        race = rido.Race(names, horizon=7, budget=1234, gamma=0.9)
        result = run(race, level_field, rng, steps=lambda rng, count: rng.integers(1, 8, count))
        assert result.transitions <= 1234 and (result.decided or result.transitions > 1234 - 7 * len(names))


def test_within_the_tolerance_it_stops():
    rng = np.random.default_rng(6)
    race = rido.Race("ab", horizon=1, budget=100_000, gamma=1.0, tolerance=1.0)
    result = run(race, level_field, rng)
    assert result.decided and result.transitions < 1000
    assert "not worse than any other by more than 1" in result.summary() and not result.eliminated


def test_the_winners_interval_is_wider_than_its_own():
    """It holds for all at once; results/compare.md counts how often it holds the value of the leader."""
    result = run(rido.Race("abcd", horizon=1, budget=200, gamma=1.0), level_field, np.random.default_rng(7))
    leader = result.ranking[0]
    assert result.interval(leader) == result.values[leader].interval(1 - 0.05 / 4)


def test_undecided_says_what_it_would_take():
    rng = np.random.default_rng(8)
    rewards = lambda name, common, rng: common + 0.3 * rng.normal(size=common.shape) + 0.03 * (name == "a")  # noqa: E731
    result = run(rido.Race("ab", horizon=1, budget=60, gamma=1.0), rewards, rng)
    assert result.best is None and not result.decided and "undecided" in result.summary()
    assert result.needed > 60


def test_identical_policies_are_said_to_be():
    result = run(rido.Race("ab", horizon=3, budget=300, gamma=1.0), lambda n, c, r: c, np.random.default_rng(9))
    assert not result.decided and result.needed == np.inf
    told = "gave the same rewards as a in all 50 pairs: with 95% confidence at most 6% of the starts tell them apart"
    assert any(told in warning for warning in result.warnings)
    assert "a and b are the same in all 50 pairs; give a tolerance" in result.summary()


@pytest.mark.parametrize(("value", "decided"), [(0.0, False), (1.0, True)])
def test_policies_that_never_differ_are_equal_within_a_tolerance_if_their_size_is_known(value, decided):
    """Where neither ever got a reward, nothing is known of what it would be."""
    race = rido.Race("ab", horizon=1, budget=2000, gamma=1.0, tolerance=0.1)
    result = run(race, lambda n, c, r: np.full(c.shape, value), np.random.default_rng(11))
    assert result.decided is decided and "gave the same rewards" in result.summary()
    assert "inf" not in result.summary()


def test_too_few_pairs_are_said_to_be():
    result = run(rido.Race("ab", horizon=1, budget=10, gamma=1.0), level_field, np.random.default_rng(13))
    assert "5 pairs are too few to decide by; deciding takes about 16 transitions" in result.summary()
    assert "(no interval yet)" in result.summary() and "inf" not in result.summary()


def test_misuse_is_named():
    with pytest.raises(ValueError, match="names must be 2 to 100 different ones, got 1"):
        rido.Race(["a"], horizon=1, budget=100, gamma=1.0)
    with pytest.raises(ValueError, match="2 full-length trajectories of each policy, 40 transitions in all, got 39"):
        rido.Race("ab", horizon=10, budget=39, gamma=1.0)
    race = rido.Race("ab", horizon=1, budget=100, gamma=1.0)
    with pytest.raises(ValueError, match="before ask"):
        race.tell({})
    count = race.ask()[1].trajectories
    one = Trajectories(np.ones((count, 1)), np.ones(count, dtype=int))
    with pytest.raises(ValueError, match=r"must be of a, b, got \['a'\]"):
        race.tell({"a": one})


def test_equal_returns_from_different_steps_have_no_winner():
    """Both always get 1, at steps of their own. The mean difference is a rounding error, and not a difference."""
    rng = np.random.default_rng(10)

    def rewards(name, common, rng):
        found = np.zeros(common.shape)
        found[np.arange(len(common)), rng.integers(20, size=len(common))] = 1.0
        return found

    for _ in range(10):
        assert not run(rido.Race("ab", horizon=20, budget=1200, gamma=1.0), rewards, rng).decided


@pytest.mark.parametrize("members", [1, 3])
def test_the_value_without_its_error_is_that_of_the_estimate(members):
    rng, lengths = np.random.default_rng(0), np.repeat([6, 4, 2], [20, 13, 31])
    rewards = PairedRewards(["a", "b"], horizon=6, gamma=0.9, division=Division(2, members))
    for _ in range(2):
        told = {name: Trajectories(rng.normal(size=(64, 6)), lengths) for name in ("a", "b")}
        rewards.add(told, rng.integers(2 * members, size=64))
    for name in ("a", "b"):
        assert rewards.value(name) == pytest.approx(rewards.estimate(name).value, rel=1e-12)
