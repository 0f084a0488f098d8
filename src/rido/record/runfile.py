"""Run files: the configuration and all batches of a run in one SQLite file, from which it resumes."""

from __future__ import annotations

import hashlib
import json
import math
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rido.core.trajectories import Trajectories
from rido.record.database import RunFileError, one_line_errors, open_for_reading, open_for_writing, transaction
from rido.record.records import COMPONENTS, NOTES, WORKERS, Milestone, Piece, milestone_from

_FINGERPRINT = "_fingerprint"  # suffix of the names of fingerprints in the configuration

# Columns are those of Piece and Milestone. Arrays are blobs of int32 (lengths, steps), bool (terminated) or float64;
# warnings are a list of strings in JSON. The checksum of a row covers all of it. A seal holds the number of rows of a
# table and the exclusive or of their checksums: it tells where rows are missing or are those of an earlier moment.
_SCHEMA = (
    "CREATE TABLE configuration (name TEXT PRIMARY KEY, value TEXT NOT NULL, checksum BLOB NOT NULL) STRICT",
    """CREATE TABLE pieces (
    number INTEGER PRIMARY KEY, round INTEGER NOT NULL, lengths BLOB NOT NULL, steps BLOB NOT NULL,
    rewards BLOB NOT NULL, signal BLOB, starts BLOB, features BLOB, terminated BLOB,
    seconds REAL NOT NULL, checksum BLOB NOT NULL
) STRICT""",
    """CREATE TABLE resets (
    number INTEGER PRIMARY KEY, starts BLOB NOT NULL, seconds REAL NOT NULL, checksum BLOB NOT NULL
) STRICT""",
    """CREATE TABLE progress (
    round INTEGER PRIMARY KEY, transitions INTEGER NOT NULL, trajectories INTEGER NOT NULL,
    value REAL, standard_error REAL, degrees_of_freedom REAL,
    skewness REAL, effective_trajectories REAL, largest_contribution REAL,
    critic TEXT NOT NULL, warnings TEXT NOT NULL, checksum BLOB NOT NULL
) STRICT""",
    "CREATE TABLE seals (name TEXT PRIMARY KEY, rows INTEGER NOT NULL, checksum BLOB NOT NULL) STRICT",
)
_TABLES = {  # key of a row, and what a row is
    "configuration": ("name", "setting"),
    "pieces": ("number", "piece"),
    "resets": ("number", "resets"),
    "progress": ("round", "milestone"),
}
_BYTES = 16  # of a checksum
_NOTE_SECONDS = 0.5  # after which the same number of workers is noted again


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

    _workers: tuple[int, int] | None = None  # as noted last by this object, and when
    _noted = 0.0

    def __init__(
        self, path: str | Path, configuration: Mapping[str, Any], *, defaults: Mapping[str, Any] | None = None
    ) -> None:
        self.path = Path(path)

        def create(database: sqlite3.Connection) -> None:
            self._database = database
            missing = {name: value for name, value in (defaults or {}).items() if configuration[name] is None}
            for statement in _SCHEMA:
                database.execute(statement)
            for table in _TABLES:
                database.execute("INSERT INTO seals VALUES (?, 0, ?)", (table, bytes(_BYTES)))
            for name, value in {**configuration, **missing}.items():
                self._put("configuration", name, json.dumps(value))

        self._database = open_for_writing(self.path, create)
        try:
            with one_line_errors(self.path):
                self._place = _place(self.path)
                self._check_schema()
                self.configuration = self._read_configuration()
                self._check(configuration)
                list(self.progress())  # verified, as all that is read; pieces and resets are when they are asked for
                self._count = int(self._database.execute("SELECT count(*) FROM pieces").fetchone()[0])
        except BaseException:
            self.close()
            raise

    @classmethod
    def read(cls, path: str | Path) -> RunFile:
        """Open an existing file of any run, without ever writing to it."""
        file = cls.__new__(cls)
        file.path = Path(path)
        file._database = open_for_reading(file.path)
        try:
            with one_line_errors(file.path):
                file._check_schema()
                file.configuration = file._read_configuration()
        except BaseException:
            file.close()
            raise
        return file

    def pieces(self) -> Iterator[Piece]:
        """Read all pieces in the order in which they were written."""
        columns = len(self.configuration.get(COMPONENTS, []))
        for number, (index, round_, *blobs, seconds) in enumerate(self._rows("pieces")):
            if index != number:
                raise self._damaged(f"piece {number}")
            lengths, steps = (np.frombuffer(blob, np.int32) for blob in blobs[:2])
            rewards = np.frombuffer(blobs[2], np.float64)
            if columns > 1:
                rewards = rewards.reshape(-1, columns)
            trajectories = Trajectories.from_flat(rewards, lengths, steps)
            residuals, starts, features = (
                None if blob is None else np.frombuffer(blob, np.float64) for blob in blobs[3:6]
            )
            signal = None if residuals is None else Trajectories(residuals, lengths, steps)
            terminated = None
            if features is not None:
                features = features.reshape(int(steps.sum()) + steps.size, -1)
                terminated = np.frombuffer(blobs[6], np.bool_)
            yield Piece(round_, trajectories, seconds, signal, starts, features, terminated)

    def append(self, piece: Piece, workers: tuple[int, int] = (1, 1)) -> None:
        """Write one more piece, and how many workers are alive, of how many."""
        batch = piece.trajectories
        flat = None if piece.signal is None else piece.signal.flat
        arrays = (batch.flat, flat, piece.starts, piece.features, piece.terminated)
        sizes = (batch.lengths.astype(np.int32), batch.steps.astype(np.int32))
        blobs = [None if array is None else array.tobytes() for array in (*sizes, *arrays)]
        with self._writing():
            self._put("pieces", self._count, piece.round, *blobs, piece.seconds)
            self._note(workers)
        self._count += 1

    def resets(self) -> Iterator[tuple[NDArray[np.float64], float]]:
        """Read all batches of resets in the order in which they were written: their values and seconds."""
        for number, (index, starts, seconds) in enumerate(self._rows("resets")):
            if index != number:
                raise self._damaged(f"resets {number}")
            yield np.frombuffer(starts, np.float64), seconds

    def append_resets(
        self, number: int, starts: NDArray[np.float64], seconds: float, workers: tuple[int, int] = (1, 1)
    ) -> None:
        """Write one more batch of resets, and how many workers are alive, of how many."""
        with self._writing():
            self._put("resets", number, starts.tobytes(), seconds)
            self._note(workers)

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
            self._put("configuration", name, json.dumps(value))
        return value if found is None else found

    def add_notes(self, notes: Sequence[str], name: str = NOTES) -> list[str]:
        """Add reasons why the same seed may not give the same result, or remarks; return those of the whole run."""
        found = self._read_configuration().get(name, [])
        merged = list(dict.fromkeys([*found, *notes]))
        if merged != found:
            self.set(name, merged)
        return merged

    def set(self, name: str, value: Any) -> None:
        """Write a value under a name, replacing what was there."""
        self._put("configuration", name, json.dumps(value), replace=True)

    def append_milestone(self, milestone: Milestone) -> None:
        """Write the state of the run after a round."""
        round_, transitions, trajectories, *numbers, critic, warnings = astuple(milestone)
        kept = (None if math.isnan(number) else float(number) for number in numbers)  # SQLite has no NaN
        self._put("progress", round_, transitions, trajectories, *kept, critic, json.dumps(warnings), replace=True)

    def progress(self) -> Iterator[Milestone]:
        """Read the state of the run after each finished round."""
        for row in self._rows("progress"):
            yield milestone_from(row)

    def close(self) -> None:
        """Close the file; none of the workers that wrote to it count as alive from now on."""
        if self._workers is not None:
            with suppress(RunFileError):  # all else is written
                self._note((0, self._workers[1]))
            self._workers = None
        self._database.close()

    def __enter__(self) -> RunFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _note(self, workers: tuple[int, int]) -> None:
        """Write how many workers are alive, of how many, if that is news."""
        now = time.time()
        if workers != self._workers or abs(now - self._noted) >= _NOTE_SECONDS:
            self.set(WORKERS, [*workers, now])
            self._workers, self._noted = workers, now

    def _put(self, table: str, *row: Any, replace: bool = False) -> None:
        """Write a row, whose first entry is its key, together with its checksum and the seal of its table."""
        with self._writing():
            found = self._database.execute(
                f"SELECT checksum FROM {table} WHERE {_TABLES[table][0]} = ?", row[:1]
            ).fetchone()
            if found is not None and not replace:
                raise RunFileError(f"run file {self.path} is being written by another process")
            checksum = _checksum(table, row)
            self._database.execute(
                f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * len(row))}, ?)", (*row, checksum)
            )
            rows, sealed = self._seal(table)
            if found is None:
                rows += 1
            else:
                sealed = _either(sealed, found[0])
            self._database.execute(
                "UPDATE seals SET rows = ?, checksum = ? WHERE name = ?", (rows, _either(sealed, checksum), table)
            )

    def _rows(self, table: str) -> Iterator[list[Any]]:
        """Read the rows of a table in the order of their numbers, without their checksums, which are verified."""
        with one_line_errors(self.path):
            outermost = not self._database.in_transaction
            if outermost:
                self._database.execute("BEGIN")  # rows and seal are those of the same moment
            try:
                count, total = 0, bytes(_BYTES)
                for *row, checksum in self._database.execute(f"SELECT * FROM {table} ORDER BY rowid"):
                    if checksum != _checksum(table, row):
                        raise self._damaged(f"{_TABLES[table][1]} {count}")
                    count, total = count + 1, _either(total, checksum)
                    yield row
                if self._seal(table) != (count, total):
                    raise self._damaged(f"{_TABLES[table][1]} {count}")
            finally:
                if outermost and self._database.in_transaction:
                    self._database.execute("ROLLBACK")

    def _seal(self, table: str) -> tuple[int, bytes]:
        found = self._database.execute("SELECT rows, checksum FROM seals WHERE name = ?", (table,)).fetchone()
        if found is None or not isinstance(found[0], int) or not isinstance(found[1], bytes):
            raise self._damaged(f"the seal of {table}")
        return found[0], found[1]

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One transaction, in a file that is still the one that was opened."""
        with one_line_errors(self.path):
            if not self._database.in_transaction and _place(self.path) != self._place:
                raise RunFileError(
                    f"run file {self.path} was deleted, moved or replaced while the run was going on: put it back and "
                    "repeat the command to resume, or start a new run"
                )
            with transaction(self._database):
                yield

    def _read_configuration(self) -> dict[str, Any]:
        return {name: json.loads(value) for name, value in self._rows("configuration")}

    def _check_schema(self) -> None:
        statements = self._database.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid")
        if tuple(sql for (sql,) in statements) != _SCHEMA:
            raise self._damaged("its list of tables")

    def _damaged(self, where: str) -> RunFileError:
        return RunFileError(
            f"run file {self.path} is damaged at {where}; restore a copy of it, or delete it to start again"
        )

    def _check(self, wanted: Mapping[str, Any]) -> None:
        for name, value in wanted.items():
            found = self.configuration.get(name, [] if name == COMPONENTS else None)  # older files have none
            if value is not None and found != json.loads(json.dumps(value)):
                difference = f"{name} is {found!r}, not {value!r}"
                if name.endswith(_FINGERPRINT):
                    difference = f"{name.removesuffix(_FINGERPRINT)} had other code or numbers"
                raise RunFileError(
                    f"run file {self.path} is of another run: its {difference}; "
                    "give another file name to start a new run"
                )


def _place(path: Path) -> tuple[int, int] | None:
    """The device and inode of a file; None where it is not there."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _checksum(table: str, row: Sequence[Any]) -> bytes:
    """The digest of a row, the same before writing and after reading."""
    digest = hashlib.blake2b(table.encode(), digest_size=_BYTES)
    for entry in row:
        kind, content = ("bytes" if isinstance(entry, bytes) else "text"), entry
        if isinstance(entry, float):
            kind, content = "float", (entry + 0.0).hex()  # SQLite has no -0.0
        elif not isinstance(entry, (str, bytes)):
            kind, content = type(entry).__name__, str(entry)
        content = content if isinstance(content, bytes) else content.encode()
        digest.update(f"|{kind} {len(content)}|".encode() + content)
    return digest.digest()


def _either(one: bytes, other: bytes) -> bytes:
    """The exclusive or of two checksums."""
    return (int.from_bytes(one) ^ int.from_bytes(other)).to_bytes(_BYTES)
