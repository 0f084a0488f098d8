"""What one plain call costs beside its simulator: functions that it enters, and bytes at its peak.

    python benchmarks/calls.py            # functions, modules and calls of one evaluation of Pendulum
    python benchmarks/calls.py --memory   # bytes for each transition at the peak, which the loop promises beforehand

The call is ``rido.evaluate("Pendulum-v1", "rido:pendulum", budget=20_000, gamma=0.99)``, made a second time, so that
nothing is imported. A function is one code object of ``src/rido``, comprehensions left out.
"""

import argparse
import collections
import sys
import tracemalloc
from pathlib import Path

import numpy as np

import rido

SOURCES = str(Path(rido.__file__).parent)


def entered(call):
    """How often a call enters each function of rido, by file and name."""
    counts = collections.Counter()

    def trace(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(SOURCES) and not code.co_name.startswith("<"):
            counts[code.co_filename.removeprefix(SOURCES), code.co_qualname] += 1

    sys.setprofile(trace)
    try:
        call()
    finally:
        sys.setprofile(None)
    return counts


class Lean:
    """A simulator that takes the rewards of all its trajectories from one array, without a copy."""

    fingerprint = "lean"
    num_envs = 1024

    def __init__(self, size):
        self.rewards = np.random.default_rng(0).normal(size=size)

    def rollout(self, lengths, seeds):
        return rido.Trajectories(self.rewards[: int(np.sum(lengths))].copy(), lengths)


def peak(budget, **options):
    """Bytes that a run takes at its peak for each transition."""
    simulator = Lean(budget)
    tracemalloc.start()
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    rido.evaluate(simulator, budget=budget, gamma=0.99, horizon=200, seed=1, progress=False, **options)
    found = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    return found / budget


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--show", action="store_true", help="print all functions")
    options = parser.parse_args(arguments)
    if options.memory:
        for strategy in ("uniform", "adaptive", "rido"):
            for budget in (3_000_000, 6_000_000):
                print(
                    f"{strategy}, {budget:,} transitions: {peak(budget, strategy=strategy):.1f} bytes for each",
                    flush=True,
                )
        return 0

    def call():
        rido.evaluate("Pendulum-v1", "rido:pendulum", budget=20_000, gamma=0.99, seed=1, progress=False)

    call()
    counts = entered(call)
    files = {file for file, _ in counts}
    if options.show:
        for (file, name), count in sorted(counts.items()):
            print(f"{count:6} {file} {name}")
    print(f"{len(counts)} functions of {len(files)} modules, {sum(counts.values()):,} calls")
    return 0


if __name__ == "__main__":
    sys.exit(main())
