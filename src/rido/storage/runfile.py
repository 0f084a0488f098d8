"""The durable record of a run: configuration and every batch in one SQLite file, from which it resumes."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rido.core.trajectories import Trajectories

_FORMAT = 3

NOTES = "notes"
"""Name under which a run file has the reasons why the same seed may not give the same result."""

_FINGERPRINT = "_fingerprint"  # at the end of the names of digests

REWARD_RANGE = "reward_range"
"""Name under which a run file has the range of rewards that a guarantee was asked for."""

_SCHEMA = """
CREATE TABLE configuration (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE pieces (
    number INTEGER PRIMARY KEY,          -- 0, 1, 2, ...
    round INTEGER NOT NULL,              -- the schedule asked for that this is a piece of
    lengths BLOB NOT NULL,               -- planned lengths, int32
    steps BLOB NOT NULL,                 -- transitions taken, int32
    rewards BLOB NOT NULL,               -- rewards of the planned steps, float64
    signal BLOB,                         -- what a critic made of them, float64
    starts BLOB,                         -- the critic's values of the first observations, float64
    features BLOB,                       -- what a critic is fitted on, float64, for each step and after the last
    terminated BLOB,                     -- with features: whether the environment ended each trajectory, bool
    checksum INTEGER NOT NULL,
    seconds REAL NOT NULL                -- what collecting it took
) STRICT;
CREATE TABLE resets (
    number INTEGER PRIMARY KEY,          -- 0, 1, 2, ...
    starts BLOB NOT NULL,                -- a critic's values of first observations, float64
    checksum INTEGER NOT NULL,
    seconds REAL NOT NULL
) STRICT;
CREATE TABLE progress (
    round INTEGER PRIMARY KEY,
    transitions INTEGER NOT NULL,
    trajectories INTEGER NOT NULL,
    value REAL,
    standard_error REAL,
    degrees_of_freedom REAL,
    skewness REAL,
    effective_trajectories REAL,
    largest_contribution REAL,
    warnings TEXT NOT NULL               -- a list of strings, JSON
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
        signal: what a critic made of the rewards, if there was one: trajectories with X in the place of the rewards.
        starts: with a signal, the critic's values of the first observations.
        features: what a critic is to be fitted on, if one is: rows for each step that was taken and after the last.
        terminated: with features, whether the environment ended each trajectory.
    """

    round: int
    trajectories: Trajectories
    seconds: float
    signal: Trajectories | None = None
    starts: NDArray[np.float64] | None = None
    features: NDArray[np.float64] | None = None
    terminated: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Milestone:
    """How far a run was after a round.

    Attributes:
        round: counted from 0.
        transitions: transitions taken so far, without what resets cost.
        trajectories: trajectories collected so far.
        value: the estimate.
        standard_error: its standard error.
        degrees_of_freedom: of its interval.
        skewness: of its distribution.
        effective_trajectories: equally large contributions that its error bar rests on.
        largest_contribution: of a single trajectory to its error.
        warnings: what a reader should know before trusting it.
    """

    round: int
    transitions: int
    trajectories: int
    value: float
    standard_error: float
    degrees_of_freedom: float
    skewness: float
    effective_trajectories: float
    largest_contribution: float
    warnings: tuple[str, ...] = ()


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

    @classmethod
    def read(cls, path: str | Path) -> RunFile:
        """Opens a file that is there already, whatever run it is of, and never writes to it."""
        file = cls.__new__(cls)
        file.path = Path(path)
        if not file.path.is_file():
            raise RunFileError(f"run file {file.path} is not there")
        try:
            # Not mode=ro: a connection that may not write leaves the files of the write-ahead log behind.
            uri = f"{file.path.resolve().as_uri()}?mode=rw"
            file._database = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=30)
            file._database.execute("PRAGMA query_only = ON")
            file.configuration = file._read_configuration()
        except sqlite3.DatabaseError as error:
            raise RunFileError(f"run file {file.path} cannot be used: {error}") from error
        file._check({})
        return file

    def pieces(self) -> Iterator[Piece]:
        """Yields all pieces in the order in which they were written."""
        rows = self._database.execute("SELECT * FROM pieces ORDER BY number")
        for expected, (number, round_, *parts, checksum, seconds) in enumerate(rows):
            if number != expected or checksum != _checksum(*parts):
                raise RunFileError(f"run file {self.path} is damaged at piece {expected}; delete it to start again")
            lengths, steps = (np.frombuffer(part, np.int32) for part in parts[:2])
            trajectories = Trajectories(np.frombuffer(parts[2], np.float64), lengths, steps)
            values, starts, features = (
                None if part is None else np.frombuffer(part, np.float64) for part in parts[3:6]
            )
            signal = None if values is None else Trajectories(values, lengths, steps)
            terminated = None
            if features is not None:
                features = features.reshape(int(steps.sum()) + steps.size, -1)
                terminated = np.frombuffer(parts[6], np.bool_)
            yield Piece(round_, trajectories, seconds, signal, starts, features, terminated)

    def append(self, piece: Piece) -> None:
        """Writes one more piece."""
        batch, signal = piece.trajectories, piece.signal
        parts = [
            *(array.astype(np.int32).tobytes() for array in (batch.lengths, batch.steps)),
            batch.flat.tobytes(),
            None if signal is None else signal.flat.tobytes(),
            *(None if part is None else part.tobytes() for part in (piece.starts, piece.features, piece.terminated)),
        ]
        self._insert("pieces", (self._count, piece.round, *parts, _checksum(*parts), piece.seconds))
        self._count += 1

    def resets(self) -> Iterator[tuple[NDArray[np.float64], float]]:
        """Yields a critic's values of first observations, and the seconds that they took, as they were written."""
        rows = self._database.execute("SELECT * FROM resets ORDER BY number")
        for expected, (number, starts, checksum, seconds) in enumerate(rows):
            if number != expected or checksum != _checksum(starts):
                raise RunFileError(f"run file {self.path} is damaged at resets {expected}; delete it to start again")
            yield np.frombuffer(starts, np.float64), seconds

    def append_resets(self, number: int, starts: NDArray[np.float64], seconds: float) -> None:
        """Writes one more batch of resets."""
        self._insert("resets", (number, starts.tobytes(), _checksum(starts.tobytes()), seconds))

    def agree(self, name: str, values: list[float]) -> None:
        """Writes some numbers when the run is made, and makes sure that they are the same when it goes on."""
        found = self._read_configuration().get(name)
        if found is None:
            self._insert("configuration", (name, json.dumps(values)))
        elif not np.allclose(found, values, rtol=1e-6, atol=1e-9):
            raise RunFileError(
                f"run file {self.path} was made with another {name}: the same data gives another one here, perhaps "
                "because of another version of numpy; give another file name to start a new run"
            )

    def recall(self, name: str, value: Any) -> Any:
        """Returns what was written under a name before; if nothing was, writes and returns this."""
        found = self._read_configuration().get(name)
        if found is None:
            self._insert("configuration", (name, json.dumps(value)))
        return value if found is None else found

    def add_notes(self, notes: Sequence[str]) -> list[str]:
        """Writes why the same seed may not give the same result; returns that of all parts of the run."""
        found = self._read_configuration().get(NOTES, [])
        every = list(dict.fromkeys([*found, *notes]))
        if every != found:
            self.remember(NOTES, every)
        return every

    def remember(self, name: str, value: Any) -> None:
        """Writes something under a name, in the place of what was there."""
        self._database.execute("INSERT OR REPLACE INTO configuration VALUES (?, ?)", (name, json.dumps(value)))

    def _insert(self, table: str, row: tuple[Any, ...]) -> None:
        try:
            self._database.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
        except sqlite3.IntegrityError as error:
            raise RunFileError(f"run file {self.path} is being written by another process") from error

    def note_progress(self, milestone: Milestone) -> None:
        """Writes how far the run is after a round, for those who watch it."""
        row = (*astuple(milestone)[:-1], json.dumps(milestone.warnings))
        self._database.execute("INSERT OR REPLACE INTO progress VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)

    def progress(self) -> Iterator[Milestone]:
        """Yields how far the run was after each round that is finished."""
        for row in self._database.execute("SELECT * FROM progress ORDER BY round"):
            yield Milestone(*(*row[:-1], tuple(json.loads(row[-1]))))

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
                difference = f"{name} is {found!r}, not {value!r}"
                if name.endswith(_FINGERPRINT):
                    difference = f"{name.removesuffix(_FINGERPRINT)} had other code or numbers"
                raise RunFileError(
                    f"run file {self.path} is of another run: its {difference}; "
                    "give another file name to start a new run"
                )


def _checksum(*parts: bytes | None) -> int:
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(part or b"", checksum)
    return checksum
