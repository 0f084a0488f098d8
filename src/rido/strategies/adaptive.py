"""Adaptive: learns while it collects where the error comes from. The default of :func:`rido.evaluate`.

1.  **Pilot.** Full-length trajectories for a few percent of the budget. Where the discount leaves almost nothing of
    the later half of the rewards, half of them stop early.
2.  **Teams.** Trajectories belong to three teams, each planned from the other teams' rewards alone, and the
    estimate is the plain mean of the teams' own. So no count depends on the rewards that it averages, and the
    estimate has no noticeable bias.
3.  **Phases.** Each phase adds as much as was spent so far. Its plan comes from :mod:`rido.strategies.planning`:
    full-length trajectories, unless the other teams show that cuts are safe.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from rido.core import checks
from rido.core.allocation import fill, pool, tail_sums
from rido.core.estimate import Estimate
from rido.core.joint import JointEstimate
from rido.core.moments import Moments, union
from rido.core.reward_moments import RewardMoments
from rido.core.schedule import Schedule
from rido.core.summaries import SummedMoments
from rido.core.trajectories import Trajectories
from rido.strategies.base import Strategy
from rido.strategies.division import TEAMS, Counts, Division, affordable
from rido.strategies.planning import Lesson, learn
from rido.strategies.settings import AdaptiveSettings
from rido.strategies.so_far import Residuals

_ENDLESS = 1e18  # transitions, the most that is forecast
LOCKSTEP_PILOT = 0.125
"""Largest share of the budget for a pilot that is as wide as a device in lockstep."""
_NORMAL = 2.005  # half-width of a normal interval of that confidence, in standard errors


class Adaptive(Strategy):
    """Spends a budget nearly as well as if the weights f_t had been known beforehand, and can stop early.

    Args:
        horizon: number of time steps T.
        budget: transitions to spend, at least two full trajectories (six if ``unbiased``). A rest that pays for no
            full trajectory is spent on shorter ones only where plans cut trajectories anyway.
        gamma: discount factor in (0, 1].
        unbiased: plan each half of the data once, from the other half's pilot, which makes the estimate exactly
            unbiased; see :class:`rido.strategies.unbiased.Unbiased`, which it makes.
        until: stop when the 95% interval is at most this much to either side; the budget is the most to spend. The
            rule looks at the width alone and never at the value, for which such intervals keep their coverage in the
            limit of small widths (Chow and Robbins, 1965). For larger ones the interval is widened a little, to what
            would hold at 95.5% if it were looked at only once, and no run stops before 50 trajectories.
        reset_price: what beginning a trajectory costs, in transitions. It makes short trajectories less
            attractive; the budget still counts transitions only.
        lockstep: trajectories that a device runs in lockstep in about the time of one. Then the pilot and the phases
            are as wide if the budget pays for it, trajectories are cut only if that gains much, to lengths that suit
            the device, and a small rest of the budget stays unspent.
        settings: constants of the method, for studies; measured defaults if not given.

    Example:
        >>> strategy = Adaptive(horizon=10, budget=100, gamma=0.9)
        >>> strategy.ask()
        Schedule(counts=[5, 5, 5, 5, 5, 5, 5, 5, 5, 5])
    """

    accepts = frozenset({"until", "reset_price", "lockstep"})
    _least_trajectories = 2

    def __new__(cls, *, unbiased: bool = False, **settings: Any) -> Self:
        if cls is Adaptive and checks.flag("unbiased", unbiased):
            from rido.strategies.unbiased import Unbiased

            return super().__new__(Unbiased)  # type: ignore[return-value]
        return super().__new__(cls)

    @checks.checked()
    def __init__(
        self,
        *,
        horizon: int | None = None,
        budget: int | None = None,
        gamma: float | None = None,
        unbiased: bool = False,
        until: float | None = None,
        reset_price: float = 0.0,
        lockstep: int = 0,
        settings: AdaptiveSettings | Mapping[str, Any] | None = None,
    ) -> None:
        self.until, self.reset_price, self.lockstep = until, reset_price, lockstep
        options: dict[str, Any] = {"unbiased": unbiased, "until": until, "reset_price": reset_price}
        if self.lockstep:
            options["lockstep"] = self.lockstep
        self.settings = settings if isinstance(settings, AdaptiveSettings) else AdaptiveSettings(**(settings or {}))
        if self.settings != AdaptiveSettings():
            options["settings"] = asdict(self.settings)
        super().__init__(horizon=horizon, budget=budget, gamma=gamma, **options)

    def _begin(self) -> None:
        self._lessons: list[Lesson] = []
        self._learned_rounds = 0  # after which the lessons were learned
        self._residuals: Residuals | None = None

    def _division(self, *, replicated: bool, cross_fitted: bool) -> Division:
        affordable = self.budget / self.horizon
        several = affordable >= self.settings.teams_from and (
            affordable <= self.settings.teams_until or self.until is not None or not self.lockstep
        )
        teams = TEAMS if several or cross_fitted else 1
        return Division.of(teams, affordable, replicated=replicated, cross_fitted=cross_fitted)

    def estimate(self) -> Estimate:
        """Returns the estimate from everything told so far: the mean of the teams' own."""
        estimate = self._mean_of_teams()
        if (
            self.until is None
            or estimate.nothing_varied
            or math.isinf(estimate.half_width(1 - 0.05 * self.settings.miss_share))
        ):
            return estimate
        return estimate.widened(estimate.half_width(1 - 0.05 * self.settings.miss_share) / estimate.half_width(0.95))

    def _mean_of_teams(self) -> Estimate:
        if self._estimated is None:
            estimate = super()._mean_of_teams()
            self._estimated = estimate.widened(self._unseen_factor(estimate, self.leading))
        return self._estimated

    def joint(self) -> JointEstimate:
        found = super().joint()
        return found.widened([self._unseen_factor(estimate, index) for index, estimate in enumerate(found.estimates)])

    def _unseen_factor(self, estimate: Estimate, component: int) -> float:
        """Returns by what factor unseen events behind cuts may widen the error of a component."""
        division, counts = self.division, [team for team in self._team_counts() if team[-1]]
        even = all(team[0] == team[-1] for team in counts)
        if even or division.replicated or not 0 < estimate.standard_error**2 < math.inf:
            return 1.0
        lesson = learn(
            union(self._groups_of_component(component), same_means=not division.cross_fitted), settings=self.settings
        )
        added = self.settings.doubt * sum(lesson.unseen_variance(team) for team in counts) / len(counts) ** 2
        return math.sqrt(1 + added / estimate.standard_error**2)

    def forecast(self, width: float | None = None) -> int:
        """Returns about how many transitions it takes until the 95% interval is this much to either side.

        Args:
            width: the half-width; ``until`` if not given.
        """
        width = self.until if width is None else width
        width = checks.positive("width", width)
        if self.spent == 0:
            raise ValueError("forecast() needs the rewards of the pilot, got none yet")
        estimate = self.estimate()
        reached = estimate.half_width(0.95)
        if reached <= width:
            return self.spent
        if estimate.nothing_varied:  # the width falls with the number of full-length trajectories
            return self.budget if math.isinf(reached) else math.ceil(min(self.spent * reached / width, _ENDLESS))
        spread = float(np.mean([lesson.spread for lesson in self._learn()]))
        if self._metric == "scaled" or not spread:  # not in units of the leading component, or squares underflow
            longer = min(reached / width, math.sqrt(_ENDLESS)) ** 2
            return math.ceil(min(self.spent * max(longer, 1 + 1 / self.spent), _ENDLESS))
        return max(self.spent + 1, math.ceil(min(_NORMAL * spread / width, math.sqrt(_ENDLESS)) ** 2))

    def _plan(self, left: int) -> list[Counts]:
        pilot = self._pilot_size()
        if self.spent == 0:
            return self._pilot(pilot, left, self.horizon)
        # Early ends make a pilot cheaper, so that it may have more trajectories.
        missing = pilot * self.horizon - self.spent
        if missing > 0.3 * pilot * self.horizon and not self.lockstep:
            return self._pilot(missing / (mean := float(self.moments.survival.sum())), left, mean)
        if self.lockstep and left < self.settings.lockstep_unspent * self.budget:
            return []
        size = self._phase_size()
        if size == 0:
            return []
        parts = self._phase(size, left) if left >= self.horizon else []
        return parts if affordable(parts, left) else self._rest(left)

    def _pilot_size(self) -> float:
        """Returns how many trajectories the pilot has."""
        affordable = self.budget / self.horizon
        wide = min(self.lockstep, LOCKSTEP_PILOT * affordable)
        if self.until is not None:
            return max(self.settings.least_pilot, wide)
        large = self.division.cross_fitted or self.gamma**self.horizon > self.settings.late
        root = (self.settings.large_pilot if large else 1.0) * math.sqrt(affordable)
        return min(max(self.settings.least_pilot, root, self.settings.pilot_share * affordable, wide), affordable / 2)

    def _phase_size(self) -> float:
        """Returns the transitions of the next phase, 0 to stop."""
        longer = (int(self.moments.counts[-1]) - self.settings.plenty) / self.settings.longer
        size = max(self.settings.growth, longer) * self.spent
        if self.lockstep:  # all that is left, if the weights are known
            known = int(self.moments.counts[-1]) >= self.settings.plenty
            size = max(size, self.budget if known else self.lockstep * self.horizon)
        if self.until is None:
            return max(size, self.settings.least_phase * self.budget, 2 * self.horizon)
        estimate = self.estimate()
        enough = (
            estimate.degrees_of_freedom >= self.settings.least_freedom
            and estimate.schedule.trajectories >= self.settings.least_stop
        )
        if enough and estimate.half_width(0.95) <= self.until:
            return 0.0
        return max(min(size, self.forecast() - self.spent), self.horizon, self.lockstep * self.horizon)

    def _pilot(self, trajectories: float, left: int, price: float) -> list[Counts]:
        """Returns a pilot for all teams together.

        Args:
            trajectories: about how many.
            left: transitions that they may take.
            price: transitions that a full-length trajectory is expected to take.
        """
        teams = self.division.teams
        least = max(2 if teams == 1 and self.spent == 0 else 1, self.division.members if self.spent == 0 else 1)
        count = max(least, min(round(trajectories / teams), int(left / (teams * price))))
        full = max(least * teams, min(self.settings.least_full, count * teams), teams * count // 2)
        if self.spent:  # early ends make full-length trajectories cheap
            full = teams * count
        parts = [self._pilot_part(count, (full + index) // teams) for index in range(teams)]
        return parts if np.sum(parts) * price / self.horizon <= left else self._rest(left)

    def _pilot_part(self, count: int, full: int) -> Counts:
        """Returns this many trajectories, some of them cut where the discount leaves little of their later half."""
        short = self._reach <= self.horizon / 2 and not self._small
        return np.where(np.arange(self.horizon) < self._reach, count, full if short else count)

    @property
    def _reach(self) -> int:
        """Steps after which the discount leaves almost nothing."""
        if self.gamma == 1:
            return self.horizon
        return min(self.horizon, math.ceil(math.log(self.settings.reach) / math.log(self.gamma)))

    @property
    def _small(self) -> bool:
        """Whether the budget is too small to plan from."""
        return self.budget < self.settings.plain_below * max(self.horizon, 2 * self._reach)

    def _phase(self, size: float, left: int) -> list[Counts]:
        """Returns trajectories that are expected to take ``size`` transitions, an equal share for each team.

        The share of a team is reckoned by its planned samples and the other teams' survival, never by the transitions
        that its own trajectories took: what their early ends leave unspent benefits the others. They may exceed the
        budget if no trajectory ends early; a device in lockstep, where many small rounds take long, gets no such plan.
        """
        parts: list[Counts] = []
        teams = self.division.teams
        for index, (counts, lesson) in enumerate(zip(self._team_counts(), self._learn(), strict=True)):
            taken = np.ones(self.horizon) if self.lockstep else lesson.survival  # transitions that a sample takes
            room = (left - int(sum(part @ taken for part in parts))) // (teams - index)
            full = float(lesson.survival.sum())
            target = self.budget / teams - float(counts @ lesson.survival)
            wanted = min(size / teams, target)
            part = np.zeros(self.horizon, dtype=np.int64)
            if lesson.truncates and target > 0:
                part += min(self._lacking, int(room / taken.sum()))
                # The plan is for all that is left. Scaled down and rounded, its counts still never increase.
                best, rest = np.sqrt(pool(lesson.weights, lesson.costs)), room - float(part @ taken)
                budget = rest * float(best @ lesson.costs) / float(best @ lesson.survival)  # with the price of resets
                plan = fill(
                    lesson.weights,
                    math.inf if self.lockstep else budget,
                    counts + part,
                    costs=lesson.costs,
                    limit=int(rest) if self.lockstep else None,
                    pooled=False,
                )
                expected = float(plan @ lesson.survival)
                if expected > wanted:
                    scaled = np.rint(plan * (wanted / expected)).astype(np.int64)
                    plan = scaled if scaled.any() else np.minimum(plan, 1)
                part += plan
            elif target > full / 2:
                part += min(max(1, round(wanted / full)), int(room / taken.sum()))
            parts.append(part)
        return parts if any(part.any() for part in parts) else []

    @property
    def _lacking(self) -> int:
        """Full-length trajectories that each team lacks before ``until`` may stop a run that is known by sums alone.

        Sums do not tell how much each length adds to the error, so only full-length trajectories have freedom.
        """
        if self.until is None or not isinstance(self.moments, SummedMoments):
            return 0
        lacking = self.settings.least_freedom + 1 - int(self.moments.counts[-1])
        return max(0, math.ceil(lacking / self.division.teams))

    def _rest(self, left: int) -> list[Counts]:
        """Spends what rounding and early ends left: full-length trajectories, then shorter ones where plans cut."""
        teams = self._team_counts()
        parts = [np.zeros(self.horizon, dtype=np.int64) for _ in teams]
        fewest = np.argsort([counts[-1] for counts in teams], kind="stable")
        if left >= self.horizon:
            for place in range(left // self.horizon):
                parts[fewest[place % len(parts)]] += 1
            return parts
        index = int(fewest[0])
        lesson, counts = self._learn()[index], teams[index]
        if not lesson.truncates:
            return []
        parts[index] += fill(lesson.weights, math.inf, counts, costs=lesson.costs, limit=left, pooled=False)
        return parts

    def _learn(self) -> list[Lesson]:
        """Returns for each team what the other teams' trajectories tell."""
        groups = self._learned()
        if self._learned_rounds < self.rounds:
            self._lessons = self._lessons_of(groups, same_means=not self.division.cross_fitted)
            self._learned_rounds = self.rounds
        return self._lessons

    def _lessons_of(self, groups: Sequence[Moments], *, same_means: bool) -> list[Lesson]:
        division = self.division
        lessons = [
            learn(
                union([union(team) for team in division.others(index, groups)], same_means=same_means),
                reset_price=self.reset_price,
                gains=division.gains(index, groups),
                settings=self.settings,
            )
            for index in range(division.teams)
        ]
        least = math.inf if self._small else self.settings.lockstep_gain if self.lockstep else 1.0
        return [replace(lesson, truncates=lesson.truncates and lesson.gain >= least) for lesson in lessons]

    def tell(self, trajectories: Any, **about: Any) -> None:
        super().tell(trajectories, **about)
        self._learned()  # at once: what is predicted must not depend on when somebody looks

    def _learned(self) -> list[Moments]:
        """Returns the moments of each group: of residuals where these promise less error, else of what was told."""
        new = list(self._new)
        groups = super()._learned()
        if new and self.settings.so_far and self._predictable(groups):
            if self._residuals is None:
                self._residuals = Residuals(self.horizon, self.gamma, len(groups), self.settings)
            self._residuals.tell(new, groups, self.reset_price)  # type: ignore[arg-type]
            self.division = replace(self.division, cross_fitted=self._residuals.used)
        return self._residuals.moments if self._residuals and self._residuals.used else groups

    def _predictable(self, groups: Sequence[Moments]) -> bool:
        """Whether what is still to come can be predicted from the rewards so far: one number a step, told by teams."""
        division = self.division
        return (
            self._signalled is False
            and division.teams > 1
            and not (division.replicated or self.lockstep)
            and (self._residuals is not None or not division.cross_fitted)
            and all(isinstance(group, RewardMoments) and group.components == 1 for group in groups)
        )

    def reward_moments(self) -> Moments:
        return union(self._groups) if self._learned() is not self._groups else super().reward_moments()

    def variance_in(self, population: Trajectories, weights: ArrayLike) -> float:
        if self._residuals is None or not self._residuals.used:
            return super().variance_in(population, weights)
        teams = self._team_counts()
        found = [self._residuals.of(population, team).weights() for team in range(len(teams))]
        return float(np.mean([Schedule(counts).variance(f) for counts, f in zip(teams, found, strict=True)])) / len(
            teams
        )

    def explained(self) -> float:
        if self._residuals is None or not self._residuals.used:
            return 0.0
        plain, found = (
            tail_sums(union(parts, same_means=same).weights())[1:].clip(0).sum()
            for parts, same in ((self._groups, True), (self._residuals.moments, False))
        )
        return max(0.0, 1 - float(found / plain)) if plain > 0 else 0.0
