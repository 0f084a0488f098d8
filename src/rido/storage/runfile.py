"""Run files: the configuration and all batches of a run in one SQLite file, from which it resumes."""

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
_FINGERPRINT = "_fingerprint"  # suffix of the names of fingerprints in the configuration

NOTES = "notes"
"""Name in the configuration of the reasons why the same seed may not give the same result."""

REWARD_RANGE = "reward_range"
"""Name in the configuration of the range of rewards that a guaranteed interval was asked for."""

# Columns are those of Piece and Milestone. Arrays are blobs of int32 (lengths, steps), bool (terminated) or float64; a
# checksum is the CRC-32 of all blobs of a row, and warnings are a list of strings in JSON.
_SCHEMA = """
CREATE TABLE configuration (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE pieces (
    number INTEGER PRIMARY KEY, round INTEGER NOT NULL, lengths BLOB NOT NULL, steps BLOB NOT NULL,
    rewards BLOB NOT NULL, signal BLOB, starts BLOB, features BLOB, terminated BLOB,
    checksum INTEGER NOT NULL, seconds REAL NOT NULL
) STRICT;
CREATE TABLE resets (
    number INTEGER PRIMARY KEY, starts BLOB NOT NULL, checksum INTEGER NOT NULL, seconds REAL NOT NULL
) STRICT;
CREATE TABLE progress (
    round INTEGER PRIMARY KEY, transitions INTEGER NOT NULL, trajectories INTEGER NOT NULL,
    value REAL, standard_error REAL, degrees_of_freedom REAL,
    skewness REAL, effective_trajectories REAL, largest_contribution REAL, warnings TEXT NOT NULL
) STRICT;
"""


class RunFileError(ValueError):
    """A run file cannot be used; the message says why."""


@dataclass(frozen=True)
class Piece:
    """A batch of trajectories of one round.

    Attributes:
        round: Index of the round that they belong to.
        trajectories: The rewards.
        seconds: Time that collecting them took.
        signal: Trajectories with residuals in the place of the rewards, if there are any.
        starts: With a signal: one value for the first observation of each trajectory.
        features: Rows of numbers for each step that was taken and after the last one, if there are any.
        terminated: With features: whether the environment ended each trajectory.
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
    """The state of a run after a round.

    Attributes:
        round: Index of the round.
        transitions: Transitions taken so far, without the cost of resets.
        trajectories: Trajectories collected so far.
        value: The estimate; this and the next five are those of :class:`rido.core.estimate.Estimate`.
        warnings: What a reader should know before trusting the estimate.
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

    Every piece is one transaction in a write-ahead log. A crash therefore loses nothing that was written, and other
    processes can read the file while it grows.

    Args:
        path: The file; created if it does not exist.
        configuration: Settings of the run, as plain numbers, strings, lists and dictionaries. A file with another
            configuration is refused. A value of None stands for that of the file.
        defaults: Values to create a file with where the configuration has None.

    Attributes:
        configuration: The configuration of the file.
    """

    def __init__(
        self, path: str | Path, configuration: Mapping[str, Any], *, defaults: Mapping[str, Any] | None = None
    ) -> None:
        self.path = Path(path)
        try:
            self._database = sqlite3.connect(self.path, isolation_level=None, timeout=30)
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = FULL")
            self._database.execute("BEGIN IMMEDIATE")
            with self._database:  # commits, or rolls back on an error
                if not self._database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                    missing = {name: value for name, value in (defaults or {}).items() if configuration[name] is None}
                    for statement in _SCHEMA.split(";\n"):
                        self._database.execute(statement)
                    for name, value in {"format": _FORMAT, **configuration, **missing}.items():
                        self._insert("configuration", name, json.dumps(value))
                self.configuration = self._read_configuration()
            self._check(configuration)
        except (sqlite3.DatabaseError, OSError) as error:
            raise RunFileError(f"run file {self.path} cannot be used: {error}") from error
        self._count = int(self._database.execute("SELECT count(*) FROM pieces").fetchone()[0])

    @classmethod
    def read(cls, path: str | Path) -> RunFile:
        """Open an existing file of any run, without ever writing to it."""
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
        """Read all pieces in the order in which they were written."""
        for round_, *blobs, seconds in self._read_blobs("pieces", "piece"):
            lengths, steps = (np.frombuffer(blob, np.int32) for blob in blobs[:2])
            trajectories = Trajectories(np.frombuffer(blobs[2], np.float64), lengths, steps)
            residuals, starts, features = (
                None if blob is None else np.frombuffer(blob, np.float64) for blob in blobs[3:6]
            )
            signal = None if residuals is None else Trajectories(residuals, lengths, steps)
            terminated = None
            if features is not None:
                features = features.reshape(int(steps.sum()) + steps.size, -1)
                terminated = np.frombuffer(blobs[6], np.bool_)
            yield Piece(round_, trajectories, seconds, signal, starts, features, terminated)

    def append(self, piece: Piece) -> None:
        """Write one more piece."""
        batch = piece.trajectories
        flat = None if piece.signal is None else piece.signal.flat
        arrays = (batch.flat, flat, piece.starts, piece.features, piece.terminated)
        sizes = (batch.lengths.astype(np.int32), batch.steps.astype(np.int32))
        blobs = [None if array is None else array.tobytes() for array in (*sizes, *arrays)]
        self._insert("pieces", self._count, piece.round, *blobs, _checksum(blobs), piece.seconds)
        self._count += 1

    def resets(self) -> Iterator[tuple[NDArray[np.float64], float]]:
        """Read all batches of resets in the order in which they were written: their values and seconds."""
        for starts, seconds in self._read_blobs("resets", "resets"):
            yield np.frombuffer(starts, np.float64), seconds

    def append_resets(self, number: int, starts: NDArray[np.float64], seconds: float) -> None:
        """Write one more batch of resets."""
        self._insert("resets", number, starts.tobytes(), _checksum([starts.tobytes()]), seconds)

    def check_same(self, name: str, values: list[float]) -> None:
        """Write numbers under a name if the run is new; otherwise check that they are the same as before."""
        if not np.allclose(self.get_or_set(name, values), values, rtol=1e-6, atol=1e-9):
            raise RunFileError(
                f"run file {self.path} was made with another {name}: the same data gives another one here, perhaps "
                "because of another version of numpy; give another file name to start a new run"
            )

    def get_or_set(self, name: str, value: Any) -> Any:
        """Return what was written under a name before; if nothing was, write and return ``value``."""
        found = self._read_configuration().get(name)
        if found is None:
            self._insert("configuration", name, json.dumps(value))
        return value if found is None else found

    def add_notes(self, notes: Sequence[str]) -> list[str]:
        """Add reasons why the same seed may not give the same result; return those of the whole run."""
        found = self._read_configuration().get(NOTES, [])
        merged = list(dict.fromkeys([*found, *notes]))
        if merged != found:
            self.set(NOTES, merged)
        return merged

    def set(self, name: str, value: Any) -> None:
        """Write a value under a name, replacing what was there."""
        self._database.execute("INSERT OR REPLACE INTO configuration VALUES (?, ?)", (name, json.dumps(value)))

    def append_milestone(self, milestone: Milestone) -> None:
        """Write the state of the run after a round."""
        row = (*astuple(milestone)[:-1], json.dumps(milestone.warnings))
        self._database.execute(f"INSERT OR REPLACE INTO progress VALUES ({_marks(row)})", row)

    def progress(self) -> Iterator[Milestone]:
        """Read the state of the run after each finished round."""
        for row in self._database.execute("SELECT * FROM progress ORDER BY round"):
            yield Milestone(*(*row[:-1], tuple(json.loads(row[-1]))))

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> RunFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _insert(self, table: str, *row: Any) -> None:
        try:
            self._database.execute(f"INSERT INTO {table} VALUES ({_marks(row)})", row)
        except sqlite3.IntegrityError as error:
            raise RunFileError(f"run file {self.path} is being written by another process") from error

    def _read_blobs(self, table: str, what: str) -> Iterator[list[Any]]:
        """Read the rows of a table without number and checksum, which are checked."""
        for expected, (number, *row) in enumerate(self._database.execute(f"SELECT * FROM {table} ORDER BY number")):
            checksum = row.pop(-2)
            if number != expected or checksum != _checksum(row):
                raise RunFileError(f"run file {self.path} is damaged at {what} {expected}; delete it to start again")
            yield row

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


def _marks(row: Sequence[Any]) -> str:
    return ", ".join("?" * len(row))


def _checksum(row: Sequence[Any]) -> int:
    checksum = 0
    for blob in row:
        checksum = zlib.crc32(blob, checksum) if isinstance(blob, bytes) else checksum
    return checksum
