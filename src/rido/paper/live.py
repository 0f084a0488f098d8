"""Real runs instead of a bank: their errors, and their running time."""

import importlib.util
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import rido
from rido.core.allocation import Array, tie_negative_tail
from rido.paper.domains import GAMMAS, BankSource, rewards_of
from rido.paper.errors import mean_square
from rido.paper.theory import groups
from rido.strategies import Rido, Robust, Strategy, Uniform

SETTINGS = ((4000, 1000), (8000, 1000), (8000, 2000))  # budget and batch of each row of the paper's running times
PAPER_SECONDS = {  # seconds that the paper reports for RIDO and for its baselines
    "ant": {(4000, 1000): (27, 20), (8000, 1000): (47, 29), (8000, 2000): (41, 29)},
    "halfcheetah": {(4000, 1000): (23, 15), (8000, 1000): (37, 20), (8000, 2000): (31, 20)},
}


def spot_check(source: BankSource, gamma: float, budget: int, runs: int) -> dict[str, Any]:
    """Returns the errors of RIDO in runs of real steps; the bank's mean return is the truth."""
    rewards, _ = rewards_of(source)
    truth = float(np.mean(rewards @ gamma ** np.arange(rewards.shape[1])))
    simulator = source.simulator()
    try:
        values = [
            rido.evaluate(
                simulator,
                budget=budget,
                gamma=gamma,
                horizon=source.domain.horizon,
                strategy=partial(Rido, batch=source.domain.batch),
                seed=run,
                progress=False,
            ).value
            for run in range(runs)
        ]
    finally:
        simulator.close()
    errors = np.array(values) - truth
    return {**mean_square(errors), "errors": errors.tolist()}


class SolverRido(Rido):
    """RIDO as in the paper: a convex solver, CVXPY with Clarabel, solves the grouped problem."""

    def _relax(self, weights: Array, size: int, minimum: float) -> Array:
        cp: Any = importlib.import_module("cvxpy")

        weights = tie_negative_tail(weights)
        starts = groups(weights)
        sizes = np.diff([*starts, weights.size])
        sums = np.maximum(np.add.reduceat(weights, starts), 0.0)
        counts = cp.Variable(len(starts))
        constraints = [sizes @ counts <= size, counts >= minimum, counts[:-1] >= counts[1:]]
        cp.Problem(cp.Minimize(sums / (sums.max() or 1.0) @ cp.inv_pos(counts)), constraints).solve(solver=cp.CLARABEL)
        # The solver meets its constraints up to a tolerance only.
        above = np.minimum.accumulate(np.repeat(np.maximum(counts.value - minimum, 0.0), sizes))
        result: Array = minimum + above * min(1.0, (size - minimum * weights.size) / max(above.sum(), 1e-300))
        return result


def running_time(source: BankSource, budget: int, batch: int, repetitions: int) -> dict[str, Any]:
    """Returns the median seconds of each strategy with real steps. Strategies take turns, so that ratios are fair."""
    strategies: dict[str, Callable[..., Strategy]] = {
        "uniform": Uniform,
        "robust": Robust,
        "rido": partial(Rido, batch=batch),
    }
    if importlib.util.find_spec("cvxpy") is not None:  # the page says that this column needs it
        strategies["rido, CVXPY"] = partial(SolverRido, batch=batch)
    simulator = source.simulator()
    seconds: dict[str, list[float]] = {name: [] for name in strategies}
    planning: dict[str, list[float]] = {name: [] for name in strategies}
    settings: dict[str, Any] = {"gamma": GAMMAS[0], "horizon": source.domain.horizon, "progress": False}
    try:
        rido.evaluate(simulator, budget=source.domain.horizon, strategy="uniform", seed=0, **settings)
        for repetition in range(repetitions):
            for name, make in strategies.items():
                started = time.perf_counter()
                result = rido.evaluate(simulator, budget=budget, strategy=make, seed=repetition, **settings)
                seconds[name].append(time.perf_counter() - started)
                planning[name].append(result.planning_seconds)
    finally:
        simulator.close()
    uniform = np.array(seconds["uniform"])
    return {
        name: {
            "seconds": float(np.median(taken)),
            "ratio": float(np.median(np.array(taken) / uniform)),
            "planning": float(np.median(planning[name])),
        }
        for name, taken in seconds.items()
    }
