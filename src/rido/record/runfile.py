"""Run files: the header, the decisions and all batches of a run in one SQLite file, from which it resumes."""

import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rido.core.trajectories import Trajectories
from rido.record.database import RunFileError, one_line_errors, open_for_reading, open_for_writing, transaction
from rido.record.header import WHOLE, WORKERS, EvaluationHeader, Header, Piece, header_from
from rido.record.schema import SCHEMA, checksum

_KINDS = {"header": "setting", "decisions": "decision", "state": "state", "pieces": "piece", "resets": "resets"}
_NOTE_SECONDS = 0.5  # after which the same number of workers is noted again


class RunFile:
    """An open run file.

    Every piece is one transaction in a write-ahead log. A crash therefore loses nothing that was written, and other
    processes can read the file while it grows. A file that was put back from a backup is an earlier moment of the run,
    from which it resumes.

    Args:
        path: The file; created if it does not exist.
        header: What the run is of. A file with another header is refused.
        defaults: Fields to create a file with where the header leaves them open.

    Attributes:
        header: The header of the file.
    """

    _workers: tuple[int, int] | None = None  # as noted last by this object, and when
    _noted = 0.0

    def __init__(self, path: str | Path, header: Header, *, defaults: Mapping[str, Any] | None = None) -> None:
        self.path = Path(path)

        def create(database: sqlite3.Connection) -> None:
            self._database = database
            missing = {name: value for name, value in (defaults or {}).items() if getattr(header, name) is None}
            for statement in SCHEMA:
                database.execute(statement)
            for name, value in {"kind": header.kind, **replace(header, **missing).to_json()}.items():
                self._put("header", name, json.dumps(value))

        self._database = open_for_writing(self.path, create)
        try:
            with one_line_errors(self.path):
                self._place = _place(self.path)
                self._read()
                if (difference := self.header.difference(header)) is not None:
                    raise RunFileError(
                        f"run file {self.path} is of another run: {difference}; "
                        "give another file name to start a new run"
                    )
                self._count = int(self._database.execute("SELECT count(*) FROM pieces").fetchone()[0])
        except BaseException:
            self.close()
            raise

    @classmethod
    def read(cls, path: str | Path) -> "RunFile":
        """Open an existing file of any run, without ever writing to it."""
        file = cls.__new__(cls)
        file.path = Path(path)
        file._database = open_for_reading(file.path)
        try:
            with one_line_errors(file.path):
                file._read()
        except BaseException:
            file.close()
            raise
        return file

    def _read(self) -> None:
        statements = self._database.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")
        if {sql for (sql,) in statements} != set(SCHEMA):
            raise self._damaged("its list of tables")
        try:
            self.header = header_from({name: json.loads(value) for name, value in self._rows("header")})
        except KeyError as error:
            raise self._damaged(f"setting {error}") from error
        self._decisions = {(round_, name): json.loads(value) for round_, name, value in self._rows("decisions")}
        self._state = {name: json.loads(value) for name, value in self._rows("state")}

    def pieces(self) -> Iterator[Piece]:
        """Read all pieces in the order in which they were written."""
        columns = len(self.header.components) if isinstance(self.header, EvaluationHeader) else 0
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

    @property
    def has_pieces(self) -> bool:
        """Whether there was any piece when the file was opened, or was written since."""
        return self._count > 0

    def append(self, piece: Piece, workers: tuple[int, int] = (1, 1)) -> None:
        """Write one more piece, and how many workers are alive, of how many."""
        batch = piece.trajectories
        flat = None if piece.signal is None else piece.signal.flat
        arrays = (batch.flat, flat, piece.starts, piece.features, piece.terminated)
        sizes = (batch.lengths.astype(np.int32), batch.steps.astype(np.int32))
        blobs = [None if array is None else array.tobytes() for array in (*sizes, *arrays)]
        with self._writing():
            self._put("pieces", self._count, piece.round, *blobs, piece.seconds)
            self._note_workers(workers)
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
            self._note_workers(workers)

    def decided(self, name: str, round_: int = WHOLE) -> Any:
        """Return what was decided in a round, which a run that resumes must do again; None if nothing was."""
        return self._decisions.get((round_, name))

    def decide(self, name: str, value: Callable[[], Any], round_: int = WHOLE) -> Any:
        """Return what was decided in a round; if nothing was, write and return ``value()``."""
        if (round_, name) not in self._decisions:
            text = json.dumps(value())
            self._put("decisions", round_, name, text)
            self._decisions[round_, name] = json.loads(text)
        return self._decisions[round_, name]

    def state(self, name: str, default: Any) -> Any:
        """Return what the run has said of itself last."""
        return self._state.get(name, default)

    def set(self, name: str, value: Any) -> None:
        """Write what the run says of itself, replacing what was there."""
        if self._state.get(name) != value:
            self._put("state", name, json.dumps(value), replace=True)
            self._state[name] = value

    def note(self, name: str, texts: Iterable[str]) -> list[str]:
        """Add texts for the reader of the result; return those of the whole run."""
        self.set(name, list(dict.fromkeys([*self.state(name, []), *texts])))
        return list(self.state(name, []))

    def close(self) -> None:
        """Close the file; none of the workers that wrote to it are alive from now on."""
        if self._workers is not None:
            with suppress(RunFileError):  # all else is written
                self._note_workers((0, self._workers[1]))
            self._workers = None
        self._database.close()

    def __enter__(self) -> "RunFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _note_workers(self, workers: tuple[int, int]) -> None:
        """Write how many workers are alive, of how many, and the time, if that is news."""
        now = time.time()
        if workers != self._workers or abs(now - self._noted) >= _NOTE_SECONDS:
            self.set(WORKERS, [*workers, now])
            self._workers, self._noted = workers, now

    def _put(self, table: str, *row: Any, replace: bool = False) -> None:
        places, how = ", ".join("?" * len(row)), "INSERT OR REPLACE" if replace else "INSERT"
        with self._writing():
            try:
                self._database.execute(f"{how} INTO {table} VALUES ({places}, ?)", (*row, checksum(table, row)))
            except sqlite3.IntegrityError as error:
                raise RunFileError(f"run file {self.path} is being written by another process") from error

    def _rows(self, table: str) -> Iterator[list[Any]]:
        with one_line_errors(self.path):
            for count, (*row, found) in enumerate(self._database.execute(f"SELECT * FROM {table} ORDER BY rowid")):
                if found != checksum(table, row):
                    raise self._damaged(f"{_KINDS[table]} {count}")
                yield row

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

    def _damaged(self, where: str) -> RunFileError:
        return RunFileError(
            f"run file {self.path} is damaged at {where}; restore a copy of it, or delete it to start again"
        )


def _place(path: Path) -> tuple[int, int] | None:
    """The device and inode of a file; None where it is not there."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
