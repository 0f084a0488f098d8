"""TrajectoryStore: the same trajectories as the simulator's, each simulated once."""

import numpy as np
import pytest

from environments import Mortal
from interrupted import act
from rido.evaluation.progress import Progress
from rido.evaluation.source import Live
from rido.simulators.base import as_simulator, trajectory_seeds
from rido.simulators.gymnasium import GymnasiumSimulator
from rido.suite.task import TrajectoryStore
from runfiles import new_file

BAR = Progress(1, shown=False)


class Counting:
    """A simulator that counts what is asked of it."""

    def __init__(self, death=0.1):
        self.inner = GymnasiumSimulator(lambda: Mortal(death=death), act, horizon=20, num_envs=3)
        self.num_envs, self.asked = 3, []

    def rollout(self, lengths, seeds):
        self.asked += [(seed, length) for seed, length in zip(seeds, lengths.tolist(), strict=True)]
        return self.inner.rollout(lengths, seeds)


def live(simulator, entropy):
    return Live(as_simulator(simulator), entropy, horizon=20, gamma=1.0)


def assert_same(found, expected):
    assert np.array_equal(found.flat, expected.flat) and np.array_equal(found.steps, expected.steps)
    assert np.array_equal(found.lengths, expected.lengths)


@pytest.mark.parametrize("death", [0.0, 0.2])
def test_whatever_was_there_the_trajectories_are_those_of_the_simulator(tmp_path, death):
    simulator, rng, asked = Counting(death), np.random.default_rng(0), []
    for number in range(6):  # each store is a new process that finds the file of those before
        lengths, first = rng.integers(1, 21, 12), int(rng.integers(0, 8))
        with new_file(tmp_path / "a.rido") as record:
            store = TrajectoryStore(live(simulator, 7), record=record)
            found = store.take(first, lengths, BAR)
        expected = Counting(death).rollout(lengths, trajectory_seeds(7, first, 12))
        assert_same(found, expected)
        asked.append(len(simulator.asked))
        if number == 0:
            assert store.recorded == 0
    assert asked[0] == 12 and asked[-1] < 6 * 12


def test_only_what_is_missing_is_simulated():
    simulator = Counting(death=0.0)
    store = TrajectoryStore(live(simulator, 7), record=None)
    store.take(0, np.array([5, 5, 5, 5]), BAR)
    store.take(0, np.array([5, 3, 1, 5]), BAR)
    assert len(simulator.asked) == 4
    store.take(0, np.array([5, 6, 1, 7, 2]), BAR)
    seeds = trajectory_seeds(7, 0, 5)
    assert simulator.asked[4:] == [(seeds[1], 6), (seeds[3], 7), (seeds[4], 2)]


def test_a_trajectory_that_ended_early_is_known_to_any_length():
    simulator = Counting(death=0.6)
    store = TrajectoryStore(live(simulator, 1), record=None)
    first = store.take(0, np.full(20, 10), BAR)
    before, ended = len(simulator.asked), first.steps < 10
    store.take(0, np.full(20, 20), BAR)
    assert len(simulator.asked) - before == np.sum(~ended) < 20
