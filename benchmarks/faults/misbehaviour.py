"""Misbehaving environments, policies and critics, with one worker and with two, and on Ray if asked for.

Each must end in the same one-line error with any number of workers, or in the right number; no process and no shared
memory may be left behind.

    python benchmarks/faults/misbehaviour.py --count 100 --seed 0 [--ray]
"""

import argparse
import contextlib
import json
import os
import re
import sys
import time
import warnings
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np

import rido
from rido.simulators import SimulationError

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))

import misbehaving
from traps import zeros

STEP_TIMEOUT = 3.0  # seconds
SETTINGS = dict(budget=1200, gamma=0.95, horizon=20)


def run(count: int = 100, seed: int = 0, *, with_ray: bool = False, verbose: bool = False) -> dict[str, float]:
    """Runs misbehaving cases drawn without replacement, each where a random step or trajectory springs it.

    Returns:
        Counts: of cases, of right numbers, of expected errors, of notes that a result is not reproducible, and of what
        must be zero: wrong outcomes, outcomes that differ between workers, processes and shared memory left.
    """
    rng, counts, started = np.random.default_rng(seed), Counter(), time.monotonic()
    names = list(misbehaving.cases())
    order = np.concatenate([rng.permutation(len(names)) for _ in range(-(-count // len(names)))])[:count]
    ways = {"one worker": dict(workers=1), "two workers": dict(workers=2)}
    if with_ray:
        import ray

        from rido.simulators.parallel.ray import RaySimulator

        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
        ways["Ray"] = dict(simulator=partial(RaySimulator, num_actors=2))
    memory, folder = _shared_memory(), os.getcwd()
    for index in order:
        name, step = names[index], int(rng.integers(1, 8))
        case = misbehaving.cases(step, float(rng.uniform(0.5, 1.5)))[name]
        found = {}
        for way, settings in ways.items():
            children = _children()
            found[way] = outcome(case, int(rng.integers(2**31)) if case.expected else 1, settings)
            os.chdir(folder)
            left = _children() - children
            counts["processes left"] += len(left)
            if verbose:
                print(f"{name:32} {way:12} {found[way][0]:6} {found[way][1][:150]}", flush=True)
        counts["cases"] += 1
        for kind in {kind for kind, _ in found.values()}:
            counts[kind] += 1
        if len({(kind, _without_numbers(text)) for kind, text in found.values()}) > 1:
            counts["differ"] += 1
            print(f"differ: {name}: {found}", file=sys.stderr)
    counts["shared memory left"] = len(_shared_memory() - memory - _used_by_others())
    if with_ray:
        ray.shutdown()
    zero = dict.fromkeys(("wrong", "differ", "processes left", "shared memory left"), 0)
    return {**zero, **counts, "seconds": round(time.monotonic() - started, 1)}


def outcome(case: misbehaving.Case, seed: int, settings: dict) -> tuple[str, str]:
    """Returns how an evaluation ended, "right", "error", "note" or "wrong", and its number or its text."""
    settings = {**SETTINGS, **settings, "seed": seed}
    timeout = STEP_TIMEOUT if case.fatal else None
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
            warnings.simplefilter("ignore")
            result = rido.evaluate(case.env, case.policy, critic=case.critic, step_timeout=timeout, **settings)
    except (ValueError, ImportError, OSError, SimulationError) as error:
        text = " ".join(str(error).split())
        right = case.expected is not None and re.search(case.expected, text)
        return ("error" if right else "wrong"), text
    except BaseException as error:  # what no user should see
        return "wrong", f"raised {error!r}"
    if case.expected is not None:
        return "wrong", f"{result.value!r} instead of an error"
    if case.same_as is None:  # nothing to compare with
        return ("wrong" if result.reproducible else "note"), "; ".join(result.warnings)
    env, policy = case.same_as if isinstance(case.same_as, tuple) else (case.same_as, zeros)
    critic = None if case.critic is None else misbehaving.critic
    expected = rido.evaluate(env, policy, critic=critic, **{**SETTINGS, "seed": seed})
    right = result.value == expected.value and result.standard_error == expected.standard_error
    return ("right" if right and result.reproducible else "wrong"), repr(result.value)


def _without_numbers(text: str) -> str:
    """Returns a text without seeds, addresses and numbers, which depend on which worker was first.

    How a lost worker ended is left out too: Ray does not tell the signal or the exit status.
    """
    text = re.sub(r"(was killed by \w+|exited with status \d+|was lost \([^)]*\))", "was lost", text)
    return re.sub(
        r"worker # [\w ]+(; )?|0x\w+|\(seeds [^)]*\)|-?[\d.]+", "#", re.sub(r"\d+ trajectories|worker \d", "#", text)
    )


def _children() -> set[int]:
    found = set()
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = entry.read_text().rpartition(")")[2].split()
            if int(fields[1]) == os.getpid() and fields[0] != "Z":
                found.add(int(entry.parent.name))
    return found


def _used_by_others() -> set[str]:
    """Returns the shared memory that living processes use which have nothing to do with this one."""
    ours, used = _children() | {os.getpid()}, set()
    for entry in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            if int(entry.parent.name) not in ours:
                used |= set(re.findall(r"/dev/shm/(\S+)", entry.read_text()))
    return used


def _shared_memory() -> set[str]:
    return {entry.name for entry in Path("/dev/shm").iterdir()} if Path("/dev/shm").is_dir() else set()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    print(json.dumps(run(given.count, given.seed, with_ray=given.ray, verbose=given.verbose), indent=1))
