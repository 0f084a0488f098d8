"""TrajectoryStore: the trajectories of one policy in one environment, simulated once and recorded.

A trajectory depends on its seed alone, and a shorter one is the beginning of a longer one. So whoever asks for a
trajectory gets the same rewards, whether they were recorded before or are simulated now.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rido.core.trajectories import Trajectories, starts_of
from rido.evaluation.progress import Progress
from rido.evaluation.source import Live, Wanted
from rido.record.runfile import RunFile


class TrajectoryStore:
    """Trajectories by their index.

    In the run file, the round of a piece is the index of its first trajectory; the others follow. Where an index is
    there more than once, the longest trajectory is the one that is used.

    Attributes:
        live: simulates them.
        recorded: transitions that were in the run file before.
    """

    def __init__(self, live: Live, *, record: RunFile | None) -> None:
        self.live = live
        self._record = record
        self._known: dict[int, tuple[NDArray[np.float64], int]] = {}  # by index: planned rewards, steps taken
        self.recorded = 0
        for piece in record.pieces() if record is not None else ():
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

    def _has(self, index: int, length: int) -> bool:
        """Whether a trajectory is known to this length; one that ended early is known to any."""
        if index not in self._known:
            return False
        rewards, steps = self._known[index]
        return steps < rewards.size or length <= rewards.size

    def _simulate(self, first: int, lengths: NDArray[np.int64], bar: Progress) -> None:
        """Simulates consecutive trajectories."""
        while lengths.size:
            piece = self.live.next(Wanted(first, first, lengths, np.zeros_like(lengths)))
            if self._record is not None:
                self._record.append(piece, self.live.found.workers)
            self._keep(first, piece.trajectories)
            bar.advance(piece.trajectories.transitions)
            first, lengths = first + len(piece.trajectories), lengths[len(piece.trajectories) :]

    def _keep(self, first: int, batch: Trajectories) -> None:
        rows = np.split(batch.flat, starts_of(batch.lengths)[1:])
        for row, (rewards, steps) in enumerate(zip(rows, batch.steps.tolist(), strict=True)):
            if not self._has(first + row, rewards.size):
                self._known[first + row] = (rewards, steps)
