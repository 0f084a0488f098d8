"""Follower: how far a run is whose file another process writes, at little cost for both."""

from pathlib import Path

import numpy as np

from rido.record.database import one_line_errors, open_for_reading
from rido.record.header import WORKERS
from rido.record.runfile import RunFile


class Follower(RunFile):
    """Reads a run file again and again, each row once and no rewards.

    The connection cannot write. Between two calls it holds no lock, so that the log of the writer does not grow.

    Args:
        path: the run file.

    Attributes:
        transitions: transitions so far.
        trajectories: trajectories so far.
        seconds: time that collecting took so far.
        longest: time that the slowest piece took.
        workers: workers alive when the last piece was written, and those that there should be; None if not known.
        written: when that was, in seconds since 1970.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._database = open_for_reading(path)
        self._database.execute("ROLLBACK")
        self._version = self._last = -1
        self.transitions = self.trajectories = 0
        self.seconds = self.longest = self.written = 0.0
        self.workers: tuple[int, int] | None = None

    def advance(self) -> bool:
        """Reads what is new; returns whether there was anything."""
        with one_line_errors(self.path):
            version = int(self._database.execute("PRAGMA data_version").fetchone()[0])
            if version == self._version:
                return False
            self._database.execute("BEGIN")
            try:
                self._read()
                self._read_sizes()
            finally:
                self._database.execute("ROLLBACK")
        self._version = version
        return True

    def _read_sizes(self) -> None:
        if noted := self.state(WORKERS, None):  # older files have none
            self.workers, self.written = (noted[0], noted[1]), noted[2]
        found = self._database.execute(
            "SELECT number, lengths, steps, seconds FROM pieces WHERE number > ? ORDER BY number", (self._last,)
        )
        for self._last, lengths, steps, seconds in found:
            self.trajectories += np.frombuffer(lengths, np.int32).size
            self.transitions += int(np.frombuffer(steps, np.int32).sum())
            self.seconds += seconds
            self.longest = max(self.longest, seconds)
