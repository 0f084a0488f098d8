"""Sources of trajectories: a simulator, a run that goes on from its file, or a file alone.

The loop asks a source for one piece after the other and for what was decided before. So a run that is live, one that
resumes and one that is read take the same steps; a file alone ends.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rido.core.schedule import Schedule
from rido.core.trajectories import Trajectories
from rido.evaluation.components import Components
from rido.evaluation.progress import Progress
from rido.policies.observations import take
from rido.predictors.base import Critic, signal, value
from rido.predictors.features import FeatureExtractor
from rido.record.database import RunFileError
from rido.record.header import DOUBTS, NOTES, REMARKS, WHOLE, Piece
from rido.record.runfile import RunFile
from rido.simulators.base import (
    Batch,
    Request,
    Seeds,
    SimulationError,
    Simulator,
    Summarised,
    Wants,
    trajectory_seeds,
)
from rido.simulators.sobol import SobolPoints

RESET_REPLICATES = 16  # sequences of Sobol points for resets
_PIECE_SECONDS = 2.0  # a schedule is collected in pieces of about this many seconds; a crash loses one piece at most
_PIECE_KEPT = 1 << 18  # transitions of a larger piece, which are kept twice while it is joined to the others
_PIECE_TRANSITIONS = 1 << 24  # largest piece of a lockstep simulator, whose pieces must not depend on the time
_RESETS = 1024  # resets in a piece; a fixed number, because a critic may round a row by its place in the batch
_RESET_STREAM = 1  # stream of seeds for resets
_START_STREAM = 2  # stream of the points where trajectories start

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


class EndedError(RunFileError):
    """A run that is read has no more."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"run file {path} has no finished round yet")


class OtherPlanError(RunFileError):
    """A run file has other trajectories than those that are asked for."""

    def __init__(self) -> None:
        super().__init__("run file was recorded by another version of rido, which planned otherwise")


@dataclass(frozen=True)
class Wanted:
    """Trajectories to collect."""

    round: int  # number under which a run file keeps them
    first: int  # index of the first one; the others follow
    lengths: Counts  # of each
    groups: Counts  # the replicate that each belongs to, where starts are Sobol points
    critic: Critic | None = None  # the control variate whose signal is wanted too
    extractor: FeatureExtractor | None = None  # makes the features that are wanted too
    room: int | None = None  # transitions that they may take, up to the first one that the rest does not pay for

    @property
    def plain(self) -> bool:
        """Whether rewards alone are wanted."""
        return self.critic is None and self.extractor is None

    def after(self, batch: Trajectories) -> "Wanted":
        """Returns the rest of it when its first trajectories are there."""
        room = None if self.room is None else self.room - batch.transitions
        rest = self.lengths[len(batch) :], self.groups[len(batch) :]
        return replace(self, first=self.first + len(batch), lengths=rest[0], groups=rest[1], room=room)


class Said(NamedTuple):
    """What a reader of the result should know."""

    notes: Sequence[str]  # reasons why the same seed may not give the same result
    doubts: Sequence[str]  # why the policy may not be the agent that was trained, or the critic not the one asked for
    remarks: Sequence[str]  # what else there is to know
    normalisation: str  # what was done to the agent's observations
    rehearsed: int  # transitions of the rehearsal


@dataclass
class Live:
    """Simulates trajectories by their index."""

    simulator: Simulator
    entropy: int  # what all seeds come from
    _: KW_ONLY
    horizon: int
    gamma: float
    replicates: int = 0  # sequences of Sobol points for the starts of trajectories; 0 for random starts
    components: Components | None = None
    notes: Sequence[str] = ()  # reasons known beforehand why the same seed may not give the same result
    doubts: Sequence[str] = ()  # what else should be known before the numbers are trusted
    sums: bool = False  # whether it has returned sums instead of rewards

    def __post_init__(self) -> None:
        self._able = self.simulator.capabilities
        self.found, self.takes_points = self._able.found, self._able.takes_points
        starts = dict(stream=_START_STREAM, replicates=self.replicates)
        self._points = SobolPoints(self.entropy, **starts) if self.replicates else None
        self._reset_points = SobolPoints(self.entropy, stream=_RESET_STREAM, replicates=RESET_REPLICATES)
        self._planned, self._seconds = 0, 0.0  # steps that were planned, and the time that they took
        self._summarised: Summarised | None = None

    def next(self, request: Wanted) -> Piece:
        """Simulates the first of these trajectories: one for each environment, and more if they are quick."""
        count, lengths, room = self.simulator.num_envs, request.lengths, request.room
        limited = self._able.limits and request.plain and self._points is None
        if room is not None and not limited:  # those that it pays for in any case
            lengths = lengths[: np.searchsorted(np.cumsum(lengths), room, side="right")]
        if self._able.lockstep:
            count = min(count, max(1, int(np.searchsorted(np.cumsum(lengths), _PIECE_TRANSITIONS))))
        elif self._seconds > 0:
            rate = self._planned / self._seconds
            most = min(rate * _PIECE_SECONDS, _PIECE_KEPT)
            count = max(count, int(np.searchsorted(np.cumsum(lengths), most)))
        count = min(count, lengths.size)
        plain = request.plain
        seeds = trajectory_seeds(self.entropy, request.first, count)
        points = None if self._points is None else self._points.take(request.groups[:count])
        started = time.perf_counter()
        try:
            wants: Wants = "rewards" if plain else "observations"
            limit = room if limited else None
            batch = self.simulator.collect(Request(lengths[:count], seeds, points, wants=wants, limit=limit))
            self.found = batch.found
            piece = Piece(request.round, batch.trajectories, 0.0) if plain else self._observed(request, batch, seeds)
        except SimulationError as error:
            raise error.at(request.first + error.trajectory) from error.__cause__
        seconds = time.perf_counter() - started
        if self.components is not None:
            self.components.check(piece.trajectories)  # before anything is recorded
        self._planned += int(piece.trajectories.lengths.sum())
        self._seconds += seconds
        return replace(piece, seconds=seconds)

    def starts(self, first: int, replicates: Counts, critic: Critic, *, points: bool) -> tuple[Floats, float]:
        """Resets, and returns the critic's values of first observations and the seconds that it took."""
        started, count = time.perf_counter(), replicates.size
        seeds = Seeds(self.entropy, first, count, stream=_RESET_STREAM)
        drawn = self._reset_points.take(replicates) if points else None
        known = critic if self.sums else None
        batch = self.simulator.collect(Request(None, seeds, drawn, wants="starts", critic=known))
        self.found, found = batch.found, batch.observations
        if not self.sums:
            found = value(critic, found, np.full(count, self.horizon))
        return found, time.perf_counter() - started

    def summarise(self, schedule: Schedule, first: int, critic: Critic | None, total: int) -> Summarised:
        """Collects a schedule on a device and returns sums over the rewards, and over the critic's signal."""
        seeds = Seeds(self.entropy, first, schedule.trajectories)
        known: dict[str, Any] = dict(critic=critic, before=self._summarised, total=total)
        try:
            batch = self.simulator.collect(Request(schedule, seeds, wants="sums", **known))
        except SimulationError as error:
            raise error.at(first + error.trajectory) from None
        assert batch.sums is not None
        self._summarised, self.found, self.sums = batch.sums, batch.found, True
        return batch.sums

    @property
    def batch(self) -> int:
        """Resets in a batch, of which a device has its own number."""
        return self.simulator.num_envs if self.sums else _RESETS

    def decide(self, name: str, value: Callable[[], Any], round_: int = WHOLE) -> Any:
        """Nothing was decided before."""
        return value()

    def said(self) -> Said:
        """Returns what the simulator and its policy say."""
        normalisation = "" if self._able.policy is None else self._able.policy.normalisation
        notes = tuple(dict.fromkeys([*self.notes, *self.found.notes]))
        return Said(notes, self.doubts, self.found.remarks, normalisation, self.found.rehearsed)

    def pass_over(self, groups: Counts, *, resets: bool = False) -> None:
        """Passes over the points of trajectories or resets that were recorded before."""
        if resets:
            self._reset_points.skip(groups)
        elif self._points is not None:
            self._points.skip(groups)

    def _observed(self, request: Wanted, observed: Batch, seeds: Sequence[int]) -> Piece:
        if request.extractor is None:
            assert request.critic is not None
            made = signal(request.critic, observed, horizon=self.horizon, gamma=self.gamma)
            return Piece(request.round, observed.trajectories, 0.0, signal=made.trajectories, starts=made.starts)
        # One trajectory after the other, because an agent's value may be rounded by its place in the batch.
        steps = observed.trajectories.steps
        parts: list[Floats] = []
        for seed, count, end in zip(seeds, steps.tolist(), np.cumsum(steps).tolist(), strict=True):
            actions = None if observed.actions is None else observed.actions[end - count : end]
            first = end - count + len(parts)  # there is one observation more than actions for each trajectory
            observations = take(observed.observations, np.arange(first, first + count + 1))
            parts.append(request.extractor.of_trajectory(observations, actions, seed))
        features = np.concatenate(parts)
        return Piece(request.round, observed.trajectories, 0.0, features=features, terminated=observed.terminated)


class Recorded:
    """The pieces of a run file, which end.

    Args:
        file: the run file.
        pieces: recorded pieces that are still to come, where several sources share them.
    """

    takes_points = sums = False
    batch = _RESETS

    def __init__(self, file: RunFile, pieces: deque[Piece] | None = None) -> None:
        self._file = file
        self.pieces = deque(file.pieces()) if pieces is None else pieces
        self._resets = deque(file.resets())

    def next(self, request: Wanted) -> Piece:
        if not self.pieces:
            return self._simulate(request)
        piece, lengths = self.pieces.popleft(), request.lengths
        planned = np.array_equal(piece.trajectories.lengths, lengths[: len(piece.trajectories)])
        if not planned or piece.round != request.round or (piece.features is None) != (request.extractor is None):
            raise OtherPlanError
        self._pass_over(request.groups[: len(piece.trajectories)])
        return piece

    def starts(self, first: int, replicates: Counts, critic: Critic, *, points: bool) -> tuple[Floats, float]:
        if not self._resets:
            return self._reset(first, replicates, critic, points=points)
        if points:
            self._pass_over(replicates, resets=True)
        if self._resets[0][0].size != replicates.size:
            raise OtherPlanError
        return self._resets.popleft()

    def decide(self, name: str, value: Callable[[], Any], round_: int = WHOLE) -> Any:
        if (found := self._file.decided(name, round_)) is None:
            raise EndedError(self._file.path)
        return found

    def said(self) -> Said:
        notes, doubts, remarks = (self._file.state(name, []) for name in (NOTES, DOUBTS, REMARKS))
        return Said(notes, doubts, remarks, self._file.state("normalisation", ""), self._file.decided("rehearsed") or 0)

    def _simulate(self, request: Wanted) -> Piece:
        raise EndedError(self._file.path)

    def _reset(self, first: int, replicates: Counts, critic: Critic, *, points: bool) -> tuple[Floats, float]:
        raise EndedError(self._file.path)

    def _pass_over(self, groups: Counts, *, resets: bool = False) -> None:
        pass


class Resumed(Recorded):
    """The pieces of a run file, and then those of a simulator, which are recorded; arguments as above."""

    def __init__(self, file: RunFile, live: Live, pieces: deque[Piece] | None = None) -> None:
        super().__init__(file, pieces)
        self._live, self.takes_points = live, live.takes_points

    def decide(self, name: str, value: Callable[[], Any], round_: int = WHOLE) -> Any:
        return self._file.decide(name, value, round_)

    def check_same(self, name: str, values: list[float]) -> None:
        """Raises where the same data gave other numbers before."""
        if not np.allclose(self.decide(name, lambda: values), values, rtol=1e-6, atol=1e-9):
            raise RunFileError(
                f"run file {self._file.path} was made with another {name}: the same data gives another one here, "
                "perhaps because of another version of numpy; give another file name to start a new run"
            )

    def said(self) -> Said:
        now = self._live.said()
        for name, texts in ((NOTES, now.notes), (DOUBTS, now.doubts), (REMARKS, now.remarks)):
            self._file.note(name, texts)
        if now.normalisation:
            self._file.set("normalisation", now.normalisation)
        self._file.decide("rehearsed", lambda: now.rehearsed)
        return super().said()

    def _simulate(self, request: Wanted) -> Piece:
        piece = self._live.next(request)
        self.said()
        self._file.append(piece, self._live.found.workers)
        return piece

    def _reset(self, first: int, replicates: Counts, critic: Critic, *, points: bool) -> tuple[Floats, float]:
        starts, seconds = self._live.starts(first, replicates, critic, points=points)
        self._file.append_resets(first // _RESETS, starts, seconds, self._live.found.workers)
        return starts, seconds

    def _pass_over(self, groups: Counts, *, resets: bool = False) -> None:
        self._live.pass_over(groups, resets=resets)


Source = Live | Recorded  # where the loop gets the pieces of a run, and what was decided before


def collect(source: Source, request: Wanted, bar: Progress) -> Iterator[Piece]:
    """Returns the trajectories of a request, one piece after the other."""
    while request.lengths.size and (request.room is None or request.lengths[0] <= request.room):
        piece = source.next(request)
        bar.advance(piece.trajectories.transitions)
        request = request.after(piece.trajectories)
        yield piece
