"""Reward processes for tests of the core, which needs no environment."""

import numpy as np


def lqg(rng, trajectories, horizon):
    """The paper's LQG under a linear policy close to the optimal one: rewards with strong early variance."""
    state = rng.uniform(-80, 80, trajectories)
    rewards = np.zeros((trajectories, horizon))
    for t in range(horizon):
        action = -0.618 * state + rng.normal(0, 0.1, trajectories)
        rewards[:, t] = state**2 + action**2
        state = state + action + rng.normal(0, 0.1, trajectories)
    return rewards


def first_step(rng, trajectories, horizon):
    """Example 2 of the paper: a reward in the first step only."""
    rewards = np.zeros((trajectories, horizon))
    rewards[:, 0] = rng.normal(2.5, 10, trajectories)
    return rewards


def last_step(rng, trajectories, horizon):
    """Example 1 of the paper: a reward in the last step only."""
    return first_step(rng, trajectories, horizon)[:, ::-1].copy()


def autoregressive(rng, trajectories, horizon, coefficient=0.8, mean=3.0):
    rewards = rng.normal(size=(trajectories, horizon))
    for t in range(1, horizon):
        rewards[:, t] += coefficient * rewards[:, t - 1]
    return rewards + mean
