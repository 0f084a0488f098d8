"""Collector: gets trajectories and resets from the simulator, or from the run file where it has them already."""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rido.core.estimate import Estimate
from rido.core.schedule import Schedule
from rido.core.summaries import Summary
from rido.core.trajectories import Trajectories, concatenate
from rido.evaluation.components import Components
from rido.evaluation.progress import Progress
from rido.policies.observations import take
from rido.predictors.base import Critic, signal, value
from rido.predictors.features import FeatureExtractor, Sample
from rido.predictors.learning import Learner
from rido.record.database import RunFileError
from rido.record.records import (
    ADVANTAGES,
    AGENT_DISCOUNT,
    FITTED_CRITIC,
    INDEPENDENT_STARTS,
    REHEARSED,
    SOBOL_RESETS,
    Milestone,
    Piece,
)
from rido.record.runfile import RunFile
from rido.simulators.base import (
    Batch,
    Request,
    Seeds,
    SimulationError,
    Simulator,
    Summarised,
    Wants,
    refuse_components,
    trajectory_seeds,
)
from rido.simulators.requests import check_rewards
from rido.simulators.sobol import SobolPoints, means_of_replicates

_PIECE_SECONDS = 2.0  # a schedule is collected in pieces of about this many seconds; a crash loses one piece at most
_PIECE_TRANSITIONS = 1 << 24  # largest piece of a lockstep simulator, whose pieces must not depend on the time
_RESETS = 1024  # resets in a piece; a fixed number, because a critic may round a row by its place in the batch
_RESET_STREAM = 1  # stream of seeds for resets
_START_STREAM = 2  # stream of the points where trajectories start
_RESET_REPLICATES = 16  # sequences of Sobol points for resets
_SOBOL_GAIN = 100.0  # random resets that one of these is worth, about, where values are smooth
_MOST_SOBOL_RESETS = 1 << 14  # with so many, what is left of their error is far below that of all else
_OTHER_PLAN = "run file was recorded by another version of rido, which planned otherwise"
_FEWEST_RESETS = 32  # resets at least, also where all first observations seem to be alike


class Collector:
    """Collects trajectories and resets.

    Args:
        simulator: where they come from.
        horizon: number of time steps.
        gamma: discount factor.
        entropy: what all seeds come from.
        record: the run file, if there is one.
        summing: whether the simulator keeps rewards on its device and returns only sums over them.
        notes: what a reader should know of all that is collected.
        reward_range: lowest and highest possible reward; another one is an error.
        pieces: recorded pieces that are still to be had, shared with other collectors; those of the run file if not
            given.
        replicates: sequences of Sobol points for the starts of trajectories; 0 for random starts.
        components: what is estimated of rewards with several components or discounts.

    Attributes:
        round: number of the round that pieces are recorded for.
        summing: whether only sums over the rewards are known.
        critic: the control variate of what is collected from now on; None for plain rewards.
        trajectories: trajectories collected.
        transitions: transitions that they took.
        seconds: time that collecting took, recorded pieces included.
        reset_seconds: time that resets took, recorded ones included.
        busy_seconds: time that all of it took in this process.
        found: what the simulator has found out so far.
    """

    def __init__(
        self,
        simulator: Simulator,
        *,
        horizon: int,
        gamma: float,
        entropy: int,
        record: RunFile | None,
        summing: bool = False,
        notes: Sequence[str] = (),
        reward_range: tuple[float, float] | None = None,
        pieces: deque[Piece] | None = None,
        replicates: int = 0,
        components: Components | None = None,
    ) -> None:
        if components is None:
            refuse_components(simulator, "a comparison of policies")
        self._simulator, self.found = simulator, simulator.capabilities.found
        self._components = components
        self._points = SobolPoints(entropy, stream=_START_STREAM, replicates=replicates) if replicates else None
        self._lockstep = simulator.capabilities.lockstep
        self._entropy = entropy
        self._record = record
        self._given_notes = tuple(notes)
        self._reward_range = reward_range
        self._pieces = deque(record.pieces() if record is not None else ()) if pieces is None else pieces
        self._resets = deque(record.resets() if record is not None else ())
        self.round = 0
        self._starts: list[NDArray[np.float64]] = []
        self._reset_values: list[NDArray[np.float64]] = []
        self._reset_points: SobolPoints | None = None
        self._reset_replicates = 0
        self._summarised: Summarised | None = None
        self.critic: Critic | None = None
        self.summing = summing
        self._horizon, self._gamma = horizon, gamma
        self.trajectories = self.transitions = self._steps = 0  # steps that were planned
        self.seconds = self.reset_seconds = self.busy_seconds = 0.0

    def collect(
        self, lengths: NDArray[np.int64], groups: NDArray[np.int64], bar: Progress, left: int | None = None
    ) -> tuple[Trajectories, Trajectories | None]:
        """Returns trajectories of these lengths, and their signal if there is a critic.

        Each begins if ``left`` pays for it at its full length; none does after the first one that it does not pay for.
        So which trajectories there are does not depend on how many run side by side.

        Args:
            lengths: of the trajectories.
            groups: the replicate that each of them belongs to, where starts are Sobol points.
            bar: shows the progress.
            left: transitions that they may take; enough for all of them if not given.
        """
        pieces = self._collect(lengths, groups, None, bar, left)
        self._starts += [piece.starts for piece in pieces if piece.starts is not None]
        signals = [piece.signal for piece in pieces if piece.signal is not None]
        return concatenate([piece.trajectories for piece in pieces]), concatenate(signals) if signals else None

    def summarise(self, schedule: Schedule, total: int, bar: Progress) -> tuple[Summary, Summary | None]:
        """Collects a schedule; returns sums over its rewards, and over their signal if there is a critic.

        Args:
            schedule: what to collect.
            total: transitions that all such schedules may take.
            bar: shows the progress.
        """
        started = time.perf_counter()
        known: dict[str, Any] = dict(critic=self.critic, before=self._summarised, total=total)
        seeds = Seeds(self._entropy, self.trajectories, schedule.trajectories)
        try:
            found = self._simulator.collect(Request(schedule, seeds, wants="sums", **known)).sums
        except SimulationError as error:
            raise self._in_evaluation(error) from None
        assert found is not None
        self._summarised = found
        if found.starts is not None:
            self._starts.append(found.starts)
        taken = time.perf_counter() - started
        self.trajectories += schedule.trajectories
        self.seconds += taken
        self.busy_seconds += taken
        self._add(found.rewards, bar)
        return found.rewards, found.signal

    def observe(
        self,
        lengths: NDArray[np.int64],
        groups: NDArray[np.int64],
        extractor: FeatureExtractor,
        bar: Progress,
        left: int | None = None,
    ) -> Sample:
        """Returns trajectories as :meth:`collect` does, with the features that critics learn from."""
        pieces = self._collect(lengths, groups, extractor, bar, left)
        return sample_of(pieces, with_advantages=extractor.with_advantages)

    def begin_learning(self, extractor: FeatureExtractor, *, resets: int) -> float:
        """Notes what critics will learn from; returns the independent starts that their expectation will come from.

        Args:
            extractor: makes the features.
            resets: the most that there will be.
        """
        worth = resets * (_SOBOL_GAIN if self._simulator.capabilities.takes_points else 1.0)
        if self._record is None:
            return worth
        if extractor.agent is not None:
            self._record.get_or_set(AGENT_DISCOUNT, extractor.agent.discount)
        # Files of earlier versions have trajectories without this setting.
        known = extractor.with_advantages and not self._pieces
        extractor.with_advantages = bool(self._record.get_or_set(ADVANTAGES, known))
        return float(self._record.get_or_set(INDEPENDENT_STARTS, worth))

    def use(self, learner: Learner) -> None:
        """Takes the critic that has been learned so far; a run that goes on must have learned the same."""
        self.critic = learner.critic()
        self._starts = [learner.starts] if self.critic is not None else []
        if self._record is not None and self.round == 0:
            self._record.check_same(FITTED_CRITIC, learner.starts[:32].tolist())

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know, with what the simulator found out while it collected."""
        return tuple(dict.fromkeys([*self._given_notes, *self.found.notes]))

    @property
    def starts(self) -> NDArray[np.float64]:
        """The critic's values of first observations: of resets, or of the trajectories while there are none.

        Of resets from Sobol points they are the means of the replicates.
        """
        if self._reset_values:
            return means_of_replicates(np.concatenate(self._reset_values), self._reset_replicates)
        return np.concatenate(self._starts) if self._starts else np.zeros(0)

    @property
    def resets(self) -> int:
        """Resets so far."""
        return sum(part.size for part in self._reset_values)

    def reset(self, error: float, *, share: float, most: int) -> None:
        """Resets until resets are a small share of the variance.

        How many are taken is decided by the values of the trajectories' own first observations, not by those of
        the resets: so the mean of these is not biased.

        Args:
            error: standard error of everything else.
            share: of the variance, that the resets may have.
            most: resets at most, at least 2.
        """
        starts, able = np.concatenate(self._starts), self._simulator.capabilities
        spread = float(starts.var(ddof=1)) if starts.size > 1 else 0.0
        wanted = most if error**2 == 0 else min(most, spread * (1 - share) / share / error**2)
        count = int(min(max(wanted, _FEWEST_RESETS), most))
        if able.takes_points and not self.summing and count >= 2 * _RESET_REPLICATES:
            self._reset_replicates = _RESET_REPLICATES
            count = min(count, _MOST_SOBOL_RESETS) // _RESET_REPLICATES * _RESET_REPLICATES
            self._reset_points = SobolPoints(self._entropy, stream=_RESET_STREAM, replicates=_RESET_REPLICATES)
        if self._record is not None:
            self._record.get_or_set(SOBOL_RESETS, self._reset_replicates)
        started = time.perf_counter()
        piece = self._simulator.num_envs if self.summing else _RESETS
        for first in range(0, count, piece):
            size = min(piece, count - first)
            replicates = np.arange(first, first + size) % _RESET_REPLICATES
            if self._resets and self._reset_points is not None:
                self._reset_points.skip(replicates)
            starts, seconds = self._resets.popleft() if self._resets else self._reset(first, replicates)
            if starts.size != size:
                raise RunFileError(_OTHER_PLAN)
            self._reset_values.append(starts)
            self.reset_seconds += seconds
        self.busy_seconds += time.perf_counter() - started

    def get_or_set(self, name: str, value: int) -> int:
        """Returns what was decided in this round of a run that goes on; if nothing was, notes this."""
        return value if self._record is None else int(self._record.get_or_set(f"{name} of round {self.round}", value))

    @property
    def records(self) -> bool:
        """Whether there is a run file for what happens in this round; recorded rounds are there already."""
        return self._record is not None and not self._pieces

    def record_round(self, estimate: Estimate, warnings: Sequence[str]) -> None:
        """Records how far the run is, and what a reader of the estimate should know."""
        if self._record is None or self._pieces:
            return
        self._record.append_milestone(
            Milestone(
                self.round,
                self.transitions,
                self.trajectories,
                estimate.value,
                estimate.standard_error,
                estimate.degrees_of_freedom,
                estimate.skewness,
                estimate.effective_trajectories,
                estimate.largest_contribution,
                "none" if self.critic is None else self.critic.name,
                (*self.notes, *warnings),
            )
        )

    def _collect(
        self,
        lengths: NDArray[np.int64],
        groups: NDArray[np.int64],
        extractor: FeatureExtractor | None,
        bar: Progress,
        left: int | None,
    ) -> list[Piece]:
        started = time.perf_counter()
        pieces: list[Piece] = []
        done, left = 0, int(lengths.sum()) if left is None else left
        while done < lengths.size and lengths[done] <= left:
            recorded, rest = bool(self._pieces), (lengths[done:], groups[done:])
            piece = self._pieces.popleft() if recorded else self._simulate(*rest, left, extractor)
            part = piece.trajectories
            if recorded and self._points is not None:
                self._points.skip(groups[done : done + len(part)])
            planned = np.array_equal(part.lengths, lengths[done : done + len(part)])
            if self._components is not None:
                part = self._components.columns(part)
                piece = dataclasses.replace(piece, trajectories=part)
            if not planned or piece.round != self.round or (piece.features is None) != (extractor is None):
                raise RunFileError(_OTHER_PLAN)
            if self._reward_range is not None:
                check_rewards(part, self._reward_range)
            pieces.append(piece)
            done += len(part)
            left -= part.transitions
            self._steps += int(part.lengths.sum())
            self.trajectories += len(part)
            self.seconds += piece.seconds
            self._add(part, bar)
        self.busy_seconds += time.perf_counter() - started
        return pieces

    def _add(self, batch: Trajectories | Summary, bar: Progress) -> None:
        self.transitions += batch.transitions
        bar.advance(batch.transitions)

    def _simulate(
        self, lengths: NDArray[np.int64], groups: NDArray[np.int64], left: int, extractor: FeatureExtractor | None
    ) -> Piece:
        """Collects the first of these lengths: one for each environment, and more if they are quick."""
        wants: Wants = "rewards" if extractor is None and self.critic is None else "observations"
        limited = wants == "rewards" and self._points is None and self._simulator.capabilities.limits
        if not limited:
            lengths = lengths[: np.searchsorted(lengths.cumsum(), left, side="right")]
        count = self._simulator.num_envs
        if self._lockstep:
            count = min(count, max(1, int(np.searchsorted(np.cumsum(lengths), _PIECE_TRANSITIONS))))
        elif self.seconds > 0:
            rate = self._steps / self.seconds
            count = max(count, int(np.searchsorted(np.cumsum(lengths), rate * _PIECE_SECONDS)))
        count = min(count, lengths.size)
        points = None if self._points is None else self._points.take(groups[:count])
        seeds = trajectory_seeds(self._entropy, self.trajectories, count)
        started = time.perf_counter()
        try:
            limit = left if limited else None
            batch = self._simulator.collect(Request(lengths[:count], seeds, points, wants=wants, limit=limit))
            self.found = batch.found
            if wants == "rewards":
                piece = Piece(self.round, batch.trajectories, 0.0)
            else:
                piece = self._observed(batch, seeds, extractor)
        except SimulationError as error:
            raise self._in_evaluation(error) from error.__cause__
        piece = dataclasses.replace(piece, seconds=time.perf_counter() - started)
        if self._components is not None:
            self._components.check(piece.trajectories)  # before anything is recorded
        if self._record is not None:
            if not self.trajectories and self.found.rehearsed:
                self._record.set(REHEARSED, self.found.rehearsed)  # a run that resumes rehearses with other seeds
            self._record.append(piece, self.found.workers)
        return piece

    def _in_evaluation(self, error: SimulationError) -> SimulationError:
        return SimulationError(self.trajectories + error.trajectory, error.step, error.seed, error.reason)

    def _observed(self, observed: Batch, seeds: Sequence[int], extractor: FeatureExtractor | None) -> Piece:
        if extractor is None:
            assert self.critic is not None
            made = signal(self.critic, observed, horizon=self._horizon, gamma=self._gamma)
            return Piece(self.round, observed.trajectories, 0.0, signal=made.trajectories, starts=made.starts)
        # One trajectory after the other, because an agent's value may be rounded by its place in the batch.
        steps = observed.trajectories.steps
        parts: list[NDArray[np.float64]] = []
        for seed, count, end in zip(seeds, steps.tolist(), np.cumsum(steps).tolist(), strict=True):
            actions = None if observed.actions is None else observed.actions[end - count : end]
            first = end - count + len(parts)  # there is one observation more than actions for each trajectory
            observations = take(observed.observations, np.arange(first, first + count + 1))
            parts.append(extractor.of_trajectory(observations, actions, seed))
        features = np.concatenate(parts)
        return Piece(self.round, observed.trajectories, 0.0, features=features, terminated=observed.terminated)

    def _reset(self, first: int, replicates: NDArray[np.int64]) -> tuple[NDArray[np.float64], float]:
        assert self.critic is not None
        count, started = replicates.size, time.perf_counter()
        seeds = Seeds(self._entropy, first, count, stream=_RESET_STREAM)
        points = None if self._reset_points is None else self._reset_points.take(replicates)
        critic = self.critic if self.summing else None
        batch = self._simulator.collect(Request(None, seeds, points, wants="starts", critic=critic))
        if self.summing:
            return batch.observations, time.perf_counter() - started
        starts = value(self.critic, batch.observations, np.full(count, self._horizon))
        seconds = time.perf_counter() - started
        if self._record is not None:
            self._record.append_resets(first // _RESETS, starts, seconds, batch.found.workers)
        return starts, seconds


def sample_of(pieces: Sequence[Piece], *, with_advantages: bool) -> Sample:
    """Returns pieces with features as one sample; the last column are advantages, if they are known."""
    features = np.concatenate([piece.features for piece in pieces if piece.features is not None])
    return Sample(
        concatenate([piece.trajectories for piece in pieces]),
        np.concatenate([piece.terminated for piece in pieces if piece.terminated is not None]),
        features[:, :-1] if with_advantages else features,
        features[:, -1] if with_advantages else None,
    )
