"""The calls whose files an earlier version of rido wrote into ``record/earlier``, in format 4.

``results.json`` beside them holds what the calls returned, without times.
"""

import json
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np

import rido
from rido.evaluation import source
from rido.simulators.base import NO_TRAJECTORIES, Batch, Capabilities, Simulator

FOLDER = Path(__file__).parent / "record" / "earlier"
SETTINGS = dict(gamma=0.9, horizon=12, seed=3, progress=False, strategy="uniform")  # its plans stay what they were


class Drawn(Simulator):
    """A simulator whose trajectories are drawn from their seeds; it stops after so many requests."""

    fingerprint = "drawn"
    num_envs = 4
    capabilities = Capabilities(observes=True, engine="Drawn")

    def __init__(self, requests=10**9):
        self.requests = requests

    def collect(self, request):
        if request.wants == "starts":
            return Batch(NO_TRAJECTORIES, np.array([self.draw(seed, 0)[0] for seed in request.seeds])[:, None])
        if self.requests == 0:
            raise KeyboardInterrupt
        self.requests -= 1
        draws = zip(request.seeds, request.lengths, strict=True)
        places = [np.cumsum(np.append(*self.draw(seed, length))) for seed, length in draws]
        rewards = np.concatenate([1 - place[:-1] ** 2 for place in places])
        rewards = rido.Trajectories(rewards, request.lengths)
        return Batch(rewards, np.concatenate(places)[:, None], np.zeros(len(places), dtype=bool))

    def draw(self, seed, length):
        generator = np.random.default_rng(seed)
        return generator.normal(), 0.3 * generator.normal(size=length)


class Value:
    """A critic that is roughly right."""

    fingerprint = name = "value"

    def __call__(self, observations, steps_to_go):
        return (1 - observations[:, 0] ** 2) * np.minimum(steps_to_go, 5)


def run(path, **settings):
    return rido.evaluate(
        settings.pop("simulator", None) or Drawn(), run=path, **{**SETTINGS, "budget": 480, **settings}
    )


def extended(path):
    run(path, budget=240)
    return run(path)


def race(path):
    policies = {"trained": "rido:pendulum", "random": "random"}
    return rido.compare("Pendulum-v1", policies, gamma=0.9, horizon=12, budget=480, seed=3, run=path, progress=False)


CALLS = {
    "plain": run,
    "adaptive": partial(run, strategy="adaptive"),
    "stopped": run,
    "extended": extended,
    "critic": partial(run, critic=Value(), max_resets=40),
    "fitted": partial(run, critic="fit", max_resets=40, budget=720),
    "time": partial(run, time_budget=100.0),
    "race": race,
}


def told(found):
    clocks = ("seconds", "planning_seconds", "reset_seconds")
    return {name: number for name, number in found.to_dict().items() if name not in clocks}


def write(folder):
    folder.mkdir(exist_ok=True)
    results = {}
    with patch.object(source, "_PIECE_SECONDS", 1e-6):
        for name, call in CALLS.items():
            path = folder / f"{name}.rido"
            if name == "stopped":
                try:
                    run(path, budget=240)
                    run(path, simulator=Drawn(3))
                except KeyboardInterrupt:
                    continue
            results[name] = told(call(path))
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    write(FOLDER)
