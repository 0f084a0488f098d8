"""Planning next to the solver it replaces, and what it costs in all. Writes a Markdown page to standard output.

Run with ``make benchmarks``. Times are of one run on one machine; the ratios are what counts.
"""

import sys
import time
import tracemalloc
from pathlib import Path

import cvxpy as cp
import numpy as np

from rido import Adaptive, RewardMoments, Rido, Trajectories, Uniform, allocate

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from test_allocation import rounding_gaps


def timed(function, repeats):
    """Median seconds of one call."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def with_solver(weights, budget):
    """The relaxed problem as one hands it to a solver; weights are non-negative here, so it is convex as it stands."""
    counts = cp.Variable(weights.size)
    objective = cp.Minimize(cp.sum(cp.multiply(weights, cp.inv_pos(counts))))
    problem = cp.Problem(objective, [cp.sum(counts) == budget, counts >= 1, cp.diff(counts) <= 0])
    problem.solve(solver=cp.CLARABEL)
    return problem.value


def allocation_rows():
    for horizon in (50, 200, 500, 1000):
        weights = np.random.default_rng(horizon).gamma(0.7, 1, horizon) * 0.99 ** (2 * np.arange(horizon))
        budget = 16 * horizon
        ours = timed(lambda w=weights, b=budget: allocate(w, b), 300)
        theirs = timed(lambda w=weights, b=budget: with_solver(w, b), 5)
        gap = np.sum(weights / allocate(weights, budget)) / with_solver(weights, budget) - 1
        yield f"| {horizon} | {ours * 1e6:.0f} us | {theirs * 1e3:.1f} ms | {theirs / ours:,.0f} | {gap:+.1e} |"


def planning_seconds(horizon, budget, batch):
    """Everything but the simulation of one run of the paper's algorithm."""
    rng = np.random.default_rng(0)
    bank = rng.normal(size=(budget // horizon * 4, horizon)).cumsum(axis=1)
    strategy = Rido(horizon=horizon, budget=budget, gamma=0.99, batch=batch)
    seconds, rounds = 0.0, 0
    while True:
        start = time.perf_counter()
        schedule = strategy.ask()
        seconds += time.perf_counter() - start
        if schedule is None:
            break
        rewards = bank[rng.integers(0, len(bank), schedule.trajectories)]
        start = time.perf_counter()
        strategy.tell(Trajectories(rewards, schedule.lengths))
        seconds += time.perf_counter() - start
        rounds += 1
    start = time.perf_counter()
    strategy.estimate()
    return seconds + time.perf_counter() - start, rounds


def overhead(make):
    """Seconds of asking, telling and estimating over a million transitions, rewards from an array."""
    strategy, spent = make(horizon=500, budget=1_000_000, gamma=0.99), 0.0
    rewards = np.random.default_rng(0).normal(size=(2000, 500))
    while True:
        start = time.process_time()
        schedule = strategy.ask()
        spent += time.process_time() - start
        if schedule is None:
            break
        batch = Trajectories(rewards[np.arange(schedule.trajectories) % 2000], schedule.lengths)
        start = time.process_time()
        strategy.tell(batch)
        spent += time.process_time() - start
    start = time.process_time()
    strategy.estimate().interval()
    return spent + time.process_time() - start, strategy.rounds


def long_horizon_row():
    horizon, transitions = 10_000, 1_000_000
    rng = np.random.default_rng(0)
    tracemalloc.start()
    start = time.perf_counter()
    moments = RewardMoments(horizon, gamma=0.999)
    for _ in range(5):
        moments.update(Trajectories(rng.normal(size=(20, horizon)), np.full(20, horizon)))
    allocate(moments.weights(), transitions)
    seconds = time.perf_counter() - start
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    return f"| {horizon:,} | {transitions:,} | {seconds * 1e3:.0f} ms | {peak:.0f} MiB |"


def main():
    print("# Core: planning\n\nMade by `make benchmarks` (benchmarks/core.py).\n")
    print("One exact allocation against CVXPY + Clarabel, budget 16 T:\n")
    print("| T | rido | solver | times faster | objective, relative difference |\n|---|---|---|---|---|")
    print("\n".join(allocation_rows()))
    print("\nMoments, planning and estimate of a whole run of the paper's algorithm, simulation excluded:\n")
    print("| T | budget | batch | rounds | time in all |\n|---|---|---|---|---|")
    for horizon, budget, batch in ((500, 4000, 1000), (500, 8000, 1000), (500, 8000, 2000)):
        seconds, rounds = min(planning_seconds(horizon, budget, batch) for _ in range(5))
        print(f"| {horizon} | {budget:,} | {batch:,} | {rounds} | {seconds * 1e3:.1f} ms |")
    print("\nAsking, telling and estimating, a million transitions, T = 500, gamma 0.99:\n")
    print("| strategy | rounds | microseconds a transition |\n|---|---|---|")
    for make in (Uniform, Adaptive):
        seconds, rounds = min(overhead(make) for _ in range(3))
        print(f"| {make.__name__.lower()} | {rounds} | {seconds:.3f} |")
    print("\nMoments and one allocation for a long horizon, and the most memory they took:\n")
    print("| T | transitions | time | memory |\n|---|---|---|---|")
    print(long_horizon_row())
    print(
        "\nRounding: objective over the integer optimum by brute force, less 1 (T = 1 to 5, budgets 5 to 20, weights of"
    )
    print(
        "random covariance matrices, 1,600 problems; large gaps are optima close to 0 that a block's split destroys):\n"
    )
    print("| rounding | optimal in | median | 95% | mean | largest |\n|---|---|---|---|---|---|")
    for name, gaps in rounding_gaps().items():
        print(
            f"| {name} | {np.mean(gaps < 1e-9):.0%} | {np.median(gaps):.2g} | {np.quantile(gaps, 0.95):.2g} "
            f"| {gaps.mean():.2g} | {gaps.max():.3g} |"
        )


if __name__ == "__main__":
    main()
