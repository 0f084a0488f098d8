"""Runs that are killed with SIGKILL at random moments and started again until they end. Counts what goes wrong.

A run that resumes must end with the numbers of an undisturbed one, and no piece may be lost that it had recorded.
"""

import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

import rido
from environments import Mortal
from interrupted import PROCESSES, act, pieces
from rido.evaluation import source
from rido.evaluation.recorded import read_run
from rido.record.runfile import RunFile

STEP = 2e-4  # seconds that a step of the environment takes at least
SETTINGS = dict(gamma=0.95, horizon=30, num_envs=2)
KINDS = {
    "adaptive": dict(budget=4000),
    "fitted critic": dict(budget=4000, critic="fit", max_resets=400),
    "until": dict(budget=8000, until=0.5),
    "two workers": dict(budget=6000, workers=2),
    "time budget": dict(budget=20_000, time_budget=2.0),
}
PATIENCE = 60  # seconds that a process left by a killed run may take to end
MARK = "RIDO_FAULTS_KILLS"  # environment variable that all processes of the runs inherit


def evaluate(path, kind, seed, sender=None):
    """Evaluates in many small pieces; tells through the pipe when a piece is recorded."""
    append = RunFile.append

    def told(*row):
        append(*row)
        if sender is not None:
            sender.send_bytes(b".")

    env = partial(Mortal, death=0.05, seconds=STEP)
    with patch.multiple(source, _PIECE_SECONDS=0.01, _RESETS=32), patch.object(RunFile, "append", told):
        result = rido.evaluate(env, act, seed=seed, run=path, progress=False, **KINDS[kind], **SETTINGS)
    return numbers(result)


def numbers(result):
    return [result.value, result.standard_error, result.transitions, result.trajectories, result.resets]


def attack(path, kind, seed, kills, chance, counts):
    """Starts a run again after each kill until it ends or there were enough kills; returns how many there were."""
    started = time.monotonic()
    clean = evaluate(path.with_suffix(".clean"), kind, seed)
    duration, done, before = time.monotonic() - started, 0, 0
    while done < kills:
        receiver, sender = PROCESSES.Pipe(duplex=False)
        child = PROCESSES.Process(target=evaluate, args=(path, kind, seed, sender))
        child.start()
        sender.close()
        child.join(chance.uniform(0, duration))
        child.kill()
        child.join()
        sent = 0
        try:
            while receiver.poll():
                receiver.recv_bytes()
                sent += 1
        except EOFError:
            pass
        if child.exitcode == 0:
            break
        counts["tracebacks"] += child.exitcode != -signal.SIGKILL
        recorded = len(pieces(path))
        counts["lost pieces"] += max(0, before + sent - recorded)
        done, before = done + 1, recorded
    result = evaluate(path, kind, seed)
    if kind == "time budget":  # how much is collected depends on the speed of the machine
        clean = numbers(read_run(path).evaluation)
    counts["wrong numbers"] += result != clean
    counts["pieces"] += len(pieces(path))
    counts["runs"] += 1
    return done


def left_behind():
    """Returns how many processes killed runs left, after some patience: those with our mark, but not our children."""
    ends = time.monotonic() + PATIENCE
    while True:
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                marked = f"{MARK}={os.getpid()}".encode() in (process / "environ").read_bytes().split(b"\0")
                parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if marked and parent != os.getpid():  # ours are the servers that fork the runs
                found.append(process.name)
        if not found or time.monotonic() > ends:
            return len(found)
        time.sleep(0.1)


def run(kills, seed):
    """Kills runs of each kind.

    Args:
        kills: kills in all, the same number for each kind.
        seed: what the moments are drawn from.

    Returns:
        Counts; "wrong numbers", "tracebacks", "lost pieces" and "processes left" should be 0.
    """
    counts = Counter({"wrong numbers": 0, "tracebacks": 0, "lost pieces": 0, "processes left": 0})
    chance = random.Random(seed)
    os.environ[MARK] = str(os.getpid())
    with tempfile.TemporaryDirectory() as name:
        for kind in KINDS:
            wanted = kills // len(KINDS)
            while wanted > 0:
                path = Path(name) / f"{kind.replace(' ', '-')}{wanted}.rido"
                killed = attack(path, kind, chance.randrange(1 << 30), wanted, chance, counts)
                counts[f"kills, {kind}"] += killed
                wanted -= killed
    counts["processes left"] = left_behind()
    return dict(counts)


if __name__ == "__main__":
    print(run(200, 0))
