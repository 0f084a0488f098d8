"""The paper's theorems, checked numerically."""

import math
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from rido.core.allocation import Array
from rido.core.schedule import Schedule
from rido.paper.domains import BankSource, rewards_of
from rido.paper.errors import mean_square, short
from rido.paper.many import many_rido
from rido.study.strategies import Bank, true_weights

HORIZON = 10
BATCH = 50
DELTA = 0.05
BUDGETS = (200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000)
HORIZONS = (3, 5, 10, 20, 50, 100)
ROBUST_GAMMAS = (0.9, 0.99, 1.0)
BUDGET_PER_STEP = 100  # full-length trajectories that the budget pays for as the horizon grows
_ROWS = 50_000
_MOST_RUNS = 100


def _fading(rng: np.random.Generator, rows: int) -> Array:
    """Independent rewards in [0, 1] with decreasing variance: every f_t is positive."""
    return 0.5 + (rng.random((rows, HORIZON)) - 0.5) * 0.8 ** np.arange(HORIZON)


def _overcorrecting(rng: np.random.Generator, rows: int) -> Array:
    """Rewards in [0, 1] in pairs, the second of which takes back twice the first: every other f_t is negative."""
    gains = (rng.random((rows, HORIZON // 2)) - 0.5) * 0.8 ** np.arange(0, HORIZON, 2)
    rewards = np.empty((rows, HORIZON))
    rewards[:, ::2] = 0.5 + 0.4 * gains
    rewards[:, 1::2] = 0.5 - 0.8 * gains + 0.1 * (rng.random(gains.shape) - 0.5)
    return rewards


PROCESSES: dict[str, Callable[[np.random.Generator, int], Array]] = {  # rewards in [0, 1], as the theorem requires
    "f_t >= 0": _fading,
    "some f_t < 0": _overcorrecting,
}


def regret(process: str, budget: int, robustness: str, runs: int) -> dict[str, Any]:
    """Returns RIDO's surrogate ``sum_t f_t / N_t`` over the variance of the optimal schedule (Theorem 4.1).

    Args:
        process: one of :data:`PROCESSES`.
        budget: transitions of each run.
        robustness: "1" for the paper's experiments, "theory" for the beta under which the theorem holds.
        runs: number of runs, at most 100.
    """
    bank = Bank(PROCESSES[process](np.random.default_rng(0), _ROWS), gamma=1.0)
    rounds = math.ceil(budget / BATCH)
    beta = 1.0 if robustness == "1" else 6 * (HORIZON + HORIZON**2) * budget * rounds / DELTA
    seed = zlib.crc32(f"{process} {budget} {robustness}".encode())
    values, counts = many_rido(
        bank.rewards, budget=budget, gamma=1.0, batch=BATCH, beta=beta, runs=min(runs, _MOST_RUNS), seed=seed
    )
    optimal = bank.best_schedule(budget).variance(bank.weights)
    negative = float(-bank.weights[bank.weights < 0].sum())
    ratios = np.sum(bank.weights / counts, axis=1) / optimal
    return {
        **mean_square(values - bank.truth),
        "ratio": float(ratios.mean()),
        "ratio_high": float(np.quantile(ratios, 1 - DELTA)),
        "bound": 1 + 2 * BATCH / budget * negative / optimal,  # (9) of the paper with a constant of 1
        "optimal_variance": optimal,
        "errors": short(values - bank.truth),
    }


def predetermined(horizon: int, runs: int) -> dict[str, Any]:
    """Returns variances over the oracle's where only the first step varies (the two Propositions of Appendix A.4)."""
    weights = np.eye(horizon)[0]
    budget = BUDGET_PER_STEP * horizon
    optimal = Schedule.optimal(weights, budget).variance(weights)
    bank = np.zeros((_ROWS, horizon))
    bank[:, 0] = np.random.default_rng(0).random(_ROWS)
    _, counts = many_rido(
        bank, budget=budget, gamma=1.0, batch=2 * horizon, beta=1.0, runs=min(runs, _MOST_RUNS), seed=horizon
    )
    return {
        "uniform": Schedule.uniform(horizon, budget).variance(weights) / optimal,
        "robust": [
            Schedule.robust(horizon, budget, gamma=gamma).variance(weights) / optimal for gamma in ROBUST_GAMMAS
        ],
        "rido": float(np.mean(np.sum(weights / counts, axis=1))) / optimal,
    }


def grouping(source: BankSource, gamma: float, steps: int = 60) -> dict[str, Any]:
    """Returns weights f_t of real rewards, and the groups that make problem (6) of the paper convex (its Figure 1)."""
    rewards, _ = rewards_of(source)
    weights = true_weights(rewards, gamma)
    *starts, end = (start for start in groups(weights) if start <= steps)
    return {"weights": weights[:end].tolist(), "starts": starts}


def groups(weights: Array) -> list[int]:
    """Returns the first step of each group: a negative weight is grouped with later ones until their sum is positive.

    Example:
        >>> groups(np.array([3.0, -2.0, 1.0, 2.0, 1.0]))
        [0, 1, 4]
    """
    starts, total = [], 0.0
    for step, weight in enumerate(weights.tolist()):
        if total >= 0:
            starts.append(step)
            total = 0.0
        total += weight
    return starts
