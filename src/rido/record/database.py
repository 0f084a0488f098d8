"""Opening run files: recognised before SQLite touches them, upgraded where they are older, every error in one line."""

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from rido.record.schema import upgrade_4

APPLICATION_ID = 0x5249444F  # the bytes "RIDO" in the header of an SQLite file: a run file
FORMAT = 5  # version of the tables, the header's user_version. Format 3 and before had no application id
_UPGRADES = {4: upgrade_4}  # by version: makes its tables those of the next

_HEADER = 100  # bytes of the header of an SQLite file
_PATIENCE = 30.0  # seconds to wait for a lock that another process holds

_RESUME = "then the same command resumes the run"
_DAMAGED = "the file is damaged: restore a copy of it, or delete it to start again"
_OTHER = "it was not changed, give another file name"
_WRITABLE = f"make the file and its folder writable, {_RESUME}"
_ADVICE = {  # what to do about an error of SQLite, by its primary result code
    sqlite3.SQLITE_FULL: f"everything before is recorded: free some space, {_RESUME}",
    sqlite3.SQLITE_IOERR: f"everything before is recorded: check the disk, its quota and ulimit -f, {_RESUME}",
    sqlite3.SQLITE_BUSY: f"another process uses it: wait for that process or stop it, {_RESUME}",
    sqlite3.SQLITE_LOCKED: f"another process uses it: wait for that process or stop it, {_RESUME}",
    sqlite3.SQLITE_READONLY: _WRITABLE,
    sqlite3.SQLITE_PERM: _WRITABLE,
    sqlite3.SQLITE_CANTOPEN: f"check that the folder exists; {_WRITABLE}",
    sqlite3.SQLITE_NOMEM: f"there is too little memory, or {_DAMAGED}",
}


class RunFileError(ValueError):
    """A run file cannot be used; the message says why."""


def unusable(path: Path, reason: object) -> RunFileError:
    """Return the error for a file that cannot be used, with the reason in one line."""
    line = "".join(character if character.isprintable() else "?" for character in " ".join(str(reason).split()))
    return RunFileError(f"run file {path} cannot be used: {line}")


@contextmanager
def one_line_errors(path: Path) -> Iterator[None]:
    """Turn errors of SQLite and of the file system into a RunFileError that says what to do."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        raise unusable(path, f"{error}; {_ADVICE.get(code, _DAMAGED)}") from error
    except UnicodeDecodeError as error:  # SQLite quotes a damaged list of tables
        raise unusable(path, _DAMAGED) from error
    except MemoryError as error:
        raise unusable(path, _ADVICE[sqlite3.SQLITE_NOMEM]) from error
    except OSError as error:
        raise unusable(path, error.strerror or error) from error


def recognise(path: Path) -> int | None:
    """Return the format of a run file from its first bytes; None where there is no file yet, or an empty one.

    The file is neither changed nor locked, whatever it is.

    Raises:
        RunFileError: It is something else than a run file.
    """
    if str(path) == ":memory:":
        raise unusable(path, "a run is recorded in a file on disk; give a file name, or leave run out")
    with one_line_errors(path):
        try:
            kind = path.stat().st_mode
        except FileNotFoundError:
            return None
        except ValueError as error:  # a null character
            raise unusable(path, error) from error
        if stat.S_ISDIR(kind):
            raise unusable(path, "it is a folder; give the name of a file in it")
        if not stat.S_ISREG(kind):  # opening a FIFO would wait forever
            raise unusable(path, "it is a pipe, a socket or a device; give the name of a regular file")
        with path.open("rb") as file:
            header = file.read(_HEADER)
    if not header:
        return None
    if len(header) < _HEADER or not header.startswith(b"SQLite format 3\0"):
        raise unusable(path, f"file is not a database: it is no run file, or damaged; {_OTHER}")
    version, application = (int.from_bytes(header[at : at + 4]) for at in (60, 68))
    if application == APPLICATION_ID:
        return version
    if application == 0 and _is_format_3(path):
        return 3
    raise unusable(path, f"it is an SQLite file, but no run file of rido; {_OTHER}")


def _is_format_3(path: Path) -> bool:
    """Whether a file has the tables of format 3. An immutable connection writes nothing and takes no lock."""
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as database:
            rows = database.execute("SELECT value FROM configuration WHERE name = 'format'").fetchall()
    except sqlite3.Error:
        return False
    return rows == [("3",)]


def open_for_writing(path: Path, create: Callable[[sqlite3.Connection], None]) -> sqlite3.Connection:
    """Open a run file, or create it, where ``create`` fills it in one transaction."""
    version = recognise(path)
    if version is not None:
        _check_version(path, version)
    with one_line_errors(path):
        # Not the plain path, which may have a meaning for SQLite, such as ":memory:".
        database = sqlite3.connect(f"{path.resolve().as_uri()}?mode=rwc", uri=True, isolation_level=None)
        try:
            database.execute(f"PRAGMA busy_timeout = {int(1000 * _PATIENCE)}")
            # A new file is created without a write-ahead log, so that its header is in the file itself from the start.
            with transaction(database):
                if not database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                    database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                    database.execute(f"PRAGMA user_version = {FORMAT}")
                    create(database)
                elif database.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
                    raise unusable(path, "another program has just created it; give another file name")
                _upgrade(database)
            _check_tables(path, database)
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = FULL")
        except BaseException:
            database.close()
            raise
    return database


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Open an existing run file without ever writing to it; all reads see the same moment of a run that goes on.

    A file of an older format is upgraded in memory.
    """
    version = recognise(path)
    if version is None:
        raise RunFileError(f"run file {path} {'is empty' if path.exists() else 'is not there'}")
    _check_version(path, version)
    with one_line_errors(path):
        # Not mode=ro: a connection that may not write leaves the files of the write-ahead log behind. Where nothing may
        # be written, a file without a log cannot change either.
        log = path.with_name(f"{path.name}-wal")
        protected = not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))
        mode = "ro&immutable=1" if protected and not (log.exists() and log.stat().st_size) else "rw"
        database = sqlite3.connect(f"{path.resolve().as_uri()}?mode={mode}", uri=True, isolation_level=None)
        try:
            database.execute(f"PRAGMA busy_timeout = {int(1000 * _PATIENCE)}")
            database.execute("PRAGMA query_only = ON")
            if version < FORMAT:
                original, database = database, sqlite3.connect(":memory:", isolation_level=None)
                with closing(original):
                    original.backup(database)
                with transaction(database):
                    _upgrade(database)
            database.execute("BEGIN")
            _check_tables(path, database)
        except BaseException:
            database.close()
            raise
    return database


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """Commit what is written inside, or nothing of it. Inside another transaction it is a part of that one."""
    if database.in_transaction:
        yield
        return
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    finally:
        if database.in_transaction:
            database.execute("ROLLBACK")


def _upgrade(database: sqlite3.Connection) -> None:
    """Bring the tables of an older file to the present format, one version at a time; inside a transaction."""
    for older in range(database.execute("PRAGMA user_version").fetchone()[0], FORMAT):
        _UPGRADES[older](database)
        database.execute(f"PRAGMA user_version = {older + 1}")


def _check_tables(path: Path, database: sqlite3.Connection) -> None:
    """Refuses tables that lack rows, or have them twice or in the wrong place: writing might destroy the others."""
    problem = str(database.execute("PRAGMA integrity_check(1)").fetchone()[0])
    if problem != "ok":
        raise unusable(path, f"{problem}; {_DAMAGED}")


def _check_version(path: Path, version: int) -> None:
    if version > FORMAT:
        raise unusable(path, f"it has format {version} of a later rido, this one knows up to {FORMAT}: update rido")
    if version == 3:
        reason = (
            "it has format 3 of an earlier rido, whose rows have no checksums; give another file name for a new run"
        )
        raise unusable(path, reason)
    if not all(older in _UPGRADES for older in range(version, FORMAT)):
        raise unusable(path, f"its format {version} is unknown; {_DAMAGED}")
