"""TrajectoryStore: the trajectories of one policy in one environment, simulated once and recorded.

A trajectory depends on its seed alone, and a shorter one is the beginning of a longer one. So whoever asks for a
trajectory gets the same rewards, whether they were recorded before or are simulated now.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from rido.core.trajectories import Trajectories, starts_of
from rido.evaluation.progress import Progress
from rido.record.records import Piece
from rido.record.runfile import RunFile
from rido.simulators.base import Request, SimulationError, Simulator, refuse_components, trajectory_seeds

_PIECE_SECONDS = 2.0  # trajectories are recorded in pieces of about this many seconds; a crash loses one at most


class TrajectoryStore:
    """Trajectories by their index.

    In the run file, the round of a piece is the index of its first trajectory; the others follow. Where an index is
    there more than once, the longest trajectory counts.

    Args:
        simulator: what simulates this policy.
        entropy: what all seeds come from.
        record: the run file; None to keep nothing.

    Attributes:
        simulated: transitions that were simulated by this object.
        recorded: transitions that were in the run file before.
        found: what the simulator has found out so far.
    """

    def __init__(self, simulator: Simulator, *, entropy: int, record: RunFile | None) -> None:
        refuse_components(simulator, "a suite")
        self._simulator, self.found = simulator, simulator.capabilities.found
        self._entropy = entropy
        self._record = record
        self._known: dict[int, tuple[NDArray[np.float64], int]] = {}  # by index: planned rewards, steps taken
        self._seconds = 0.0
        self.simulated = self.recorded = 0
        for piece in record.pieces() if record is not None else ():
            self.recorded += piece.trajectories.transitions
            self._keep(piece.round, piece.trajectories)

    def take(self, first: int, lengths: NDArray[np.int64], bar: Progress) -> Trajectories:
        """Returns the trajectories ``first, first + 1, ...`` of these lengths.

        Args:
            first: index of the first one.
            lengths: planned length of each.
            bar: moves on as they come.
        """
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

    def _has(self, index: int, length: int) -> bool:
        """Whether a trajectory is known to this length; one that ended early is known to any."""
        if index not in self._known:
            return False
        rewards, steps = self._known[index]
        return steps < rewards.size or length <= rewards.size

    def _simulate(self, first: int, lengths: NDArray[np.int64], bar: Progress) -> None:
        """Simulates consecutive trajectories: one for each environment at a time, and more if they are quick."""
        simulator, done = self._simulator, 0
        while done < lengths.size:
            count = simulator.num_envs
            if self._seconds > 0 and not simulator.capabilities.lockstep:
                rate = self.simulated / self._seconds
                count = max(count, int(np.searchsorted(np.cumsum(lengths[done:]), rate * _PIECE_SECONDS)))
            count = min(count, lengths.size - done)
            part, seeds = lengths[done : done + count], trajectory_seeds(self._entropy, first + done, count)
            started = time.perf_counter()
            try:
                collected = simulator.collect(Request(part, seeds))
            except SimulationError as error:
                raise error.at(first + done + error.trajectory) from error.__cause__
            seconds, batch, self.found = time.perf_counter() - started, collected.trajectories, collected.found
            if self._record is not None:
                self._record.append(Piece(first + done, batch, seconds), self.found.workers)
            self._keep(first + done, batch)
            self._seconds += seconds
            self.simulated += batch.transitions
            bar.advance(batch.transitions)
            done += count

    def _keep(self, first: int, batch: Trajectories) -> None:
        rows = np.split(batch.flat, starts_of(batch.lengths)[1:])
        for row, (rewards, steps) in enumerate(zip(rows, batch.steps.tolist(), strict=True)):
            if not self._has(first + row, rewards.size):
                self._known[first + row] = (rewards, steps)
