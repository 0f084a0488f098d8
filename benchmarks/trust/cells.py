"""One cell of the tables of benchmarks/trust: many runs of the default and of uniform on one source at one budget."""

import math
from dataclasses import dataclass

import numpy as np
from sources import Source, population

from rido import Adaptive, Uniform
from rido.evaluation.result import uniform_transitions

BOOTSTRAPS = 1000


def claimed(strategy):
    """Transitions that uniform would need for the standard error that was reached, as rido states them."""
    return uniform_transitions(strategy.moments, strategy.estimate())["uniform_transitions"]


@dataclass(frozen=True, eq=False)
class Runs:
    """What became of each run; arrays with one entry for each.

    Attributes:
        errors: Estimate less truth.
        held: Whether the 95% interval held the truth.
        reach: How far the interval goes from the estimate, on its longer side.
        width: Length of the interval.
        warned: Whether there was a warning.
        spent: Transitions taken.
        claimed: Transitions that uniform would have needed, as claimed.
    """

    errors: np.ndarray
    held: np.ndarray
    reach: np.ndarray
    width: np.ndarray
    warned: np.ndarray
    spent: np.ndarray
    claimed: np.ndarray

    @property
    def coverage(self):
        return float(self.held.mean())

    @property
    def zero_widths(self):
        return int((self.width <= 0).sum())


def outcome(value, interval, truth, warnings, spent, claim=math.nan):
    """What is kept of a run, in the order of the fields of :class:`Runs`."""
    low, high = interval
    return value - truth, low <= truth <= high, max(high - value, value - low), high - low, bool(warnings), spent, claim


def run_many(make, people, repetitions, seed):
    """Runs a strategy many times. Runs with the same seed draw the same rows of the population in the same order."""
    found = []
    for repetition in range(repetitions):
        strategy = make()
        people.bank.run(strategy, np.random.default_rng([seed, repetition]))
        estimate = strategy.estimate()
        found.append(
            outcome(
                estimate.value,
                estimate.interval(),
                people.truth,
                strategy.warnings(),
                strategy.spent,
                claimed(strategy),
            )
        )
    return Runs(*map(np.array, zip(*found, strict=True)))


@dataclass(frozen=True, eq=False)
class Cell:
    """Runs of both strategies on one source at one budget.

    Attributes:
        source: Where rewards come from.
        budget: Transitions of a run.
        default: Runs of rido's default.
        uniform: Runs of uniform, from the same draws.
        reference: Errors of many more runs of uniform.
        variance: Variance of one return.
        length: Mean steps of a full-length trajectory.
        truth_error: Standard error of the truth as an estimate for the environment itself.
    """

    source: Source
    budget: int
    default: Runs
    uniform: Runs
    reference: np.ndarray
    variance: float
    length: float
    truth_error: float

    @property
    def scale(self):
        """Standard deviation of uniform's estimate."""
        return float(self.reference.std())

    def ratio(self):
        """MSE of the default over uniform's at equal transitions, and its 95% interval by the bootstrap.

        Both share their draws, and uniform's MSE is known better from more runs. So where uniform was unlucky in the
        shared runs the default's MSE is corrected, by as much as their squared errors go together.
        """
        ours, theirs = self.default.errors**2, self.uniform.errors**2
        slope = _slope(ours, theirs) * theirs.mean() / ours.mean() if ours.any() and theirs.any() else 0.0
        better = float((self.reference**2).mean())
        costs = self.default.spent.mean() / self.uniform.spent.mean()

        def of(ours, theirs, better):
            correction = np.where(theirs > 0, better / np.where(theirs > 0, theirs, 1.0), 1.0) ** slope
            return ours * correction / better * costs

        rng = np.random.default_rng(0)
        rows = rng.integers(ours.size, size=(BOOTSTRAPS, ours.size))
        noise = (self.reference**2).std() / math.sqrt(self.reference.size)
        redrawn = of(ours[rows].mean(axis=1), theirs[rows].mean(axis=1), rng.normal(better, noise, BOOTSTRAPS))
        return float(of(ours.mean(), theirs.mean(), better)), *np.quantile(redrawn, [0.025, 0.975])

    def bias(self):
        """Bias of the default and its standard error, in standard deviations of uniform's estimate."""
        slope = _slope(self.default.errors, self.uniform.errors)
        rest = self.default.errors - slope * self.uniform.errors
        error = math.hypot(rest.std() / math.sqrt(rest.size), slope * self.scale / math.sqrt(self.reference.size))
        return (rest.mean() + slope * self.reference.mean()) / self.scale, error / self.scale

    def claims(self):
        """Claimed transitions of uniform over those it really needs: lower decile, median, upper decile."""
        ratio = self.ratio()[0] / (self.default.spent.mean() / self.uniform.spent.mean())
        mse = ratio * float((self.reference**2).mean())
        spread = mse - (self.bias()[0] * self.scale) ** 2
        if not spread > 0 or np.isnan(self.default.claimed).all():
            return math.nan, math.nan, math.nan
        true = self.variance / spread * self.length
        return tuple(np.nanquantile(self.default.claimed, [0.1, 0.5, 0.9]) / true)


def _slope(ours, theirs):
    """Slope of the regression of one on the other."""
    spread = float(theirs.var())
    return float(np.mean((ours - ours.mean()) * (theirs - theirs.mean()))) / spread if spread > 0 else 0.0


def run_cell(task):
    """A cell from (source, multiple of the horizon, repetitions, repetitions of the reference)."""
    source, multiple, repetitions, references = task
    people = population(source)
    budget = multiple * people.bank.horizon
    settings = dict(horizon=people.bank.horizon, budget=budget, gamma=source.gamma)
    reference = [people.uniform_value(budget, np.random.default_rng([6, seed])) for seed in range(references)]
    return Cell(
        source=source,
        budget=multiple,
        default=run_many(lambda: Adaptive(**settings), people, repetitions, 5),
        uniform=run_many(lambda: Uniform(**settings), people, repetitions, 5),
        reference=np.array(reference) - people.truth,
        variance=people.variance,
        length=people.length,
        truth_error=people.error,
    )


def run_zero_widths(task):
    """Intervals of zero width among many runs of the default."""
    source, multiple, repetitions = task
    people = population(source)
    settings = dict(horizon=people.bank.horizon, budget=multiple * people.bank.horizon, gamma=source.gamma)
    return run_many(lambda: Adaptive(**settings), people, repetitions, 8)


def run_until(task):
    """Runs that stop at the half-width that the oracle's interval has at a multiple of the horizon."""
    source, multiple, cap, repetitions = task
    people = population(source)
    oracle = multiple * people.bank.horizon
    width = 1.96 * people.oracle_error(oracle)
    settings = dict(horizon=people.bank.horizon, budget=cap * oracle, gamma=source.gamma, until=width)
    runs = run_many(lambda: Adaptive(**settings), people, repetitions, 9)
    return source, runs, runs.spent / oracle, runs.reach <= width * (1 + 1e-9)
