"""The same bits before and after: digests of sixty calls, for changes that must change no number.

Run ``python benchmarks/bits.py --output results/bits.json`` before such a change and ``--check results/bits.json``
after it. Calls cover environments, policies, options and seeds; live, resumed, extended, read, in workers and raced.
Wall-clock times are left out. Processors round differently, so both tables are made on one machine.
"""

import argparse
import hashlib
import json
import math
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import gymnasium as gym
import numpy as np

import rido

CLOCK = {"seconds", "planning_seconds", "reset_seconds"}


class Balance:
    """A rule for CartPole with ``predict``, as people write agents by hand."""

    name = "balance"

    def predict(self, observation):
        return int(observation[2] + 0.3 * observation[3] > 0)


def swing(observation):
    """A rule of one observation for Pendulum."""
    cosine, sine, speed = observation
    return np.array([-2.0 * sine - 0.5 * speed if cosine > 0 else 2.0 * np.sign(speed)], dtype=np.float32)


class Walk(gym.Env):
    """A random walk with early ends and a cost in ``info``."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.normal(size=1)
        return self.place, {}

    def step(self, action):
        self.place = self.place + (0.1 if action else -0.1) + 0.3 * self.np_random.normal(size=1)
        cost = float(abs(self.place[0]))
        return self.place, 1.0 - cost**2, cost > 2.5, False, {"cost": cost}


def lean(observation):
    """Walks back to the middle."""
    return int(observation[0] < 0)


def value(observations, steps_to_go):
    """A critic of the walk that is roughly right."""
    return (1 - observations[:, 0] ** 2) * np.minimum(steps_to_go, 10)


def told(strategy, noise=1.0):
    """Asks and tells with rewards that depend on the index and the step alone."""
    first = 0
    while (schedule := strategy.ask()) is not None:
        rows = np.arange(first, first + schedule.trajectories)[:, None]
        steps = np.arange(schedule.horizon)
        rewards = noise * np.sin(rows * 12.9898 + steps * 78.233) * np.exp(-steps / 20) + np.cos(rows)
        strategy.tell(rido.Trajectories(rewards, schedule.lengths))
        first += schedule.trajectories
    estimate = strategy.estimate()
    return {"value": estimate.value, "interval": estimate.interval(), "counts": estimate.schedule.counts.tolist()}


def evaluated(*arguments, **options):
    return rido.evaluate(*arguments, **{"seed": 1, "progress": False, **options}).to_dict()


def compared(*arguments, **options):
    return rido.compare(*arguments, **{"seed": 1, "progress": False, **options}).to_dict()


def resumed(call, folder):
    """A run that is read again and asked for once more."""
    path = folder / "run.rido"
    return [call(run=path), call(run=path)]


def extended(call, folder):
    """A run that goes on with twice the budget."""
    path = folder / "run.rido"
    return [call(budget=4000, run=path), call(budget=8000, run=path)]


def read(call, folder):
    """A run that is read from its file."""
    from rido.evaluation.recorded import read_run

    path = folder / "run.rido"
    call(run=path)
    found = read_run(path)
    estimates = [(estimate.value, estimate.standard_error) for estimate in found.estimates]
    return [found.evaluation.to_dict(), found.transitions, estimates, found.weights.tolist()]


def read_race(call, folder):
    from rido.comparison.compare import read_comparison

    path = folder / "race.rido"
    call(run=path)
    return read_comparison(path).to_dict()


def suite(folder):
    earth = rido.Task("Pendulum-v1", horizon=30, gamma=0.9)
    tasks = {"earth": earth, "moon": replace(earth, env_kwargs={"g": 1.62})}
    policies = {"agent": "rido:pendulum", "random": "random"}
    tested = rido.Suite(tasks, policies, budget=20_000, seed=1)
    return [tested.run(folder, progress=False).to_dict(), tested.run(folder, progress=False).to_dict()]


def gradient():
    import torch

    class Gaussian(torch.nn.Linear):
        def forward(self, states):
            return torch.distributions.Normal(super().forward(states), 1.0)

    torch.manual_seed(0)
    policy = Gaussian(1, 1, bias=False, dtype=torch.float64)
    found = rido.gradient("rido/LQG-v0", policy, gamma=0.9, horizon=20, budget=2000, seed=0, progress=False)
    return [found.to_dict(), found.vector.tolist()]


def calls():
    """Name and function of each call; functions take a folder for run files."""
    found = {}

    def add(name, call, way=None):
        found[name] = (lambda folder: call()) if way is None else (lambda folder: way(call, folder))

    pendulum = partial(evaluated, "Pendulum-v1", "rido:pendulum", budget=8000)
    for gamma in (0.9, 0.99, 1.0):
        for strategy in ("adaptive", "uniform", "robust", "rido"):
            add(f"Pendulum gamma {gamma:g} {strategy}", partial(pendulum, gamma=gamma, strategy=strategy))
    walk = partial(evaluated, Walk, lean, horizon=50, gamma=1.0, budget=4000)
    for seed in (1, 2, 3):
        add(f"walk seed {seed}", partial(walk, seed=seed))
    for envs in (1, 4, 16):
        add(f"walk {envs} environments", partial(walk, num_envs=envs))
        add(f"Pendulum {envs} environments", partial(pendulum, gamma=0.95, num_envs=envs))
    add("walk 2 workers", partial(walk, workers=2))
    add("Pendulum 2 workers", partial(pendulum, gamma=0.95, workers=2))
    add("walk critic", partial(walk, critic=value))
    add("walk fitted critic", partial(walk, critic="fit", budget=6000))
    add("walk chosen critic", partial(walk, critic="auto", budget=6000))
    add("Pendulum chosen critic", partial(pendulum, gamma=0.9, horizon=40, critic="auto"))
    add("Pendulum sobol", partial(pendulum, gamma=0.9, horizon=40, starts="sobol"))
    add("Pendulum sobol and critic", partial(pendulum, gamma=0.9, horizon=40, starts="sobol", critic="auto"))
    add("walk components", partial(walk, components=("cost",)))
    add("walk components leading", partial(walk, components=("cost",), plan_for="cost"))
    add("walk several gamma", partial(walk, gamma=(0.9, 1.0)))
    add("walk until", partial(walk, until=3.0, budget=40_000))
    add("walk reward range", partial(walk, reward_range=(-40, 1)))
    add("walk unbiased", partial(walk, strategy=rido.Adaptive(unbiased=True)))
    add("walk reset price", partial(walk, strategy=rido.Adaptive(reset_price=5.0)))
    add("walk seeded once", partial(walk, reseed=False, num_envs=1))
    add("CartPole rule", partial(evaluated, "CartPole-v1", Balance(), gamma=1.0, horizon=200, budget=5000))
    add("CartPole random", partial(evaluated, "CartPole-v1", "random", gamma=1.0, horizon=200, budget=5000))
    add(
        "CartPole truncation",
        partial(evaluated, "CartPole-v1", Balance(), gamma=1.0, horizon=500, budget=5000, end_on_truncation=True),
    )
    add("Pendulum rule", partial(evaluated, "Pendulum-v1", swing, gamma=0.95, budget=6000))
    add("FrozenLake random", partial(evaluated, "FrozenLake-v1", "random", gamma=1.0, budget=3000))
    add("Blackjack random", partial(evaluated, "Blackjack-v1", "random", gamma=1.0, horizon=10, budget=500))
    add("LQG", partial(evaluated, "rido/LQG-v0", gamma=0.9, horizon=50, budget=3000))
    add("LQG arguments", partial(evaluated, "Pendulum-v1", "random", gamma=0.9, budget=3000, env_kwargs={"g": 9.0}))
    for way, name in ((resumed, "resumed"), (extended, "extended"), (read, "read")):
        add(f"walk {name}", partial(walk), way)
        add(f"Pendulum {name}", partial(pendulum, gamma=0.95), way)
    add("walk critic resumed", partial(walk, critic="auto", budget=6000), resumed)
    add("walk critic read", partial(walk, critic="auto", budget=6000), read)
    race = partial(
        compared,
        "Pendulum-v1",
        {"trained": "rido:pendulum", "rule": swing, "random": "random"},
        gamma=0.95,
        budget=30_000,
    )
    add("race", race)
    add("race 2 workers", partial(race, workers=2))
    add("race sobol", partial(race, starts="sobol"))
    add("race tolerance", partial(race, tolerance=5.0))
    add("race resumed", race, resumed)
    add("race read", race, read_race)
    found["suite"] = suite
    add("gradient", gradient)
    add("asked and told adaptive", lambda: told(rido.Adaptive(horizon=60, budget=6000, gamma=0.97)))
    add("asked and told rido", lambda: told(rido.Rido(horizon=60, budget=6000, gamma=0.97)))
    add("asked and told uniform", lambda: told(rido.Uniform(horizon=60, budget=6000, gamma=0.97)))
    add("asked and told robust", lambda: told(rido.Robust(horizon=60, budget=6000, gamma=0.97)))
    return found


def bits(found):
    """Everything but clock times, with floats to the last bit."""
    if isinstance(found, dict):
        return {str(key): bits(part) for key, part in found.items() if key not in CLOCK}
    if isinstance(found, (list, tuple)):
        return [bits(part) for part in found]
    if isinstance(found, float):
        return found.hex() if math.isfinite(found) else str(found)
    return found


def digest(call):
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = bits(call(Path(folder)))
        except Exception as error:  # a refusal is an outcome too
            found = f"{type(error).__name__}: {error}".replace(folder, "")
    told = json.dumps(found, sort_keys=True, default=str)
    return hashlib.sha256(told.encode()).hexdigest()[:16], found


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--check", type=Path)
    parser.add_argument("--only", default="", help="part of the names of the calls to make")
    parser.add_argument("--show", action="store_true", help="print what each call found")
    options = parser.parse_args(arguments)
    table = {}
    for name, call in calls().items():
        if options.only not in name:
            continue
        table[name], found = digest(call)
        refused = f"  {found}" if isinstance(found, str) else ""
        print(table[name], name + refused, flush=True)
        if options.show:
            print(json.dumps(found, indent=1)[:4000])
    if options.output:
        options.output.write_text(json.dumps(table, indent=1) + "\n")
    if options.check:
        before = json.loads(options.check.read_text())
        changed = [name for name, found in table.items() if before.get(name) != found]
        print(f"{len(table) - len(changed)} of {len(table)} calls give the same bits")
        for name in changed:
            print(f"changed: {name}")
        return int(bool(changed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
