"""Environments that are fatal to the process in which they run, for tests of workers."""

import faulthandler
import os
import signal
import time
from pathlib import Path

import numpy as np

from environments import Mortal

FATES = {
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "crashed": faulthandler._sigsegv,
    "exited": lambda: os._exit(3),
    "stuck": lambda: time.sleep(1000),
}


class Trap(Mortal):
    """Springs at step 3 of a trajectory whose start is above 1, in all processes together so many times."""

    def __init__(self, folder, fate, times=1):
        super().__init__(death=0.05)
        self.folder, self.fate, self.times = Path(folder), fate, times

    def step(self, action):
        if self.t == 3 and self.start > 1:
            for number in range(self.times):
                try:
                    (self.folder / f"sprung-{number}").touch(exist_ok=False)
                except FileExistsError:
                    continue
                FATES[self.fate]()
        return super().step(action)


def zeros(observations):
    """A policy that workers can import."""
    return np.zeros(len(observations), dtype=int)


def tanh_policy(observations):
    """Matrix products, whose last bits depend on the batch size if nothing is done about it."""
    rng = np.random.default_rng(0)
    hidden = np.tanh(observations @ rng.normal(size=(3, 64)).astype(np.float32))
    return 2 * np.tanh(hidden @ rng.normal(size=(64, 1)).astype(np.float32))


def assert_same(simulator, reference, lengths, seeds):
    """Everything that a simulator is asked for must agree to the last bit, with points too if it takes them."""
    requests = [()]
    if simulator.capabilities.takes_points:
        requests.append((np.random.default_rng(0).random((len(seeds), 5)),))
    for points in requests:
        ours, theirs = (each.observe(lengths, seeds, *points) for each in (simulator, reference))
        for batch in (simulator.rollout(lengths, seeds, *points), ours.trajectories):
            np.testing.assert_array_equal(batch.flat, theirs.trajectories.flat)
            np.testing.assert_array_equal(batch.lengths, lengths)
            np.testing.assert_array_equal(batch.steps, theirs.trajectories.steps)
        np.testing.assert_array_equal(ours.observations, theirs.observations)
        np.testing.assert_array_equal(ours.terminated, theirs.terminated)
        np.testing.assert_array_equal(simulator.starts(seeds, *points), reference.starts(seeds, *points))
