"""A whole evaluation on a GPU next to the bare rollout: Pendulum with a 64x64 policy. Writes a Markdown page.

Needs JAX, numpy and scipy only. From the repository, on the machine with the GPU:

    PYTHONPATH=src python benchmarks/gpu/pendulum.py > results/gpu.md

``--small`` runs the same code with a small budget, on any machine.
"""

import argparse
import math
import platform
import statistics
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import scipy

import rido
import rido.jax

HORIZON = 200
HIDDEN = 64

rng = np.random.default_rng(0)
LAYERS = [
    jnp.asarray(scale * rng.normal(size=shape) / math.sqrt(shape[0]), dtype=jnp.float32)
    for scale, shape in ((2.0, (3, HIDDEN)), (1.5, (HIDDEN, HIDDEN)), (2.0, (HIDDEN, 1)))
]


def policy(observation):
    """A network of two hidden layers with fixed random weights."""
    first, second, last = LAYERS
    return jnp.tanh(jnp.tanh(observation @ first) @ second) @ last


def bare_rollout(env, rows):
    """Returns a compiled rollout of full-length trajectories that only adds up their rewards."""

    def run(keys):
        def step(carry, t):
            states, observations, total = carry
            states, observations, rewards, _ = jax.vmap(env.step)(keys, states, jax.vmap(policy)(observations))
            return (states, observations, total + rewards), None

        carry = (*jax.vmap(env.reset)(keys), jnp.zeros(rows))
        return jax.lax.scan(step, carry, jnp.arange(HORIZON))[0][2]

    return jax.jit(run)


def bare_rate(env, rows, transitions, repeats):
    """Returns compile seconds, and transitions per second of enough such rollouts for so many transitions."""
    run, calls = bare_rollout(env, rows), max(1, round(transitions / rows / HORIZON))
    keys = [jax.random.split(jax.random.key(i), rows) for i in range(calls)]
    start = time.perf_counter()
    jax.block_until_ready(run(keys[0]))
    compiling = time.perf_counter() - start
    rates = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready([run(part) for part in keys])
        rates.append(calls * rows * HORIZON / (time.perf_counter() - start))
    return compiling, statistics.median(rates)


def timed_evaluation(env, **settings):
    start = time.perf_counter()
    result = rido.evaluate(env, policy, horizon=HORIZON, progress=False, **settings)
    return time.perf_counter() - start, result


def milliseconds(seconds):
    return f"{1000 * seconds:.0f} ms"


def main(arguments):
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true", help="a small budget, for machines without a GPU")
    small = parser.parse_args(arguments).small
    budget = 1_100_000 if small else 200_000_000
    repeats = 1 if small else 5
    sizes = (1024,) if small else (16_384, 65_536, 262_144, 1_048_576)
    env = rido.jax.pendulum()
    device = jax.devices()[0]
    print("# A whole evaluation on a GPU")
    print()
    print(f"Made by `benchmarks/gpu/pendulum.py{' --small' if small else ''}` on one {device.device_kind}, with JAX")
    print(f"{jax.__version__}, numpy {np.__version__}, scipy {scipy.__version__}, Python {platform.python_version()}.")
    print()
    print(f"Pendulum with a policy of two hidden layers of {HIDDEN} and fixed random weights, T = {HORIZON}. Rewards")
    print("and policy are in single precision, matrix products as JAX makes them by default.")
    print()
    print("## Bare rollout")
    print()
    print("Full-length trajectories whose rewards are added up, and nothing else.")
    print()
    print("| trajectories side by side | first call, with compiling | transitions per second |")
    print("|---|---|---|")
    best = 0.0
    for rows in sizes:
        compiling, rate = bare_rate(env, rows, budget, repeats)
        best = max(best, rate)
        print(f"| {rows:,} | {compiling:.1f} s | {rate:.3g} |", flush=True)
    print()
    print("## `rido.evaluate`, strategy adaptive")
    print()
    print(f"Budget {budget:,} transitions, from the call to the result: planning, seeds, rollouts, moments, error bars")
    print(f"and warnings. The first run compiles; later runs are the median of {repeats} with other seeds. One that")
    print("needs tiles of a size that none before it needed compiles these, and takes so much longer.")
    print()
    head = ["gamma", "first run", "later runs", "transitions per second", "bare rollout over it"]
    print("| " + " | ".join([*head, "device", "planning and statistics", "trajectories"]) + " |")
    print("|" + "---|" * 8)
    results = {}
    for gamma in (1.0, 0.99, 0.9):
        first, _ = timed_evaluation(env, gamma=gamma, budget=budget, seed=1000)
        runs = [timed_evaluation(env, gamma=gamma, budget=budget, seed=seed) for seed in range(repeats)]
        results[gamma] = runs[0][1]
        runs.sort(key=lambda run: run[0])
        seconds, result = runs[repeats // 2]
        rate = result.transitions / seconds
        cells = [f"{gamma}", f"{first:.1f} s", milliseconds(seconds), f"{rate:.3g}", f"{best / rate:.2f}"]
        cells += [milliseconds(result.seconds), milliseconds(result.planning_seconds), f"{result.trajectories:,}"]
        print("| " + " | ".join(cells) + " |", flush=True)
    print()
    print("Where gamma is small most trajectories take a few steps only. Then starting them costs more, and so do the")
    print("steps that finished rows take in vain, because tiles shrink every 13 steps only.")
    print()
    print("## Is it right?")
    print()
    more = 2 if small else 5
    print(
        f"Seed 0 against uniform evaluation with {more} times the budget, and against itself in the same process. All"
    )
    print("digits are shown, so that processes can be compared.")
    print()
    print("| gamma | adaptive | uniform | difference in standard errors | uniform transitions for this error | again |")
    print("|---|---|---|---|---|---|")
    for gamma, result in results.items():
        _, other = timed_evaluation(env, gamma=gamma, budget=more * budget, seed=7, strategy="uniform")
        _, again = timed_evaluation(env, gamma=gamma, budget=budget, seed=result.seed)
        distance = (result.value - other.value) / math.hypot(result.standard_error, other.standard_error)
        cells = [f"{gamma}", *(f"{run.value!r} +- {run.standard_error:.2g}" for run in (result, other))]
        cells += [f"{distance:+.2f}", f"{result.uniform_transitions:,.0f}"]
        cells.append("the same bits" if again.value == result.value else f"off by {again.value - result.value:.2g}")
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
