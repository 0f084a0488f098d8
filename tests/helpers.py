"""Small things that several tests need."""

import numpy as np

from rido import Trajectories


def random_batch(seed, horizon, trajectories):
    """Correlated rewards of mixed lengths, at least two of them full."""
    rng = np.random.default_rng(seed)
    lengths = np.concatenate([[horizon, horizon], rng.integers(1, horizon + 1, max(trajectories - 2, 0))])
    rewards = rng.normal(1, 2, (lengths.size, horizon)) + rng.normal(size=(lengths.size, 1))
    return Trajectories(rewards, lengths)


def run(strategy, sample, rng):
    """Spends a strategy's budget on a process that gives rewards of full trajectories."""
    schedules = []
    while (schedule := strategy.ask()) is not None:
        schedules.append(schedule)
        strategy.tell(Trajectories(sample(rng, schedule.trajectories, strategy.horizon), schedule.lengths))
    return schedules
