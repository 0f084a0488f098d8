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
from rido.core.trajectories import Trajectories
from rido.strategies.diagnostics import interval_warnings
from rido.strategies.division import TEAMS, Counts, Division, affordable, deal, in_fair_order

Order = tuple[NDArray[np.int64], NDArray[np.int64]]


class Strategy(ABC):
    """Spends a budget of transitions in rounds: ``ask()`` for a schedule, collect it, ``tell()`` the rewards.

    A strategy is a function of what it was told and draws no random numbers, so its state is the data: one that is
    told the same trajectories again plans the same. Transitions that early ends leave unspent return to the budget.

    A plan may have more trajectories than the budget pays for if all take their full length. Then :meth:`ask` returns
    those that it pays for in any case, and the others when these are told, before it plans again.

    Without horizon, budget and gamma a strategy holds settings only, for :func:`rido.evaluate` or :meth:`begin`.

    Args:
        horizon: number of time steps T.
        budget: transitions to spend, at least one full trajectory.
        gamma: discount factor in (0, 1].

    Attributes:
        accepts: the settings that :func:`rido.evaluate` may give: "until", the half-width of the 95% interval at which
            to stop; "reset_price", what beginning a trajectory costs in transitions; "lockstep", trajectories that a
            device runs in about the time of one. The constructor takes them, and ``options`` holds them.
        options: the strategy's own settings, as plain numbers, strings and lists.
        until: half-width of the 95% interval at which to stop; None to spend the budget.
        division: how trajectories are divided into groups.
        leading: the component that :meth:`estimate` is about, where rewards have several.
        spent: transitions taken so far.
        trajectories: trajectories told so far.
        rounds: how often trajectories were told.
    """

    accepts: frozenset[str] = frozenset()
    horizon: int
    gamma: float
    options: dict[str, Any]
    until: float | None = None
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
        self._plan_left: list[Counts] = []  # samples that the plan has of each step and that were not told, by team
        self._parts: list[Counts] = []  # those that were asked for
        self._asked: Schedule | None = None  # the same of all teams
        self._order: Order | None = None  # of the whole plan
        self._told: list[Trajectories | Summary] = []
        self._new: list[tuple[Trajectories | Summary, Any]] = []  # told, with its groups, but not learned yet
        self._signalled = False  # whether moments are those of another signal than the rewards
        self.spent = self.trajectories = self.rounds = 0
        if horizon is not None and budget is not None and gamma is not None:
            self.horizon = horizon
            self._budget = self._first_budget = budget
            if self._budget < self.least_budget:
                raise ValueError(
                    f"budget must pay for {self._least_trajectories} full-length trajectories, {self.least_budget} "
                    f"transitions, got {self._budget}"
                )
            self.gamma = gamma
            self.divide()
            self._begin()
        elif (horizon, budget, gamma) != (None, None, None):
            raise ValueError("horizon, budget and gamma must be given together, or left to evaluate()")

    @property
    def name(self) -> str:
        """What results and run files call it."""
        return type(self).__name__.lower()

    def begin(self, *, horizon: int, budget: int, gamma: float, **options: Any) -> Self:
        """Returns a strategy with these settings that begins to spend a budget.

        Args:
            horizon: number of time steps T.
            budget: transitions to spend.
            gamma: discount factor in (0, 1].
            **options: settings to change.
        """
        return self.changed(horizon=horizon, budget=budget, gamma=gamma, **options)

    def changed(self, **options: Any) -> Self:
        """Returns a new strategy with the same settings except these."""
        return type(self)(**{**self.options, **options})

    def _begin(self) -> None:  # noqa: B027 - a strategy may have nothing to prepare
        """Prepares what depends on horizon, budget and gamma, which are known now."""

    @checks.checked()
    def divide(self, *, replicated: bool = False, cross_fitted: bool = False) -> None:
        """Divides trajectories into teams and replicates; may be called before the first ``ask()``.

        Args:
            replicated: whether each group starts from the points of its own low-discrepancy sequence, so that the
                spread of the groups is the error.
            cross_fitted: whether each team has its own critic, which is fitted on the other teams.
        """
        if self.trajectories or self._asked is not None:
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
    def set_objective(self, metric: Metric, leading: int = 0) -> None:
        """Chooses whose error plans minimise, where rewards have several components; before the first ``ask()``.

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

    def change_until(self, until: float) -> None:
        """Changes the width at which to stop; what is spent already stays spent."""
        if self.until is None or not 0 < checks.number(until) <= self.until:
            raise ValueError(f"until must be positive and at most the present {self.until}, got {checks.shown(until)}")
        self.until = self.options["until"] = float(until)

    @property
    def extendable(self) -> bool:
        """Whether it can go on with a larger budget when the first one is spent."""
        return True

    def ask(self) -> Schedule | None:
        """Returns the trajectories to collect next, the same until they are told; None when the budget is spent."""
        if not self.begun:
            raise ValueError("ask() needs a strategy with horizon, budget and gamma: give them, or call begin()")
        left = self.budget - self.spent
        if self._asked is None and left > 0:
            self._parts = affordable(self._plan_left, left)
            if not self._parts:
                found = self._plan(left) or []
                self._plan_left = [found.counts] if isinstance(found, Schedule) else list(found)
                self._parts = affordable(self._plan_left, left)
            self._asked, self._order = Schedule(np.sum(self._parts, axis=0)) if self._parts else None, None
        return self._asked

    @property
    def parts(self) -> tuple[Schedule, ...]:
        """The schedules that make up what was last asked for; more than one where trajectories belong to teams."""
        return () if self._asked is None else tuple(Schedule(part) for part in self._parts if part.any())

    @property
    def planned(self) -> Order:
        """Lengths and groups of all trajectories of the present plan, in the order in which to collect them.

        They are more than :meth:`ask` returned where early ends may pay for them: then they are collected up to the
        last one that the budget pays for at its full length. Every beginning is a fair sample of the plan.
        """
        if self._asked is None:
            raise ValueError("planned needs a plan: call ask() first")
        if self._order is None:
            left, parts = self.budget - self.spent, self._plan_left
            lengths = Schedule(np.sum(parts, axis=0)).lengths
            if lengths.sum() > left:
                lengths = in_fair_order(lengths)
            if lengths[0] > left:  # a shorter one is affordable
                lengths, parts = self._asked.lengths, self._parts
            self._order = lengths, self._groups_of(lengths, parts)
        return self._order

    def _groups_of(self, lengths: NDArray[np.int64], parts: Sequence[Counts]) -> NDArray[np.int64]:
        """Returns the group of each trajectory, given the lengths of all trajectories of these parts."""
        if len(parts) == 1:
            return (self.trajectories + np.arange(lengths.size)) % self.division.groups
        return self.division.deal(deal(lengths, parts), [int(counts[0]) for counts in self._team_counts()])

    def _team_counts(self) -> list[Counts]:
        """Returns the samples of each step that each team has."""
        groups = self._learned()
        teams = (self.division.team(index, groups) for index in range(self.division.teams))
        return [np.sum([group.counts for group in team], axis=0) for team in teams]

    def tell(
        self,
        trajectories: Trajectories | Sequence[Summary],
        *,
        signal: Trajectories | Sequence[Summary] | Sequence[Moments] | None = None,
        same_means: bool | None = None,
    ) -> None:
        """Takes in the trajectories last asked for.

        Args:
            trajectories: in any order that has nothing to do with their rewards; or those of :attr:`planned` in its
                order, up to the last one that the budget pays for; or one Summary for each schedule of :attr:`parts`.
                Do not mix trajectories and summaries in one run.
            signal: what plans and estimates are about instead of the rewards, such as a critic's residual: the same
                trajectories with this signal, or for each group the moments of the signal of all that was told.
            same_means: whether the signal is the same function of the trajectories in all teams.
        """
        if self._asked is None:
            raise ValueError("tell() was called before ask()")
        given = trajectories if isinstance(trajectories, (list, tuple)) and trajectories else [trajectories]
        kinds = (Trajectories,) if given[0] is trajectories else (Summary,)
        batches: list[Trajectories | Summary] = [checks.instance("trajectories", batch, *kinds) for batch in given]
        groups = self._match(batches)
        self.spent += sum(batch.transitions for batch in batches)
        self.trajectories += sum(int(batch.counts(self.horizon)[0]) for batch in batches)
        self.rounds += 1
        self._told += batches
        self._asked = self._order = self._estimated = None
        self._signalled |= signal is not None
        if same_means is not None:
            self.division = replace(self.division, cross_fitted=not same_means)
        if isinstance(signal, (list, tuple)) and isinstance(signal[0], Moments):
            self._groups = list(signal)
            return
        told: Any = batches if signal is None else [signal] if isinstance(signal, Trajectories) else signal
        self._new += zip(told, groups, strict=True)

    def _match(self, batches: Sequence[Trajectories | Summary]) -> list[Any]:
        """Takes what was told out of the plan; returns the group of each batch, or of each trajectory in it."""
        assert self._asked is not None
        told = np.sum([batch.counts(self.horizon) for batch in batches], axis=0)
        first = batches[0]
        if isinstance(first, Trajectories):
            lengths, groups = self.planned
            left, count = self.budget - self.spent - first.transitions, len(first)
            following = lengths[count : count + 1]
            if np.array_equal(first.lengths, lengths[:count]) and (following > left).all():
                self._plan_left = []
                return [groups[:count]]
        if not np.array_equal(told, self._asked.counts):
            raise ValueError(
                f"lengths must be those of the schedule asked for, {self._asked.trajectories} trajectories with "
                f"{self._asked.transitions} steps, got {int(told[0])} with {int(told.sum())}"
            )
        self._plan_left = [plan - part for plan, part in zip(self._plan_left, self._parts, strict=True)]
        if isinstance(first, Trajectories):
            return [self._groups_of(first.lengths, self._parts)]
        active = [index for index, part in enumerate(self._parts) if part.any()]
        if len(batches) != len(active):
            raise ValueError(f"tell() needs a summary for each of the {len(active)} parts, got {len(batches)}")
        return active

    def _learned(self) -> list[Moments]:
        """Returns the moments of each group, with all that was told."""
        for batch, groups in self._new:
            for group in np.unique(groups).tolist():
                if isinstance(batch, Trajectories):
                    self._groups[group].update(batch, rows=groups == group)
                elif self._groups[group].transitions:
                    self._groups[group].update(batch)
                else:
                    self._groups[group] = self._moments_of([batch])
        self._new.clear()
        return self._groups

    @property
    def moments(self) -> Moments:
        """What was told so far: moments of the rewards, or of the signal that was told instead."""
        return union(self._learned())

    def reward_moments(self) -> Moments:
        """Returns the moments of the rewards, also where another signal was told; trajectories as they came."""
        known = self.division.groups == 1 and not self._signalled
        return self.moments if known else self._moments_of(self._told)

    def estimate(self) -> Estimate:
        """Returns the estimate from everything told so far: the mean of the teams' own."""
        if self.division.replicated and min(int(group.counts[-1]) for group in self._learned()) == 0:
            raise ValueError(
                f"strategy must plan at least {self.division.groups} full-length trajectories with Sobol starts, but "
                f"{self.name!r} planned fewer: use strategy 'adaptive' or 'uniform', or random starts"
            )
        return self._mean_of_teams()

    def _mean_of_teams(self) -> Estimate:
        """Returns the plain mean of the teams' own estimates, which is computed once after each batch."""
        if self._estimated is None:
            self._estimated = self.division.estimate(self._groups_of_component(self.leading))
        return self._estimated

    def joint(self) -> JointEstimate:
        """Returns the estimates of all components, where rewards have several."""
        groups = self._learned()
        teams = [self.division.team(index, groups) for index in range(self.division.teams)]
        known = [team for team in teams if all(group.counts[-1] for group in team)]
        return JointEstimate.from_teams(known or teams, same_means=not self.division.cross_fitted)  # type: ignore[arg-type]

    def _groups_of_component(self, component: int) -> list[Moments]:
        return [
            group.component(component) if isinstance(group, RewardMoments) and group.components > 1 else group
            for group in self._learned()
        ]

    def variance(self, weights: ArrayLike) -> float:
        """Returns the variance that the mean of the teams would have if these were the true f_t."""
        teams = self._team_counts()
        return float(np.mean([Schedule(counts).variance(weights) for counts in teams])) / len(teams)

    def variance_in(self, population: Trajectories, weights: ArrayLike) -> float:
        """Returns the variance that the estimate would have if trajectories were drawn from a population.

        Args:
            population: full-length trajectories.
            weights: their f_t.
        """
        return self.variance(weights)

    def explained(self) -> float:
        """Returns the share of the variance of what was still to come that rewards so far explain; 0 where unused."""
        return 0.0

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

    def collected(self) -> list[Trajectories]:
        """Returns the trajectories that were told, a batch for each call of :meth:`tell`."""
        batches = [batch for batch in self._told if isinstance(batch, Trajectories)]
        if len(batches) < len(self._told):
            raise ValueError("the rewards were not told, only summaries of them: a smaller budget keeps them")
        return batches

    def _moments(self) -> RewardMoments:
        return RewardMoments(self.horizon, gamma=self.gamma, metric=self._metric)

    def _moments_of(self, batches: Sequence[Trajectories | Summary]) -> Moments:
        summed = isinstance(batches[0], Summary)
        moments: Moments = SummedMoments(self.horizon, gamma=self.gamma) if summed else self._moments()
        for batch in batches:
            moments.update(batch)
        return moments

    @abstractmethod
    def _plan(self, left: int) -> Schedule | Sequence[Counts] | None:
        """Returns the next trajectories, or None when there is nothing to gain.

        Args:
            left: transitions that may still be spent. A plan with more planned steps is collected as far as early ends
                pay for it.

        Returns:
            A schedule, whose trajectories the groups get in turn; or the samples of each step for each team.
        """
