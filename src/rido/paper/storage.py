"""What a reproduction has done so far, one file for each piece of work, so that it can go on after being stopped."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import IO, Any

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Task:
    """A piece of work that another process can do.

    Attributes:
        path: the file that says that it is done: written by the work itself, or JSON with what it returned.
        work: a function of no arguments that can be pickled.
    """

    path: Path
    work: Callable[[], Any]


def run_tasks(tasks: Sequence[Task], processes: int, advance: Callable[[], None]) -> None:
    """Does what is not done yet, in several processes, and keeps each result at once.

    Args:
        tasks: the work, the longest first.
        processes: how many to work in.
        advance: called after each piece, also for what was done before.
    """
    todo = [task for task in tasks if not task.path.exists()]
    for _ in range(len(tasks) - len(todo)):
        advance()
    if not todo:
        return
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))  # one thread in each process; they read it when they start
    pool = ProcessPoolExecutor(min(processes, len(todo)), mp_context=get_context("spawn"))
    try:
        futures = {pool.submit(_timed, task.work): task for task in todo}
        for future in as_completed(futures):
            keep(futures[future], future.result())
            advance()
    finally:
        pool.shutdown(cancel_futures=True)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value


def _timed(work: Callable[[], Any]) -> Any:
    """Does a piece of work and adds the seconds of the processor that it took."""
    started = time.process_time()
    result = work()
    return result if result is None else {**result, "seconds": time.process_time() - started}


def keep(task: Task, result: Any) -> None:
    """Writes what a task returned, unless it has written its file itself."""
    if result is not None:
        with write_whole(task.path) as file:
            file.write(json.dumps(result).encode())


def read(task: Task) -> Any:
    """Returns what a task that is done has returned."""
    return json.loads(task.path.read_bytes())


@contextmanager
def write_whole(path: Path) -> Iterator[IO[bytes]]:
    """Opens a file that appears when it is complete, and not at all if that never happens."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
    with unfinished.open("wb") as file:
        yield file
    unfinished.replace(path)
