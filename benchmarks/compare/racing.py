"""Reward processes of several policies with known values, on common random numbers."""

import json
import re

import numpy as np

import rido


class Dense:
    """Autoregressive rewards; half of the variance is common to all policies."""

    horizon = 10
    mean = 0.0
    deviation = 17.0  # of a return, about

    def draw(self, rng, count, names):
        def walk():
            rewards = rng.normal(size=(count, self.horizon))
            for step in range(1, self.horizon):
                rewards[:, step] += 0.8 * rewards[:, step - 1]
            return rewards

        common = walk()
        return {name: ((common + walk()) / np.sqrt(2), None) for name in names}


class Sparse:
    """Episodes that end in success (reward 1) or failure at a random step; success has probability 0.9."""

    horizon = 20
    mean = 0.9
    deviation = 0.3

    def draw(self, rng, count, names):
        found = {}
        common = rng.random(count)
        for name in names:
            own = rng.random(count)
            success = np.where(rng.random(count) < 0.3, common, own) < 0.9
            steps = rng.integers(5, self.horizon + 1, size=count)
            rewards = np.zeros((count, self.horizon))
            rewards[np.arange(count), steps - 1] = success
            found[name] = (rewards, steps)
        return found


class Heavy:
    """Two steps with Student's t rewards of three degrees of freedom, a third of whose variance is common."""

    horizon = 2
    mean = 0.0
    deviation = 2.4

    def draw(self, rng, count, names):
        common = rng.standard_t(3, size=(count, self.horizon))
        own = {name: rng.standard_t(3, size=(count, self.horizon)) for name in names}
        return {name: ((common + np.sqrt(2) * one) / np.sqrt(3), None) for name, one in own.items()}


class Rare:
    """One step; one in twenty fails (reward 0 instead of 1), independently for each policy."""

    horizon = 1
    mean = 0.95
    deviation = 0.22

    def draw(self, rng, count, names):
        return {name: ((rng.random((count, 1)) < 0.95).astype(float), None) for name in names}


PROCESSES = {"dense": Dense(), "sparse": Sparse(), "heavy-tailed": Heavy(), "rare failures": Rare()}


def race(process, names, *, budget, rng, ahead=0.0, gamma=1.0):
    """Runs one race; the first policy gets ``ahead`` more in the first step of every trajectory.

    Returns:
        The comparison, and how many looks there were.
    """
    running = rido.Race(names, horizon=process.horizon, budget=budget, gamma=gamma)
    while (asked := running.ask()) is not None:
        racing, schedule = asked
        told = {}
        for name, (rewards, steps) in process.draw(rng, schedule.trajectories, racing).items():
            if ahead and name == names[0]:
                rewards = rewards.copy()
                rewards[:, 0] += ahead
            ends = None if steps is None else np.minimum(steps, schedule.lengths)
            told[name] = rido.Trajectories(rewards, schedule.lengths, ends)
        running.tell(told)
    return running.result(), running.rounds


def bank_race(bank, names, *, budget, rng, gamma, paired=True, tolerance=0.0):
    """Runs one race on recorded trajectories: {name: (rewards, steps)} with the same rows for the same seeds.

    Without pairing, every policy's trajectories are drawn by themselves.
    """
    rows, horizon = bank[names[0]][0].shape
    running = rido.Race(names, horizon=horizon, budget=budget, gamma=gamma, tolerance=tolerance)
    while (asked := running.ask()) is not None:
        racing, schedule = asked
        common = rng.integers(rows, size=schedule.trajectories)
        told = {}
        for name in racing:
            chosen = common if paired else rng.integers(rows, size=schedule.trajectories)
            rewards, steps = bank[name]
            ends = np.minimum(steps[chosen], schedule.lengths)
            told[name] = rido.Trajectories(rewards[chosen], schedule.lengths, ends)
        running.tell(told)
    return running.result()


def work(folder, item):
    """Computes a part of a cell, or reads it if it was computed before."""
    name, function, arguments = item
    path = folder / f"{re.sub(r'[^a-z0-9]+', '-', name.lower())}.json"
    if not path.exists():
        found = function(*arguments)
        path.write_text(json.dumps(found), encoding="utf-8")
    return name, json.loads(path.read_text(encoding="utf-8"))
