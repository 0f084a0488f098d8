"""study(): strategies side by side in one environment, by their errors on trajectories drawn from a recorded bank."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Required, Unpack

import numpy as np

from rido.core import checks
from rido.core.digits import entries
from rido.core.options import REQUIRED, SPEND, Option, declares, takes
from rido.core.trajectories import Trajectories, concatenate
from rido.evaluation.problem import Problem
from rido.evaluation.progress import Progress
from rido.evaluation.source import Live, Wanted, collect
from rido.simulators.base import Simulator
from rido.simulators.options import WITHOUT, Options
from rido.strategies.names import STRATEGIES
from rido.study.strategies import StrategyComparison, compare_strategies

_NUMBERS = ("mse", "relative_variance", "bias", "bias_error", "coverage", "transitions")  # of a strategy


@dataclass(frozen=True)
class Study:
    """What :func:`study` found.

    Attributes:
        environment: its name.
        policy: its name.
        bank: full-length trajectories that were recorded.
        comparisons: of the strategies, one for each budget.
        warnings: what the reader should know before trusting the numbers.
    """

    environment: str
    policy: str
    bank: int
    comparisons: tuple[StrategyComparison, ...]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values, as ``rido study --json`` prints them, with None where not finite."""
        first = self.comparisons[0]
        comparisons = [
            {
                "budget": each.budget,
                "best_variance": each.oracle_variance,
                "strategies": [
                    {
                        "strategy": result.name,
                        **dict(zip(("mse_low", "mse_high"), result.mse_interval, strict=True)),
                        **{name: getattr(result, name) for name in _NUMBERS},
                        "counts": result.counts.tolist(),
                    }
                    for result in each.results
                ],
            }
            for each in self.comparisons
        ]
        known = {name: getattr(first, name) for name in ("gamma", "truth", "repetitions", "seed")}
        known |= {"horizon": first.oracle.horizon, "comparisons": comparisons}
        return entries(self, without=("warnings",), **known)


@declares
class StudyOptions(Options, total=False):
    """Options of study(), beside those that other functions take too.

    Args:
        budget: transitions of each run; several give a comparison for each.
        strategies: names of the strategies to compare.
        bank: full-length trajectories to record, from which runs draw.
        repetitions: runs of each strategy.
    """

    budget: Required[Annotated[int | Sequence[int], Option(REQUIRED, SPEND, rule=lambda name, value: _budgets(value))]]
    strategies: Annotated[
        Sequence[str], Option(tuple(STRATEGIES), switch=("--strategy", "A strategy to compare; may be repeated."))
    ]
    bank: Annotated[int, Option(500, SPEND, rule=partial(checks.integer, least=2))]
    repetitions: Annotated[int, Option(100, rule=partial(checks.integer, least=2))]


@takes(StudyOptions, without=WITHOUT["study"])
def study(env: Any, policy: Any = None, *, gamma: float, **options: Unpack[StudyOptions]) -> Study:
    """Compares strategies by their errors in one environment.

    A bank of full-length trajectories is recorded once. Then every strategy is run many times on trajectories drawn
    from it, whose mean return is the truth.

    Args:
        env: as in :func:`rido.evaluate`.
        policy: as in :func:`rido.evaluate`.
        gamma: discount factor in (0, 1].

    Example:
        >>> found = study("rido/LQG-v0", gamma=0.9, horizon=20, budget=400, bank=60, repetitions=5, seed=1)
        >>> [result.name for result in found.comparisons[0].results]
        ['uniform', 'robust', 'rido', 'adaptive']
    """
    problem = Problem.resolve(env, gamma, options)
    seed = secrets.randbits(32) if options["seed"] is None else options["seed"]
    warnings: list[str] = []
    with problem.simulate(policy, warnings) as simulator:
        recorded = _record(problem, simulator, options["bank"], seed)
        able = simulator.capabilities
        name, doubts = ("its own policy", ()) if able.policy is None else (able.policy.name, able.policy.warnings)
        found = [*able.found.notes, *doubts]
    budgets: Any = options["budget"]  # checked
    runs = len(budgets) * len(options["strategies"]) * options["repetitions"]
    with Progress(runs, shown=options["progress"]) as bar:
        comparisons = [
            compare_strategies(
                options["strategies"],
                recorded.rewards,
                steps=recorded.steps,
                budget=budget,
                gamma=gamma,
                repetitions=options["repetitions"],
                seed=seed,
                progress=partial(bar.advance, 1),
            )
            for budget in budgets
        ]
    return Study(problem.name(simulator), name, options["bank"], tuple(comparisons), (*found, *warnings))


def _budgets(given: Any) -> tuple[int, ...]:
    several = given if isinstance(given, Sequence) and given else [given]
    return tuple(sorted({checks.integer("budget", each, least=1, most=checks.MOST_TRANSITIONS) for each in several}))


def _record(problem: Problem, simulator: Simulator, count: int, seed: int) -> Trajectories:
    """Collects full-length trajectories."""
    live = Live(simulator, seed, horizon=problem.horizon, gamma=problem.gamma)
    wanted = Wanted(0, 0, np.full(count, problem.horizon), np.zeros(count, np.int64))
    with Progress(count * problem.horizon, shown=problem.options["progress"]) as bar:
        return concatenate([piece.trajectories for piece in collect(live, wanted, bar)])
