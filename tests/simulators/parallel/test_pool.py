"""What all worker pools share, tested with workers in this process that die when a test says so."""

import random
from collections import deque
from functools import cache, partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from environments import Faulty, Mortal
from rido.simulators import SimulationError, trajectory_seeds
from rido.simulators.gymnasium import GymnasiumSimulator
from rido.simulators.parallel import pool, sources
from rido.simulators.parallel.pool import PoolSimulator, WorkerError
from rido.simulators.parallel.worker import Gone, RemoteSimulator
from rido.simulators.protocol import Position
from rido.simulators.requests import split
from traps import assert_same, zeros

LENGTHS = np.random.default_rng(3).integers(1, 41, 70)
SEEDS = trajectory_seeds(11, 0, LENGTHS.size)


@pytest.fixture(autouse=True, scope="module")
def modules_read_once():
    """All workers are this process, so its modules need to be read once and not for each worker."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "digests", cache(sources.digests))
        yield


class LocalPool(PoolSimulator):
    """Workers that answer in any order and die by chance, some of them after the work and before the answer."""

    def __init__(self, size=3, env=Mortal, death=0.0, seed=0, max_failures=10**6):
        super().__init__(env, zeros, horizon=40, num_envs=4, timeout=100, max_failures=max_failures)
        self.random, self.death, self.killer = random.Random(seed), death, None
        self.simulators, self.inbox, self.most, self.ran, self.deaths = {}, {}, 0, [], 0
        self._start_workers(size)

    def _launch(self, slot):
        self.simulators[slot], self.inbox[slot] = RemoteSimulator(self._content), deque([("open",)])

    def _send(self, slot, chunk):
        assert chunk is not None, "no heartbeat is needed here"
        self.inbox[slot].append(("run", chunk.number, *chunk.call))
        self.most = max(self.most, len(self.inbox[slot]))

    def _poll(self, seconds):
        busy = [slot for slot, requests in self.inbox.items() if requests]
        slot = self.random.choice(busy)
        method, *arguments = self.inbox[slot].popleft()
        event = getattr(self.simulators[slot], method)(*arguments)
        if method == "run" and arguments[1] != "audition":
            self.ran.append(arguments[2].lengths)
        if self.random.random() < self.death or (self.killer is not None and self.killer(method, event)):
            self.deaths += 1
            return [(slot, Gone("was struck by lightning"))]
        return [(slot, event)]

    def _shut_down(self):
        self.simulators.clear()


REFERENCE = GymnasiumSimulator(Mortal, zeros, horizon=40)


@settings(max_examples=25)
@given(size=st.integers(1, 6), death=st.sampled_from([0.0, 0.1, 0.5]), seed=st.integers(0, 10**6))
def test_results_do_not_depend_on_the_number_of_workers_and_their_deaths(size, death, seed):
    simulator = LocalPool(size, death=death, seed=seed)
    assert_same(simulator, REFERENCE, LENGTHS, SEEDS)
    assert simulator.most <= 2  # chunks at a time
    assert simulator.failures == simulator.deaths


def test_half_of_all_workers_die_where_half_of_them_should():
    simulator = LocalPool(3, death=0.5)
    simulator.rollout(LENGTHS, SEEDS)
    assert simulator.failures == simulator.deaths > 5


class Silent(LocalPool):
    """One worker that never answers a request, on a clock of its own; it may move on or not."""

    def __init__(self, moves_on, max_failures=0):
        self.moves_on, self.now, self.calls, self.asked, self.stuck = moves_on, 0.0, 0, False, None
        super().__init__(size=1, max_failures=max_failures)

    def _send(self, slot, chunk):
        if chunk is None:
            self.asked = True
        else:
            super()._send(slot, chunk)

    def _poll(self, seconds):
        self.now += seconds
        (waiting,) = self.inbox.values()
        if self.asked:
            self.asked, self.calls = False, self.calls + self.moves_on
            return [(0, Position(self.calls, "step", 0, 5))]
        if waiting and (waiting[0][0] == "open" or self.now > 1000):
            return super()._poll(seconds)
        return []


def test_silent_workers_are_stuck_only_if_they_do_not_move_on(monkeypatch):
    """A timeout of 100 seconds, a request of 1,000 seconds."""
    for moves_on in (True, False):
        simulator = Silent(moves_on)
        monkeypatch.setattr(pool.time, "monotonic", lambda: simulator.now)  # noqa: B023 - used before the next one
        if moves_on:
            assert_equal_rollouts(simulator)
            assert simulator.failures == 0 and simulator.calls > 10
        else:
            with pytest.raises(WorkerError, match=r"took no step for 100 seconds \(timeout\)"):
                simulator.rollout(LENGTHS[:1], SEEDS[:1])
            assert 100 < simulator.now < 200


@pytest.mark.parametrize("points", [None, np.zeros((1, 3))])
def test_a_trajectory_that_is_stuck_again_is_named_with_its_seed(monkeypatch, points):
    simulator = Silent(False, max_failures=5)
    monkeypatch.setattr(pool.time, "monotonic", lambda: simulator.now)
    with pytest.raises(SimulationError, match=f"seed {SEEDS[0]}.*: the environment's step did not return") as caught:
        simulator.rollout(LENGTHS[:1], SEEDS[:1], points)
    assert caught.value.seed == SEEDS[0]


def assert_equal_rollouts(simulator):
    found, expected = (each.rollout(LENGTHS[:1], SEEDS[:1]).flat for each in (simulator, REFERENCE))
    np.testing.assert_array_equal(found, expected)


@settings(max_examples=200)
@given(
    costs=st.lists(st.integers(1, 1000), min_size=1, max_size=300),
    workers=st.integers(1, 40),
    num_envs=st.integers(1, 300),
)
def test_chunks_hold_every_row_once_the_costly_ones_first(costs, workers, num_envs):
    costs = np.array(costs)
    chunks = split(costs, workers, num_envs)
    order = np.concatenate(chunks)
    assert sorted(order) == list(range(costs.size))
    assert (np.diff(costs[order]) <= 0).all()
    assert all(1 <= chunk.size <= 2 * num_envs for chunk in chunks)
    assert len(chunks) >= min(workers, costs.size) // 2


def test_the_last_chunks_are_small_so_that_workers_end_together():
    """List scheduling of the chunks: the last worker ends at most 5% after the perfect split."""
    costs = np.random.default_rng(0).integers(1, 200, 1000)
    for workers in (2, 4, 8):
        ends = np.zeros(workers)
        for chunk in split(costs, workers, 16):
            ends[ends.argmin()] += costs[chunk].sum()
        assert ends.max() <= 1.05 * costs.sum() / workers


def test_the_longest_are_started_first():
    simulator = LocalPool()
    simulator.rollout(LENGTHS, SEEDS)
    assert simulator.ran[0].max() == LENGTHS.max()
    assert simulator.ran[-1].max() < LENGTHS.mean()


@pytest.mark.parametrize("points", [None, np.zeros((70, 3))])
def test_trajectories_that_kill_their_worker_every_time_are_named(points):
    simulator = LocalPool(max_failures=2)
    simulator.killer = lambda method, event: method == "run" and simulator.ran and LENGTHS.max() in simulator.ran[-1]
    with pytest.raises(
        WorkerError,
        match=r"trajectories \(seeds \d+, .*\) were lost with their worker 3 times, more than max_failures=2: "
        "worker . was struck by lightning; worker . was struck",
    ):
        simulator.rollout(LENGTHS, SEEDS, points)
    simulator.killer = None
    assert_same(simulator, REFERENCE, LENGTHS, SEEDS)  # chunks of the failed request are ignored


def test_workers_that_never_get_ready_are_given_up():
    simulator = LocalPool(max_failures=2)
    simulator.killer = lambda method, event: True
    with pytest.raises(WorkerError, match=r"no worker gets ready: worker \d was struck by lightning; worker"):
        simulator.rollout(LENGTHS, SEEDS)


def test_errors_in_trajectories_are_not_failures():
    simulator = LocalPool(env=partial(Faulty, "raise"))
    with pytest.raises(SimulationError, match="the robot fell over") as caught:
        simulator.rollout(LENGTHS, SEEDS)
    error = caught.value
    assert (error.step, error.seed) == (3, SEEDS[error.trajectory]) and LENGTHS[error.trajectory] > 3
    assert "in step\n" in str(error.__cause__) and simulator.failures == 0
    simulator.rollout(np.full(70, 3), SEEDS)  # goes on


def test_bad_requests_are_named():
    simulator = LocalPool()
    with pytest.raises(ValueError, match="lengths must be from 1 to the horizon 40, got 41 to 41"):
        simulator.rollout(np.array([41]), [1])
    with pytest.raises(ValueError, match=r"seeds must be an integer for each of 2 trajectories, got \[1\]"):
        simulator.rollout(np.array([4, 4]), [1])
    simulator.close()
    with pytest.raises(ValueError, match=r"the simulator was used after close\(\)"):
        simulator.rollout(np.array([4]), [1])
