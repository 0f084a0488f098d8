"""Compares strategies over many repetitions of whole runs on a bank of recorded trajectories."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rido.core import checks
from rido.core.allocation import Array, allocate, fill, weight_terms
from rido.core.estimate import Estimate
from rido.core.schedule import Schedule
from rido.core.trajectories import Trajectories
from rido.simulators.bank import BankSimulator
from rido.strategies import Oracle, Strategy
from rido.strategies.names import STRATEGIES

_Run = tuple[Estimate, int, float, bool]  # its estimate, transitions, variance by the true weights, any warning

_UNREACHED = 1e-9  # price in transitions of a step that no trajectory reached; plans need a price above 0


@dataclass(frozen=True, eq=False)
class StrategyResult:
    """Results of one strategy over all repetitions. Errors are in units of the return.

    Attributes:
        name: name of the strategy.
        errors: estimate less truth, for each repetition.
        mse: mean squared error.
        mse_interval: its 95% interval, from the spread of the repetitions.
        relative_variance: variance of the estimate by the true weights, over that of the oracle's schedule; mean over
            the repetitions. Much less noisy than the error itself. NaN where the oracle's is zero.
        relative_variance_error: standard error of that mean.
        bias: mean error.
        bias_error: standard error of the bias.
        coverage: share of repetitions whose interval held the truth.
        warned: share of repetitions that gave a warning.
        transitions: mean number of transitions taken.
        counts: mean samples of each step.
        counts_low: 2.5% quantile of the samples of each step.
        counts_high: 97.5% quantile of the samples of each step.
        uncovered: whether the interval missed the truth, for each repetition.
        warnings: whether there was a warning, for each repetition.
    """

    name: str
    errors: Array
    mse: float
    mse_interval: tuple[float, float]
    relative_variance: float
    relative_variance_error: float
    bias: float
    bias_error: float
    coverage: float
    warned: float
    transitions: float
    counts: Array
    counts_low: Array
    counts_high: Array
    uncovered: NDArray[np.bool_]
    warnings: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class StrategyComparison:
    """Several strategies on one bank.

    Attributes:
        results: one for each strategy, in the order of the argument.
        truth: the expected return.
        weights: the true f_t.
        oracle: the best schedule for the true weights at the expected cost of the budget.
        oracle_variance: its variance, the lowest that any schedule has.
        budget: transitions of each run.
        gamma: discount factor.
        repetitions: runs of each strategy.
        seed: seed of all random draws.
    """

    results: tuple[StrategyResult, ...]
    truth: float
    weights: Array
    oracle: Schedule
    oracle_variance: float
    budget: int
    gamma: float
    repetitions: int
    seed: int

    def __getitem__(self, name: str) -> StrategyResult:
        return {result.name: result for result in self.results}[name]


def compare_strategies(
    strategies: Sequence[str] | Mapping[str, Callable[..., Strategy]],
    rewards: ArrayLike,
    *,
    budget: int,
    gamma: float,
    steps: ArrayLike | None = None,
    repetitions: int = 200,
    seed: int = 0,
    confidence: float = 0.95,
    progress: Callable[[], None] | None = None,
) -> StrategyComparison:
    """Runs each strategy many times on trajectories drawn from a bank, whose mean return is the truth.

    The bank is taken as the whole population. A truncated trajectory is the beginning of a row. Repetition k of every
    strategy draws from the same random stream, so differences between strategies are less noisy than their errors.

    Args:
        strategies: names out of "uniform", "robust", "rido", "adaptive" and "oracle", or a mapping from names to
            functions of horizon, budget and gamma that make a strategy.
        rewards: the bank, shape (trajectories, horizon), undiscounted.
        budget: transitions of each run.
        gamma: discount factor in (0, 1].
        steps: steps after which the environment ended each trajectory; the horizon if not given.
        repetitions: runs of each strategy.
        seed: seed of all random draws.
        confidence: of the intervals whose coverage is counted.
        progress: called after each run.

    Example:
        >>> rewards = np.random.default_rng(0).normal(size=(1000, 10)) * 0.5 ** np.arange(10)
        >>> result = compare_strategies(["uniform", "adaptive"], rewards, budget=500, gamma=1.0, repetitions=20)
        >>> result["adaptive"].relative_variance < result["uniform"].relative_variance
        True
    """
    bank = Bank(rewards, gamma=gamma, steps=steps)
    budget = checks.integer("budget", budget, least=1)
    repetitions = checks.integer("repetitions", repetitions, least=2)
    oracle = bank.best_schedule(budget)
    chosen = strategies if isinstance(strategies, Mapping) else {name: bank.strategy(name) for name in strategies}
    results = []
    for name, make in chosen.items():
        runs = []
        for repetition in range(repetitions):
            strategy = make(horizon=bank.horizon, budget=budget, gamma=gamma)
            bank.run(strategy, np.random.default_rng([seed, repetition]))
            found = strategy.variance_in(bank.population, bank.weights), bool(strategy.warnings())
            runs.append((strategy.estimate(), strategy.spent, *found))
            if progress is not None:
                progress()
        results.append(_summarise(name, runs, confidence, bank, oracle.variance(bank.weights)))
    return StrategyComparison(
        results=tuple(results),
        truth=bank.truth,
        weights=bank.weights,
        oracle=oracle,
        oracle_variance=oracle.variance(bank.weights),
        budget=budget,
        gamma=bank.gamma,
        repetitions=repetitions,
        seed=seed,
    )


def true_weights(rewards: Array, gamma: float) -> Array:
    """Returns the weights f_t of a whole population of full-length trajectories (Theorem 3.2 of the paper).

    >>> true_weights(np.array([[1.0, 0.0], [-1.0, 0.0]]), gamma=0.5)
    array([1., 0.])
    """
    x = rewards * gamma ** np.arange(rewards.shape[1])
    result: Array = weight_terms(x - x.mean(axis=0)).mean(axis=0)
    return result


class Bank(BankSimulator):
    """Recorded full-length trajectories as a whole population, whose expected return and weights are known exactly.

    Args:
        rewards: shape (trajectories, horizon), undiscounted.
        gamma: discount factor in (0, 1].
        steps: steps after which the environment ended each trajectory; the horizon if not given.

    Attributes:
        truth: the expected return.
        weights: the true f_t.
        survival: share of the trajectories that have not ended before each step.
        costs: price of a planned sample of each step: its survival, or almost 0 where no trajectory came.
    """

    def __init__(self, rewards: ArrayLike, *, gamma: float, steps: ArrayLike | None = None) -> None:
        super().__init__(rewards, steps)
        self.gamma, self.horizon = checks.discount("gamma", gamma), self.rewards.shape[1]
        self.survival: Array = (np.arange(self.horizon) < self.steps[:, None]).mean(axis=0)
        self.costs: Array = np.maximum(self.survival, _UNREACHED)
        self.weights = true_weights(self.rewards, self.gamma)
        self.truth = self.expected_return(gamma)

    @property
    def population(self) -> Trajectories:
        """All rows, at their full length."""
        return self.beginnings(np.arange(self.steps.size), np.full(self.steps.size, self.horizon))

    def draw(self, lengths: NDArray[np.int64], rng: np.random.Generator) -> Trajectories:
        """Returns trajectories of these planned lengths, each the beginning of a row drawn at random."""
        return self.beginnings(rng.integers(self.steps.size, size=lengths.size), lengths)

    def run(self, strategy: Strategy, rng: np.random.Generator) -> None:
        """Spends a strategy's budget."""
        while (schedule := strategy.ask()) is not None:
            strategy.tell(self.draw(schedule.lengths, rng))

    def strategy(self, name: str) -> Callable[..., Strategy]:
        """Returns the function that makes the strategy of this name; the oracle gets this bank's weights."""
        if name == "oracle":
            return lambda **settings: Oracle(weights=self.weights, costs=self.costs, **settings)
        return STRATEGIES[checks.choice("strategies", name, (*STRATEGIES, "oracle"))]

    def best_schedule(self, budget: int) -> Schedule:
        """Returns the best of several schedules for the true weights, at an expected cost of the budget.

        Whole trajectories are added greedily to several starting points, one of them the relaxed optimum rounded down.
        """
        full = float(self.costs.sum())
        starts = [np.full(self.horizon, count) for count in {1, *(max(1, int(budget / full * s)) for s in (0.5, 1.0))}]
        starts.append(np.floor(allocate(self.weights, budget, costs=self.costs) + 1e-9).astype(np.int64))
        found = []
        for start in starts:
            left = max(0.0, budget - float(start @ self.costs))
            found += [
                Schedule(start + fill(self.weights, left, start, costs=self.costs, pooled=pooled))
                for pooled in (True, False)
            ]
        return min(found, key=lambda schedule: schedule.variance(self.weights))


def _summarise(name: str, runs: Sequence[_Run], confidence: float, bank: Bank, least: float) -> StrategyResult:
    """Returns the result of runs, given the lowest variance that any schedule has."""
    estimates, spent, variances, warned = zip(*runs, strict=True)
    errors = np.array([estimate.value for estimate in estimates]) - bank.truth
    ends = np.array([estimate.interval(confidence) for estimate in estimates])
    counts = np.array([estimate.schedule.counts for estimate in estimates])
    # Without any variance in the bank, weights are rounding errors.
    known = least > 1e-20 * max(1.0, bank.truth**2)
    relative = np.array(variances) / least if known else np.full(len(runs), math.nan)
    missed = ~((ends[:, 0] <= bank.truth) & (bank.truth <= ends[:, 1]))
    low, high = np.quantile(counts, [0.025, 0.975], axis=0)
    half_width, mse = 1.96 * standard_error(errors**2), float(np.mean(errors**2))
    return StrategyResult(
        name=name,
        errors=errors,
        mse=mse,
        mse_interval=(max(0.0, mse - half_width), mse + half_width),
        relative_variance=float(relative.mean()),
        relative_variance_error=standard_error(relative),
        bias=float(errors.mean()),
        bias_error=standard_error(errors),
        coverage=1 - float(missed.mean()),
        warned=float(np.mean(warned)),
        transitions=float(np.mean(spent)),
        counts=counts.mean(axis=0),
        counts_low=low,
        counts_high=high,
        uncovered=missed,
        warnings=np.array(warned),
    )


def standard_error(values: Array) -> float:
    """Returns the standard error of the mean of independent values."""
    return float(values.std(ddof=1)) / math.sqrt(values.size)
