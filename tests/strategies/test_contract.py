"""What every strategy promises, whatever it plans."""

import numpy as np
import pytest

import rido
from helpers import run
from processes import autoregressive, first_step
from rido import Adaptive, Oracle, Rido, Robust, Trajectories, Uniform


class Patient(Uniform):
    """A strategy of a user's own: trajectories by twenty, until the interval is narrow enough."""

    accepts = frozenset({"until"})

    def __init__(self, *, until=None, **settings):
        super().__init__(until=until, **settings)
        self.until = until

    def _plan(self, left):
        done = self.until is not None and self.spent and self.estimate().half_width() <= self.until
        return None if done else super()._plan(min(left, 20 * self.horizon))


STRATEGIES = {
    "a user's own": Patient,
    "uniform": Uniform,
    "robust": Robust,
    "oracle": lambda **settings: Oracle(weights=np.linspace(2, -0.1, settings["horizon"]), **settings),
    "rido": Rido,
    "adaptive": Adaptive,
    "adaptive, costly resets": lambda **settings: Adaptive(reset_price=7.5, **settings),
    "rido, theory": lambda **settings: Rido(beta="theory", reward_range=(-30, 30), **settings),
}


@pytest.fixture(params=STRATEGIES)
def make(request):
    return STRATEGIES[request.param]


@pytest.mark.parametrize("budget", [60, 61, 79, 457, 5000])
def test_the_budget_is_spent_exactly(make, budget):
    strategy = make(horizon=30, budget=budget, gamma=0.95)
    schedules = run(strategy, autoregressive, np.random.default_rng(0))
    assert sum(schedule.transitions for schedule in schedules) == strategy.spent <= budget
    # Adaptive and Uniform leave what pays for no full-length trajectory: a shorter one may do harm.
    assert strategy.spent > budget - (30 if isinstance(strategy, Adaptive | Uniform) else 1)
    assert strategy.ask() is None
    assert sum(schedules[1:], schedules[0]) == strategy.estimate().schedule


def test_early_ends_return_to_the_budget_which_is_never_exceeded(make):
    rng = np.random.default_rng(0)
    strategy = make(horizon=20, budget=500, gamma=1.0)
    spent = 0
    while (schedule := strategy.ask()) is not None:
        steps = np.minimum(rng.geometric(0.1, schedule.trajectories), schedule.lengths)
        assert spent + schedule.transitions <= 500  # even if no trajectory of it ends early
        spent += int(steps.sum())
        strategy.tell(Trajectories(np.ones((steps.size, 20)), schedule.lengths, steps))
    assert spent == strategy.spent > 500 - (20 if isinstance(strategy, Adaptive | Uniform) else 1)


def test_asking_twice_changes_nothing(make):
    strategy = make(horizon=5, budget=50, gamma=0.9)
    assert strategy.ask() is strategy.ask()


def test_one_that_is_told_the_same_again_is_where_the_first_one_was(make):
    """A run that goes on tells the recorded trajectories again."""
    settings = dict(horizon=10, budget=300, gamma=0.9)
    one, rng = make(**settings), np.random.default_rng(5)
    while (schedule := one.ask()) is not None:
        other = make(**settings)
        for batch in one.collected():
            assert np.array_equal(np.sort(batch.lengths)[::-1], other.ask().lengths)
            other.tell(batch)
        assert (other.ask(), other.spent, other.trajectories) == (schedule, one.spent, one.trajectories)
        one.tell(Trajectories(first_step(rng, schedule.trajectories, 10), schedule.lengths))
    for batch in one.collected()[len(other.collected()) :]:
        other.tell(batch)
    assert other.estimate() == one.estimate() and other.ask() is None


# Adaptive deals trajectories out to teams in the order of the batch.
@pytest.mark.parametrize("name", [name for name in STRATEGIES if not name.startswith("adaptive")])
def test_order_of_trajectories_in_a_batch_does_not_matter(name):
    strategies = [STRATEGIES[name](horizon=10, budget=200, gamma=0.9) for _ in range(2)]
    rng = np.random.default_rng(0)
    while (schedule := strategies[0].ask()) is not None:
        rewards = autoregressive(rng, schedule.trajectories, 10)
        order = rng.permutation(schedule.trajectories)
        strategies[0].tell(Trajectories(rewards, schedule.lengths))
        assert strategies[1].ask() == schedule
        strategies[1].tell(Trajectories(rewards[order], schedule.lengths[order]))
    assert strategies[0].estimate().value == pytest.approx(strategies[1].estimate().value, rel=1e-12)


def test_calls_out_of_order_and_wrong_lengths_are_named(make):
    strategy = make(horizon=5, budget=50, gamma=0.9)
    batch = Trajectories(np.ones((1, 5)), [5])
    with pytest.raises(ValueError, match=r"tell\(\) was called before ask\(\)"):
        strategy.tell(batch)
    strategy.ask()
    with pytest.raises(ValueError, match="lengths must be those of the schedule asked for"):
        strategy.tell(batch)
    with pytest.raises(ValueError, match="an estimate needs at least one trajectory"):
        strategy.estimate()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(horizon=0, budget=50, gamma=0.9), "must be .* at least 1|non-empty"),
        (dict(horizon=5, budget=4, gamma=0.9), "budget must pay for . full-length trajectories, .* got 4"),
        (dict(horizon=5, budget=50.5, gamma=0.9), "budget must be an integer of at least 1, got 50.5"),
        (dict(horizon=5, budget=50, gamma=0), r"gamma must be in \(0, 1\], got 0"),
        (dict(horizon=5, budget=50, gamma=1.2), r"gamma must be in \(0, 1\], got 1.2"),
    ],
)
def test_bad_settings_are_named(make, settings, message):
    with pytest.raises(ValueError, match=message):
        make(**settings)


def test_evaluate_gives_until_to_a_users_own_strategy():
    wide, narrow = (
        rido.evaluate("rido/LQG-v0", strategy=Patient(), until=until, budget=20_000, gamma=0.9, horizon=20, seed=1)
        for until in (400.0, 250.0)
    )
    assert wide.estimate.half_width() <= 400 and narrow.estimate.half_width() <= 250
    assert 400 <= wide.transitions < narrow.transitions < 20_000
    with pytest.raises(ValueError, match=r"until works only with .*, not 'robust'"):
        rido.evaluate("rido/LQG-v0", strategy="robust", until=1.0, budget=1000, gamma=0.9, horizon=20)


@pytest.mark.parametrize("name", ["uniform", "adaptive"])
def test_a_plan_goes_on_as_long_as_early_ends_pay_for_it(name):
    """The first trajectories of the whole plan, up to the last affordable one; then another plan is made."""
    strategy, rng = STRATEGIES[name](horizon=20, budget=2000, gamma=1.0), np.random.default_rng(0)
    plans = 0
    while strategy.ask() is not None:
        lengths, groups = strategy.planned
        assert groups.size == lengths.size and set(groups.tolist()) <= set(range(strategy.division.groups))
        steps, left = np.minimum(rng.geometric(0.3, lengths.size), lengths), 2000 - strategy.spent
        before = np.cumsum(steps) - steps
        count = int(np.argmin(np.append(before + lengths <= left, False)))
        assert count >= strategy.ask().trajectories or (lengths < 20).any()
        strategy.tell(Trajectories(np.ones((count, 20)), lengths[:count], steps[:count]))
        plans += 1
    assert 1980 < strategy.spent <= 2000 and plans < 12
