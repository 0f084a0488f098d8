"""Run files that tests change behind rido's back."""

import sqlite3
from contextlib import closing
from functools import reduce

from rido.record.runfile import _BYTES, _TABLES, _checksum, _either


def edit(path, *statements):
    """Runs SQL statements, given with their parameters, and makes all checksums right again."""
    with closing(sqlite3.connect(path)) as database, database:
        for statement in statements:
            database.execute(*statement)
        for table in _TABLES:
            checksums = []
            for rowid, *row, _ in database.execute(f"SELECT rowid, * FROM {table}").fetchall():
                checksums.append(_checksum(table, row))
                database.execute(f"UPDATE {table} SET checksum = ? WHERE rowid = ?", (checksums[-1], rowid))
            seal = (len(checksums), reduce(_either, checksums, bytes(_BYTES)), table)
            database.execute("UPDATE seals SET rows = ?, checksum = ? WHERE name = ?", seal)
