"""The live page beside a writer of many small pieces: does it slow the writer, and how late is it?"""

import http.client
import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np

import rido
from rido.record.records import Piece
from rido.record.runfile import RunFile

UPDATES = 1000  # a second
SECONDS = 3.0  # of one run of the writer
RUNS = 20  # half of them watched


def configuration():
    names = ("environment", "policy", "strategy")
    return dict.fromkeys(names, "a test") | {"horizon": 20, "gamma": 1.0, "budget": 10**9, "seed": 0}


def write(path):
    """Writes pieces at a fixed rate; returns the seconds that writing alone took, and how many there were."""
    piece = Piece(0, rido.Trajectories(np.ones((4, 20)), [20, 15, 10, 5]), 1e-3)
    spent, count, started = 0.0, 0, time.perf_counter()
    with RunFile(path, configuration()) as file:
        while (now := time.perf_counter() - started) < SECONDS:
            before = time.perf_counter()
            file.append(piece)
            spent += time.perf_counter() - before
            count += 1
            time.sleep(max(0.0, count / UPDATES - now))
    return spent, count


class Watcher:
    """``rido watch`` in a process of its own, with a reader of its events."""

    def __init__(self, path):
        command = [sys.executable, "-m", "rido", "watch", str(path), "--port", "0"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        host = self._process.stdout.readline().rpartition("/")[0].rpartition("/")[2]
        self._connection = http.client.HTTPConnection(host, timeout=20)
        self._connection.request("GET", "/events")
        self._response = self._connection.getresponse()
        self.seen = []  # moments and transitions
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        try:
            while line := self._response.readline():
                if line.startswith(b"data: "):
                    self.seen.append((time.perf_counter(), json.loads(line[6:]).get("transitions", 0)))
        except (OSError, ValueError, AttributeError):
            pass

    @property
    def busy(self):
        """Seconds of a core that the server has used."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self):
        self._process.terminate()
        self._process.wait()


def study(folder):
    """Returns seconds of an update without and with a watcher, updates a second, and delays of the last state."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(1)
    alone, beside, rates, delays, busy = [], [], [], [], []
    for number in range(RUNS):
        path = folder / f"{number}.rido"
        for file in folder.glob(f"{number}.rido*"):
            file.unlink()
        watcher = Watcher(path) if number % 2 else None
        time.sleep(chance.uniform(0, 0.3))  # else it ends at the same moment between two looks in each run
        before = watcher.busy if watcher else 0.0
        spent, count = write(path)
        ended = time.perf_counter()
        (beside if watcher else alone).append(spent / count)
        rates.append(count / SECONDS)
        if watcher is not None:
            deadline = time.monotonic() + 10
            while not any(taken == 50 * count for _, taken in watcher.seen) and time.monotonic() < deadline:
                time.sleep(0.01)
            delays.append(min((at for at, taken in watcher.seen if taken == 50 * count), default=np.inf) - ended)
            busy.append((watcher.busy - before) / SECONDS)
            watcher.close()
    return {"alone": alone, "beside": beside, "rates": rates, "delays": delays, "busy": busy}
