"""Follower: what is new in a run file that another process writes, at little cost for both."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rido.record.database import one_line_errors, open_for_reading
from rido.record.records import WORKERS, Milestone, milestone_from


class Follower:
    """Reads a run file again and again, each row once and no rewards.

    The connection cannot write. Between two calls it holds no lock, so that the log of the writer does not grow.

    Args:
        path: the run file.

    Attributes:
        path: the run file.
        configuration: what the run is of.
        transitions: transitions so far.
        trajectories: trajectories so far.
        seconds: time that collecting took so far.
        longest: time that the slowest piece took.
        workers: workers alive when the last piece was written, and those that there should be; None if not known.
        written: when that was, in seconds since 1970.
        milestones: state of the run after each round.
        new_lengths: planned lengths of the pieces that the last call found.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._database: sqlite3.Connection = open_for_reading(path)
        self._database.execute("ROLLBACK")
        self._version = self._pieces = -1
        self.configuration: dict[str, Any] = {}
        self.transitions = self.trajectories = 0
        self.seconds = self.longest = self.written = 0.0
        self.workers: tuple[int, int] | None = None
        self.milestones: list[Milestone] = []
        self.new_lengths: list[NDArray[np.int32]] = []

    def advance(self) -> bool:
        """Reads what is new; returns whether there was anything."""
        with one_line_errors(self.path):
            version = int(self._database.execute("PRAGMA data_version").fetchone()[0])
            if version == self._version:
                return False
            self._database.execute("BEGIN")
            try:
                self._read()
            finally:
                self._database.execute("ROLLBACK")
        self._version = version
        return True

    def close(self) -> None:
        """Closes the file."""
        self._database.close()

    def _read(self) -> None:
        rows = self._database.execute("SELECT name, value FROM configuration")
        self.configuration = {name: json.loads(value) for name, value in rows}
        if noted := self.configuration.pop(WORKERS, None):  # older files have none
            *workers, self.written = noted
            self.workers = (workers[0], workers[1])
        found = self._database.execute(
            "SELECT number, lengths, steps, seconds FROM pieces WHERE number > ? ORDER BY number", (self._pieces,)
        )
        self.new_lengths = []
        for number, lengths, steps, seconds in found:
            self._pieces = number
            self.new_lengths.append(np.frombuffer(lengths, np.int32))
            self.trajectories += self.new_lengths[-1].size
            self.transitions += int(np.frombuffer(steps, np.int32).sum())
            self.seconds += seconds
            self.longest = max(self.longest, seconds)
        last = self.milestones[-1].round if self.milestones else -1
        found = self._database.execute("SELECT * FROM progress WHERE round >= ? ORDER BY round", (last,))
        new = [milestone_from(row[:-1]) for row in found]
        self.milestones = [mark for mark in self.milestones if mark.round < last] + new
