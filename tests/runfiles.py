"""Run files that tests make, or change behind rido's back."""

import sqlite3
from contextlib import closing

from rido.record.header import SuiteHeader
from rido.record.runfile import RunFile
from rido.record.schema import checksum

TABLES = ("header", "decisions", "state", "pieces", "resets")


def edit(path, *statements):
    """Runs SQL statements, given with their parameters, and makes all checksums right again."""
    with closing(sqlite3.connect(path)) as database, database:
        for statement in statements:
            database.execute(*statement)
        for table in TABLES:
            for rowid, *row, _ in database.execute(f"SELECT rowid, * FROM {table}").fetchall():
                database.execute(f"UPDATE {table} SET checksum = ? WHERE rowid = ?", (checksum(table, row), rowid))


def reopen(path):
    """Opens the file of a run for writing."""
    with RunFile.read(path) as file:
        header = file.header
    return RunFile(path, header)


def new_file(path):
    """A new file of a run that nobody made."""
    return RunFile(
        path, SuiteHeader(task="task", policy="policy", policy_fingerprint="", environment="env", horizon=20, seed=7)
    )
