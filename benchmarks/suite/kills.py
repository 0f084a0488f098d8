"""kill -9 at random moments of ``rido suite``: nothing is lost, and the leaderboard is the same."""

import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

from rido.record.runfile import RunFile

SUITE = """
budget = 120000
[tasks.earth]
env = "Pendulum-v1"
gamma = 0.97
[tasks.moon]
env = "Pendulum-v1"
gamma = 0.97
env_kwargs = { g = 1.62 }
[tasks.arm]
env = "Reacher-v5"
gamma = 0.97
[policies]
agent = { earth = "rido:pendulum", moon = "rido:pendulum", arm = "rido:reacher" }
random = "random"
idle = "module_of_the_benchmark:idle"
"""
IDLE = "import numpy as np\n\n\ndef idle(observations):\n    return np.zeros((len(observations), SIZE))\n"


def start(file, folder):
    command = [sys.executable, "-m", "rido", "suite", str(file), "-o", str(folder), "--num-envs", "2"]
    return subprocess.Popen(command, cwd=file.parent, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def recorded(folder):
    """Returns the transitions in the run files of a suite."""
    total = 0
    for path in (folder / "trajectories").glob("*.rido"):
        with RunFile.read(path) as file:
            total += sum(piece.trajectories.transitions for piece in file.pieces())
    return total


def tables(folder):
    return {name: (folder / f"leaderboard.{name}").read_bytes() for name in ("html", "md", "csv")}


def study(place, kills):
    """Returns the number of kills, of suites that they interrupted, and whether anything differed or was lost."""
    place.mkdir(parents=True, exist_ok=True)
    file = place / "suite.toml"
    (place / "idle_arm.py").write_text(IDLE.replace("SIZE", "2"))
    (place / "idle_pendulum.py").write_text(IDLE.replace("SIZE", "1"))
    file.write_text(
        SUITE.replace(
            '"module_of_the_benchmark:idle"',
            '{ earth = "idle_pendulum:idle", moon = "idle_pendulum:idle", arm = "idle_arm:idle" }',
        )
    )
    whole = place / "whole"
    shutil.rmtree(whole, ignore_errors=True)
    started = time.perf_counter()
    assert start(file, whole).wait() == 0
    seconds, expected, total = time.perf_counter() - started, tables(whole), recorded(whole)
    chance, done, suites, moments, lost, other = random.Random(1), 0, 0, [], 0, 0
    while done < kills:
        folder, before = place / "killed", 0
        shutil.rmtree(folder, ignore_errors=True)
        suites += 1
        while True:
            process = start(file, folder)
            try:
                code = process.wait(chance.uniform(0.2, 0.9) * seconds if done < kills else None)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                done += 1
                now = recorded(folder) if (folder / "trajectories").exists() else 0
                lost += now < before
                moments.append(now / total)
                before = now
                continue
            assert code == 0
            break
        other += tables(folder) != expected or recorded(folder) != total
    return {
        "kills": done,
        "suites": suites,
        "lost": lost,
        "other": other,
        "seconds": seconds,
        "least": min(moments),
        "most": max(moments),
        "between": sum(0 < moment < 1 for moment in moments),
    }


if __name__ == "__main__":
    print(study(Path(sys.argv[1]), int(sys.argv[2])))
