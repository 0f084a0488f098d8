import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rido import Schedule, allocate
from rido.core.allocation import hoeffding_weights

non_increasing = st.lists(st.integers(0, 50), min_size=1, max_size=30).map(lambda c: sorted(c, reverse=True))


@given(non_increasing)
def test_counts_lengths_and_trajectories_by_length_say_the_same(counts):
    schedule = Schedule(counts)
    assert schedule.lengths.sum() == schedule.transitions == sum(counts)
    assert schedule.lengths.size == schedule.trajectories == counts[0]
    assert (np.diff(schedule.lengths) <= 0).all()
    by_length = schedule.trajectories_by_length
    assert by_length @ np.arange(1, len(counts) + 1) == sum(counts)
    assert [int(np.sum(schedule.lengths == h)) for h in range(1, len(counts) + 1)] == by_length.tolist()
    assert Schedule.from_lengths(schedule.lengths[::-1], schedule.horizon) == schedule


@given(non_increasing, st.randoms())
def test_addition_collects_both(counts, random):
    one, other = Schedule(counts), Schedule(sorted((random.randint(0, 9) for _ in counts), reverse=True))
    both = one + other
    assert both == other + one and hash(both) == hash(other + one)
    assert sorted(both.lengths) == sorted([*one.lengths, *other.lengths])


@given(st.integers(1, 40), st.integers(1, 2000))
def test_any_budget_is_met_exactly(horizon, budget):
    assert Schedule.uniform(horizon, budget).transitions == budget
    robust = Schedule.robust(horizon, budget + horizon, gamma=0.95)
    assert robust.transitions == budget + horizon and robust.counts[-1] >= 1


def test_uniform_is_full_length_but_for_what_is_left():
    np.testing.assert_array_equal(Schedule.uniform(4, 10).lengths, [4, 4, 2])
    np.testing.assert_array_equal(Schedule.uniform(4, 3).lengths, [3])


@pytest.mark.parametrize("gamma", [0.5, 0.9, 0.99, 1.0])
@pytest.mark.parametrize("budget", [100, 103, 150, 400, 20_000])
def test_robust_minimises_the_hoeffding_bound(gamma, budget):
    """Close to the relaxed lower bound, also where n_t >= 1 binds, and better than its neighbours."""
    weights = hoeffding_weights(100, gamma)
    schedule = Schedule.robust(100, budget, gamma=gamma)
    bound = np.sum(weights / allocate(weights, budget))
    assert bound * (1 - 1e-9) <= schedule.variance(weights) <= bound * (1.25 if budget < 1000 else 1.001)
    neighbours = []
    for shift in range(1, 99):  # move one sample from one step to another
        neighbour = schedule.counts.copy()
        neighbour[0] += 1
        neighbour[shift] -= 1
        if neighbour[shift] >= 1 and (np.diff(neighbour) <= 0).all():
            neighbours.append(Schedule(neighbour).variance(weights))
    assert neighbours or budget < 400
    assert budget < 400 or schedule.variance(weights) <= min(neighbours) * 1.02


def test_it_cannot_be_changed():
    schedule = Schedule([2, 1])
    with pytest.raises(ValueError):
        schedule.counts[0] = 5
    with pytest.raises(AttributeError):
        schedule.counts = np.array([1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Schedule([1, 2]), "counts must never increase, got 1 at step 0 and 2 after it"),
        (lambda: Schedule([1, -1]), "counts must be non-negative integers"),
        (lambda: Schedule([1.5]), "counts must be non-negative integers"),
        (lambda: Schedule([np.nan]), "counts must be non-negative integers"),
        (lambda: Schedule([]), "counts must be a non-empty one-dimensional array"),
        (lambda: Schedule.uniform(0, 5), "horizon must be an integer of at least 1, got 0"),
        (lambda: Schedule.uniform(5, 0), "budget must be an integer of at least 1, got 0"),
        (lambda: Schedule.robust(5, 4, gamma=0.9), "budget must pay for one full trajectory, 5, got 4"),
        (lambda: Schedule.robust(5, 10, gamma=0), r"gamma must be in \(0, 1\], got 0"),
        (lambda: Schedule.robust(5, 10, gamma=1.2), r"gamma must be in \(0, 1\], got 1.2"),
        (lambda: Schedule.robust(5, 10, gamma=float("nan")), r"gamma must be in \(0, 1\], got nan"),
        (lambda: Schedule.optimal([1.0, np.inf], 10), "weights must be finite, got inf at index 1"),
        (lambda: Schedule.from_lengths([6], 5), "lengths must be between 1 and the horizon 5, got 6 to 6"),
        (lambda: Schedule([1]) + Schedule([1, 1]), "schedules must have one horizon to be added, got 1 and 2"),
        (lambda: Schedule([2, 0]).variance([1, 1]), "variance needs at least one trajectory of full length"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
