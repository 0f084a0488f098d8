"""SuiteRace: spends one budget over tasks, policies and steps at once, for the means over tasks and their ranking."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from rido.comparison.comparison import enough
from rido.comparison.paired import PairedRewards
from rido.comparison.race import GROWTH, PILOT, certainty, full_length, next_round
from rido.comparison.sequential import SpendingBoundary
from rido.core import checks
from rido.core.allocation import Array
from rido.core.reward_moments import RewardMoments
from rido.core.schedule import Schedule
from rido.core.trajectories import Trajectories, positions
from rido.strategies.division import Division
from rido.strategies.planning import learn
from rido.suite.leaderboard import Leaderboard, Task

_VALUES = 0.75  # share of the budget that is spent on the values of all policies, before the ranking
_HEDGE = 0.1  # share of a round that is spent on equally many trajectories of all policies and tasks
_PRIOR = 10.0  # full-length trajectories that the spread of the other policies in a task is worth
_RELEARN = 1.2  # a spread is learned anew when its trajectories have grown by this factor


@dataclass(frozen=True)
class TrajectoryRange:
    """Trajectories of a policy in a task that are to be collected.

    Attributes:
        first: index of the first one in the task; the others follow.
        lengths: planned length of each.
    """

    first: int
    lengths: NDArray[np.int64]


class SuiteRace:
    """Asks for paired trajectories of several policies in several tasks, until the ranking is significant.

    The score of a policy is the weighted mean of its normalised returns over the tasks. Each task has one sequence of
    planned lengths, and every policy takes a beginning of it: trajectory i has the same length and the same seed for
    all policies. How far a policy goes in a task is decided by what a transition buys there: x transitions leave a
    variance of about ``S^2 / x`` with the best lengths (see :class:`rido.strategies.planning.Lesson`).

    1.  **Values.** A part of the budget is spread over tasks and policies in proportion to ``w S`` (Neyman's
        allocation), with the weight w of the task and the spread S of the policy in it. That minimises the sum of the
        variances of all scores.
    2.  **Ranking.** The rest goes to pairs of policies whose order is open, the clearest first, spread over the
        tasks by the spread of their difference. A policy whose order to all others is significant gets no more. It ends
        when the order of all pairs is significant.

    With K policies and ``alpha = 1 - confidence``, the bound on the difference of a pair fails on one side with a
    probability of ``alpha / (K (K - 1) / 2)`` over all looks, spent as
    :class:`rido.comparison.sequential.SpendingBoundary` says. So with the confidence no significant order is wrong.

    Args:
        tasks: by name, each with its horizon.
        names: of the policies, 2 to 100.
        budget: transitions for all tasks and policies together; never exceeded.
        confidence: probability that every significant order is right.
    """

    def __init__(
        self, tasks: Mapping[str, Task], names: Sequence[str], *, budget: int, confidence: float = 0.95
    ) -> None:
        self.tasks, self.names = dict(tasks), tuple(names)
        if not 2 <= len(set(self.names)) == len(self.names) <= 100:
            raise ValueError(f"policies must be 2 to 100 different ones, got {len(self.names)}: {names!r:.200}")
        if not self.tasks:
            raise ValueError("tasks must be at least 1, got none")
        raw = [name for name, task in self.tasks.items() if task.reference is None]
        if 0 < len(raw) < len(self.tasks):
            raise ValueError(
                f"reference must be given for all tasks or for none, got none for {raw[0]}: returns and scores from 0 "
                "to 1 have no mean"
            )
        self.budget = checks.integer("budget", budget, least=1, most=checks.MOST_TRANSITIONS)
        self.confidence = checks.probability("confidence", confidence)
        steps = sum(task.steps for task in self.tasks.values())
        if self.budget < (least := 2 * steps * len(self.names)):
            raise ValueError(
                f"budget must pay for 2 full-length trajectories of each policy in each task, {least} transitions in "
                f"all, got {self.budget}"
            )
        share = self.budget / len(self.names) / steps  # full-length trajectories, spread evenly
        self._open = {name: _OpenTask(task, self.names, int(share * task.steps)) for name, task in self.tasks.items()}
        self._undecided = list(combinations(self.names, 2))
        self._boundaries = {
            pair: SpendingBoundary((1 - self.confidence) / len(self._undecided)) for pair in self._undecided
        }
        self._levels: dict[tuple[str, str], float] = {}
        self._sure: set[tuple[str, str]] = set()
        self._asked: dict[str, dict[str, TrajectoryRange]] = {}
        self._over = False

    @property
    def spent(self) -> int:
        """Transitions taken so far, of all policies in all tasks."""
        return sum(task.rewards.transitions for task in self._open.values())

    @property
    def undecided(self) -> int:
        """Number of pairs whose order is open."""
        return len(self._undecided)

    def ask(self) -> dict[str, dict[str, TrajectoryRange]] | None:
        """Returns the trajectories to collect, by task and policy; None when it is over."""
        if not self._asked and not self._over:
            self._asked = self._plan() if self.spent else {name: task.pilot() for name, task in self._open.items()}
            if not self._asked:
                self._look(last=True)
                self._over = True
        return None if self._over else self._asked

    def tell(self, trajectories: Mapping[str, Mapping[str, Trajectories]]) -> None:
        """Takes in the trajectories last asked for.

        Args:
            trajectories: by task and policy, in the order of the request.
        """
        if not self._asked:
            raise ValueError("tell() was called before ask()")
        for name, requests in self._asked.items():
            for policy, request in requests.items():
                told = trajectories.get(name, {}).get(policy)
                if told is None or not np.array_equal(told.lengths, request.lengths):
                    raise ValueError(f"trajectories of {policy} in {name} must have the lengths that were asked for")
                self._open[name].add(policy, told)
        self._asked = {}
        if self.spent >= _VALUES * self.budget:
            self._look(last=False)

    def result(self) -> Leaderboard:
        """Returns what is known so far."""
        board = self._board()
        return replace(board, ranking=tuple(sorted(self.names, key=lambda name: -board.scores[name].value)))

    def _board(self) -> Leaderboard:
        return Leaderboard(
            tasks=self.tasks,
            rewards={name: task.rewards for name, task in self._open.items()},
            ranking=self.names,
            sure=frozenset(self._sure),
            levels=dict(self._levels),
            confidence=self.confidence,
            budget=self.budget,
        )

    def _plan(self) -> dict[str, dict[str, TrajectoryRange]]:
        """Returns the next trajectories, which bring all tasks and policies closest to their shares."""
        board = self._board()
        # After the first look there is a level. Then each round is for one pair, both of which count as one column.
        pair = max(self._undecided, key=lambda one: certainty(board.difference(*one))) if self._levels else None
        columns = [(name,) for name in self.names] if pair is None else [pair]
        each = len(columns[0])  # policies of a column
        left = float((self.budget - self.spent) // each)
        if left == 0:
            return {}
        size = min(left, max(GROWTH * self.spent, max(task.horizon for task in self._open.values())) / each)
        factors = np.array([abs(task.factor) for task in self.tasks.values()])
        spreads = np.array([[task.spread(column) for column in columns] for task in self._open.values()])
        spent = np.array([[task.spent(column) for column in columns] for task in self._open.values()])
        planned = np.array([[float(task.planned(column)) for column in columns] for task in self._open.values()])
        costs = np.array([[float(task.horizon)] * len(columns) for task in self._open.values()])
        products = factors[:, None] * _shrunk(spreads, planned / costs)
        shares = costs / costs.sum()
        if products.sum() > 0:
            shares = (1 - _HEDGE) * products / products.sum() + _HEDGE * shares
        now, later = (_lacking(spent, shares, amount) for amount in (size, left))
        most = np.unravel_index(now.argmax(), now.shape)
        now[most] = max(now[most], min(float(costs[most]), left))
        now[now < costs] *= now[now < costs] == now[most]  # the others wait until a trajectory is due
        steps = now * planned / spent  # more than transitions where trajectories end early
        steps *= min(1.0, left / float(steps.sum()))
        asked = {}
        for row, (name, task) in enumerate(self._open.items()):
            wanted = {column: float(steps[row, index]) for index, column in enumerate(columns) if now[row, index] > 0}
            if wanted and (requests := task.requests(wanted, float(later[row].max()))):
                asked[name] = requests
        return asked

    def _look(self, *, last: bool) -> None:
        board = self._board()
        for pair in self._undecided:
            if enough(board.difference(*pair)):
                planned = sum(task.planned(pair) for task in self._open.values())
                self._levels[pair] = self._boundaries[pair].level(planned, 1.0 if last else self.spent / self.budget)
        board = replace(board, levels=dict(self._levels))
        for pair in list(self._undecided):
            low, high = board.bounds(*pair)
            if low > 0 or high < 0:
                self._sure.add(pair if low > 0 else pair[::-1])
                self._undecided.remove(pair)
        self._over = last or not self._undecided


class _OpenTask:
    """One task: its sequence of planned lengths, how far each policy is in it, and the rewards."""

    def __init__(self, task: Task, names: Sequence[str], budget: int) -> None:
        self.horizon, self._names, self._budget = task.steps, tuple(names), budget
        self.rewards = PairedRewards(names, horizon=task.steps, gamma=task.gamma, division=Division())
        self._lengths = np.zeros(0, dtype=np.int64)  # of the sequence
        self._taken = dict.fromkeys(names, 0)  # trajectories of each policy
        self._spreads: dict[tuple[str, ...], tuple[int, float]] = {}  # by signal: trajectories behind it, spread

    def pilot(self) -> dict[str, TrajectoryRange]:
        """Returns the first trajectories, the same of all policies."""
        self._extend(full_length(self.horizon, PILOT, self._budget))
        return {name: TrajectoryRange(0, self._lengths) for name in self._names}

    def add(self, name: str, batch: Trajectories) -> None:
        """Adds the next trajectories of a policy."""
        self._taken[name] += len(batch)
        self.rewards.add({name: batch}, np.zeros(len(batch), dtype=np.int64))

    def spread(self, column: tuple[str, ...]) -> float:
        """Returns the spread S of a policy's return, or of the difference of two."""
        count = min(self._taken[name] for name in column)
        known, spread = self._spreads.get(column, (0, 0.0))
        if count >= _RELEARN * known:
            spread = learn(self._moments(column)).spread
            self._spreads[column] = (count, spread)
        return spread

    def spent(self, column: tuple[str, ...]) -> float:
        """Returns the transitions of a policy; of two, those of the trajectories that both have, for each of them."""
        count = min(self._taken[name] for name in column)
        taken = sum(self.rewards.transitions_of(name) * count / self._taken[name] for name in column)
        return taken / len(column)

    def planned(self, column: tuple[str, ...]) -> int:
        """Returns the planned steps of the trajectories that all these policies have."""
        return int(self._lengths[: min(self._taken[name] for name in column)].sum())

    def requests(self, wanted: Mapping[tuple[str, ...], float], later: float) -> dict[str, TrajectoryRange]:
        """Returns the next trajectories of policies.

        Args:
            wanted: steps to plan for each policy, or for each of two up to the same trajectory.
            later: transitions that one policy may still get in all.
        """
        ends = np.cumsum(self._lengths)
        goals = {column: self.planned(column) + steps for column, steps in wanted.items()}
        beyond = max(goals.values()) - float(ends[-1])
        if beyond > 0:
            farthest = max(self._names, key=lambda name: (self._taken[name], self.spread((name,))))
            column = next((column for column in wanted if len(column) > 1), (farthest,))
            self._extend(next_round(self._moments(column), beyond, int(max(beyond, later))))
            ends = np.cumsum(self._lengths)
        found = {}
        for column, goal in goals.items():
            reach = int(np.searchsorted(ends, goal + 1e-6, side="right"))
            for name in column:
                if reach > (first := self._taken[name]):
                    found[name] = TrajectoryRange(first, self._lengths[first:reach])
        return found

    def _moments(self, column: tuple[str, ...]) -> RewardMoments:
        (moments,) = self.rewards.moments(dict(zip(column, (1.0, -1.0), strict=False)))
        return moments

    def _extend(self, schedule: Schedule | None) -> None:
        """Adds trajectories to the sequence, in an order of which every part is a fair sample."""
        if schedule is not None:
            lengths, by_length = schedule.lengths, schedule.trajectories_by_length
            places = (positions(by_length[by_length > 0][::-1]) + 0.5) / by_length[lengths - 1]
            self._lengths = np.concatenate([self._lengths, lengths[np.argsort(places, kind="stable")]])


def _lacking(spent: Array, shares: Array, amount: float) -> Array:
    """Returns how to spread an amount so that all that is spent comes as close to the shares as it can."""
    lacking = np.maximum(shares * (float(spent.sum()) + amount) - spent, 0.0)
    spread: Array = lacking * (amount / lacking.sum())
    return spread


def _shrunk(spreads: Array, trajectories: Array) -> Array:
    """Returns spreads (tasks, policies) that are drawn towards those of the other policies in the same task.

    A policy whose few trajectories happened to be alike would otherwise get no more of them, and keep the too small
    error and the too good value that they show.
    """
    squares = spreads**2
    common = np.sum(trajectories * squares, axis=1, keepdims=True) / np.sum(trajectories, axis=1, keepdims=True)
    shrunk: Array = np.sqrt((trajectories * squares + _PRIOR * common) / (trajectories + _PRIOR))
    return shrunk
