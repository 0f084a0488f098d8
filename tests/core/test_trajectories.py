import numpy as np
import pytest

from rido import Trajectories


def test_padded_and_flat_rewards_are_the_same():
    padded = Trajectories([[1, 2, 9], [3, 9, 9]], [2, 1])
    flat = Trajectories([1, 2, 3], [2, 1])
    np.testing.assert_array_equal(padded.flat, flat.flat)
    np.testing.assert_array_equal(flat.rewards, [[1, 2], [3, 0]])


def test_it_keeps_its_own_copy():
    rewards = np.ones((2, 2))
    batch = Trajectories(rewards, [2, 2])
    rewards[:] = 7
    np.testing.assert_array_equal(batch.flat, np.ones(4))
    with pytest.raises(ValueError):
        batch.flat[0] = 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1.0, np.nan]], [2]), "rewards must be finite, got nan in trajectory 0 at step 1"),
        (([[1.0, 0.0], [np.inf, 0.0]], [2, 1]), "rewards must be finite, got inf in trajectory 1 at step 0"),
        (([[1.0]], [2]), "at least 2 columns, got shape"),
        (([[1.0]], [1, 1]), "a row for each of 2 trajectories"),
        (([1.0, 2.0], [3]), "rewards must hold 3 planned steps, got shape"),
        (([[1.0]], [0]), "lengths must be at least 1, got 0 for trajectory 0"),
        (([[1.0]], [1], [2]), "steps must be at most the planned length"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        Trajectories(*arguments)


def test_what_lies_behind_the_planned_length_may_be_anything():
    assert Trajectories([[1.0, np.nan]], [1]).flat.tolist() == [1.0]
    assert Trajectories([[1.0, np.nan]], [2], steps=[1]).flat.tolist() == [1.0, 0.0]
