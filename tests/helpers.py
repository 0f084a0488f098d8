"""Small things that several tests need."""

import contextlib
import logging
import math

import numpy as np
import pytest
from scipy import stats

from rido import Trajectories


def needs(module, extra):
    """Imports a module, or skips with the line that installs it."""
    return pytest.importorskip(module, reason=f'{module} is missing: pip install "rido[{extra}]"')


def random_batch(seed, horizon, trajectories):
    """Correlated rewards of mixed lengths, at least two of them full."""
    rng = np.random.default_rng(seed)
    lengths = np.concatenate([[horizon, horizon], rng.integers(1, horizon + 1, max(trajectories - 2, 0))])
    rewards = rng.normal(1, 2, (lengths.size, horizon)) + rng.normal(size=(lengths.size, 1))
    return Trajectories(rewards, lengths)


def assert_calibrated(results, truth):
    """Checks that errors divided by their standard errors have mean 0 and variance 1.

    Each of the two checks fails by chance once in 10,000; 1.2 is for the tails of Student's t. With 40 results a bias
    of one standard error is found in 99 of 100 cases, and so is a standard error that is half of the true one.
    """
    scores = np.array([(result.value - truth) / result.standard_error for result in results])
    assert abs(scores.mean()) < 3.9 / math.sqrt(scores.size)
    assert stats.chi2.ppf(5e-5, scores.size) < np.sum(scores**2) < 1.2 * stats.chi2.isf(5e-5, scores.size)


def run(strategy, sample, rng):
    """Spends a strategy's budget on a process that gives rewards of full trajectories."""
    schedules = []
    while (schedule := strategy.ask()) is not None:
        schedules.append(schedule)
        strategy.tell(Trajectories(sample(rng, schedule.trajectories, strategy.horizon), schedule.lengths))
    return schedules


@contextlib.contextmanager
def counted_compilations():
    """Yields a list to which the name of each function is added that is compiled meanwhile."""
    lines, handler = [], logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    handler.addFilter(lambda record: record.getMessage().startswith("Finished XLA compilation"))
    logger = logging.getLogger("jax")
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
