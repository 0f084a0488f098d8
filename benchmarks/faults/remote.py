"""Faults of a hub, EnvPool, workers and a Ray cluster. Each must end right or in one line, and leave no process.

python benchmarks/faults/remote.py [--only TEXT] [--verbose]
"""

import argparse
import contextlib
import json
import os
import signal
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))

import remotefaults

PATIENCE = 300  # seconds after which a case counts as a hang


class _Hang(BaseException):
    """A case that did not end."""


def run(*, only: str = "", verbose: bool = False) -> dict[str, float]:
    """Runs all cases; returns counts of how they ended, and of what must be zero."""
    os.environ.setdefault("RAY_worker_niceness", "0")
    warnings.simplefilter("ignore")
    counts, started = Counter(), time.monotonic()
    quiet = {
        **remotefaults.envpool_cases(),
        **remotefaults.worker_cases(),
        **remotefaults.hub_cases(slow=True),
        **remotefaults.alone_cases(),
    }
    _try(quiet, only, verbose, counts)
    cluster = remotefaults.Cluster()
    try:
        _try(remotefaults.ray_cases(cluster), only, verbose, counts)
    finally:
        cluster.close()
    zero = dict.fromkeys(("wrong", "hangs", "processes left"), 0)
    return {**zero, **counts, "seconds": round(time.monotonic() - started, 1)}


def _try(cases, only, verbose, counts):
    for name, case in cases.items():
        if only not in name:
            continue
        began, before = time.monotonic(), _processes()
        found = outcome(case)
        ended = time.monotonic()
        while (left := len(_processes() - before)) and time.monotonic() - ended < 10:  # those that were told to end
            time.sleep(0.05)
        counts["cases"] += 1
        counts[f"{name.partition(':')[0]} cases"] += 1
        counts[found if found in ("right", "refused") else "hangs" if found == "hang" else "wrong"] += 1
        counts["processes left"] += left
        if verbose or found not in ("right", "refused") or left:
            print(f"{name:55} {time.monotonic() - began:6.1f} s  {found:.300}", file=sys.stderr, flush=True)


def _processes():
    """Workers of this process, and actors of Ray below it, whose other processes Ray starts and ends as it likes."""
    parents, ray = {}, set()
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            number, state, parent = int(entry.parent.name), *entry.read_text().rpartition(")")[2].split()[:2]
            line = entry.with_name("cmdline").read_bytes()
            if state != "Z":
                parents[number] = int(parent)
            if b"ray" in line and not line.startswith(b"ray::_Actor"):
                ray.add(number)
    found, new = set(), {os.getpid()}
    while new:
        new = {number for number, parent in parents.items() if parent in new}
        found |= new
    return found - ray


def outcome(case):
    def stop(*_):
        raise _Hang

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(PATIENCE)
    try:
        return case()
    except _Hang:
        return "hang"
    except Exception as error:
        return f"raised {error!r}"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose names have this text")
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    print(json.dumps(run(only=given.only, verbose=given.verbose), indent=1))
