"""OpenTask: a task of a suite whose environment and run files are open. Trajectories are simulated once."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rido.core import checks
from rido.core.trajectories import Trajectories, starts_of
from rido.evaluation.problem import Problem
from rido.evaluation.progress import Progress
from rido.evaluation.source import Live, Wanted
from rido.record.header import NOTES, SuiteHeader
from rido.record.runfile import RunFile
from rido.simulators.base import SimulationError, refuse_side_by_side
from rido.simulators.sobol import check_seeds
from rido.suite.leaderboard import Task
from rido.suite.race import TrajectoryRange


@dataclass
class TrajectoryStore:
    """The trajectories of one policy in one environment by their index, simulated once and recorded.

    A trajectory depends on its seed alone, and a shorter one is the beginning of a longer one. So whoever asks for a
    trajectory gets the same rewards, whether they were recorded before or are simulated now.

    In the run file, the round of a piece is the index of its first trajectory; the others follow. Where an index is
    there more than once, the longest trajectory is the one that is used.
    """

    live: Live  # simulates them
    record: RunFile | None  # keeps them
    recorded: int = 0  # transitions that were in the run file before
    notes: Sequence[str] = ()  # reasons why the same seed may not give the same result
    _known: dict[int, tuple[NDArray[np.float64], int]] = field(default_factory=dict)  # planned rewards, steps taken

    def __post_init__(self) -> None:
        if self.record is not None:
            self.notes = self.record.state(NOTES, [])
            for piece in self.record.pieces():
                self.recorded += piece.trajectories.transitions
                self._keep(piece.round, piece.trajectories)

    def take(self, first: int, lengths: NDArray[np.int64], bar: Progress) -> Trajectories:
        """Returns the trajectories ``first, first + 1, ...`` of these lengths."""
        missing = np.array([not self._has(first + row, int(length)) for row, length in enumerate(lengths)])
        edges = np.flatnonzero(np.diff(missing, prepend=False, append=False))
        for start, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            self._simulate(first + start, lengths[start:end], bar)
        rewards, steps = [], []
        for row, length in enumerate(lengths.tolist()):
            known, taken = self._known[first + row]
            rewards.append(np.pad(known[:length], (0, max(0, length - known.size))))
            steps.append(min(taken, length))
        bar.advance(int(np.array(steps)[~missing].sum()))
        return Trajectories(np.concatenate(rewards), lengths, steps)

    def note(self, notes: Sequence[str]) -> None:
        """Adds to the notes."""
        self.notes = list(dict.fromkeys([*self.notes, *notes]))
        if self.record is not None:
            self.record.note(NOTES, notes)

    def _has(self, index: int, length: int) -> bool:
        """Whether a trajectory is known to this length; one that ended early is known to any."""
        if index not in self._known:
            return False
        rewards, steps = self._known[index]
        return steps < rewards.size or length <= rewards.size

    def _simulate(self, first: int, lengths: NDArray[np.int64], bar: Progress) -> None:
        while lengths.size:
            piece = self.live.next(Wanted(first, first, lengths, np.zeros_like(lengths)))
            if self.record is not None:
                self.record.append(piece, self.live.found.workers)
            self._keep(first, piece.trajectories)
            bar.advance(piece.trajectories.transitions)
            first, lengths = first + len(piece.trajectories), lengths[len(piece.trajectories) :]

    def _keep(self, first: int, batch: Trajectories) -> None:
        rows = np.split(batch.flat, starts_of(batch.lengths)[1:])
        for row, (rewards, steps) in enumerate(zip(rows, batch.steps.tolist(), strict=True)):
            if not self._has(first + row, rewards.size):
                self._known[first + row] = (rewards, steps)


class OpenTask(ExitStack):
    """Collects the trajectories of a task; a context manager.

    Each policy has its own run file, named by task, policy and a digest of all that its rewards depend on. So a
    policy whose weights have changed gets a new file, and an old file is found again whatever else the suite has.
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
        super().__init__()
        self._name, self._folder = name, folder
        # Each task has its own seeds, which do not depend on the other tasks.
        self._entropy = int.from_bytes(hashlib.blake2b(f"{seed} {name}".encode(), digest_size=8).digest())
        try:
            self._problem = Problem.resolve(task.env, task.gamma, {**settings, **task.options})
            self._lineup = self._problem.open(policies)
            self.callback(self._lineup.close)
            self._stores = {policy: self._open(policy) for policy in policies}
        except BaseException:
            self.close()
            raise

    def collect(self, requests: Mapping[str, TrajectoryRange], bar: Progress) -> dict[str, Trajectories]:
        """Returns the trajectories that are asked for, by policy."""
        told = {}
        for policy, request in requests.items():
            try:
                told[policy] = self._stores[policy].take(request.first, request.lengths, bar)
            except SimulationError as error:
                reason = f"{policy} in {self._name}: {error.reason}"
                raise SimulationError(error.trajectory, error.step, error.seed, reason) from error.__cause__
            self._stores[policy].note(self._stores[policy].live.found.notes)
        return told

    @property
    def notes(self) -> list[str]:
        """Reasons why the same seed may not give the same result, with the task."""
        found = [note for store in self._stores.values() for note in store.notes]
        return list(dict.fromkeys(f"{self._name}: {note}" for note in found))

    @property
    def remarks(self) -> list[str]:
        """What else a reader may want to know, with the task."""
        found = [remark for store in self._stores.values() for remark in store.live.found.remarks]
        return list(dict.fromkeys(f"{self._name}: {remark}" for remark in found))

    def _open(self, policy: str) -> TrajectoryStore:
        running = self._lineup.simulator(policy)
        able, record = running.capabilities, None
        refuse_side_by_side(running, policy, "a suite")
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
            record = self.enter_context(RunFile(folder / _file_name(header), header))
        process: dict[str, Any] = dict(horizon=self._problem.horizon, gamma=self._problem.gamma)
        store = TrajectoryStore(Live(running, self._entropy, **process), record=record)
        if not store.recorded:
            draws = able.policy is not None and not able.policy.reproducible
            notes = [f"{policy} draws random numbers that the seed does not control"] if draws else []
            notes += [] if able.policy is None else [f"{policy}: {warning}" for warning in able.policy.warnings]
            store.note([*notes, *check_seeds(running, self._entropy, sobol=False)])
        return store


def _file_name(header: SuiteHeader) -> str:
    """Returns a readable name with a digest of the settings, the same as in earlier versions."""
    settings = {{"task": "suite task"}.get(name, name): value for name, value in header.to_json().items()}
    identity = json.dumps({name: value for name, value in settings.items() if value is not None}, sort_keys=True)
    digest = hashlib.blake2b(identity.encode(), digest_size=6).hexdigest()
    readable = re.sub(r"[^A-Za-z0-9.]+", "-", f"{header.task} {header.policy}").strip("-.")[:80]
    return f"{readable}-{digest}.rido"
