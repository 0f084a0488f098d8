"""OpenTask: a task of a suite whose environment and run files are open."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rido.core import checks
from rido.core.trajectories import Trajectories
from rido.evaluation.problem import Problem
from rido.evaluation.progress import Progress
from rido.evaluation.source import Live
from rido.record.header import SuiteHeader
from rido.record.records import NOTES
from rido.record.runfile import RunFile
from rido.simulators.base import SimulationError, refuse_components, refuse_memory
from rido.simulators.sobol import check_seeds
from rido.suite.leaderboard import Task
from rido.suite.race import TrajectoryRange
from rido.suite.trajectory_store import TrajectoryStore


class OpenTask:
    """Collects the trajectories of a task; a context manager.

    Each policy has its own run file, named by task, policy and a digest of all that its rewards depend on. So a
    policy whose weights have changed gets a new file, and an old file is found again whatever else the suite has.

    Args:
        name: of the task.
        task: the task, with its horizon.
        policies: by name.
        seed: of the suite.
        folder: of the run files; None to record nothing.
        settings: how all tasks are collected.
    """

    def __init__(
        self,
        name: str,
        task: Task,
        policies: Mapping[str, Any],
        *,
        seed: int,
        folder: str | Path | None,
        settings: Mapping[str, Any],
    ) -> None:
        self._name, self._folder = name, folder
        # Each task has its own seeds, which do not depend on the other tasks.
        self._entropy = int.from_bytes(hashlib.blake2b(f"{seed} {name}".encode(), digest_size=8).digest())
        self._stack = ExitStack()
        self._records: dict[str, RunFile] = {}
        self._notes: dict[str, list[str]] = {policy: [] for policy in policies}
        with ExitStack() as opening:
            self._problem = Problem.resolve(task.env, task.gamma, {**settings, **task.options})
            self._lineup = self._problem.open(policies)
            opening.callback(self._lineup.close)
            self._stores = {policy: self._open(policy, opening) for policy in policies}
            self._stack = opening.pop_all()

    def __enter__(self) -> OpenTask:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def collect(self, requests: Mapping[str, TrajectoryRange], bar: Progress) -> dict[str, Trajectories]:
        """Returns the trajectories that are asked for, by policy."""
        told = {}
        for policy, request in requests.items():
            try:
                told[policy] = self._stores[policy].take(request.first, request.lengths, bar)
            except SimulationError as error:
                reason = f"{policy} in {self._name}: {error.reason}"
                raise SimulationError(error.trajectory, error.step, error.seed, reason) from error.__cause__
            self._remember(policy, self._stores[policy].live.found.notes)
        return told

    @property
    def notes(self) -> list[str]:
        """Reasons why the same seed may not give the same result, with the task."""
        found = [note for notes in self._notes.values() for note in notes]
        return list(dict.fromkeys(f"{self._name}: {note}" for note in found))

    @property
    def remarks(self) -> list[str]:
        """What else a reader may want to know, with the task."""
        found = [remark for store in self._stores.values() for remark in store.live.found.remarks]
        return list(dict.fromkeys(f"{self._name}: {remark}" for remark in found))

    def _open(self, policy: str, opening: ExitStack) -> TrajectoryStore:
        running = self._lineup.simulator(policy)
        able, record = running.capabilities, None
        refuse_memory(running, policy)
        refuse_components(running, "a suite")
        if self._folder is not None:
            header = SuiteHeader(
                task=self._name,
                policy=policy,
                environment=self._problem.name(),
                **self._problem.fingerprints(running),
                **self._problem.configuration(brief=True),
                horizon=self._problem.horizon,
                seed=self._entropy,
            )
            folder = checks.made_folder("folder", self._folder)
            record = opening.enter_context(RunFile(folder / _file_name(header), header))
            self._records[policy] = record
            self._notes[policy] = list(record.state(NOTES, []))
        process: dict[str, Any] = dict(horizon=self._problem.horizon, gamma=self._problem.gamma)
        store = TrajectoryStore(Live(running, self._entropy, **process), record=record)
        if not store.recorded:
            draws = able.policy is not None and not able.policy.reproducible
            notes = [f"{policy} draws random numbers that the seed does not control"] if draws else []
            notes += [] if able.policy is None else [f"{policy}: {warning}" for warning in able.policy.warnings]
            self._remember(policy, [*notes, *check_seeds(running, self._entropy, sobol=False)])
        return store

    def _remember(self, policy: str, notes: Sequence[str]) -> None:
        self._notes[policy] = list(dict.fromkeys([*self._notes[policy], *notes]))
        if policy in self._records:
            self._records[policy].note(NOTES, notes)


def _file_name(header: SuiteHeader) -> str:
    """Returns a readable name with a digest of the settings, the same as in earlier versions."""
    settings = {{"task": "suite task"}.get(name, name): value for name, value in header.to_json().items()}
    identity = json.dumps({name: value for name, value in settings.items() if value is not None}, sort_keys=True)
    digest = hashlib.blake2b(identity.encode(), digest_size=6).hexdigest()
    readable = re.sub(r"[^A-Za-z0-9.]+", "-", f"{header.task} {header.policy}").strip("-.")[:80]
    return f"{readable}-{digest}.rido"
