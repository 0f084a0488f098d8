"""The state of a reproduction: one file for each finished task, so that it can be resumed."""

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
class Job:
    """Work for another process."""

    path: Path  # file that exists once the task is done: written by the work itself, or JSON with what it returned
    work: Callable[[], Any]  # a function of no arguments that can be pickled


def run_tasks(tasks: Sequence[Job], processes: int, advance: Callable[[], None]) -> None:
    """Runs all tasks that are not done yet in several processes, and writes each result as soon as it is there."""
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
    started = time.process_time()
    result = work()
    return result if result is None else {**result, "seconds": time.process_time() - started}


def keep(task: Job, result: Any) -> None:
    """Writes the result of a task, unless the task wrote its file itself."""
    if result is not None:
        with write_whole(task.path) as file:
            file.write(json.dumps(result).encode())


def read(task: Job) -> Any:
    """Reads the result of a finished task."""
    return json.loads(task.path.read_bytes())


@contextmanager
def write_whole(path: Path) -> Iterator[IO[bytes]]:
    """Opens a file for writing that appears under its name only once it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
    with unfinished.open("wb") as file:
        yield file
    unfinished.replace(path)
