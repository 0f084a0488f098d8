"""The durable record of a run: configuration and every batch in one SQLite file, from which it resumes."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rido.trajectories import Trajectories

_FORMAT = 1

_SCHEMA = """
CREATE TABLE configuration (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE pieces (
    number INTEGER PRIMARY KEY,          -- 0, 1, 2, ...
    round INTEGER NOT NULL,              -- the schedule asked for that this is a piece of
    lengths BLOB NOT NULL,               -- planned lengths, int32
    steps BLOB NOT NULL,                 -- transitions taken, int32
    rewards BLOB NOT NULL,               -- rewards of the planned steps, float64
    checksum INTEGER NOT NULL,
    seconds REAL NOT NULL                -- what collecting it took
) STRICT;
CREATE TABLE progress (
    round INTEGER PRIMARY KEY,
    transitions INTEGER NOT NULL,
    trajectories INTEGER NOT NULL,
    value REAL,
    standard_error REAL
) STRICT;
"""


class RunFileError(ValueError):
    """A run file that cannot be used, and why."""


@dataclass(frozen=True)
class Piece:
    """Some trajectories of one round.

    Attributes:
        round: the schedule asked for that they are part of, counted from 0.
        trajectories: what was collected.
        seconds: what collecting them took.
    """

    round: int
    trajectories: Trajectories
    seconds: float


class RunFile:
    """An open run file.

    Every piece is one transaction in a write-ahead log: whatever happens to the process, what was written is there,
    and others can read the file while it grows.

    Args:
        path: the file; made if it is not there.
        configuration: what the run is of, as plain numbers, strings, lists and dictionaries. A file that was
            made with another configuration is refused. A value of None takes what the file has.
        defaults: values for those that are None when the file is made.

    Attributes:
        configuration: the configuration of the file.
    """

    def __init__(
        self, path: str | Path, configuration: Mapping[str, Any], *, defaults: Mapping[str, Any] | None = None
    ) -> None:
        self.path = Path(path)
        try:
            self._database = sqlite3.connect(self.path, isolation_level=None, timeout=30)
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = FULL")
            with self._transaction():
                if not self._database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                    self._create(
                        {**configuration, **{k: v for k, v in (defaults or {}).items() if configuration[k] is None}}
                    )
                self.configuration = self._read_configuration()
            self._check(configuration)
        except (sqlite3.DatabaseError, OSError) as error:
            raise RunFileError(f"run file {self.path} cannot be used: {error}") from error
        self._count = int(self._database.execute("SELECT count(*) FROM pieces").fetchone()[0])

    def pieces(self) -> Iterator[Piece]:
        """Yields all pieces in the order in which they were written."""
        rows = self._database.execute("SELECT * FROM pieces ORDER BY number")
        for expected, (number, round_, lengths, steps, rewards, checksum, seconds) in enumerate(rows):
            if number != expected or checksum != _checksum(lengths, steps, rewards):
                raise RunFileError(f"run file {self.path} is damaged at piece {expected}; delete it to start again")
            trajectories = Trajectories(
                np.frombuffer(rewards, np.float64), np.frombuffer(lengths, np.int32), np.frombuffer(steps, np.int32)
            )
            yield Piece(round_, trajectories, seconds)

    def append(self, piece: Piece) -> None:
        """Writes one more piece."""
        batch = piece.trajectories
        lengths, steps = (array.astype(np.int32).tobytes() for array in (batch.lengths, batch.steps))
        rewards = batch.flat.tobytes()
        try:
            self._database.execute(
                "INSERT INTO pieces VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    self._count,
                    piece.round,
                    lengths,
                    steps,
                    rewards,
                    _checksum(lengths, steps, rewards),
                    piece.seconds,
                ),
            )
        except sqlite3.IntegrityError as error:
            raise RunFileError(f"run file {self.path} is being written by another process") from error
        self._count += 1

    def note_progress(
        self, round_: int, transitions: int, trajectories: int, value: float, standard_error: float
    ) -> None:
        """Writes how far the run is after a round, for those who watch it."""
        self._database.execute(
            "INSERT OR REPLACE INTO progress VALUES (?, ?, ?, ?, ?)",
            (round_, transitions, trajectories, value, standard_error),
        )

    def close(self) -> None:
        """Closes the file."""
        self._database.close()

    def __enter__(self) -> RunFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _transaction(self) -> sqlite3.Connection:
        self._database.execute("BEGIN IMMEDIATE")
        return self._database  # as a context manager it commits, or rolls back on an error

    def _create(self, configuration: Mapping[str, Any]) -> None:
        for statement in _SCHEMA.split(";\n"):
            self._database.execute(statement)
        self._database.executemany(
            "INSERT INTO configuration VALUES (?, ?)",
            [(name, json.dumps(value)) for name, value in {"format": _FORMAT, **configuration}.items()],
        )

    def _read_configuration(self) -> dict[str, Any]:
        rows = self._database.execute("SELECT name, value FROM configuration")
        return {name: json.loads(value) for name, value in rows}

    def _check(self, wanted: Mapping[str, Any]) -> None:
        for name, value in {"format": _FORMAT, **wanted}.items():
            found = self.configuration.get(name)
            if value is not None and found != json.loads(json.dumps(value)):
                raise RunFileError(
                    f"run file {self.path} is of another run: its {name} is {found!r}, not {value!r}; "
                    "give another file name to start a new run"
                )


def _checksum(*parts: bytes) -> int:
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return checksum
