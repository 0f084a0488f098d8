"""What the rehearsal costs, and how often it alarms for no reason.

    python benchmarks/rehearsal.py --output results/rehearsal.md

Cost: seconds of the rehearsal, or of the trial of a policy's memory, over those of a run of 100 episodes, both least of
several in one process. Alarms: every environment that Gymnasium registers here, played with sampled actions.
"""

import argparse
import time
import warnings
from pathlib import Path

import gymnasium as gym
import numpy as np

import rido
from rido.simulators.gymnasium import GymnasiumSimulator
from rido.simulators.rehearsal import first_observations, remembers

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
        return lambda: remembers(simulator.policy, first_observations(simulator._envs))
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


def alarms():
    """All registered environments that can be made here: which of them the rehearsal would not run side by side."""
    count, found = 0, []
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
        simulator.close()
    ids = count // 5
    return [f"{len(found)} alarms in {count} rehearsals of {ids} environments.", *(f"- {line}" for line in found)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("results/rehearsal.md"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    head = ["# The rehearsal", "", "    python benchmarks/rehearsal.py --output results/rehearsal.md", ""]
    text = [*head, "## Cost", "", *costs(), "", "## Alarms for no reason", "", *alarms()]
    options.output.write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    np.seterr(all="ignore")
    main()
