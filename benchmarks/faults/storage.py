"""Attacks on run files: damaged files, full disks, read-only folders, locks, deleted files. Counts what goes wrong.

    python benchmarks/faults/storage.py              # 1,000 damaged files and 50 moments at which writing fails
    python benchmarks/faults/storage.py --quick      # 100 and 10

A damaged file must be refused in one line or give the same numbers, from ``read_run``, from ``rido report`` and from a
run that resumes. A run that cannot write must end in one line, keep every piece that it had recorded, and resume to the
numbers of an undisturbed run.
"""

import argparse
import json
import os
import random
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from unittest.mock import patch

import gymnasium as gym
import numpy as np
from typer.testing import CliRunner

import rido
from rido.cli import app
from rido.evaluation import source
from rido.evaluation.recorded import read_run
from rido.record import database
from rido.record.database import RunFileError
from rido.record.runfile import RunFile

NOBODY = 65534  # a user without rights, for root may write anywhere
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # a folder in memory, where writing is quick
PAGE = 4096  # bytes of a page of an SQLite file
SETTINGS = dict(gamma=0.9, horizon=20, seed=7)


class Noise:
    """A simulator whose trajectories take no time; it calls a function before each request."""

    fingerprint = "noise"
    num_envs = 4

    def __init__(self, before=lambda: None):
        self.before = before

    def rollout(self, lengths, seeds):
        self.before()
        rewards = [
            np.random.default_rng(seed).normal(1, 2, length) for seed, length in zip(seeds, lengths, strict=True)
        ]
        return rido.Trajectories(np.concatenate(rewards), lengths)


class Walk(gym.Env):
    """A random walk that may end early, for runs with a critic."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.normal()
        return np.array([self.place], dtype=np.float32), {}

    def step(self, action):
        self.place += 0.1 * self.np_random.normal()
        ended = bool(self.np_random.random() < 0.02)
        return np.array([self.place], dtype=np.float32), float(self.place), ended, False, {}


def zeros(observations):
    return np.zeros(len(observations), dtype=np.int64)


def own_strategy(**settings):
    return Own(**settings)


class Own(rido.Uniform):
    """A strategy that a report cannot build again."""


KINDS = {
    "adaptive": partial(rido.evaluate, Noise(), budget=2000, **SETTINGS),
    "own": partial(rido.evaluate, Noise(), budget=800, strategy=own_strategy, **SETTINGS),
    "fit": partial(rido.evaluate, partial(Walk), zeros, budget=1500, critic="fit", max_resets=100, **SETTINGS),
    "time": partial(rido.evaluate, Noise(), budget=2000, time_budget=60.0, **SETTINGS),
}


def numbers(evaluation):
    """What a result says, without the time that it took to plan."""
    told = evaluation.to_dict()
    del told["planning_seconds"]
    return told


def run(count, seed, moments=0):
    """Attacks run files.

    Args:
        count: damaged files.
        seed: what they are drawn from.
        moments: times at which writing fails.

    Returns:
        How many attacks ended how; "wrong numbers", "tracebacks" and "lost pieces" should be 0.
    """
    counts = Counter({"wrong numbers": 0, "tracebacks": 0, "lost pieces": 0})
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(dir=MEMORY) as name, patch.object(source, "_PIECE_SECONDS", 1e-4):
        folder = Path(name)
        folder.chmod(0o755)
        clean = {}
        for kind, evaluate in KINDS.items():
            evaluate(run=folder / f"{kind}.rido")
            clean[kind] = [numbers(read_run(folder / f"{kind}.rido").evaluation)]
        content, log, states = killed(folder / "killed.rido")
        for number in range(count):
            kind = chance.choice([*KINDS, "killed"])
            path = folder / f"damaged{number}.rido"
            if kind == "killed":
                path.write_bytes(content)
                path.with_name(f"{path.name}-wal").write_bytes(damage(log, chance))
                outcomes = attack(path, "adaptive", states, clean["adaptive"][0], resume=number % 4 == 0)
            else:
                path.write_bytes(damage((folder / f"{kind}.rido").read_bytes(), chance))
                outcomes = attack(path, kind, clean[kind], clean[kind][0], resume=number % 4 == 0)
            counts["damaged files"] += 1
            counts.update(outcomes)
            for left in folder.glob(f"{path.name}*"):
                left.unlink()
        for number in range(moments):
            cause = list(CAUSES)[number % len(CAUSES)]
            place = folder / f"moment{number}"
            place.mkdir()
            counts["moments"] += 1
            counts.update(CAUSES[cause](place, chance, clean["adaptive"][0]))
            shutil.rmtree(place)
    return dict(counts)


def damage(content, chance):
    """Returns a file with a flipped bit, or one that is overwritten in part, cut off, or has pages in wrong places."""
    file = bytearray(content)
    kind = chance.choices(("bit", "bytes", "cut", "empty page", "copied page"), (6, 1, 1, 1, 1))[0]
    place = chance.choice((chance.randrange(len(file)), chance.randrange(PAGE)))
    page, other = (PAGE * chance.randrange(len(file) // PAGE) for _ in range(2))
    if kind == "bit":
        file[place] ^= 1 << chance.randrange(8)
    elif kind == "bytes":
        part = chance.randbytes(chance.randint(1, 64))
        file[place : place + len(part)] = part
    elif kind == "cut":
        del file[place:]
    elif kind == "empty page":
        file[page : page + PAGE] = bytes(PAGE)
    else:
        file[page : page + PAGE] = file[other : other + PAGE]
    return bytes(file)


def killed(path):
    """Returns the file of an unfinished run, its write-ahead log, and what reports said until then.

    A damaged log ends before the damage, as after a crash: an earlier state of the run is right.
    """
    states, content = [], []

    def look():
        try:
            states.append(numbers(read_run(path).evaluation))
        except RunFileError:
            return  # no finished round yet
        content[:] = [path.read_bytes(), path.with_name(f"{path.name}-wal").read_bytes()]

    rido.evaluate(Noise(look), budget=2000, run=path, **SETTINGS)
    return *content, states


def attack(path, kind, states, clean, *, resume):
    """Reads a damaged file in all ways; yields what happened."""
    by_speed = kind == "time" and path.stat().st_size == 0  # a new run, whose plan depends on the machine's speed
    try:
        told = numbers(read_run(path).evaluation)
        yield "same numbers" if told == states[-1] else "an earlier state" if told in states else "wrong numbers"
    except RunFileError as error:
        yield "refused" if "\n" not in str(error) else "tracebacks"
        shown = CliRunner().invoke(app, ["report", str(path), "-o", str(path.with_suffix(".html"))])
        if shown.exit_code != 1 or not isinstance(shown.exception, SystemExit):
            yield "tracebacks"
    except Exception as error:
        print(f"traceback: {error!r}", file=sys.stderr)
        yield "tracebacks"
    if resume:
        try:
            told = KINDS[kind](run=path).to_dict()
            yield "resumed"
            compared = () if by_speed else ("value", "standard_error", "transitions", "trajectories")
            if any(told[name] != clean[name] for name in compared):
                yield "wrong numbers"
        except RunFileError:
            yield "resume refused"
        except Exception as error:
            print(f"traceback: {error!r}", file=sys.stderr)
            yield "tracebacks"


def recorded(path):
    """Returns the pieces that a run file has."""
    if not path.exists() or not path.stat().st_size:
        return 0
    try:
        with RunFile.read(path) as file:
            return sum(1 for _ in file.pieces())
    except RunFileError:
        return 0


def finish(path, clean, before, failed):
    """Resumes a run whose writing failed; yields what happened."""
    yield "failed in one line" if failed else "nothing failed"
    if recorded(path) < before:
        yield "lost pieces"
    try:
        told = KINDS["adaptive"](run=path).to_dict()
        yield "resumed after a failure"
    except Exception as error:
        print(f"after a failure: {error!r}", file=sys.stderr)
        yield "tracebacks"
        return
    if any(told[name] != clean[name] for name in ("value", "standard_error", "transitions", "trajectories")):
        yield "wrong numbers"


def fail(path, before):
    """Calls a function before each request of an evaluation; returns how many pieces were recorded, and the error."""
    appended = []
    original = RunFile.append

    def append(self, *row):
        original(self, *row)
        appended.append(row)

    with patch.object(RunFile, "append", append):
        try:
            rido.evaluate(Noise(before), budget=2000, run=path, **SETTINGS)
        except RunFileError as error:
            assert "\n" not in str(error)
            return len(appended), str(error)
    return len(appended), ""


def after(calls, action):
    """Returns a function that acts when it is called so many times."""
    left = [calls]

    def count():
        left[0] -= 1
        if left[0] == 0:
            action()

    return count


def child(place, *, limit=None, user=None):
    """Evaluates in a process with a file-size limit or without rights; yields its pieces and its error."""
    arguments = json.dumps({"path": str(place / "run.rido"), "limit": limit, "user": user})
    done = subprocess.run([sys.executable, __file__, "--child", arguments], capture_output=True, text=True)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        return None
    return json.loads(done.stdout)


def in_child(path, limit, user):
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    if user is not None:
        os.setuid(user)
    with patch.object(source, "_PIECE_SECONDS", 1e-4):
        print(json.dumps(fail(Path(path), lambda: None)))


def file_size_limit(place, chance, clean):
    found = child(place, limit=chance.randrange(1000, 120_000))
    if found is None:
        yield "tracebacks"
    else:
        yield from finish(place / "run.rido", clean, *found)


def read_only_folder(place, chance, clean):
    """The folder may not be written to; in half of the cases there is a run in it."""
    path = place / "run.rido"
    before = 0
    if chance.random() < 0.5:
        with patch.object(database, "_PATIENCE", 0.05):
            before, _ = fail(path, after(chance.randrange(1, 8), partial(lock, path)))
        unlock()
    for one in (path, place):
        if one.exists():
            one.chmod(0o555 if one.is_dir() else 0o444)
    found = child(place, user=NOBODY if os.getuid() == 0 else None)
    place.chmod(0o755)
    if path.exists():
        path.chmod(0o644)
    if found is None:
        yield "tracebacks"
    else:
        yield from finish(path, clean, max(before, found[0]), found[1])


_LOCKS = []


def lock(path):
    """Holds the lock of a file, as a backup program or another run would."""
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    _LOCKS.append(other)


def unlock():
    while _LOCKS:
        _LOCKS.pop().close()


def locked(place, chance, clean):
    path = place / "run.rido"
    with patch.object(database, "_PATIENCE", 0.05):
        found = fail(path, after(chance.randrange(1, 12), partial(lock, path)))
    unlock()
    yield from finish(path, clean, *found)


def disk_full(place, chance, clean):
    """A small disk, which is a tmpfs where one may be mounted, or else a limit on the pages of the database."""
    path = place / "run.rido"
    size = chance.randrange(60, 200)
    with small_disk(place, size) as mounted:
        if mounted:
            before, failed = fail(path, lambda: None)
            content = [(left.name, left.read_bytes()) for left in place.iterdir()]
        else:
            with patch.object(RunFile, "_read", limited_pages(size, RunFile._read)):
                before, failed = fail(path, lambda: None)
    if mounted:
        for name, bytes_ in content:
            (place / name).write_bytes(bytes_)
    yield from finish(path, clean, before, failed)


def limited_pages(size, read):
    """Returns a method that reads a file, which may not grow beyond a size from then on."""

    def limited(file):
        file._database.execute(f"PRAGMA max_page_count = {max(16, size // 8)}")
        read(file)

    return limited


@contextmanager
def small_disk(place, kilobytes):
    command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(place)]
    mounted = shutil.which("mount") is not None and subprocess.run(command, capture_output=True).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", str(place)], check=True)


def deleted(place, chance, clean):
    """The file is moved away while the run goes on, and put back."""
    path, away = place / "run.rido", place / "away"

    def move():
        for suffix in ("", "-wal", "-shm"):
            if (place / f"run.rido{suffix}").exists():
                (place / f"run.rido{suffix}").rename(place / f"away{suffix}")

    before, failed = fail(path, after(chance.randrange(1, 12), move))
    for suffix in ("", "-wal", "-shm"):
        if (place / f"{away.name}{suffix}").exists():
            (place / f"{away.name}{suffix}").rename(place / f"run.rido{suffix}")
    yield from finish(path, clean, before, failed)


CAUSES = {
    "file-size limit": file_size_limit,
    "read-only folder": read_only_folder,
    "locked": locked,
    "disk full": disk_full,
    "deleted": deleted,
}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="100 damaged files and 10 moments")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        in_child(**json.loads(options.child))
    else:
        size = (100, 10) if options.quick else (1000, 50)
        print(json.dumps(run(size[0], options.seed, size[1]), indent=2))
