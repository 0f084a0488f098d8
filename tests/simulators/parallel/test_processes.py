"""Worker processes give the same numbers when some are lost, and none survives its parent."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from functools import partial

import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode

import rido
from environments import Faulty, Leaves, Leaving, Mortal
from rido.evaluation import source
from rido.simulators import SimulationError, trajectory_seeds
from rido.simulators.gymnasium import GymnasiumSimulator
from rido.simulators.parallel.pool import WorkerError
from rido.simulators.parallel.processes import WorkerSimulator
from traps import Trap, assert_same, tanh_policy, zeros

LENGTHS = np.random.default_rng(3).integers(1, 41, 70)
SEEDS = trajectory_seeds(11, 0, LENGTHS.size)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_bit_identical_for_any_number_of_workers(workers):
    arguments = ("Pendulum-v1", tanh_policy) if workers != 2 else ("rido/LQG-v0", None)
    with WorkerSimulator(*arguments, workers=workers, horizon=40, gamma=0.9) as simulator:
        reference = GymnasiumSimulator(*arguments, horizon=40, gamma=0.9)
        assert_same(simulator, reference, LENGTHS, SEEDS)
        assert simulator.num_envs == workers * reference.num_envs
        assert simulator.policy.name == reference.policy.name and simulator.policy.reproducible
        assert simulator.failures == 0


def test_random_kills_change_nothing():
    """Each of 10 kills strikes a random worker at a random moment of several requests in a row."""
    slow = partial(Mortal, death=0.02, seconds=1e-3)
    reference = GymnasiumSimulator(partial(Mortal, death=0.02), zeros, horizon=40)
    chance, kills = random.Random(0), []
    with WorkerSimulator(slow, zeros, workers=2, horizon=40, max_failures=20) as simulator:

        def strike():
            while len(kills) < 10:
                time.sleep(chance.uniform(0.0, 0.5))
                if pids := [pid for pid in simulator.pids if pid not in kills]:
                    kills.append(chance.choice(pids))
                    os.kill(kills[-1], signal.SIGKILL)

        striker = threading.Thread(target=strike)
        striker.start()
        answered = []
        while striker.is_alive() or len(answered) < 2 or set(kills) & set(simulator.pids):
            seeds = trajectory_seeds(len(answered), 0, LENGTHS.size)
            answered.append((seeds, simulator.rollout(LENGTHS, seeds)))
        striker.join()
        assert simulator.failures == len(kills) == 10
    for seeds, batch in answered:
        np.testing.assert_array_equal(batch.flat, reference.rollout(LENGTHS, seeds).flat)


@pytest.mark.parametrize("fate", ["killed", "crashed", "exited", "stuck"])
def test_a_lost_worker_is_replaced_and_its_trajectories_are_run_again(tmp_path, fate):
    # A busy machine may look stuck too, which must not change the result either.
    patience = dict(timeout=3, max_failures=50) if fate == "stuck" else {}
    with WorkerSimulator(partial(Trap, tmp_path, fate), zeros, workers=2, horizon=40, **patience) as simulator:
        batch = simulator.rollout(LENGTHS, SEEDS)
        assert len(list(tmp_path.iterdir())) == 1
        assert simulator.failures == 1 or (fate == "stuck" and simulator.failures > 1)
    expected = GymnasiumSimulator(partial(Mortal, death=0.05), zeros, horizon=40).rollout(LENGTHS, SEEDS)
    np.testing.assert_array_equal(batch.flat, expected.flat)


class Gated(Mortal):
    """A worker's first one is made where its gate is open only; a worker that is ready may make more at any time."""

    ready = False

    def __init__(self, gate):
        while not (Gated.ready or gate.exists()):
            time.sleep(0.01)
        Gated.ready = True
        super().__init__(death=0.05)


def test_workers_that_are_not_ready_do_not_count_as_alive(tmp_path):
    gate = tmp_path / "open"
    gate.touch()
    with WorkerSimulator(partial(Gated, gate), zeros, workers=2, horizon=40) as simulator:
        wait_for_workers(simulator, (2, 2))
        gate.unlink()
        os.kill(simulator.pids[0], signal.SIGKILL)
        wait_for_workers(simulator, (1, 2))
        gate.touch()
        wait_for_workers(simulator, (2, 2))


def wait_for_workers(simulator, expected):
    deadline = time.monotonic() + 600
    while simulator.found.workers != expected and time.monotonic() < deadline:
        simulator.rollout(LENGTHS, SEEDS)
    assert simulator.found.workers == expected


def test_slow_is_not_stuck():
    slow = partial(Mortal, death=0.0, seconds=0.2)
    with WorkerSimulator(slow, zeros, workers=1, horizon=20, num_envs=1, timeout=3) as simulator:
        assert simulator.rollout(np.full(1, 20), [1]).transitions == 20  # takes more than four seconds, in each trial


def test_after_too_many_failures_the_run_file_has_what_was_collected_before(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "_PIECE_SECONDS", 1e-6)
    trap = partial(Trap, tmp_path, "killed", times=100)
    with (
        WorkerSimulator(trap, zeros, workers=2, horizon=30, num_envs=1, max_failures=1) as simulator,
        pytest.raises(WorkerError, match=r"trajectories .* 2 times, more than max_failures=1: .* killed by SIGKILL"),
    ):
        rido.evaluate(simulator, budget=3000, gamma=0.95, horizon=30, seed=5, run=tmp_path / "run.rido")
    with sqlite3.connect(tmp_path / "run.rido") as database:
        assert database.execute("SELECT count(*) FROM pieces").fetchone()[0] > 0


def test_errors_in_trajectories_are_passed_on():
    with (
        WorkerSimulator(partial(Faulty, "nan"), zeros, workers=2, horizon=40) as simulator,
        pytest.raises(SimulationError, match=r"failed at step 3 \(seed \d+\): the reward is nan") as caught,
    ):
        simulator.rollout(LENGTHS, SEEDS)
    assert caught.value.seed == SEEDS[caught.value.trajectory] and simulator.failures == 0


def test_what_is_no_exception_is_passed_on_at_once():
    """As in one process, and not tried again as if the worker had died."""
    for kind in (partial(WorkerSimulator, workers=2), GymnasiumSimulator):
        simulator = kind(Leaves, zeros, horizon=40)
        with pytest.raises(Leaving, match="for good"):
            simulator.rollout(LENGTHS, SEEDS)
        simulator.close()
        assert getattr(simulator, "failures", 0) == 0


def test_errors_at_the_start_are_passed_on():
    with pytest.raises(ValueError, match=r"env must be a registered environment, got 'Pendulun-v1'; did you mean"):
        WorkerSimulator("Pendulun-v1", "random", workers=2, horizon=40)
    with pytest.raises(ValueError, match="policy must be a callable, 'random'") as caught:
        WorkerSimulator("Pendulum-v1", 3, workers=2, horizon=40)
    assert "in a worker" in str(caught.value.__cause__)
    with pytest.raises(ValueError, match="workers must be an integer of at least 1, got 0"):
        WorkerSimulator("Pendulum-v1", "random", workers=0, horizon=40)


def test_what_cannot_be_sent_is_named():
    async_env = AsyncVectorEnv([Mortal] * 2, autoreset_mode=AutoresetMode.DISABLED, context="forkserver")
    with pytest.raises(ValueError, match=r"env must be an id or a function .* cannot be sent to another process"):
        WorkerSimulator(async_env, zeros, workers=2, horizon=40)
    async_env.close()
    lock = threading.Lock()

    def locked(observations):
        with lock:
            return zeros(observations)

    with pytest.raises(ValueError, match=r"policy must be an agent or its path, .* cannot be sent to another process"):
        WorkerSimulator(Mortal, locked, workers=2, horizon=40)


def test_workers_compute_with_one_thread():
    def check(observations):
        import os

        assert os.environ["OMP_NUM_THREADS"] == os.environ["OPENBLAS_NUM_THREADS"] == "1"
        return observations[:, 0].astype(int) * 0

    with WorkerSimulator(Mortal, check, workers=1, horizon=40) as simulator:
        simulator.rollout(LENGTHS, SEEDS)


SCRIPT = """
import os, time
import gymnasium as gym
import numpy as np
from rido.simulators.parallel.processes import WorkerSimulator

class Endless(gym.Env):
    observation_space, action_space = gym.spaces.Box(-1, 1, (1,)), gym.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        return np.zeros(1, dtype=np.float32), {}
    def step(self, action):
        time.sleep(float(os.environ["PAUSE"]))
        return np.zeros(1, dtype=np.float32), float(action), False, False, {}

gym.register("Endless-v0", Endless)
ones = lambda observations: np.ones(len(observations), dtype=int)
simulator = WorkerSimulator("Endless-v0", ones, workers=2, horizon=9)
print(*simulator.pids, flush=True)
print(simulator.rollout(np.full(4, 9), range(4)).flat.sum(), flush=True)
"""


def start_script(tmp_path, pause):
    """Everything is in a script without a main guard: the environment, its registration and the policy."""
    (tmp_path / "script.py").write_text(SCRIPT)
    return subprocess.Popen(
        [sys.executable, tmp_path / "script.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PAUSE": str(pause)},
    )


def test_scripts_need_no_main_guard_and_may_forget_to_close(tmp_path):
    script = start_script(tmp_path, 0)
    output, errors = script.communicate(timeout=600)
    pids, total = output.splitlines()
    assert (total, errors, script.returncode) == ("36.0", "", 0)
    assert all(ended(int(pid)) for pid in pids.split())


def test_no_worker_survives_a_killed_parent(tmp_path):
    script = start_script(tmp_path, 1000)
    pids = [int(pid) for pid in script.stdout.readline().split()]
    time.sleep(0.5)  # in the middle of a step
    assert len(pids) == 2 and not any(ended(pid, seconds=0) for pid in pids)
    script.kill()
    script.communicate()
    assert all(ended(pid) for pid in pids)


def ended(pid, seconds=120.0):
    """Waits until a process is gone, and tells whether it is."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            os.kill(pid, 0)
            with open(f"/proc/{pid}/stat") as stat:
                if stat.read().rpartition(")")[2].split()[0] == "Z":  # nobody collected its status
                    return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
