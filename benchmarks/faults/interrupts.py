"""Interrupts at random moments: each command must end with status 130 and one line, and leave no process behind.

``python benchmarks/faults/interrupts.py [COUNT] [SEED]`` interrupts ``rido evaluate``, ``compare`` and ``suite``, in
one process and with two workers, by Ctrl-C (SIGINT for all processes) or SIGTERM. Moments are spread from the start of
the interpreter to three times what a whole short command takes.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random

ENDLESS = ["--gamma", "0.99", "--horizon", "200", "--budget", "100000000"]
SUITE = """
budget = 100000000

[tasks.a]
env = "Pendulum-v1"
gamma = 0.99
horizon = 200

[policies]
agent = "rido:pendulum"
random = "random"
"""
COMMANDS = [
    ["evaluate", "Pendulum-v1", "--policy", "random", *ENDLESS],
    ["evaluate", "Pendulum-v1", "--policy", "random", "--run", "run.rido", *ENDLESS],
    ["compare", "Pendulum-v1", "a=random", "b=random", *ENDLESS],
    ["suite", "suite.toml", "--no-page"],
]


def start(words: list[str], folder: Path) -> subprocess.Popen[str]:
    """Starts a command in a session of its own, as a terminal does."""
    pipes = dict(stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return subprocess.Popen([sys.executable, "-m", "rido", *words], cwd=folder, start_new_session=True, **pipes)


def processes_of(session: int) -> list[int]:
    """Returns the processes that a session still has."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(path.parent.name))
    return found


def problems(words: list[str], number: int, seconds: float, folder: Path) -> list[str]:
    """Interrupts a command after so many seconds; returns what is wrong with how it ended."""
    process = start(words, folder)
    time.sleep(seconds)
    if process.poll() is not None:
        return [f"it ended by itself with {process.returncode}"]
    (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
    try:
        out, err = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return ["it went on for a minute"]
    found = [] if process.returncode == 130 else [f"status {process.returncode}"]
    found += ["a traceback"] if "Traceback" in err else []
    if not (err.startswith("rido: stopped") and err.count("\n") == 1) or out:
        found.append(f"other lines: {err[-300:]!r} {out[-100:]!r}")
    deadline = time.monotonic() + 10
    while (left := processes_of(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return [*found, *(f"process {one} is left" for one in left)]


def run(count: int, seed: int) -> dict[str, int]:
    """Interrupts commands; returns how often each problem came up."""
    chance, counts = Random(seed), Counter[str]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "suite.toml").write_text(SUITE)
        began = time.monotonic()
        start(["evaluate", "Pendulum-v1", "--policy", "random", *ENDLESS[:4], "--budget", "1000"], folder).communicate()
        whole = time.monotonic() - began
        for index in range(count):
            words = COMMANDS[index % len(COMMANDS)] + (["--workers", "2"] if index % 8 >= 4 else [])
            number = signal.SIGTERM if index % 5 == 4 else signal.SIGINT
            seconds = 3 * whole * chance.random()
            found = problems(words, number, seconds, folder)
            counts["in order" if not found else "not in order"] += 1
            if found:
                print(f"{words[0]} after {seconds:.2f} of {whole:.2f} s: {found}", file=sys.stderr, flush=True)
    return dict(counts)


if __name__ == "__main__":
    print(run(*(int(word) for word in [*sys.argv[1:], "40", "0"][:2])))
