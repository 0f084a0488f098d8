"""Evaluations, comparisons and suites that tests kill, each in a process of its own.

The processes are forked by a server without threads: forking a test process in which JAX or torch has threads may
deadlock.
"""

import json
import os
import random
import signal
import sqlite3
import threading
from functools import partial
from multiprocessing import get_context
from unittest.mock import patch

import numpy as np

import rido
from environments import Mortal
from rido.evaluation import source
from rido.simulators.gymnasium import GymnasiumSimulator

PROCESSES = get_context("forkserver")
PROCESSES.set_forkserver_preload(["pytest", "gymnasium", "scipy.optimize", "rido.evaluation.evaluate"])


def act(observations):
    return (observations[:, 1] > 0).astype(int)


def slow_run(path, critic=None, budget=6000):
    """Evaluates in at least 120 pieces, 6,000 steps of 0.2 ms or more; returns the numbers of the result."""
    env = partial(Mortal, death=0.05, seconds=2e-4)
    settings = dict(gamma=0.95, horizon=30, num_envs=2, seed=3, critic=critic, max_resets=400)
    with patch.multiple(source, _PIECE_SECONDS=0.01, _RESETS=32):
        result = rido.evaluate(env, act, budget=budget, run=path, **settings)
    return result.value, result.standard_error, result.transitions, result.trajectories, result.resets


def endless_run(path):
    """Evaluates with two workers for minutes."""
    env = partial(Mortal, death=0.05, seconds=1e-3)
    with patch.multiple(source, _PIECE_SECONDS=0.2):
        rido.evaluate(env, act, gamma=0.95, horizon=20, budget=10**6, num_envs=2, workers=2, seed=3, run=path)


class Choosy(Mortal):
    """Action 1 is worth 0.2 more."""

    def step(self, action):
        observation, reward, *ended = super().step(action)
        return observation, reward + 0.2 * int(action), *ended


def never(observations):
    return np.zeros(len(observations), dtype=int)


def always(observations):
    return np.ones(len(observations), dtype=int)


def slow_comparison(path):
    """Compares three policies in dozens of pieces; returns the numbers of the result."""
    env = partial(Choosy, death=0.05, seconds=1e-4)
    with patch.multiple(source, _PIECE_SECONDS=0.01):
        found = rido.compare(
            env, [never, act, always], gamma=0.95, horizon=20, budget=4000, num_envs=2, seed=3, run=path
        )
    return {name: number for name, number in found.to_dict().items() if name != "seconds"}


def slow_suite(folder):
    """Runs two policies in two tasks, in dozens of pieces; returns the numbers of the result as text."""
    tasks = {
        "a": rido.Task(partial(Choosy, death=0.05, seconds=1e-4), gamma=0.95, horizon=20),
        "b": rido.Task(partial(Mortal, death=0.1, seconds=1e-4), gamma=0.9, horizon=15),
    }
    with patch.multiple(source, _PIECE_SECONDS=0.01):
        board = rido.Suite(tasks, {"never": never, "always": always}, budget=2500, seed=1).run(folder, num_envs=2)
    return json.dumps(board.to_dict(), allow_nan=False, sort_keys=True)


def doomed_run(run, arguments, calls, delay):
    """A slow run that kills its process so many seconds after so many calls of the simulator."""
    countdown = [calls]

    def counted(method, *arguments):
        if countdown[0] == 0:
            threading.Timer(delay, os.kill, [os.getpid(), signal.SIGKILL]).start()
        countdown[0] -= 1
        return method(*arguments)

    collect = GymnasiumSimulator.collect
    GymnasiumSimulator.collect = lambda *arguments: counted(collect, *arguments)
    run(*arguments)


def start(function, *arguments):
    process = PROCESSES.Process(target=function, args=arguments)
    process.start()
    return process


def pieces(path):
    """Numbers of the pieces that a run file has, none where its tables are not there yet."""
    try:
        with sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True) as database:
            return [number for (number,) in database.execute("SELECT number FROM pieces ORDER BY number")]
    except sqlite3.OperationalError:
        return []


def kill_until_done(path, *critic, run=slow_run, growth=0.5):
    """Starts a run again after each kill until it ends; returns the pieces that it had recorded after each.

    Each process may take so many more pieces than the one before. With a growth of 0.5 the first 20 processes take
    about 70 of the 120 pieces, with 2 the first 10 do, both with a standard deviation of 7 to 10.
    """
    chance, recorded = random.Random(1), []
    while True:
        calls, delay = chance.randrange(2 + int(growth * len(recorded))), chance.uniform(0.0, 0.01)
        child = start(doomed_run, run, (path, *critic), calls, delay)
        child.join()
        if child.exitcode == 0:
            return recorded
        assert child.exitcode == -signal.SIGKILL
        recorded.append(pieces(path))
