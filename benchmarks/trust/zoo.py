"""The default against plain complete episodes on recorded public agents: results/zoo.md.

``python benchmarks/trust/zoo.py --output results/zoo.md`` measures what is missing in ``results/zoo.jsonl``, a line for
each cell, and writes the page and its picture. A run that was interrupted goes on where it stopped. ``--quick`` is the short
form that a test runs: three agents, one budget. The banks are those of the folder RIDO_BANKS, by default
``../shared/banks``; without them nothing is measured, and one line says so.

A bank is a population: rows are drawn with replacement, and its mean return is the truth. *Plain episodes* are complete
episodes that go on while a full-length one is affordable, with a t interval. Everything is relative to them at equal
transitions: the exact variance ``strategy.variance(f)`` for the bank's f_t, the squared error, the width.
"""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from scipy.stats import t as student

from rido import Adaptive, Uniform
from rido.evaluation.result import uniform_transitions
from rido.study.compare import Bank

BANKS = Path(os.environ.get("RIDO_BANKS", Path(__file__).parents[2].parent / "shared" / "banks"))
TUNING = (
    "a2c-Acrobot",
    "a2c-LunarLander",
    "ars-Pendulum",
    "ars-Swimmer",
    "ddpg-Pendulum",
    "dqn-CartPole-eps0.3",
    "ppo-BipedalWalker",
    "ppo-LunarLander-stoch",
    "ppo-MountainCarContinuous",
)
"""Agents on which the planner was designed."""
HELD_OUT = (
    "a2c-Walker2d",
    "ddpg-LunarLanderContinuous",
    "dqn-MountainCar",
    "ppo-Acrobot",
    "ppo-Hopper",
    "sac-Pendulum",
)
"""Agents whose numbers were not looked at before the planner was final."""
QUICK = ("a2c-Acrobot", "dqn-CartPole-eps0.3", "ppo-MountainCarContinuous")
GAMMAS = (1.0, 0.99, 0.9)
MULTIPLES = (5, 10, 20, 50, 200)
STRATEGIES: dict[str, Callable] = {"default": Adaptive, "uniform": Uniform}


@dataclass(frozen=True)
class Cell:
    """What many runs of a strategy on one agent at one budget came to. All but coverage is relative to plain episodes.

    Attributes:
        agent: name of the bank.
        gamma: discount factor.
        multiple: budget in full-length trajectories.
        strategy: name of the strategy; "plain" for plain episodes, "oracle" for the best schedule of the true weights.
        runs: number of runs.
        variance: mean exact variance at equal transitions.
        variance_error: standard error of that mean.
        squared_error: mean squared error times the transitions spent.
        coverage: share of the runs whose 95% interval held the truth.
        width: mean width of the interval, in units of the mean width of the t interval of as many plain transitions.
        warned_held: runs with a warning among those whose interval held.
        warned_missed: runs with a warning among those whose interval missed.
        claim: geometric mean of what was claimed as ``uniform_transitions`` over what plain episodes need.
        claim_held: share of the runs whose interval of that held.
        spent: mean transitions over the budget.
        rounds: mean number of rounds.
    """

    agent: str
    gamma: float
    multiple: int
    strategy: str
    runs: int
    variance: float
    variance_error: float = 0.0
    squared_error: float = math.nan
    coverage: float = math.nan
    width: float = math.nan
    warned_held: int = 0
    warned_missed: int = 0
    claim: float = math.nan
    claim_held: float = math.nan
    spent: float = math.nan
    rounds: float = math.nan

    @property
    def key(self):
        return self.agent, self.gamma, self.multiple, self.strategy


class Agent:
    """A bank under one discount, with what plain episodes come to."""

    def __init__(self, name, gamma, rewards, steps):
        self.name, self.gamma = name, gamma
        self.bank = Bank(rewards, gamma=gamma, steps=steps)
        self.steps = steps
        self.returns = self.bank.rewards @ gamma ** np.arange(self.bank.horizon)
        self.unit = float(self.returns.var()) * float(steps.mean())  # variance of the mean, times transitions

    def plain(self, multiple, runs, seed=1):
        """Plain episodes while a full-length one is affordable: (errors, half-widths, transitions)."""
        rng, budget = np.random.default_rng([seed, multiple]), multiple * self.bank.horizon
        found = []
        for _ in range(runs):
            rows = rng.integers(self.steps.size, size=math.ceil(budget / self.steps.min()))
            before = np.cumsum(self.steps[rows]) - self.steps[rows]
            rows = rows[: int(np.searchsorted(before, budget - self.bank.horizon, side="right"))]
            values = self.returns[rows]
            half = student.ppf(0.975, rows.size - 1) * values.std(ddof=1) / math.sqrt(rows.size)
            found.append((values.mean() - self.bank.truth, half, self.steps[rows].sum()))
        return np.array(found).T

    def plain_cell(self, multiple, runs):
        errors, halves, spent = self.plain(multiple, runs)
        held = np.abs(errors) <= halves
        return Cell(
            self.name,
            self.gamma,
            multiple,
            "plain",
            runs,
            variance=1.0,
            squared_error=float(np.mean(errors**2 * spent) / self.unit),
            coverage=float(held.mean()),
            width=1.0,
            spent=float(spent.mean()) / (multiple * self.bank.horizon),
        )

    def oracle_cell(self, multiple):
        schedule = self.bank.best_schedule(multiple * self.bank.horizon)
        spent = float(schedule.counts @ self.bank.survival)
        return Cell(
            self.name, self.gamma, multiple, "oracle", 1, schedule.variance(self.bank.weights) * spent / self.unit
        )

    def cell(self, name, make, multiple, runs, seed=0):
        """Runs a strategy many times."""
        _, halves, plain_spent = self.plain(multiple, 400)
        width = 2 * float(np.mean(halves * np.sqrt(plain_spent)))
        found = np.array([self._run(make, multiple, [seed, run]) for run in range(runs)]).T
        variances, squares, held, widths, warned, claims, claim_held, spent, rounds = found
        told = np.isfinite(claims)
        return Cell(
            self.name,
            self.gamma,
            multiple,
            name,
            runs,
            variance=float(variances.mean()),
            variance_error=float(variances.std(ddof=1)) / math.sqrt(runs),
            squared_error=float(squares.mean()),
            coverage=float(held.mean()),
            width=float(np.median(widths)) / width,
            warned_held=int(np.sum(warned * held)),
            warned_missed=int(np.sum(warned * (1 - held))),
            claim=float(np.exp(np.mean(np.log(claims[told])))) if told.any() else math.nan,
            claim_held=float(claim_held[told].mean()) if told.any() else math.nan,
            spent=float(spent.mean()),
            rounds=float(rounds.mean()),
        )

    def _run(self, make, multiple, seed):
        bank = self.bank
        strategy = make(horizon=bank.horizon, budget=multiple * bank.horizon, gamma=self.gamma)
        bank.run(strategy, np.random.default_rng(seed))
        estimate, spent = strategy.estimate(), strategy.spent
        low, high = estimate.interval()
        claim = uniform_transitions(strategy.moments, estimate)
        variance = strategy.variance(bank.weights)
        true, (least, most) = self.unit / variance, claim["uniform_transitions_interval"]
        return (
            variance * spent / self.unit,
            (estimate.value - bank.truth) ** 2 * spent / self.unit,
            low <= bank.truth <= high,
            (high - low) * math.sqrt(spent),
            bool(strategy.warnings()),
            claim["uniform_transitions"] / true,
            least <= true <= most,
            spent / strategy.budget,
            len(strategy.collected()),
        )


@lru_cache(maxsize=1)
def recorded(name):
    with np.load(BANKS / f"{name}.npz") as file:
        return file["rewards"].astype(np.float64), file["lengths"].astype(np.int64)


@lru_cache(maxsize=1)
def agent(name, gamma):
    return Agent(name, gamma, *recorded(name))


def measured(task):
    """The cell of (agent, gamma, multiple, strategy, runs)."""
    name, gamma, multiple, strategy, runs = task
    chosen = agent(name, gamma)
    if strategy == "plain":
        return chosen.plain_cell(multiple, 20 * runs)
    if strategy == "oracle":
        return chosen.oracle_cell(multiple)
    return chosen.cell(strategy, STRATEGIES[strategy], multiple, runs)


def geometric_mean(values):
    return float(np.exp(np.mean(np.log(values))))
