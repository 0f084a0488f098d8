"""The tables of a run file, and how a file of format 4 becomes one of format 5."""

import hashlib
import json
import re
import sqlite3
from collections.abc import Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from rido.record.header import DOUBTS, HEADERS, NOTES, REMARKS, WHOLE, WORKERS

_TABLES = re.sub("--.*", "", (Path(__file__).parent / "schema.sql").read_text(encoding="utf-8"))
SCHEMA = tuple(statement.strip() for statement in _TABLES.split(";") if statement.strip())
_BYTES = 16  # of a checksum
_RENAMED = {"policies compared": "names", "suite task": "task"}  # settings of format 4
_COSTS = ("per_step", "per_reset", "transitions", "starting")
_DECISIONS = {  # of format 4, which kept them among the settings
    "agent discount": "agent discount",
    "judged actions": "advantages",
    "independent starts": "independent starts",
    "fitted critic": "fitted critic",
    "rehearsed": "rehearsed",
}
_STATE = {"notes": NOTES, "doubts": DOUBTS, "remarks": REMARKS, "workers alive": WORKERS}
_STATE |= {name: name for name in ("normalisation", "reward_range")}


def checksum(table: str, row: Sequence[Any]) -> bytes:
    """Returns the digest of a row, the same before writing and after reading."""
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


def upgrade_4(database: sqlite3.Connection) -> None:
    """Makes the tables of format 4 those of format 5.

    Format 4 had settings, decisions and notes in one table, estimates after each round, and seals over all rows. What
    doubted the policies stood only beside the estimates.
    """
    rows = database.execute("SELECT name, value, checksum FROM configuration").fetchall()
    if any(found != checksum("configuration", row) for *row, found in rows):
        raise sqlite3.DatabaseError("a setting is damaged")
    found = {name: json.loads(value) for name, value, _ in rows}
    told = [set(json.loads(text)) for (text,) in database.execute("SELECT warnings FROM progress ORDER BY round")]
    sizes = [len(blob) // 8 for (blob,) in database.execute("SELECT starts FROM resets")]
    last = database.execute("SELECT max(round) FROM progress").fetchone()[0]
    begun = database.execute("SELECT max(round) FROM pieces").fetchone()[0]
    for table in ("configuration", "progress", "seals"):
        database.execute(f"DROP TABLE {table}")
    for statement in SCHEMA[:3]:
        database.execute(statement)
    header, decisions = _split(found)
    if sizes and last is not None and last > begun:  # the round of the resets was finished
        decisions[WHOLE, "resets"] = [sum(sizes), found.get("replicates of resets", 0)]
    state = {new: found[old] for old, new in _STATE.items() if old in found}
    if told and (doubts := set.intersection(*told) - set(state.get(NOTES, []))):
        state[DOUBTS] = sorted(doubts)
    for table, entries in (("header", header), ("decisions", decisions), ("state", state)):
        for key, value in entries.items():
            row = (*(key if isinstance(key, tuple) else (key,)), json.dumps(value))
            places = ", ".join("?" * (len(row) + 1))
            database.execute(f"INSERT INTO {table} VALUES ({places})", (*row, checksum(table, row)))


def _split(found: dict[str, Any]) -> tuple[dict[str, Any], dict[tuple[int, str], Any]]:
    """Returns the header and the decisions among the settings of format 4."""
    kind = "comparison" if "policies compared" in found else "suite" if "suite task" in found else "evaluation"
    named = {_RENAMED.get(name, name): value for name, value in found.items()}
    resets = named.pop("resets", [])
    named |= {"max_resets": resets[0], "reset_cost": resets[1]} if resets else {}
    named["time_budget"] = (named.pop("time_budget", None) or [None])[0]
    named["costs"] = dict(zip(_COSTS, named.get("costs", []), strict=False))
    header: dict[str, Any] = {"kind": kind}
    for one in fields(HEADERS[kind]):
        default = one.default_factory() if callable(one.default_factory) else one.default
        header[one.name] = named.get(one.name, default)
        if header[one.name] is MISSING:
            raise sqlite3.DatabaseError(f"setting {one.name} is missing")
    decisions = {(WHOLE, new): found[old] for old, new in _DECISIONS.items() if old in found}
    if "independent starts" in found:
        decisions.setdefault((WHOLE, "advantages"), False)
    for number, goal in enumerate(found.get("extensions", []), start=1):
        decisions[number, "goal"] = goal
    for name, value in found.items():
        if name.startswith("budget of round "):
            decisions[int(name.rpartition(" ")[2]), "budget"] = value
    return header, decisions
