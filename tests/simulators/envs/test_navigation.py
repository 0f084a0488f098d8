import gymnasium as gym
import numpy as np
import pytest

from rido.envs import expert


def test_dynamics_follow_the_paper():
    # Rewards of 4,000 walkers at the goal: the mean is within 5 standard errors but for probability 6e-7.
    rows = 4_000
    envs = gym.make_vec("rido/Navigation-v0", num_envs=rows)
    position, _ = envs.reset(seed=3)
    assert position.min() >= 0 and position.max() <= 5
    collected = []
    for step in range(110):
        before = position
        position, rewards, *_ = envs.step(expert(before))
        assert position.min() >= 0 and position.max() <= 92
        at_goal = np.linalg.norm(position - 91, axis=1) <= 1
        assert np.all(rewards[~at_goal] == 0) and np.all(rewards[at_goal] != 0)
        collected.append(rewards[at_goal])
        if step == 50:  # in the open, far from every border
            moves = position - before
            assert moves.mean() == pytest.approx(1, abs=5 * np.sqrt(0.1 / moves.size))
            assert moves.var() == pytest.approx(0.1, rel=0.1)
    assert at_goal.mean() > 0.98
    collected = np.concatenate(collected)
    assert collected.mean() == pytest.approx(1, abs=5 / np.sqrt(collected.size))
    assert collected.var() == pytest.approx(1, rel=0.1)


def test_actions_are_clipped_and_noise_is_read_as_asked():
    envs = gym.make_vec("rido/Navigation-v0", num_envs=4_000, noise="deviation")
    position, _ = envs.reset(seed=3)
    moved, *_ = envs.step(np.full((4_000, 2), 50.0))
    assert (moved - position).mean() == pytest.approx(1, abs=0.01)
    assert (moved - position).std() == pytest.approx(0.1, rel=0.1)


def test_expert_walks_straight_to_the_centre():
    positions = np.array([[0.0, 0.0], [90.75, 91.5], [91.0, 92.0]])
    assert np.array_equal(expert(positions), [[1.0, 1.0], [0.25, -0.5], [0.0, -1.0]])
