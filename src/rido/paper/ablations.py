"""The effect of RIDO's two settings, robustness level beta and batch b, on the paper's Examples 1 and 2."""

import zlib
from typing import Any

import numpy as np

from rido.paper.domains import BankSource, rewards_of
from rido.paper.errors import mean_counts, mean_square, short
from rido.paper.many import many_rido
from rido.study.strategies import Bank

BETAS = (1.0, 1.1, 5.0, 10.0, 20.0, 100.0, 1000.0)
BATCHES = (50, 100, 200, 300, 400, 500)
BUDGETS = (1000, 2500, 5000, 7500, 10_000)
BETA_BATCH = 100  # b while beta is varied
BATCH_BETA = 5.0  # beta while b is varied
SCHEDULE_BUDGET = {"beta": 10_000, "batch": 1000}  # budgets of the schedules in the paper's figures


def ablate(source: BankSource, budget: int, beta: float, batch: int, runs: int) -> dict[str, Any]:
    """Runs RIDO many times with one setting; gamma is 1, as in the paper."""
    rewards, _ = rewards_of(source)
    bank = Bank(rewards, gamma=1.0)
    seed = zlib.crc32(f"{source.domain.name} {budget}".encode())
    values, counts = many_rido(rewards, budget=budget, gamma=1.0, batch=batch, beta=beta, runs=runs, seed=seed)
    variances = np.sum(bank.weights / counts, axis=1)
    return {
        **mean_square(values - bank.truth),
        "variance": float(variances.mean()),
        "oracle_variance": bank.best_schedule(budget).variance(bank.weights),
        "errors": short(values - bank.truth),
        **mean_counts(counts),
    }
