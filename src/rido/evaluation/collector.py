"""Collector: gets rounds of trajectories and resets from a source, and keeps count of what they took."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from rido.core.schedule import Schedule
from rido.core.summaries import Summary
from rido.core.trajectories import Trajectories, concatenate
from rido.evaluation.components import Components
from rido.evaluation.progress import Progress
from rido.evaluation.source import RESET_REPLICATES, Counts, Floats, Live, Resumed, Source, Wanted, collect
from rido.predictors.base import Critic
from rido.predictors.features import FeatureExtractor, Sample
from rido.predictors.learning import Learner
from rido.record.header import Piece
from rido.simulators.base import NO_TRAJECTORIES
from rido.simulators.requests import check_rewards
from rido.simulators.sobol import means_of_replicates

_SOBOL_GAIN = 100.0  # random resets that one from a Sobol point is worth, about, where values are smooth
_MOST_SOBOL_RESETS = 1 << 14  # resets from Sobol points at most, whose error is then far below that of all else
_FEWEST_RESETS = 32  # resets at least, also where all first observations seem to be alike


@dataclass
class Collector:
    """Collects rounds of trajectories, and resets."""

    source: Source  # where trajectories come from
    bar: Progress
    reward_range: tuple[float, float] | None  # another reward is an error
    components: Components | None
    round: int = 0  # number of the present round
    critic: Critic | None = None  # the control variate of what is collected from now on
    trajectories: int = 0  # that were collected
    transitions: int = 0  # that they took
    seconds: float = 0.0  # that collecting took, recorded pieces included
    latest: tuple[int, float] = (0, 0.0)  # transitions and seconds of the last round
    resets: int = 0
    reset_seconds: float = 0.0  # that they took, recorded ones included
    busy_seconds: float = 0.0  # that all of it took in this process
    _starts: list[Floats] = field(default_factory=list)
    _reset_starts: Floats | None = None

    def collect(self, lengths: Counts, groups: Counts, *, room: int) -> tuple[Trajectories, Trajectories | None]:
        """Returns trajectories, and their signal if there is a critic; arguments as in :class:`Wanted`."""
        rewards, pieces = self._pieces(lengths, groups, room)
        self._starts += [piece.starts for piece in pieces if piece.starts is not None]
        signals = [piece.signal for piece in pieces if piece.signal is not None]
        return rewards, concatenate(signals) if signals else None

    def observe(self, lengths: Counts, groups: Counts, extractor: FeatureExtractor, *, room: int) -> Sample:
        """Returns trajectories of these lengths with the features that critics learn from."""
        rewards, pieces = self._pieces(lengths, groups, room, extractor)
        features = np.concatenate([piece.features for piece in pieces if piece.features is not None])
        return Sample(
            rewards,
            np.concatenate([piece.terminated for piece in pieces if piece.terminated is not None]),
            features[:, :-1] if extractor.with_advantages else features,
            features[:, -1] if extractor.with_advantages else None,
        )

    def summarise(self, schedule: Schedule, total: int) -> tuple[Summary, Summary | None]:
        """Collects a schedule; returns sums over its rewards, and over their signal if there is a critic."""
        assert isinstance(self.source, Live)
        started = time.perf_counter()
        found = self.source.summarise(schedule, self.trajectories, self.critic, total)
        if found.starts is not None:
            self._starts.append(found.starts)
        seconds = time.perf_counter() - started
        self.bar.advance(found.rewards.transitions)
        self._count(schedule.trajectories, found.rewards.transitions, seconds)
        self.busy_seconds += seconds
        return found.rewards, found.signal

    def begin_learning(self, extractor: FeatureExtractor, *, resets: int) -> float:
        """Notes what critics will learn from; returns the independent starts that their expectation will come from."""
        decide, agent = self.source.decide, extractor.agent
        if agent is not None:
            decide("agent discount", lambda: agent.discount)
        extractor.with_advantages = decide("advantages", lambda: extractor.with_advantages)
        worth = resets * (_SOBOL_GAIN if self.source.takes_points else 1.0)
        return float(decide("independent starts", lambda: worth))

    def use(self, learner: Learner) -> None:
        """Takes the critic that has been learned so far; a run that goes on must have learned the same."""
        self.critic = learner.critic()
        self._starts = [learner.starts] if self.critic is not None else []
        if self.round == 0 and isinstance(self.source, Resumed):
            self.source.check_same("fitted critic", learner.starts[:32].tolist())

    @property
    def starts(self) -> Floats:
        """The critic's values of first observations: of resets, or of the trajectories while there are none.

        Of resets from Sobol points they are the means of the replicates.
        """
        if self._reset_starts is not None:
            return self._reset_starts
        return np.concatenate(self._starts) if self._starts else np.zeros(0)

    def reset(self, error: float, *, share: float, most: int) -> None:
        """Resets until resets are a small share of the variance.

        How many are taken is decided by the values of the trajectories' own first observations, not by those of
        the resets: so the mean of these is not biased. There are at most ``most``, and at least 2. Everything else has
        the standard error ``error``.
        """
        count, replicates = self.source.decide("resets", lambda: self._reset_count(error, share, most))
        assert self.critic is not None
        started, values, spent, batch = time.perf_counter(), [], 0.0, self.source.batch
        for first in range(0, count, batch):
            numbers = np.arange(first, min(first + batch, count)) % RESET_REPLICATES
            found, seconds = self.source.starts(first, numbers, self.critic, points=replicates > 0)
            values.append(found)
            spent += seconds
        self.reset_seconds = spent
        self.resets, self._reset_starts = count, means_of_replicates(np.concatenate(values), replicates)
        self.busy_seconds += time.perf_counter() - started

    def _reset_count(self, error: float, share: float, most: int) -> tuple[int, int]:
        """Returns how many resets to take, and from how many sequences of Sobol points; 0 for random ones."""
        starts = np.concatenate(self._starts)
        spread = float(starts.var(ddof=1)) if starts.size > 1 else 0.0
        wanted = most if error**2 == 0 else min(most, spread * (1 - share) / share / error**2)
        count = int(min(max(wanted, _FEWEST_RESETS), most))
        if not self.source.takes_points or self.source.sums or count < 2 * RESET_REPLICATES:
            return count, 0
        return min(count, _MOST_SOBOL_RESETS) // RESET_REPLICATES * RESET_REPLICATES, RESET_REPLICATES

    def _pieces(
        self, lengths: Counts, groups: Counts, room: int, extractor: FeatureExtractor | None = None
    ) -> tuple[Trajectories, list[Piece]]:
        """Returns trajectories, and what else their pieces hold."""
        started, pieces = time.perf_counter(), list[Piece]()
        wanted = Wanted(self.round, self.trajectories, lengths, groups, self.critic, extractor, room)

        def batches() -> Iterator[Trajectories]:
            for piece in collect(self.source, wanted, self.bar):
                if self.reward_range is not None:
                    check_rewards(piece.trajectories, reward_range=self.reward_range)
                pieces.append(replace(piece, trajectories=NO_TRAJECTORIES))
                yield piece.trajectories if self.components is None else self.components.columns(piece.trajectories)

        rewards = _joined(batches(), int(lengths.sum()))
        self.busy_seconds += time.perf_counter() - started
        self._count(len(rewards), rewards.transitions, sum(piece.seconds for piece in pieces))
        return rewards, pieces

    def _count(self, trajectories: int, transitions: int, seconds: float) -> None:
        """Counts what a round took; of a round that a recorded run did not finish, nothing is counted."""
        self.latest = transitions, seconds
        self.trajectories += trajectories
        self.transitions += transitions
        self.seconds += seconds


def _joined(batches: Iterable[Trajectories], size: int) -> Trajectories:
    """Returns trajectories of this many rewards, each copied to its place when it comes, so that none is kept twice."""
    flat, filled, shapes = np.zeros(0), 0, []
    for batch in batches:
        end = filled + len(batch.flat)
        if not filled:
            flat = batch.flat if end == size else np.empty((size, *batch.flat.shape[1:]), batch.flat.dtype)
        if flat is not batch.flat:
            flat[filled:end] = batch.flat
        filled = end
        shapes.append((batch.lengths, batch.steps))
    lengths, steps = (np.concatenate(parts) for parts in zip(*shapes, strict=True))
    return Trajectories.of_checked(flat[:filled], lengths, steps)
