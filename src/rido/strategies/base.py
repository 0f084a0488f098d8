"""Strategy: the base class of all strategies. It asks for trajectories and is told their rewards."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rido.core import checks
from rido.core.estimate import Estimate
from rido.core.guarantee import guaranteed_interval
from rido.core.joint import JointEstimate
from rido.core.moments import Moments, union
from rido.core.reward_moments import Metric, RewardMoments
from rido.core.schedule import Schedule
from rido.core.summaries import Summary, SummedMoments
from rido.core.trajectories import Trajectories, concatenate
from rido.strategies.diagnostics import interval_warnings
from rido.strategies.division import TEAMS, Division


class Strategy(ABC):
    """Spends a budget of transitions in rounds: ``ask()`` for a schedule, collect it, ``tell()`` the rewards.

    A strategy is a function of what it was told and draws no random numbers, so its state is the data: a restored
    strategy plans again what it planned before, and goes on. Transitions that early ends leave unspent return to
    the budget.

    Without horizon, budget and gamma a strategy holds settings only, for :func:`rido.evaluate` or :meth:`begin`.

    Args:
        horizon: number of time steps T.
        budget: transitions to spend, at least one full trajectory.
        gamma: discount factor in (0, 1].

    Attributes:
        moments: what the rewards told so far say.
        options: the strategy's own settings, as plain numbers, strings and lists.
        division: how trajectories are divided into groups.
        leading: the component that :meth:`estimate` is about, where rewards have several.
    """

    horizon: int
    gamma: float
    moments: Moments
    options: dict[str, Any]
    division = Division()
    leading = 0
    _metric: Metric = None
    _budget = 0
    _least_trajectories = 1  # full-length trajectories that the budget must pay for

    @checks.checked()
    def __init__(
        self, *, horizon: int | None = None, budget: int | None = None, gamma: float | None = None, **options: Any
    ) -> None:
        self.options = options
        self._asked: Schedule | None = None
        self._told: list[Trajectories | Summary] = []
        self._count = 0  # trajectories told
        if horizon is not None and budget is not None and gamma is not None:
            self.horizon = horizon
            self._budget = self._first_budget = budget
            if self._budget < self.least_budget:
                raise ValueError(
                    f"budget must pay for {self._least_trajectories} full-length trajectories, {self.least_budget} "
                    f"transitions, got {self._budget}"
                )
            self.gamma = gamma
            self.moments = self._moments()
            self.divide()
            self._begin()
        elif (horizon, budget, gamma) != (None, None, None):
            raise ValueError("horizon, budget and gamma must be given together, or left to evaluate()")

    def begin(self, *, horizon: int, budget: int, gamma: float, **options: Any) -> Self:
        """Returns a strategy with these settings that begins to spend a budget.

        Args:
            horizon: number of time steps T.
            budget: transitions to spend.
            gamma: discount factor in (0, 1].
            **options: settings that are to be others.
        """
        return type(self)(horizon=horizon, budget=budget, gamma=gamma, **{**self.options, **options})

    def _begin(self) -> None:  # noqa: B027 - a strategy may have nothing to prepare
        """Prepares what depends on horizon, budget and gamma, which are known now."""

    @checks.checked()
    def divide(self, *, replicated: bool = False, cross_fitted: bool = False) -> None:
        """Divides trajectories into teams and replicates; may be called before the first ``ask()``.

        Args:
            replicated: whether the starts of each group are points of a sequence of its own, so that the spread of
                the groups is the error.
            cross_fitted: whether each team has a critic of its own, which is fitted on the other teams.
        """
        if self._told or self._asked is not None:
            raise ValueError("divide() must be called before the first ask()")
        self.division = self._division(replicated=replicated, cross_fitted=cross_fitted)
        least = self.least_budget
        if self.budget < least:
            raise ValueError(
                f"budget must pay for {least // self.horizon} full-length trajectories with "
                f"{'Sobol starts' if replicated else 'a fitted critic'}, {least} transitions, got {self.budget}"
            )
        self._groups: list[Moments] = [self._moments() for _ in range(self.division.groups)]
        self._estimated: Estimate | None = None

    def _division(self, *, replicated: bool, cross_fitted: bool) -> Division:
        affordable = self.budget / self.horizon
        return Division.of(TEAMS if cross_fitted else 1, affordable, replicated=replicated, cross_fitted=cross_fitted)

    @checks.checked()
    def serve(self, metric: Metric, leading: int = 0) -> None:
        """Says what plans serve where rewards have several components; may be called before the first ``ask()``.

        Args:
            metric: weight of each component's variance; "scaled" for one over the variance of its return.
            leading: the component that :meth:`estimate` is about.
        """
        self._metric, self.leading = metric, leading
        self.divide(replicated=self.division.replicated, cross_fitted=self.division.cross_fitted)

    @property
    def begun(self) -> bool:
        """Whether horizon, budget and gamma are known; if not, this strategy holds settings only."""
        return self._budget > 0

    @property
    def budget(self) -> int:
        """Transitions that may be spent in all."""
        return self._budget

    @property
    def least_budget(self) -> int:
        """Transitions of the full-length trajectories that every budget must pay for."""
        several = 2 * self.division.groups if self.division.groups > 1 else 0
        return max(self._least_trajectories, several) * self.horizon

    @checks.checked()
    def change_budget(self, budget: int) -> None:
        """Grows or shrinks what may be spent in all; what is spent already stays spent."""
        self._budget = budget

    @property
    def extendable(self) -> bool:
        """Whether it can go on with a larger budget when the first one is spent."""
        return True

    @property
    def spent(self) -> int:
        """Transitions taken so far."""
        return self.moments.transitions

    def ask(self) -> Schedule | None:
        """Returns the trajectories to collect next, the same until they are told; None when the budget is spent."""
        if not self.begun:
            raise ValueError("ask() needs a strategy with horizon, budget and gamma: give them, or call begin()")
        if self._asked is None and self.spent < self.budget:
            self._asked = self._plan(self.budget - self.spent)
        return self._asked

    @property
    def parts(self) -> tuple[Schedule, ...]:
        """The schedules that make up what was last asked for; more than one where trajectories belong to teams."""
        return () if self._asked is None else (self._asked,)

    def dealt(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the group to which each trajectory of what was last asked for belongs, given their lengths."""
        return (self._count + np.arange(checks.counts("lengths", lengths).size)) % self.division.groups

    def follow(self, groups: Sequence[Moments], *, same_means: bool = True) -> None:
        """Plans and estimates from now on by another signal of the trajectories that were told.

        The signal is a critic's residual, or the difference of two policies.

        Args:
            groups: moments of this signal for each group.
            same_means: whether the signal is the same function of the trajectories in all teams.
        """
        self.division = replace(self.division, cross_fitted=not same_means)
        self._groups, self.moments = list(groups), union(groups)
        self._estimated = None

    def tell(self, trajectories: Trajectories | Sequence[Summary]) -> None:
        """Takes in the trajectories last asked for.

        Args:
            trajectories: in any order that has nothing to do with their rewards, such as that of the schedule's
                lengths, which is that of :meth:`dealt`; or one Summary for each schedule of :attr:`parts`. Do not mix
                both in one run.
        """
        if self._asked is None:
            raise ValueError("tell() was called before ask()")
        given = trajectories if isinstance(trajectories, (list, tuple)) and trajectories else [trajectories]
        batches = [checks.instance("trajectories", batch, Trajectories, Summary) for batch in given]
        told = Schedule(np.sum([batch.counts(self.horizon) for batch in batches], axis=0))
        if told != self._asked:
            raise ValueError(
                f"lengths must be those of the schedule asked for, {self._asked.trajectories} trajectories with "
                f"{self._asked.transitions} steps, got {told.trajectories} with {told.transitions}"
            )
        self._take_in(batches)
        self._asked = None

    def _take_in(self, batches: Sequence[Trajectories | Summary]) -> None:
        dealt, self._estimated = self._by_group(batches), None
        if not self._told:
            self.moments = self._moments_of(batches[:1])
        for batch in batches[0 if self._told else 1 :]:
            self.moments.update(batch)
        self._told += batches
        self._count += sum(len(batch) for batch in batches if isinstance(batch, Trajectories))
        if self.division.groups == 1:
            self._groups = [self.moments]
            return
        for group, batch in dealt.items():
            if self._groups[group].transitions:
                self._groups[group].update(batch)
            else:
                self._groups[group] = self._moments_of([batch])

    def _by_group(self, batches: Sequence[Trajectories | Summary]) -> dict[int, Trajectories | Summary]:
        """Returns what was collected for each group."""
        if not isinstance(batches[0], Trajectories):
            return dict(enumerate(batches))
        dealt = self.dealt(batches[0].lengths)
        return {group: batches[0].select(dealt == group) for group in np.unique(dealt).tolist()}

    def estimate(self) -> Estimate:
        """Returns the estimate from everything told so far: the mean of the teams' own."""
        if self.division.replicated and min(int(group.counts[-1]) for group in self._groups) == 0:
            raise ValueError(
                f"strategy must plan at least {self.division.groups} full-length trajectories with Sobol starts, but "
                f"{type(self).__name__.lower()!r} planned fewer: use strategy 'adaptive' or 'uniform', or random starts"
            )
        return self._mean_of_teams()

    def _mean_of_teams(self) -> Estimate:
        """Returns the plain mean of the teams' own estimates, which is computed once after each batch."""
        if self._estimated is None:
            self._estimated = self.division.estimate(self._groups_of(self.leading))
        return self._estimated

    def joint(self) -> JointEstimate:
        """Returns the estimates of all components, where rewards have several."""
        teams = [self.division.team(index, self._groups) for index in range(self.division.teams)]
        known = [team for team in teams if all(group.counts[-1] for group in team)]
        return JointEstimate.from_teams(known or teams, same_means=not self.division.cross_fitted)  # type: ignore[arg-type]

    def _groups_of(self, component: int) -> list[Moments]:
        return [
            group.component(component) if isinstance(group, RewardMoments) and group.components > 1 else group
            for group in self._groups
        ]

    def variance(self, weights: ArrayLike) -> float:
        """Returns the variance that the estimate would have, by what was collected, if these were the true f_t."""
        return Schedule(self.moments.counts).variance(weights)

    def guaranteed_interval(self, reward_range: tuple[float, float], confidence: float = 0.95) -> tuple[float, float]:
        """Returns an interval that holds J with at least this confidence for any rewards in the range.

        For a strategy that plans once it is the generalised Hoeffding interval, (2) of the paper; for others see
        :func:`rido.core.guarantee.guaranteed_interval`, which takes the budget that was known before any reward. It
        rests on no estimate of a variance, and is much wider.

        Args:
            reward_range: lowest and highest possible reward; it must contain 0 where the environment can end early.
            confidence: the probability of holding J.
        """
        return guaranteed_interval(
            self.collected(),
            horizon=self.horizon,
            gamma=self.gamma,
            reward_range=reward_range,
            confidence=confidence,
            budget=self._first_budget,
        )

    def warnings(self) -> tuple[str, ...]:
        """Returns why the interval of :meth:`estimate` may not be trusted, one sentence each; none if it may."""
        return interval_warnings(self.estimate())

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Returns all this strategy knows as plain arrays, for :meth:`restore`."""
        if not self._told:
            return {name: np.zeros(0) for name in ("rewards", "lengths", "steps", "batches")}
        told = self.collected()
        everything = concatenate(told)
        return {
            "rewards": everything.flat,
            "lengths": everything.lengths,
            "steps": everything.steps,
            "batches": np.array([len(batch) for batch in told]),
        }

    def restore(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Brings a new strategy of the same settings to where another one was when it gave its state."""
        if self._told:
            raise ValueError("restore() needs a strategy that was told nothing yet")
        lengths, steps = (np.asarray(state[name], dtype=np.int64) for name in ("lengths", "steps"))
        rows = np.cumsum(np.asarray(state["batches"], dtype=np.int64))[:-1]
        rewards = np.split(np.asarray(state["rewards"], dtype=np.float64), np.cumsum(lengths)[rows - 1])
        for batch in zip(rewards, np.split(lengths, rows), np.split(steps, rows), strict=True):
            if batch[1].size:
                self.ask()
                self.tell(Trajectories.from_flat(*batch))

    def collected(self) -> list[Trajectories]:
        """Returns the trajectories that were told, a batch for each call of :meth:`tell`."""
        batches = [batch for batch in self._told if isinstance(batch, Trajectories)]
        if len(batches) < len(self._told):
            raise ValueError("the rewards were not told, only summaries of them: a smaller budget keeps them")
        return batches

    def _moments_of(self, batches: Sequence[Trajectories | Summary]) -> Moments:
        moments = self._moments(summed=isinstance(batches[0], Summary))
        for batch in batches:
            moments.update(batch)
        return moments

    def _moments(self, *, summed: bool = False) -> Moments:
        if summed:
            return SummedMoments(self.horizon, gamma=self.gamma)
        return RewardMoments(self.horizon, gamma=self.gamma, metric=self._metric)

    @abstractmethod
    def _plan(self, left: int) -> Schedule | None:
        """Returns the next schedule of at most ``left`` transitions, or None when there is nothing to gain."""
