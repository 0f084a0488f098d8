"""What the rehearsal costs, and how often it alarms for no reason.

    python benchmarks/rehearsal.py --output results/rehearsal.md

Cost: seconds of the rehearsal, or of the trial of a policy's memory, over those of a run of 100 episodes, both least of
several in one process. Agents: speed of a run with known batches over the same without a rehearsal, in turns. Alarms:
every environment that Gymnasium registers here, played with sampled actions, side by side and in a second instance.
"""

import argparse
import time
import warnings
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

import gymnasium as gym
import numpy as np

import rido
from rido.simulators.environments_simulator import EnvironmentsSimulator
from rido.simulators.gymnasium import GymnasiumSimulator
from rido.simulators.rehearsal import can_pair, instances_differ
from rido.simulators.repeatability import first_observations, remembers

REPEATS = 7


def rule(observation):
    return int(observation[2] + observation[3] > 0)


def rules(observations):
    return (observations[:, 2] + observations[:, 3] > 0).astype(int)


def push(observation):
    return -observation[2:] / 4


RUNS = [
    ("CartPole-v1", "a rule that takes batches", rido.batched(rules), 500),
    ("CartPole-v1", "a rule of one observation", rule, 500),
    ("Pendulum-v1", "rido:pendulum", "rido:pendulum", 200),
    ("Pendulum-v1", "a rule of one observation", push, 200),
]


def least(function, calls=1):
    """The least seconds of the processor of several calls."""
    found = []
    for _ in range(REPEATS):
        started = time.process_time()
        for _ in range(calls):
            function()
        found.append((time.process_time() - started) / calls)
    return min(found)


def tried(simulator):
    """What is tried before the first trajectory."""
    if simulator.policy.in_sequence:
        envs = simulator._envs
        return lambda: (remembers(simulator.policy, first_observations(envs)), instances_differ(envs, 1))
    return lambda: simulator.rehearse([1, 2])


def costs():
    lines = ["| environment | policy | tried, ms | 100 episodes, ms | share |", "|---|---|--:|--:|--:|"]
    for env_id, name, policy, steps in RUNS:
        settings = dict(gamma=1.0, horizon=steps, seed=0, strategy="uniform", progress=False)
        episodes = rido.evaluate(env_id, policy, budget=100 * steps, **settings).trajectories
        run = least(lambda p=policy, e=env_id, s=settings, n=steps: rido.evaluate(e, p, budget=100 * n, **s))
        simulator = GymnasiumSimulator(env_id, policy, horizon=steps)
        extra, run = least(tried(simulator), calls=20), run * 100 / episodes
        lines.append(f"| {env_id} | {name} | {1e3 * extra:.2f} | {1e3 * run:.0f} | {extra / run:.2%} |")
    return lines


def agents():
    """Agents whose batches are known: transitions a second over those of the same run without a rehearsal."""
    from stable_baselines3 import PPO

    kinds = {
        "npz": ("Pendulum-v1", "rido:pendulum", 200),
        "SB3's PPO": ("CartPole-v1", PPO("MlpPolicy", "CartPole-v1", seed=0, device="cpu"), 500),
    }
    lines = ["| agent | environment | transitions | speed over that without a rehearsal |", "|---|---|--:|--:|"]
    for name, (env_id, policy, horizon) in kinds.items():
        for budget in (20_000, 100_000):
            settings = dict(gamma=1.0, horizon=horizon, budget=budget, seed=0, progress=False)
            times = {True: [], False: []}
            for turn in range(2 * REPEATS + 2):
                tried = turn % 2 == 0
                untried = patch.object(EnvironmentsSimulator, "_try", lambda self, seeds: None)
                with nullcontext() if tried else untried:
                    started = time.process_time()
                    rido.evaluate(env_id, policy, **settings)
                times[tried] += [time.process_time() - started] if turn > 1 else []  # the first ones import
            ratio = min(times[False]) / min(times[True])
            lines.append(f"| {name} | {env_id} | {budget:,} | {ratio:.3f} |")
    return lines


def alarms():
    """All registered environments that can be made here: which of them the rehearsal would not run side by side."""
    count, found, stepped = 0, [], []
    for env_id in sorted(gym.registry):
        try:
            simulator = GymnasiumSimulator(env_id, "random", horizon=20, end_on_truncation=True)
        except Exception:  # a package is missing, or it is refused
            continue
        for seed in range(5):
            result = simulator.rehearse([seed, seed + 100])
            count += 1
            if result.kind != "same" or result.failed:
                found.append(f"{env_id} (seed {seed}): {result.failed or result.kind}")
        differ, taken = instances_differ(simulator._envs, 1) if can_pair(simulator._envs) else (False, 0)
        stepped += [env_id] if taken else []
        found += [f"{env_id}: another instance gives another trajectory"] if differ else []
        simulator.close()
    ids = count // 5
    alarmed = [f"{len(found)} alarms in {count} rehearsals of {ids} environments.", *(f"- {line}" for line in found)]
    return [*alarmed, "", f"Attributes of two instances differ, so that they took steps: {', '.join(stepped)}."]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("results/rehearsal.md"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    head = ["# The rehearsal", "", "    python benchmarks/rehearsal.py --output results/rehearsal.md", ""]
    text = [
        *head,
        "## Cost",
        "",
        *costs(),
        "",
        "## Agents with known batches",
        "",
        *agents(),
        "",
        "## Alarms for no reason",
        "",
        *alarms(),
    ]
    options.output.write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    np.seterr(all="ignore")
    main()
