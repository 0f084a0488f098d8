"""Leaderboard: scores of several policies over several tasks, who beats whom, and how significant that is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from rido.comparison.comparison import Comparison, reach_at
from rido.comparison.paired import PairedRewards
from rido.core import checks
from rido.core.digits import entries, with_interval
from rido.core.estimate import Estimate
from rido.core.options import declared
from rido.core.reward_moments import RewardMoments
from rido.evaluation.recorded import RecordedRun
from rido.evaluation.result import Evaluation, uniform_transitions
from rido.simulators.identity import environment_name
from rido.simulators.options import Options
from rido.strategies.diagnostics import interval_warnings
from rido.suite.aggregate import interquartile_mean, probability_of_improvement, weighted_sum


@dataclass(frozen=True)
class Task:
    """An environment in which policies are evaluated, and its weight.

    Attributes:
        env: as in :func:`rido.evaluate`.
        gamma: discount factor in (0, 1].
        horizon: steps over which the return is summed; as in :func:`rido.evaluate` if not given.
        weight: weight of the task in the mean, relative to the others.
        env_kwargs: arguments of the environment, with an id.
        reference: the returns whose normalised scores are 0 and 1, such as those of a random policy and of a human;
            the score is the return itself if not given.
        end_on_truncation: as in :func:`rido.evaluate`.
    """

    env: Any
    gamma: float
    horizon: int | None = None
    weight: float = 1.0
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    reference: tuple[float, float] | None = None
    end_on_truncation: bool = False

    def __post_init__(self) -> None:
        checks.discount("gamma", self.gamma)
        checks.positive("weight", self.weight)
        checks.keywords("env_kwargs", self.env_kwargs)
        checks.flag("end_on_truncation", self.end_on_truncation)
        if self.reference is not None:
            ends = checks.finite_vector("reference", self.reference, length=2)
            if ends[0] == ends[1]:
                raise ValueError(f"reference must be two different returns, of scores 0 and 1, got {self.reference!r}")

    @property
    def options(self) -> dict[str, Any]:
        """Those that :func:`rido.evaluate` takes too."""
        return {name: getattr(self, name) for name in declared(Options) if hasattr(self, name)}

    @property
    def steps(self) -> int:
        """The horizon, which is known by now."""
        if self.horizon is None:
            raise ValueError("horizon must be given")
        return self.horizon

    @property
    def width(self) -> float:
        """What a return is divided by to be a score."""
        return 1.0 if self.reference is None else self.reference[1] - self.reference[0]

    @property
    def factor(self) -> float:
        """Weight of a return in a sum of weighted scores."""
        return self.weight / self.width

    def score(self, value: float) -> float:
        """Returns the normalised score of a return."""
        return (value - (0.0 if self.reference is None else self.reference[0])) / self.width


@dataclass(frozen=True)
class Leaderboard:
    """What is known of several policies in several tasks.

    Attributes:
        tasks: by name.
        rewards: what everything is computed from, by task.
        ranking: all policies, the best score first.
        sure: pairs of a better and a worse policy; with the confidence, none of them is wrong.
        levels: error probability of the last look at each pair, on one side.
        confidence: probability that every pair of ``sure`` is right.
        budget: transitions that were allowed.
        seed: what all randomness came from.
        notes: what the reader should know before trusting the numbers, with the task and policy concerned.
        remarks: what else a reader may want to know.
    """

    tasks: Mapping[str, Task]
    rewards: Mapping[str, PairedRewards] = field(repr=False)
    ranking: tuple[str, ...]
    sure: frozenset[tuple[str, str]]
    levels: Mapping[tuple[str, str], float]
    confidence: float
    budget: int
    seed: int | None = None
    notes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    def value(self, name: str, task: str) -> Estimate:
        """Returns the estimated return of a policy in a task."""
        checks.choice("name", name, self.ranking)
        return self._values[name, checks.choice("task", task, tuple(self.tasks))]

    @cached_property
    def _values(self) -> dict[tuple[str, str], Estimate]:
        return {(name, task): self.rewards[task].estimate(name) for name in self.ranking for task in self.tasks}

    @cached_property
    def scores(self) -> dict[str, Estimate]:
        """The score of each policy: the weighted mean of its normalised returns over the tasks."""
        low = {name: 0.0 if task.reference is None else task.reference[0] for name, task in self.tasks.items()}
        shift = sum(share * low[name] for name, share in self._shares.items())
        found = {}
        for name in self.ranking:
            total = self._sum([self.value(name, task) for task in self.tasks], [0.0] * len(self.tasks))
            found[name] = replace(total, value=total.value - shift)
        return found

    def difference(self, name: str, other: str) -> Estimate:
        """Returns the estimated difference of the scores of two policies, from the trajectories both have in common."""
        checks.choice("other", other, self.ranking)
        sizes = [abs(self.value(name, task).value) + abs(self.value(other, task).value) for task in self.tasks]
        return self._sum([self.rewards[task].difference(name, other) for task in self.tasks], sizes)

    def bounds(self, name: str, other: str) -> tuple[float, float]:
        """Returns the bounds on the difference of two scores that decide whether an order is significant."""
        difference, number = self.difference(name, other), len(self.ranking)
        level = self.levels.get((name, other), self.levels.get((other, name), 0.0))
        alpha = (1 - self.confidence) / (number * (number - 1) / 2)
        reach = max(reach_at(level, alpha, difference, (self.scores[name], self.scores[other])))
        return difference.value - reach, difference.value + reach

    def interval(self, name: str) -> tuple[float, float]:
        """Returns an interval of a policy's score; with the confidence those of all policies hold at once."""
        checks.choice("name", name, self.ranking)
        return self.scores[name].interval(1 - (1 - self.confidence) / len(self.ranking))

    def chance(self, name: str, other: str) -> float:
        """Returns the confidence that one score is larger than another: one minus the p-value of a one-sided t test.

        It is that of a single look at a single pair. What holds for all pairs and looks at once is in ``sure``.
        """
        from scipy.special import stdtr  # slow to import

        difference = self.difference(name, other)
        if not 0 < difference.standard_error < math.inf:
            return 0.5 if difference.value == 0 else float(difference.value > 0)
        return float(stdtr(difference.degrees_of_freedom, difference.value / difference.standard_error))

    def interquartile_mean(self, names: str | Sequence[str]) -> float:
        """Returns the interquartile mean of normalised scores over tasks, and over runs if there are several.

        Args:
            names: a policy, or several that are runs of one algorithm.
        """
        return interquartile_mean(self._matrix("names", names))

    def probability_of_improvement(self, names: str | Sequence[str], others: str | Sequence[str]) -> float:
        """Returns the probability that a run of one algorithm is better in a task than a run of another.

        Args:
            names: a policy, or several that are runs of one algorithm.
            others: those of the other algorithm.
        """
        return probability_of_improvement(self._matrix("names", names), self._matrix("others", others))

    def comparison(self, task: str) -> Comparison:
        """Returns the comparison of all policies in one task, for its picture; nothing is decided by one task."""
        order = sorted(self.ranking, key=lambda name: -self.value(name, task).value)
        return Comparison(
            best=None,
            ranking=tuple(order),
            rewards=self.rewards[task],
            exits={},
            level=0.0,
            confidence=self.confidence,
            tolerance=0.0,
            budget=self.budget,
            environment=task,
            seed=self.seed,
        )

    def run(self, name: str, task: str) -> RecordedRun:
        """Returns the run of one policy in one task, for its own report."""
        estimate = self.value(name, task)
        rewards, settings = self.rewards[task], self.tasks[task]
        plain = RewardMoments(settings.steps, gamma=settings.gamma)
        for team in rewards.moments({name: 1.0}):
            plain.merge(team)
        evaluation = Evaluation(
            estimate=estimate,
            transitions=plain.transitions,
            trajectories=estimate.schedule.trajectories,
            **uniform_transitions(plain, estimate),
            strategy="suite",
            environment=task,
            policy=name,
            seed=0 if self.seed is None else self.seed,
            reproducible=not self.notes,
            seconds=math.nan,
            planning_seconds=math.nan,
            warnings=interval_warnings(estimate),
        )
        configuration = {
            "environment": environment_name(settings.env),
            "env_kwargs": repr(dict(settings.env_kwargs)),
            "horizon": settings.steps,
            "gamma": settings.gamma,
            "weight": settings.weight,
            "reference": settings.reference,
        }
        return RecordedRun(evaluation, (plain.transitions,), (estimate,), plain.weights(), configuration)

    @property
    def transitions(self) -> int:
        """Transitions of all policies in all tasks."""
        return sum(rewards.transitions for rewards in self.rewards.values())

    @property
    def decided(self) -> bool:
        """Whether the order of all pairs is significant."""
        return len(self.sure) == len(self.ranking) * (len(self.ranking) - 1) // 2

    @property
    def best(self) -> str | None:
        """The policy that is significantly better than all others; None while undecided."""
        leader = self.ranking[0]
        return leader if all((leader, name) in self.sure for name in self.ranking[1:]) else None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the reader should know before trusting the result."""
        warnings = [*self.notes]
        for task in self.tasks:
            if all(self.value(name, task).nothing_varied for name in self.ranking):
                warnings.append(f"{task}: all trajectories of a policy gave the same rewards, for each policy")
        return tuple(warnings)

    def summary(self) -> str:
        """Returns what was found, in a few lines."""
        pairs = len(self.ranking) * (len(self.ranking) - 1) // 2
        percent = f"{100 * self.confidence:g}%"
        head = f"{self.ranking[0]} leads {len(self.ranking)} policies in {len(self.tasks)} tasks"
        if self.best is not None:
            head = f"{self.best} is the best of {len(self.ranking)} policies in {len(self.tasks)} tasks"
        lines = [
            f"{head}; the order of {len(self.sure)} of {pairs} pairs is significant at {percent} confidence",
            *(f"{name}: {with_interval(self.scores[name].value, *self.interval(name))}" for name in self.ranking),
            f"{self.transitions:,} transitions of a budget of {self.budget:,}, seed {self.seed}",
        ]
        return "\n".join([*lines, *self.remarks, *(f"warning: {warning}" for warning in self.warnings)])

    def to_dict(self) -> dict[str, Any]:
        """Returns everything as plain numbers, strings and lists, with None where a number is not finite."""
        policies = []
        for name in self.ranking:
            low, high = self.interval(name)
            policies.append(
                {
                    "name": name,
                    "score": self.scores[name].value,
                    "standard_error": self.scores[name].standard_error,
                    "interval_low": low,
                    "interval_high": high,
                    "interquartile_mean": self.interquartile_mean(name),
                    "transitions": sum(rewards.transitions_of(name) for rewards in self.rewards.values()),
                    "beats": [other for other in self.ranking if (name, other) in self.sure],
                    "chance": {other: self.chance(name, other) for other in self.ranking if other != name},
                    "tasks": {task: self._in_task(name, task) for task in self.tasks},
                }
            )
        tasks = {
            name: {
                **{key: getattr(task, key) for key in ("horizon", "gamma", "weight", "reference")},
                **{key: getattr(self.rewards[name], key) for key in ("transitions", "trajectories")},
            }
            for name, task in self.tasks.items()
        }
        return entries(
            self,
            without=("tasks", "sure", "levels", "notes"),
            best=self.best,
            decided=self.decided,
            policies=policies,
            tasks=tasks,
            transitions=self.transitions,
            warnings=self.warnings,
        )

    def _in_task(self, name: str, task: str) -> dict[str, float]:
        estimate = self.value(name, task)
        low, high = estimate.interval(self.confidence)
        return {
            "value": estimate.value,
            "interval_low": low,
            "interval_high": high,
            "score": self.tasks[task].score(estimate.value),
        }

    @cached_property
    def _shares(self) -> dict[str, float]:
        """Weight of a return of each task in a score."""
        total = sum(task.weight for task in self.tasks.values())
        return {name: task.factor / total for name, task in self.tasks.items()}

    def _sum(self, estimates: Sequence[Estimate], sizes: Sequence[float]) -> Estimate:
        """Returns the weighted sum over tasks; a size of 0 stands for the width of the task's reference."""
        widths = [0.0 if task.reference is None else abs(task.width) for task in self.tasks.values()]
        known = [size or width for size, width in zip(sizes, widths, strict=True)]
        return weighted_sum(estimates, list(self._shares.values()), known)

    def _matrix(self, argument: str, names: str | Sequence[str]) -> list[list[float]]:
        given = names if isinstance(names, (list, tuple)) and names else [names]
        runs = [checks.choice(argument, name, self.ranking) for name in given]
        return [[task.score(self.value(run, name).value) for name, task in self.tasks.items()] for run in runs]
