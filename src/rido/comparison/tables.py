"""Recorded returns of episodes: reading the files in which other tools keep them. No file can run code."""

import csv
import io
import json
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rido.core import checks
from rido.record.arrays import read_array

_MOST_BYTES = 32 * 2**20  # of a file, and of an array in it
_MOST_EPISODES = 1_000_000
_RETURNS = ("return", "reward", "r", "score", "success")  # names of the column to read; the first that is there
_SUCCESS = "success"
_SEED = "seed"
_MISSING = ("", "nan", "none", "null")  # what tools write for a seed that is not known
_FORMATS = (
    "expected a list of returns, a list of objects with a return and perhaps a seed, or lerobot's eval_info with "
    "per_episode or per_task"
)


class ResultsError(ValueError):
    """A file of results cannot be read."""


@dataclass(frozen=True, eq=False)
class RecordedReturns:
    """Returns of the episodes of one policy."""

    returns: NDArray[np.float64]  # one for each episode
    seeds: tuple[str, ...] | None = None  # or whatever else says which episode of another policy is its pair
    success: bool = False  # whether the file says that returns are 1 for a success and 0 for a failure


def read_returns(path: str | Path) -> RecordedReturns:
    """Reads the returns of recorded episodes. The format is told by the content.

    - CSV with a column return, reward, r, score or success (the first of these that is there) and perhaps a column
      seed; or with a single column. Stable-Baselines3's Monitor files are such files.
    - ``evaluations.npz`` of Stable-Baselines3's EvalCallback: the last evaluation. The best one was chosen because its
      returns were high, so they say too much.
    - JSON: a list of returns, or of objects with the keys of a CSV.
    - lerobot's ``eval_info.json``: successes. Its newer form has no seeds; the task and the number of the episode
      stand in for them, because each task begins with the same seed.

    Args:
        path: the file.
    """
    path = Path(path)
    if not path.is_file():
        raise ResultsError(f"{path}: expected a file of results, found none")
    if path.stat().st_size > _MOST_BYTES:
        raise ResultsError(f"{path}: expected at most {_MOST_BYTES // 2**20} MiB, got {path.stat().st_size:,} bytes")
    content = path.read_bytes()
    try:
        found = _read_evaluations(content) if content.startswith(b"PK") else _read_text(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise ResultsError(f"{path}: expected CSV, JSON or evaluations.npz, got a binary file") from None
    except ResultsError as error:
        raise ResultsError(f"{path}: {' '.join(str(error).split()):.300}") from None
    if not 2 <= found.returns.size <= _MOST_EPISODES:
        raise ResultsError(f"{path}: expected 2 to {_MOST_EPISODES:,} episodes, got {found.returns.size:,}")
    if found.seeds is not None and len(set(found.seeds)) == 1:
        raise ResultsError(
            f"{path}: expected a seed of each episode, got {found.seeds[0]:.40} for all: drop or rename it"
        )
    return found


def _read_text(text: str) -> RecordedReturns:
    if text.lstrip()[:1] not in ("[", "{"):
        return _read_csv(text)
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ResultsError(f"line {error.lineno}: expected JSON, got an error: {error.msg}") from None
    except (RecursionError, ValueError):  # deeply nested, or an integer of thousands of digits
        raise ResultsError("expected JSON of numbers, got what cannot be read") from None
    if isinstance(found, dict):
        return _read_eval_info(found)
    if all(isinstance(entry, dict) for entry in found):
        return _from_objects(found, _RETURNS)
    return _returns(found, success=all(isinstance(entry, bool) for entry in found))


def _read_csv(text: str) -> RecordedReturns:
    """Reads a CSV; a first line that begins with # is a comment."""
    lines = text.splitlines(keepends=True)
    skipped = 1 if text.startswith("#") else 0
    header = lines[skipped] if len(lines) > skipped else ""
    reader = csv.reader(lines[skipped:], delimiter=max(",;\t", key=header.count))
    try:
        rows = [(skipped + reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise ResultsError(f"line {skipped + reader.line_num}: expected CSV, got an error: {error}") from None
    if not rows:
        raise ResultsError("expected CSV, JSON or evaluations.npz, got an empty file")
    names = [name.strip().lower() for name in rows[0][1]]
    column = next((name for name in _RETURNS if name in names), names[0])
    if column not in _RETURNS and len(names) > 1:
        expected = f"a column named {' or '.join(_RETURNS)}"
        raise ResultsError(f"line {rows[0][0]}: expected {expected}, got {', '.join(names)}")
    if column in _RETURNS or np.isnan(_number(column)):
        rows = rows[1:]
    for line, row in rows:
        if len(row) != len(names):
            raise ResultsError(f"line {line}: expected {len(names)} columns, got {len(row)}")
    at, places = names.index(column), [f"line {line}:" for line, _ in rows]
    seeds = [row[names.index(_SEED)] for _, row in rows] if _SEED in names else None
    return _returns([row[at] for _, row in rows], seeds, places, success=column == _SUCCESS)


def _read_eval_info(found: dict[str, Any]) -> RecordedReturns:
    """Reads what lerobot-eval writes: episodes with their seeds, or lists by task in newer versions."""
    if isinstance(episodes := found.get("per_episode"), list):
        return _from_objects(episodes, (_SUCCESS, "sum_reward"))
    if not isinstance(tasks := found.get("per_task"), list):
        raise ResultsError(f"{_FORMATS}, got an object with {', '.join(found)}")
    successes: list[Any] = []
    labels: list[str] = []
    for number, task in enumerate(tasks):
        try:
            new = list(task["metrics"]["successes"])
            labels += [f"{task['task_group']}/{task['task_id']}/{episode}" for episode in range(len(new))]
        except (KeyError, TypeError):
            raise ResultsError(
                f"per_task[{number}]: expected task_group, task_id and metrics with a list of successes"
            ) from None
        successes += new
    return _returns(successes, labels, success=True)


def _read_evaluations(content: bytes) -> RecordedReturns:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entry = archive.getinfo("results.npy")
            if entry.file_size > _MOST_BYTES:
                raise ResultsError(
                    f"expected arrays of at most {_MOST_BYTES // 2**20} MiB, got {entry.file_size:,} bytes"
                )
            numbers = read_array(archive.read(entry))
        if numbers.ndim != 2 or numbers.dtype.kind not in "fiub" or numbers.size == 0:
            found = f"{numbers.dtype} of shape {numbers.shape}"
            raise ResultsError(f"expected results of shape (evaluations, episodes), got {found}")
    except ResultsError:
        raise
    except Exception as error:  # a damaged file raises nearly anything: zlib.error, BadZipFile, KeyError, ValueError
        raise ResultsError(f"expected an npz with an array named results, got an error: {error!s:.100}") from None
    return _returns(numbers[-1].tolist())


def _from_objects(episodes: Sequence[Any], names: Sequence[str]) -> RecordedReturns:
    if not episodes:
        raise ResultsError(f"{_FORMATS}, got an empty list")
    keys = episodes[0] if isinstance(episodes[0], dict) else {}
    key = next((name for name in names if name in keys), None)
    for number, episode in enumerate(episodes):
        if key is None or not isinstance(episode, dict) or key not in episode:
            raise ResultsError(f"episode {number}: expected an object with {key or ' or '.join(names)}")
    seeds = [episode.get(_SEED) for episode in episodes]
    known = any(seed is not None for seed in seeds)
    return _returns([episode[key] for episode in episodes], seeds if known else None, success=key == _SUCCESS)


def _returns(
    entries: Sequence[Any], seeds: Sequence[Any] | None = None, places: Iterable[str] = (), *, success: bool = False
) -> RecordedReturns:
    """Checks what was read; ``places`` name the entries in errors, and only 0 and 1 are successes."""
    where = list(places) or [f"episode {number}:" for number in range(len(entries))]
    numbers = np.empty(len(entries))
    for index, entry in enumerate(entries):
        number = _number(entry)
        if not abs(number) < checks.LARGEST or (success and number not in (0, 1)):
            what = "true, false, 0 or 1" if success else "a finite number"
            what += " below 1e100 in size" if np.isfinite(number) and not success else ""
            raise ResultsError(f"{where[index]} expected {what}, got {entry!r:.40}")
        numbers[index] = number
    labels = None if seeds is None else tuple(_label(seed) for seed in seeds)
    if labels is not None and "" in labels:
        raise ResultsError(f"{where[labels.index('')]} expected a seed, got none")
    return RecordedReturns(numbers, labels, success)


def _number(entry: Any) -> float:
    """Returns an entry as a number; NaN if it is none."""
    if isinstance(entry, str) and entry.strip().lower() in ("true", "false"):
        return float(entry.strip().lower() == "true")
    try:
        return float(entry) if isinstance(entry, (int, float, str)) else np.nan
    except (ValueError, OverflowError):
        return np.nan


def _label(seed: Any) -> str:
    """Returns a seed as text; 7, "7" and 7.0 are the same seed."""
    text = "" if seed is None else str(seed).strip()
    if text.lower() in _MISSING:
        return ""
    number = _number(text) if len(text) < 16 else np.nan  # more digits than a float holds
    return str(int(number)) if np.isfinite(number) and number == int(number) else text
