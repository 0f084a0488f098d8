"""SuiteRace through ask and tell: what it spends where, what it calls sure, and how often wrongly."""

import numpy as np
import pytest

from rido import Task, Trajectories
from rido.suite.race import SuiteRace

FLAT = {"a": Task("a", 1.0, 1), "b": Task("b", 1.0, 1)}


def run(race, rewards, rng, *, steps=None):
    """Runs a race; ``rewards`` maps a generator, a task, a policy and common random numbers to rewards."""
    common = {name: rng.normal(size=(20_000, task.steps)) for name, task in race.tasks.items()}  # for each index
    ends = {name: None if steps is None else rng.integers(1, steps, 20_000) for name in race.tasks}
    while (asked := race.ask()) is not None:
        told = {}
        for task, requests in asked.items():
            told[task] = {}
            for name, (first, lengths) in ((name, (one.first, one.lengths)) for name, one in requests.items()):
                rows = slice(first, first + lengths.size)
                taken = None if steps is None else np.minimum(ends[task][rows], lengths)
                made = np.broadcast_to(
                    rewards(task, name, common[task][rows], rng), (lengths.size, race.tasks[task].steps)
                )
                told[task][name] = Trajectories(made, lengths, taken)
        race.tell(told)
        assert race.spent <= race.budget
    return race.result()


def test_equal_policies_rarely_have_an_order():
    """At most 5% of 10 races; more than 3 have a probability of 0.1% if it is 5%."""
    rng, wrong = np.random.default_rng(0), 0
    for _ in range(10):
        race = SuiteRace(FLAT, "xy", budget=160)
        wrong += bool(run(race, lambda task, name, common, rng: common + rng.normal(size=common.shape), rng).sure)
    assert wrong <= 3


def test_transitions_go_where_they_buy_most():
    """Neyman's allocation: in proportion to weight times deviation, less a tenth that is spread evenly."""
    tasks = {"wild": Task("wild", 1.0, 1), "tame": Task("tame", 1.0, 1, weight=2.0)}
    deviations = {"wild": 6.0, "tame": 1.0}

    def rewards(task, name, common, rng):
        return deviations[task] * rng.normal(size=common.shape)

    board = run(SuiteRace(tasks, "xy", budget=8000), rewards, np.random.default_rng(1))
    assert board.transitions > 7900  # equal policies: nothing is sure
    share = board.rewards["wild"].transitions / board.transitions
    assert share == pytest.approx(0.9 * 6 / 8 + 0.1 / 2, abs=0.03)


def test_the_mean_over_tasks_is_that_of_normalised_scores():
    rng = np.random.default_rng(2)
    tasks = {"a": Task("a", 1.0, 2, reference=(2.0, 12.0)), "b": Task("b", 1.0, 3, weight=3.0, reference=(0.0, 30.0))}
    values = {("a", "x"): 5.0, ("a", "y"): 1.0, ("b", "x"): 1.0, ("b", "y"): 2.0}  # of one step
    board = run(
        SuiteRace(tasks, "xy", budget=4000),
        lambda task, name, common, rng: values[task, name] + common + 0.1 * rng.normal(size=common.shape),
        rng,
    )
    truth = {"x": (0.8 + 3 * 0.1) / 4, "y": (0.0 + 3 * 0.2) / 4}
    for name, score in truth.items():
        low, high = board.interval(name)
        assert low < score < high and high - low < 0.2
    assert board.ranking == ("x", "y") and board.sure == {("x", "y")} and board.best == "x" and board.decided
    low, high = board.bounds("x", "y")
    assert low < 0.125 < high and board.difference("x", "y").value == pytest.approx(0.125, abs=0.01)
    assert board.bounds("y", "x") == pytest.approx((-high, -low))
    assert board.chance("x", "y") > 0.99 and board.chance("x", "y") + board.chance("y", "x") == pytest.approx(1)
    assert board.probability_of_improvement("x", "y") == 0.5  # better in one of two tasks
    assert board.interquartile_mean("x") == pytest.approx(np.mean([0.8, 0.1]), abs=0.1)
    alone = board.run("x", "a").evaluation
    assert alone.value == board.value("x", "a").value and alone.transitions == board.rewards["a"].transitions_of("x")


def test_policies_whose_order_is_significant_drop_out():
    """Two policies are alike, the third is far behind: it gets its share of three quarters of the budget, no more."""

    def rewards(task, name, common, rng):
        return common - 5.0 * (name == "z") + 0.1 * rng.normal(size=common.shape)

    board = run(SuiteRace(FLAT, "xyz", budget=3000), rewards, np.random.default_rng(3))
    assert board.sure == {("x", "z"), ("y", "z")} and board.best is None and not board.decided
    spent = {name: sum(rewards.transitions_of(name) for rewards in board.rewards.values()) for name in "xyz"}
    assert 700 <= spent["z"] < 900 and min(spent["x"], spent["y"]) > 1000
    assert "the order of 2 of 3 pairs is significant" in board.summary()


def test_early_ends_go_back_into_the_budget():
    tasks = {"a": Task("a", 1.0, 40), "b": Task("b", 0.9, 20)}
    board = run(SuiteRace(tasks, "xy", budget=5000), lambda *args: args[2], np.random.default_rng(4), steps=10)
    planned = sum(rewards.estimate("x").schedule.transitions for rewards in board.rewards.values())
    assert 4500 < board.transitions <= 5000 < 2 * planned
    assert any("the same rewards" in warning for warning in board.warnings) is False


def test_wrong_calls_are_named():
    with pytest.raises(ValueError, match="2 full-length trajectories of each policy in each task, 8 transitions"):
        SuiteRace(FLAT, "xy", budget=7)
    with pytest.raises(ValueError, match="2 to 100 different ones, got 1"):
        SuiteRace(FLAT, "x", budget=100)
    with pytest.raises(ValueError, match="tasks must be at least 1"):
        SuiteRace({}, "xy", budget=100)
    race = SuiteRace(FLAT, "xy", budget=100)
    with pytest.raises(ValueError, match=r"tell\(\) was called before ask\(\)"):
        race.tell({})
    race.ask()
    with pytest.raises(ValueError, match="trajectories of x in a must have the lengths"):
        race.tell({"c": {}})
    for wrong in (
        dict(weight=0.0),
        dict(reference=(1.0, 1.0)),
        dict(reference=[1]),
        dict(gamma=1.5),
        dict(env_kwargs=3),
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Task(**{"env": "a", "gamma": 1.0, **wrong})


def test_where_less_is_better_the_reference_says_so():
    tasks = {"fuel": Task("fuel", 1.0, 1, reference=(10.0, 0.0)), "b": Task("b", 1.0, 1, reference=(0.0, 10.0))}

    def rewards(task, name, common, rng):
        return 5 + common + 2.0 * (name == "y") * (task == "fuel")

    board = run(SuiteRace(tasks, "xy", budget=600), rewards, np.random.default_rng(7))
    assert board.sure == {("x", "y")} and board.scores["x"].value == pytest.approx(0.5, abs=0.1)
    assert board.difference("x", "y").value == pytest.approx(0.1, abs=0.02)
    low, high = board.interval("y")
    assert low < board.scores["y"].value < high


def test_rewards_that_never_vary_are_warned_of_and_ordered():
    tasks = {name: Task(name, 1.0, 2, reference=(0.0, 1.0)) for name in ("a", "zero")}

    def rewards(task, name, common, rng):
        return np.full(common.shape, float(task == "a") * (1.0 + (name == "y")))

    board = run(SuiteRace(tasks, "xyz", budget=2000), rewards, np.random.default_rng(5))
    assert board.sure == {("y", "x"), ("y", "z")} and board.best == "y"  # x and z are alike
    assert [warning.partition(":")[0] for warning in board.warnings] == ["a", "zero"]
    low, high = board.interval("y")
    assert low < board.scores["y"].value == 2.0 < high


def test_a_task_of_zeros_alone_has_scores_all_the_same():
    board = run(SuiteRace(FLAT, "xy", budget=60), lambda *args: np.zeros_like(args[2]), np.random.default_rng(6))
    assert board.sure == set() and board.scores["x"].value == 0 and board.chance("x", "y") == 0.5
    board.summary()
    board.to_dict()
