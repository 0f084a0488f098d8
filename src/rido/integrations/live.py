"""What the files of a run that goes on tell: read again and again, without ever writing to them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from rido.comparison.compare import read_comparison
from rido.core.digits import plain, with_interval
from rido.core.estimate import Estimate
from rido.core.reward_moments import RewardMoments
from rido.core.schedule import Schedule
from rido.core.trajectories import count_reached
from rido.record.database import RunFileError
from rido.record.following import Follower
from rido.record.records import COMPARISON, REHEARSED, SUITE_TASK
from rido.record.runfile import RunFile

_POINTS = 200  # of a picture
_LEISURE = 5.0  # times as long as reading everything took, until it is read again
_PATIENCE = 5.0  # seconds without anything written after which nobody knows whether workers are alive, at least


class LiveRun:
    """Follows the file of an evaluation or a comparison, or the folder of a suite.

    An evaluation is followed piece by piece. Comparisons and suites are computed again from all that is recorded, at
    most every few times as long as that takes.

    Args:
        path: the file that ``--run`` names, or the folder of a suite; it may come into being later.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._followers: dict[Path, Follower] = {}
        self._counts = np.zeros(0, dtype=np.int64)
        self._rows: dict[Path, list[str]] = {}
        self._again = 0.0
        self._state: dict[str, Any] = {"kind": "waiting", "title": str(path)}

    def state(self) -> dict[str, Any]:
        """Returns what is known now, as plain numbers, strings and lists; the same object while nothing changes."""
        try:
            changed = [follower for follower in self._opened() if follower.advance()]
            if changed:
                if self._path.is_dir():
                    self._state = self._suite(changed)
                elif COMPARISON in changed[0].configuration:
                    self._state = self._comparison(changed[0])
                else:
                    self._state = self._evaluation(changed[0])
                self._state |= self._alive()
        except RunFileError as error:
            if self._state.get("problem") != str(error):
                self._state = {**self._state, "problem": str(error)}
        return self._state

    def close(self) -> None:
        """Closes all files."""
        for follower in self._followers.values():
            follower.close()

    def _opened(self) -> Iterable[Follower]:
        """Returns what is to be looked at now."""
        if time.monotonic() < self._again:
            return ()
        paths = [self._path]
        if self._path.is_dir():
            paths = sorted(self._path.rglob("*.rido"))
        for path in paths:
            if path not in self._followers and path.is_file() and path.stat().st_size:
                self._followers[path] = Follower(path)
        return self._followers.values()

    def _alive(self) -> dict[str, Any]:
        """Returns the workers alive when something was written last, and the seconds for which that is believed.

        In a suite they are those of the task that was collected last.
        """
        last = max(self._followers.values(), key=lambda run: run.written)
        wait = max(0.0, self._again - time.monotonic())  # until the file is looked at again
        patience = max(_PATIENCE, 3 * last.longest) + 2 * wait
        return {"workers": last.workers, "written": last.written or None, "patience": patience}

    def _evaluation(self, run: Follower) -> dict[str, Any]:
        found, horizon = run.configuration, run.configuration["horizon"]
        if not self._counts.size:
            self._counts = np.zeros(horizon, dtype=np.int64)
        for lengths in run.new_lengths:
            self._counts += count_reached(lengths.astype(np.int64), horizon)
        rounds, rehearsed = [], found.get(REHEARSED, 0)
        for mark in _thinned(run.milestones):
            estimate = Estimate(
                value=mark.value,
                standard_error=mark.standard_error,
                degrees_of_freedom=mark.degrees_of_freedom,
                schedule=Schedule(np.maximum(self._counts, 1)),
                gamma=found["gamma"],
                early_ends=False,
                skewness=mark.skewness,
                effective_trajectories=mark.effective_trajectories,
                largest_contribution=mark.largest_contribution,
            )
            rounds.append([mark.transitions + rehearsed, mark.value, *plain(estimate.interval())])
        edges = np.linspace(0, horizon, min(horizon, _POINTS) + 1).astype(int)[:-1]
        return {
            **self._common(run, f"{found['policy']} in {found['environment']}", "evaluation", found["budget"]),
            "transitions": run.transitions + rehearsed,
            "rounds": rounds,
            "value": with_interval(*rounds[-1][1:]) if rounds else "",
            "horizon": horizon,
            "counts": self._counts[edges].tolist(),
            "warnings": list(run.milestones[-1].warnings) if run.milestones else [],
        }

    def _comparison(self, run: Follower) -> dict[str, Any]:
        started = time.monotonic()
        try:
            found = read_comparison(self._path)
        finally:
            self._again = time.monotonic() + _LEISURE * (time.monotonic() - started)
        told = found.to_dict()
        rows = [
            [
                row["name"],
                with_interval(row["value"], row["interval_low"], row["interval_high"]),
                f"{row['transitions']:,}",
                "" if row["eliminated_at"] is None else f"{row['eliminated_at']:,}",
            ]
            for row in told["policies"]
        ]
        return {
            **self._common(run, f"{len(rows)} policies in {found.environment}", "comparison", found.budget),
            "value": found.summary().splitlines()[0],
            "columns": ["policy", "value", "transitions", "dropped out at"],
            "rows": rows,
            "warnings": told["warnings"],
        }

    def _suite(self, changed: Iterable[Follower]) -> dict[str, Any]:
        started = time.monotonic()
        for run in changed:
            found = run.configuration
            if SUITE_TASK not in found:
                continue
            moments = RewardMoments(found["horizon"], gamma=1.0)
            with RunFile.read(run.path) as file:
                pieces = list(file.pieces())
            for piece in pieces:
                moments.update(piece.trajectories)
            row = [found[SUITE_TASK], found["policy"], f"{run.transitions:,}", f"{run.trajectories:,}", ""]
            if moments.counts[-1] > 1:
                estimate = Estimate.from_moments(moments)
                row[-1] = with_interval(estimate.value, *plain(estimate.interval()))
            self._rows[run.path] = row
        self._again = time.monotonic() + _LEISURE * (time.monotonic() - started)
        runs = list(self._followers.values())
        return {
            "kind": "suite",
            "title": f"{len(self._rows)} runs in {self._path}",
            "value": "",
            "transitions": sum(run.transitions for run in runs),
            "trajectories": sum(run.trajectories for run in runs),
            "seconds": sum(run.seconds for run in runs),
            "columns": ["task", "policy", "transitions", "trajectories", "undiscounted return"],
            "rows": sorted(self._rows.values()),
            "warnings": [],
        }

    def _common(self, run: Follower, title: str, kind: str, budget: int) -> dict[str, Any]:
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


def _thinned(marks: list[Any]) -> list[Any]:
    """Returns at most as many as a picture shows, the last one among them."""
    known = [mark for mark in marks if math.isfinite(mark.standard_error)]
    return known[:: -(-len(known) // _POINTS) or 1][:-1] + known[-1:]
