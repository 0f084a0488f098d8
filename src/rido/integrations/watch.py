"""The live page of a run that goes on, for this machine only, and what it shows; needs the extra ``watch``."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rido.comparison.compare import read_comparison
from rido.core.digits import plain, with_interval
from rido.core.estimate import Estimate
from rido.core.extras import import_extra
from rido.core.reward_moments import RewardMoments
from rido.evaluation.budgets import Goal, recorded_goals
from rido.evaluation.recorded import read_run
from rido.evaluation.source import EndedError
from rido.plots.leaderboard import live_html
from rido.record.database import RunFileError
from rido.record.header import WORKERS, ComparisonHeader, EvaluationHeader, Header, SuiteHeader
from rido.record.runfile import RunFile

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

_POINTS = 200  # of a picture
_LEISURE = 5.0  # times as long as reading everything took, until it is read again
_PATIENCE = 5.0  # seconds without anything written after which nobody knows whether workers are alive, at least


@dataclass
class RunOnFile:
    """What the file of a run tells, read again where the file has changed."""

    path: Path
    header: Header | None = None
    goals: Sequence[Goal] = ()  # of an evaluation
    rehearsed: int = 0  # transitions of the rehearsal
    transitions: int = 0  # so far, without these
    trajectories: int = 0
    seconds: float = 0.0  # that collecting took so far
    longest: float = 0.0  # that the slowest piece took
    workers: Sequence[int] = ()  # alive when the last piece was written, and those that there should be
    written: float = 0.0  # when that was, in seconds since 1970; 0 if not known
    moments: RewardMoments | None = None  # of a suite, those of the undiscounted rewards
    _read_at: Any = None

    def advance(self) -> bool:
        """Reads the file if it has changed since; returns whether it had."""
        changed = [_changed(self.path), _changed(self.path.with_name(f"{self.path.name}-wal"))]
        if changed == self._read_at:
            return False
        with RunFile.read(self.path) as file:
            self.header, self.rehearsed = file.header, file.decided("rehearsed") or 0
            self.goals = recorded_goals(file) if isinstance(file.header, EvaluationHeader) else []
            *self.workers, self.written = file.state(WORKERS, (None, 0.0))  # older files have none
            moments = RewardMoments(file.header.horizon, gamma=1.0)
            self.transitions, self.trajectories, times = 0, 0, [0.0]
            for piece in file.pieces():
                self.trajectories += len(piece.trajectories)
                self.transitions += piece.trajectories.transitions
                times.append(piece.seconds)
                if isinstance(file.header, SuiteHeader):
                    moments.update(piece.trajectories)
        self.seconds, self.longest, self.moments, self._read_at = sum(times), max(times), moments, changed
        return True


def _changed(path: Path) -> tuple[int, int] | None:
    """Returns when a file was written last, and its size; None where it is not there."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_size


class LiveRun:
    """Follows the file of an evaluation or a comparison, or the folder of a suite.

    All that is recorded is read again when it has changed, at most every few times as long as that takes.

    Args:
        path: the file that ``--run`` names, or the folder of a suite; it may come into being later.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._runs: dict[Path, RunOnFile] = {}
        self._again = 0.0
        self._state: dict[str, Any] = {"kind": "waiting", "title": str(path)}

    def state(self) -> dict[str, Any]:
        """Returns what is known now, as plain numbers, strings and lists; the same object while nothing changes."""
        if (started := time.monotonic()) < self._again:
            return self._state
        try:
            for path in sorted(self._path.rglob("*.rido")) if self._path.is_dir() else [self._path]:
                if path not in self._runs and path.is_file() and path.stat().st_size:
                    self._runs[path] = RunOnFile(path)
            if changed := [run for run in self._runs.values() if run.advance()]:
                if self._path.is_dir():
                    told = self._suite()
                elif isinstance(changed[0].header, ComparisonHeader):
                    told = self._comparison(changed[0])
                else:
                    told = self._evaluation(changed[0])
                self._again = (now := time.monotonic()) + _LEISURE * (now - started)
                self._state = told | self._alive()
        except RunFileError as error:
            if self._state.get("problem") != str(error):
                self._state = {**self._state, "problem": str(error)}
        return self._state

    def _alive(self) -> dict[str, Any]:
        """Returns the workers alive when something was written last, and the seconds for which that is believed.

        In a suite they are those of the task that was collected last.
        """
        last = max(self._runs.values(), key=lambda run: run.written)
        wait = max(0.0, self._again - time.monotonic())  # until the file is looked at again
        patience = max(_PATIENCE, 3 * last.longest) + 2 * wait
        workers = tuple(last.workers) if last.written else None
        return {"workers": workers, "written": last.written or None, "patience": patience}

    def _evaluation(self, run: RunOnFile) -> dict[str, Any]:
        header = run.header
        assert isinstance(header, EvaluationHeader)
        told = self._common(run, f"{header.policy} in {header.environment}", "evaluation", run.goals[-1].budget)
        told |= {"transitions": run.transitions + run.rehearsed, "horizon": header.horizon, "value": "", "rounds": []}
        try:
            found = read_run(run.path)
        except EndedError:  # no finished round yet
            return {**told, "counts": [], "warnings": []}
        known = [
            [transitions, estimate.value, *plain(estimate.interval())]
            for transitions, estimate in zip(found.transitions, found.estimates, strict=True)
            if math.isfinite(estimate.standard_error)
        ]
        counts = found.evaluation.schedule.counts
        edges = np.linspace(0, counts.size, min(counts.size, _POINTS) + 1).astype(int)[:-1]
        return {
            **told,
            "rounds": known[:: -(-len(known) // _POINTS) or 1][:-1] + known[-1:],
            "value": with_interval(*known[-1][1:]) if known else "",
            "counts": counts[edges].tolist(),
            "warnings": list(found.evaluation.warnings),
        }

    def _comparison(self, run: RunOnFile) -> dict[str, Any]:
        found = read_comparison(run.path)
        columns, *rows = map(list, found.table())
        return {
            **self._common(run, f"{len(rows)} policies in {found.environment}", "comparison", found.budget),
            "value": found.summary().splitlines()[0],
            "columns": columns,
            "rows": rows,
            "warnings": list(found.warnings),
        }

    def _suite(self) -> dict[str, Any]:
        runs = [run for run in self._runs.values() if isinstance(run.header, SuiteHeader)]
        return {
            "kind": "suite",
            "title": f"{len(runs)} runs in {self._path}",
            "value": "",
            **{name: sum(getattr(run, name) for run in runs) for name in ("transitions", "trajectories", "seconds")},
            "columns": ["task", "policy", "transitions", "trajectories", "undiscounted return"],
            "rows": sorted(map(_row, runs)),
            "warnings": [],
        }

    def _common(self, run: RunOnFile, title: str, kind: str, budget: int) -> dict[str, Any]:
        left = max(0, budget - run.transitions)
        return {
            "kind": kind,
            "title": title,
            "budget": budget,
            "transitions": run.transitions,
            "trajectories": run.trajectories,
            "seconds": run.seconds,
            "forecast": left * run.seconds / run.transitions if run.transitions else None,
        }


def _row(run: RunOnFile) -> list[str]:
    assert isinstance(run.header, SuiteHeader) and run.moments is not None
    row = [run.header.task, run.header.policy, f"{run.transitions:,}", f"{run.trajectories:,}", ""]
    if run.moments.counts[-1] > 1:
        estimate = Estimate.from_moments(run.moments)
        row[-1] = with_interval(estimate.value, *plain(estimate.interval()))
    return row


_HOSTS = ["127.0.0.1", "localhost"]  # other names could be those of a page that wants to read along
_SECONDS = 0.3  # between two looks at the file


def watch_app(path: str | Path) -> Starlette:
    """Returns an application that serves the live page of a run. It never writes to the run's files."""
    import_extra("rido watch", "starlette", "watch")
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.responses import HTMLResponse, StreamingResponse
    from starlette.routing import Route

    run, page = LiveRun(path), live_html(str(path))
    reader = ThreadPoolExecutor(1)  # a connection to SQLite stays in one thread

    async def show(request: Request) -> Response:
        return HTMLResponse(page)

    async def stream() -> AsyncIterator[str]:
        loop, shown = asyncio.get_running_loop(), None
        while not app.state.ended():
            state = await loop.run_in_executor(reader, run.state)
            if state is not shown:
                yield f"data: {json.dumps(state, allow_nan=False)}\n\n"
                shown = state
            await asyncio.sleep(_SECONDS)

    async def events(request: Request) -> Response:
        return StreamingResponse(stream(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    app = Starlette(
        routes=[Route("/", show), Route("/events", events)],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=_HOSTS)],
    )
    app.state.ended = lambda: False
    return app


def serve(path: str | Path, *, port: int, opened: Any = None) -> None:
    """Serves the live page of a run on 127.0.0.1 until it is interrupted; calls ``opened`` with its address."""
    app = watch_app(path)
    uvicorn = import_extra("rido watch", "uvicorn", "watch")
    config = uvicorn.Config(app, host=_HOSTS[0], port=port, log_level="critical", timeout_graceful_shutdown=2)
    server, listener = uvicorn.Server(config), config.bind_socket()
    listener.listen()  # who asks before the server is ready waits for it
    app.state.ended = lambda: server.should_exit  # else it would wait for the streams
    if opened is not None:
        opened(f"http://{_HOSTS[0]}:{listener.getsockname()[1]}/")
    server.run(sockets=[listener])
