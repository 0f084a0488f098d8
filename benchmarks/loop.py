"""rido.evaluate beside the loop that a user would write: transitions for each second of CPU time, in one process.

    OMP_NUM_THREADS=1 python benchmarks/loop.py   # measure and write results/loop.json and results/loop.md
    python benchmarks/loop.py --quick             # a few hundred transitions, written nowhere

More threads of BLAS take as long by the clock, but spin meanwhile, which counts as CPU time of both.

The loop makes the environment, seeds it once, and adds up discounted rewards until the same budget is spent. Loop and
evaluation alternate, and each has the best of its times. Everything counts that a call does: opening the environment,
checks, plans, estimates. In the column "seeded" the loop seeds every episode, as rido does.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import rido
from rido.simulators.factory import resolve_horizon

GAMMA = 0.99
OUTPUT = Path(__file__).parents[1] / "results" / "loop.md"


def balance(observation: Any) -> int:
    return int(observation[2] + 0.3 * observation[3] > 0)


def first_lake(observation: Any) -> int:
    return (0, 3, 3, 3, 0, 0, 0, 0, 3, 1, 0, 0, 0, 2, 1, 0)[observation]


def taxi(observation: Any) -> int:
    return int(observation) % 6


def swing(observation: Any) -> Any:
    return np.clip(-2.0 * observation[1:2] - 0.5 * observation[2:], -2.0, 2.0)


def stick(observation: Any) -> int:
    return int(observation[0] < 18)


def run(observation: Any) -> Any:
    return np.tanh(observation[:6])


# Environments, rules of one observation, and budgets of transitions.
HORIZONS = {"Blackjack-v1": 20}  # where the environment has no time limit
CASES: dict[str, tuple[Callable[[Any], Any], int]] = {
    "CartPole-v1": (balance, 50_000),
    "FrozenLake-v1": (first_lake, 30_000),
    "Taxi-v4": (taxi, 50_000),
    "Pendulum-v1": (swing, 30_000),
    "Blackjack-v1": (stick, 20_000),
    "HalfCheetah-v5": (run, 10_000),
}


def user_loop(env_id: str, policy: Any, budget: int, horizon: int, *, every: bool) -> tuple[int, int]:
    """Spends a budget as a user's own loop does; returns transitions and episodes."""
    env = gym.make(env_id)
    env.action_space.seed(0)
    transitions, returns = 0, []
    while transitions < budget:
        observation, _ = env.reset(seed=len(returns) if every or not returns else None)
        total, discount, done, steps = 0.0, 1.0, False, 0
        while not done:
            action = env.action_space.sample() if policy == "random" else policy(observation)
            observation, reward, terminated, truncated, _ = env.step(action)
            total += discount * float(reward)
            discount *= GAMMA
            steps += 1
            done = terminated or truncated or steps == horizon
        transitions += steps
        returns.append(total)
    env.close()
    np.mean(returns), np.std(returns, ddof=1) / np.sqrt(len(returns))
    return transitions, len(returns)


def measure(env_id: str, policy: Any, budget: int, repetitions: int) -> dict[str, Any]:
    """Returns the best rates of all, in transitions a second."""
    horizon = resolve_horizon(env_id, HORIZONS.get(env_id), GAMMA)
    episodes: dict[str, float] = {}

    def loop(*, every: bool) -> int:
        taken, episodes["loop"] = user_loop(env_id, policy, budget, horizon, every=every)
        episodes["steps"] = taken / episodes["loop"]
        return taken

    ways: dict[str, Callable[[], int]] = {"loop": lambda: loop(every=False), "seeded": lambda: loop(every=True)}
    for name in ("uniform", "adaptive"):
        ways[name] = lambda name=name: (
            rido.evaluate(  # type: ignore[misc]
                env_id, policy, budget=budget, gamma=GAMMA, horizon=horizon, strategy=name, seed=1, progress=False
            ).transitions
        )
    best: dict[str, float] = dict.fromkeys(ways, 0.0)
    for _ in range(repetitions):
        for name, way in ways.items():
            started = time.process_time()
            taken = way()
            best[name] = max(best[name], taken / (time.process_time() - started))
    return {
        "env": env_id,
        "policy": policy if isinstance(policy, str) else "rule",
        "steps": episodes["steps"],
        "budget": budget,
        **best,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Returns the page."""
    lines = [
        "# rido beside a user's own loop",
        "",
        "Made by `OMP_NUM_THREADS=1 python benchmarks/loop.py`. Transitions for each second of CPU time over those of "
        "a loop that a user would write, gamma 0.99, everything included that a call does; loop and evaluation "
        "alternate, best of each. "
        "The loop seeds the environment once; in brackets, beside a loop that seeds every episode, as rido does. "
        "`steps` is the mean length of an episode. Goals: uniform 1.0 and adaptive 0.9; .9 and .8 below 20 steps.",
        "",
        "| environment | policy | steps | budget | loop, transitions/s | uniform | adaptive |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        ratios = [
            f"{row[name] / row['loop']:.2f} ({row[name] / row['seeded']:.2f})" for name in ("uniform", "adaptive")
        ]
        lines.append(
            f"| {row['env']} | {row['policy']} | {row['steps']:.1f} | {row['budget']:,} | {row['loop']:,.0f} | "
            f"{ratios[0]} | {ratios[1]} |"
        )
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few hundred transitions, written nowhere")
    parser.add_argument("--only", default="", help="environments whose id contains this")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    arguments = parser.parse_args()
    rows = []
    for env_id, (rule, budget) in CASES.items():
        if arguments.only not in env_id:
            continue
        for policy in ("random", rule):
            size = 4 * resolve_horizon(env_id, HORIZONS.get(env_id), GAMMA) if arguments.quick else budget
            rows.append(measure(env_id, policy, size, 1 if arguments.quick else arguments.repetitions))
            print(json.dumps(rows[-1]), flush=True)
    print(table(rows))
    if not arguments.quick and not arguments.only:
        arguments.output.write_text(table(rows))
        arguments.output.with_suffix(".json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
