"""Race: which of several policies is best? Asks for the same trajectories of all, and drops those that are not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from rido.comparison.comparison import LEAST_PAIRS, Comparison, Exit, enough, reach_at
from rido.comparison.paired import PairedRewards
from rido.comparison.sequential import SpendingBoundary
from rido.core import checks
from rido.core.allocation import fill
from rido.core.estimate import Estimate
from rido.core.moments import Moments, union
from rido.core.schedule import Schedule
from rido.core.trajectories import Trajectories
from rido.simulators.sobol import Starts
from rido.strategies.division import Division
from rido.strategies.planning import learn
from rido.strategies.settings import AdaptiveSettings

PILOT = 5  # trajectories of the first round
GROWTH = 0.2  # transitions of a round, as a share of those spent before it: small differences want many looks
_LOCKSTEP_GROWTH = 1.0  # the same on a device in lockstep, where a round takes long however small it is
_LOCKSTEP_PILOT = 0.125  # largest share of the budget for a pilot that is as wide as such a device
_CAUTIOUS = AdaptiveSettings(least_gain=0.05)  # with 0.01 one pair of agents in results/races.md takes 4% more


class Race:
    """Finds the best of several policies by paired trajectories, and stops as soon as that is significant.

    Trajectory i of every policy has the same seed and the same length. Then the difference of two policies is itself a
    reward process, whose variance is small where the policies are alike: what is common to both cancels out. Lengths
    are planned for the difference that is hardest to decide.

    After each round a policy is eliminated when the bound on its difference to the leader excludes 0, from the eighth
    pair on (see :func:`rido.comparison.comparison.reach_at`). With K policies and ``alpha = 1 - confidence``, each
    bound fails on one side with a probability of ``alpha / K`` over all looks, spent as
    :class:`rido.comparison.sequential.SpendingBoundary` says. A policy that is as good as any other is lost to one of
    the K - 1 others with at most ``alpha (K - 1) / K`` by Bonferroni's inequality. So the best one is lost with less
    than alpha.
    Where all are equally good, one is called the best if K - 1 are lost, which by Markov's inequality has a probability
    of at most alpha.

    Args:
        names: of the policies, 2 to 100.
        horizon: number of time steps.
        budget: transitions for all policies together.
        gamma: discount factor in (0, 1].
        confidence: probability that no policy is wrongly called the best.
        tolerance: stop when the leader is not worse than any other by more than this.
        starts: "sobol" if trajectories start from the points of independent sequences, one for each group of
            :meth:`dealt`.
        lockstep: trajectories of all policies that a device runs in lockstep in about the time of one, if there is such
            a device. Then rounds are as wide if the budget pays for it.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> race = Race(["old", "new"], horizon=1, budget=2000, gamma=1.0)
        >>> while (asked := race.ask()) is not None:
        ...     names, schedule = asked
        ...     common = rng.normal(0, 10, (schedule.trajectories, 1))
        ...     noise = {name: rng.normal(name == "new", 1, common.shape) for name in names}
        ...     race.tell({name: Trajectories(common + noise[name], schedule.lengths) for name in names})
        >>> race.result().best, race.result().transitions < 200
        ('new', True)
    """

    @checks.checked()
    def __init__(
        self,
        names: Sequence[str],
        *,
        horizon: int,
        budget: int,
        gamma: float,
        confidence: float = 0.95,
        tolerance: float = 0.0,
        starts: Starts = "random",
        lockstep: int = 0,
    ) -> None:
        self.lockstep = lockstep
        self.names = tuple(names) if isinstance(names, Sequence) else ()
        texts = {name for name in self.names if isinstance(name, str)}
        if not 2 <= len(texts) == len(self.names) <= 100:
            raise ValueError(f"names must be 2 to 100 different ones, got {len(self.names)}: {checks.shown(names)}")
        self.horizon, self.gamma = horizon, gamma
        self.budget, self.confidence, self.tolerance = budget, confidence, tolerance
        checks.choice("starts", starts, get_args(Starts))
        affordable = self.budget / len(self.names) / self.horizon
        self._division = Division.of(1, affordable, replicated=starts == "sobol", cross_fitted=False)
        least = 2 * self._division.groups
        if affordable < least:
            kind = "full-length trajectories" + (" with Sobol starts" if self.replicates else "")
            total = least * self.horizon * len(self.names)
            raise ValueError(
                f"budget must pay for {least} {kind} of each policy, {total} transitions in all, got {self.budget}"
            )
        self._boundary = SpendingBoundary((1 - self.confidence) / len(self.names))
        self._rewards = PairedRewards(self.names, horizon=horizon, gamma=gamma, division=self._division)
        self._racing = list(self.names)
        self._leader = self.names[0]
        self._exits: dict[str, Exit] = {}
        self._hardest: Mapping[str, float] = {}  # the difference to plan for, as a signal of PairedRewards
        self._cut = False  # whether shorter trajectories may serve that difference
        self._asked: Schedule | None = None
        self._level = 0.0
        self._best: str | None = None
        self._settled = False

    @property
    def spent(self) -> int:
        """Transitions taken so far, of all policies."""
        return self._rewards.transitions

    @property
    def racing(self) -> tuple[str, ...]:
        """The policies that are still in the race."""
        return tuple(self._racing)

    @property
    def leader(self) -> str:
        """The policy that is ahead."""
        return self._leader

    @property
    def rounds(self) -> int:
        """Rounds that were told."""
        return self._rewards.rounds

    def ask(self) -> tuple[tuple[str, ...], Schedule] | None:
        """Returns the policies that are in the race and the trajectories to collect of each; None when it is over."""
        if self._settled:
            return None
        if self._asked is None:
            self._asked = self._plan((self.budget - self.spent) // len(self._racing))
            if self._asked is None:
                self._look(last=True)
                return None
        return self.racing, self._asked

    def _plan(self, left: int) -> Schedule | None:
        width = self.lockstep // len(self._racing)
        if not self._hardest:
            wide = min(width, int(_LOCKSTEP_PILOT * left / self.horizon))
            return full_length(self.horizon, max(PILOT, wide, self._division.groups), left)
        moments = union(self._rewards.moments(self._hardest))
        growth = _LOCKSTEP_GROWTH if self.lockstep else GROWTH
        size = max(growth * moments.transitions, width * self.horizon)
        return next_round(moments, size, left, cut=self._cut)

    @property
    def replicates(self) -> int:
        """Groups of trajectories, each of which starts from another Sobol sequence; 0 where starts are random."""
        return self._division.groups if self._division.replicated else 0

    def dealt(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the group to which each trajectory of what was last asked for belongs, given their lengths."""
        return (self._rewards.pairs + np.arange(checks.counts("lengths", lengths).size)) % self._division.groups

    def tell(self, trajectories: Mapping[str, Trajectories]) -> None:
        """Takes in the trajectories last asked for.

        Args:
            trajectories: of each policy in the race, all in the same order: trajectory i of every policy has the same
                length, and began with the same seed.
        """
        if self._asked is None:
            raise ValueError("tell() was called before ask()")
        if set(checks.instance("trajectories", trajectories, Mapping)) != set(self._racing):
            raise ValueError(f"trajectories must be of {', '.join(self._racing)}, got {checks.shown([*trajectories])}")
        for batch in trajectories.values():
            checks.instance("trajectories", batch, Trajectories)
        lengths = trajectories[self._racing[0]].lengths
        for name in self._racing:
            if not np.array_equal(trajectories[name].lengths, lengths):
                raise ValueError(
                    f"trajectories of {name} must have the lengths of those of {self._racing[0]}, in order"
                )
        if not np.array_equal(np.sort(lengths), self._asked.lengths[::-1]):
            raise ValueError(f"lengths must be those of the schedule asked for, {self._asked}")
        self._rewards.add({name: trajectories[name] for name in self._racing}, self.dealt(lengths))
        self._asked = None
        self._look(last=False)

    def result(self) -> Comparison:
        """Returns what is known so far."""
        means = {name: self._rewards.value(name) for name in self.names}
        ranking = sorted(self._racing, key=lambda name: -means[name])
        ranking += sorted(self._exits, key=lambda name: (-self._exits[name].round, -means[name]))
        return Comparison(
            best=self._best,
            ranking=tuple(ranking),
            rewards=self._rewards,
            exits=dict(self._exits),
            level=self._level,
            confidence=self.confidence,
            tolerance=self.tolerance,
            budget=self.budget,
        )

    def _look(self, *, last: bool) -> None:
        """Eliminates the policies that are significantly worse than the leader; finds the hardest of the others."""
        leader = self._leader = self._ahead()
        rivals = {name: self._rewards.difference(name, leader) for name in self._racing if name != leader}
        tested = {name: rival for name, rival in rivals.items() if enough(rival)}
        if tested:
            planned = next(iter(rivals.values())).schedule.transitions  # of each policy in the race
            self._level = self._boundary.level(planned, 1.0 if last else self.spent / self.budget)
        known = self.result()
        most = {name: known.bounds(name, leader)[1] for name in rivals}
        for name in tested:
            if most[name] < 0:
                self._racing.remove(name)
                self._exits[name] = Exit(self.spent, self.rounds, leader)
        left = {name: rival for name, rival in rivals.items() if name in self._racing}
        if all(most[name] <= self.tolerance for name in left):
            self._best = leader
        self._settled = last or self._best is not None
        if left:
            hardest = min(left, key=lambda name: certainty(left[name]))
            self._hardest = {hardest: 1.0, leader: -1.0}
            values = [self._rewards.estimate(name) for name in self._hardest]
            seen, unseen = reach_at(self._level, (1 - self.confidence) / len(self.names), left[hardest], values)
            self._cut = unseen < seen < math.inf

    def _ahead(self) -> str:
        """Returns the policy with the largest mean return; the present leader where they are equal."""
        ahead = max(self._racing, key=self._rewards.value)
        changes = ahead != self._leader and self._rewards.difference(ahead, self._leader).value > 0
        return ahead if changes else self._leader


def full_length(horizon: int, trajectories: int, left: int) -> Schedule | None:
    """Returns full-length trajectories, as far as these transitions pay for them; None if they pay for none."""
    affordable = min(trajectories, left // horizon)
    return Schedule(np.full(horizon, affordable)) if affordable else None


def next_round(moments: Moments, size: float, left: int, *, cut: bool = True) -> Schedule | None:
    """Plans more trajectories for a difference of policies; None where no full-length one is affordable.

    All have full length, unless cut ones tell more about the difference by a bound that allows for the error of the
    variances (see :mod:`rido.strategies.planning`).

    Args:
        moments: of the difference.
        size: transitions that they are to take.
        left: transitions that these and all later ones may take.
        cut: whether some may be cut. Only full-length pairs narrow bounds that allow for unseen starts.
    """
    horizon, full = moments.horizon, float(moments.survival.sum())
    known = cut and left >= horizon and int(moments.counts[-1]) >= LEAST_PAIRS
    lesson = learn(moments, settings=_CAUTIOUS) if known else None
    if lesson is None or not lesson.truncates:
        return full_length(horizon, max(1, round(size / full)), left)
    plan = fill(lesson.weights, math.inf, moments.counts, costs=lesson.costs, limit=left, pooled=False)
    share = min(1.0, size / max(float(plan @ lesson.survival), 1.0))
    plan = np.rint(plan * share).astype(np.int64)
    return Schedule(plan) if plan.any() else full_length(horizon, 1, left)


def certainty(difference: Estimate) -> float:
    """Returns how many standard errors a difference is from 0."""
    if difference.nothing_varied:
        return math.inf if difference.value else 0.0
    return abs(difference.value) / difference.standard_error
