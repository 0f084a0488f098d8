"""SuiteRace: spends one budget over tasks, policies and steps at once, for the means over tasks and their ranking."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from rido.core import checks
from rido.core.allocation import Array
from rido.core.estimate import Estimate
from rido.core.moments import RewardMoments
from rido.core.schedule import Schedule
from rido.core.trajectories import Trajectories
from rido.evaluation.comparison import half_width_at
from rido.evaluation.leaderboard import Leaderboard, Task
from rido.evaluation.looks import Looks
from rido.evaluation.paired import PairedRewards
from rido.evaluation.race import LEAST_LOOK, PairedPlan, certainty
from rido.strategies.planning import learn

_VALUES = 0.5  # share of the budget that all policies get, before any drops out
_GROWTH = 0.2  # transitions of a round, as a share of those spent before it
_HEDGE = 0.1  # share of a round that is spent on equally many trajectories of all tasks, however little they vary


class SuiteRace:
    """Asks for paired trajectories of several policies in several tasks, until the ranking is sure.

    The score of a policy is the weighted mean of its normalised returns over the tasks. Within a task, trajectory i of
    every policy has the same seed and the same length. A round is spread over the tasks in proportion to ``w S``
    (Neyman's allocation), with the weight w of a task and its spread S: x transitions of a policy leave a variance of
    about ``S^2 / x``, with the best lengths (see :class:`rido.strategies.planning.Lesson`).

    1.  **Values.** Half of the budget goes to all policies. Tasks get their share by the spread of all policies.
        Lengths are planned by the policy whose spread in the task is largest.
    2.  **Ranking.** Then policies whose order to all others is sure drop out. Tasks and lengths are planned by the
        difference of two policies that is hardest to decide. It ends when the order of all pairs is sure.

    With K policies and ``alpha = 1 - confidence``, the bound on the difference of a pair fails on one side with a
    probability of ``alpha / (K (K - 1) / 2)`` over all looks. So with the confidence no order is called sure that is
    wrong.

    Args:
        tasks: by name, each with its horizon.
        names: of the policies, 2 to 100.
        budget: transitions for all tasks and policies together; never exceeded.
        confidence: probability that every order that is called sure is right.
    """

    def __init__(
        self, tasks: Mapping[str, Task], names: Sequence[str], *, budget: int, confidence: float = 0.95
    ) -> None:
        self.tasks, self.names = dict(tasks), tuple(names)
        if not 2 <= len(set(self.names)) == len(self.names) <= 100:
            raise ValueError(f"policies must be 2 to 100 different ones, got {len(self.names)}: {names!r:.200}")
        if not self.tasks:
            raise ValueError("tasks must be at least 1, got none")
        self.budget = checks.integer("budget", budget, least=1, most=checks.MOST_TRANSITIONS)
        self.confidence = checks.probability("confidence", confidence)
        self._costs = np.array([task.steps for task in self.tasks.values()], dtype=np.float64)
        least = 2 * int(self._costs.sum()) * len(self.names)
        if self.budget < least:
            raise ValueError(
                f"budget must pay for 2 full-length trajectories of each policy in each task, {least} transitions in "
                f"all, got {self.budget}"
            )
        self._plans, self._rewards = {}, {}
        for name, task in self.tasks.items():
            share = int(self.budget / len(self.names) * task.steps / self._costs.sum())
            self._plans[name] = _TaskPlan(horizon=task.steps, budget=share, gamma=task.gamma)
            self._rewards[name] = PairedRewards(
                self.names, horizon=task.steps, gamma=task.gamma, teams=self._plans[name].team_count
            )
        self._undecided = list(combinations(self.names, 2))
        self._looks = Looks((1 - self.confidence) / len(self._undecided))
        self._racing = self.names
        self._sure: set[tuple[str, str]] = set()
        self._level = 0.0
        self._shares = self._costs / self._costs.sum()
        self._asked: dict[str, Schedule] = {}
        self._over = False

    @property
    def spent(self) -> int:
        """Transitions taken so far, of all policies in all tasks."""
        return sum(rewards.transitions for rewards in self._rewards.values())

    @property
    def racing(self) -> tuple[str, ...]:
        """The policies that are still in the race."""
        return self._racing

    def ask(self) -> dict[str, Schedule] | None:
        """Returns for some tasks the trajectories to collect of each policy in the race; None when it is over."""
        if not self._asked and not self._over:
            self._asked = self._plan()
            if not self._asked:
                self._look(last=True)
                self._over = True
        return None if self._over else dict(self._asked)

    def tell(self, trajectories: Mapping[str, Mapping[str, Trajectories]]) -> None:
        """Takes in the trajectories last asked for.

        Args:
            trajectories: by task and policy. Those of a task are in the same order for all policies, in which
                trajectory i has the same length and began with the same seed.
        """
        if not self._asked:
            raise ValueError("tell() was called before ask()")
        if set(trajectories) != set(self._asked):
            raise ValueError(f"trajectories must be of {', '.join(self._asked)}, got {', '.join(trajectories)}")
        for name, told in trajectories.items():
            plan, lengths = self._plans[name], told[self._racing[0]].lengths
            self._rewards[name].add({policy: told[policy] for policy in self._racing}, plan.dealt(lengths))
            plan.tell(told[self._racing[0]])
        self._asked = {}
        if self.spent >= _VALUES * self.budget:
            self._look(last=False)
        if not self._over:
            self._learn()

    def result(self) -> Leaderboard:
        """Returns what is known so far."""
        board = Leaderboard(
            tasks=self.tasks,
            rewards=self._rewards,
            ranking=self.names,
            sure=frozenset(self._sure),
            level=self._level,
            confidence=self.confidence,
            budget=self.budget,
        )
        return board.ranked()

    def _plan(self) -> dict[str, Schedule]:
        """Returns the next trajectories of each task: those that bring the tasks closest to their shares."""
        left = (self.budget - self.spent) // len(self._racing)
        spent = np.array([plan.spent for plan in self._plans.values()], dtype=np.float64)
        total = float(spent.sum())
        pilot = total == 0
        size = float(left) if pilot else min(float(left), max(_GROWTH * total, float(self._costs.max())))
        now, later = (_lacking(spent, self._shares, amount) for amount in (size, left))
        # What a task lacks is carried over until it pays for a trajectory.
        due = (now >= self._costs) | (now == now.max())
        asked = {}
        for index, (name, plan) in enumerate(self._plans.items()):
            if pilot or due[index]:
                plan.size = float(now[index])
                plan.change_budget(plan.spent + int(later[index]))
                if (schedule := plan.ask()) is not None:
                    asked[name] = schedule
        return asked

    def _learn(self) -> None:
        """Learns from what was told how to spread the next rounds over tasks, and which signal plans each task."""
        spreads = np.zeros(len(self._plans))
        pair = self._hardest() if self._level > 0 else None
        for index, (name, rewards) in enumerate(self._rewards.items()):
            signals = [{policy: 1.0} for policy in self._racing] if pair is None else [{pair[0]: 1.0, pair[1]: -1.0}]
            budget = self._plans[name].budget
            found = [rewards.moments(signal) for signal in signals]
            spread = [learn(_union(teams), budget=budget).spread for teams in found]
            spreads[index] = self.tasks[name].factor * math.sqrt(np.mean(np.square(spread)))
            self._plans[name].follow(found[int(np.argmax(spread))])
        equal = self._costs / self._costs.sum()
        neyman = spreads / spreads.sum() if spreads.sum() > 0 else equal
        self._shares = (1 - _HEDGE) * neyman + _HEDGE * equal

    def _hardest(self) -> tuple[str, str]:
        board = self.result()
        return min(self._undecided, key=lambda pair: certainty(board.difference(*pair)))

    def _look(self, *, last: bool) -> None:
        """Finds pairs whose order is sure; policies that are in no other pair drop out."""
        board = self.result()
        found = {pair: board.difference(*pair) for pair in self._undecided}
        tested = {pair: difference for pair, difference in found.items() if _may_decide(difference)}
        if tested:
            planned = sum(board.value(self._racing[0], task).schedule.transitions for task in self.tasks)
            self._level = self._looks.level(planned, 1.0 if last else self.spent / self.budget)
        for pair, difference in tested.items():
            if abs(difference.value) > half_width_at(self._level, difference):
                self._sure.add(pair if difference.value > 0 else pair[::-1])
                self._undecided.remove(pair)
        self._racing = tuple(name for name in self.names if any(name in pair for pair in self._undecided))
        self._over = last or not self._undecided


class _TaskPlan(PairedPlan):
    """Plans the trajectories of one task, in rounds of a size that the suite decides.

    Attributes:
        size: transitions of the next round.
    """

    size = 0.0

    def _phase_size(self) -> float:
        return max(self.size, float(self.horizon))


def _lacking(spent: Array, shares: Array, amount: float) -> Array:
    """Returns how to spread an amount over tasks, so that all that is spent comes as close to the shares as it can."""
    lacking = np.maximum(shares * (float(spent.sum()) + amount) - spent, 0.0)
    spread: Array = lacking * (amount / lacking.sum())
    return spread


def _union(teams: Sequence[RewardMoments]) -> RewardMoments:
    union = RewardMoments(teams[0].horizon, gamma=teams[0].gamma)
    for team in teams:
        union.merge(team)
    return union


def _may_decide(difference: Estimate) -> bool:
    return difference.degrees_of_freedom >= LEAST_LOOK and math.isfinite(difference.standard_error)
