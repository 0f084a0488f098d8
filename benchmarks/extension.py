"""Extended runs beside runs with the whole budget at once: the table of results/extension.md.

Run ``python benchmarks/extension.py --output results/extension.md``. The expected returns are exact.
"""

import argparse
import math
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "trust"))

from validation import problem

from rido import Adaptive, Trajectories
from rido.simulators.envs import lqg

FULL = 50  # budget, in full-length trajectories
SEQUENCES = {"50": (FULL,), "5, 50": (5, FULL), "20, 30, 50": (20, 30, FULL)}
PROBLEMS = (
    "LQG, gamma 0.9",
    "FrozenLake 4x4, optimal, gamma 1",
    "goal after 60, 0.1 never, gamma 0.99",
)
PAGE = """# Runs that were extended

`python benchmarks/extension.py --output results/extension.md` made this page. A budget of {full} full-length
trajectories is planned for at once, or reached from smaller budgets that were spent first. There are {repetitions} runs
of each, and the expected returns are known exactly.

The error is the root mean squared error over that of the runs at once. The bias is in standard deviations of the
estimate. Unbiased estimates have one beyond {bias:.2f} once in 370 rows; intervals that hold in 95% of all runs have a
coverage below {coverage:.3f} about once in 500 rows.

{table}
"""


def lqg_rewards(rng, count, horizon=30, gamma=0.9):
    """Rewards of the paper's LQG under its optimal policy."""
    gain, noise = lqg.riccati_gain(gamma), lqg.deviation(lqg.NOISE, "variance")
    state, rewards = rng.uniform(-lqg.START, lqg.START, count), np.empty((count, horizon))
    for t in range(horizon):
        control = -gain * state + noise * rng.normal(size=count)
        rewards[:, t] = state**2 + control**2
        state = state + control + noise * rng.normal(size=count)
    return rewards


def process(name):
    """A function that draws full-length trajectories and their steps, then horizon, discount factor and truth."""
    if name.startswith("LQG"):
        return lambda rng, count: (lqg_rewards(rng, count), None), 30, 0.9, lqg.expected_return(30, 0.9)
    found = problem(name)
    return found.sample, found.horizon, found.gamma, found.truth


def run(name, budgets, seed):
    """Return error, standard error and whether the interval holds the truth, of one run with these budgets."""
    sample, horizon, gamma, truth = process(name)
    rng, strategy = np.random.default_rng(seed), None
    for budget in budgets:
        if strategy is None:
            strategy = Adaptive(horizon=horizon, budget=budget * horizon, gamma=gamma)
        strategy.change_budget(budget * horizon)
        while (schedule := strategy.ask()) is not None:
            rewards, steps = sample(rng, schedule.trajectories)
            taken = None if steps is None else np.minimum(steps, schedule.lengths)
            strategy.tell(Trajectories(rewards, schedule.lengths, taken))
    estimate = strategy.estimate()
    low, high = estimate.interval()
    return estimate.value - truth, estimate.standard_error, low <= truth <= high


def cell(task):
    """Return root mean squared error, bias over the standard deviation, and coverage."""
    name, sequence, repetitions = task
    errors, _, held = zip(*(run(name, SEQUENCES[sequence], seed) for seed in range(repetitions)), strict=True)
    return math.sqrt(np.mean(np.square(errors))), float(np.mean(errors) / np.std(errors)), float(np.mean(held))


def table(repetitions):
    """Return the rows of the table, one for each problem and sequence of budgets."""
    tasks = [(name, sequence, repetitions) for name in PROBLEMS for sequence in SEQUENCES]
    base, lines = (
        math.nan,
        ["| problem | budgets in full-length trajectories | error | bias | coverage |", "|---|---|---|---|---|"],
    )
    with ProcessPoolExecutor() as pool:
        for (name, sequence, _), (error, bias, coverage) in zip(tasks, pool.map(cell, tasks), strict=True):
            base = error if len(SEQUENCES[sequence]) == 1 else base
            lines.append(f"| {name} | {sequence} | {error / base:.3f} | {bias:+.3f} | {coverage:.3f} |")
    return "\n".join(lines)


def main():
    """Write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repetitions", type=int, default=400)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    limits = {"bias": 3 / math.sqrt(options.repetitions)}
    limits["coverage"] = 0.95 - 3 * math.sqrt(0.95 * 0.05 / options.repetitions)
    text = PAGE.format(full=FULL, repetitions=options.repetitions, table=table(options.repetitions), **limits)
    options.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
