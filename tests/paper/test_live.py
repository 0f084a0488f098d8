"""The paper's solver, and many runs of RIDO."""

import numpy as np
import pytest

from rido import Rido
from rido.core.allocation import tie_negative_tail
from rido.paper.errors import run_rido
from rido.paper.live import SolverRido
from rido.study.strategies import Bank


def test_many_runs_have_the_errors_that_their_schedules_say():
    rewards = np.random.default_rng(0).normal(size=(2000, 10)) * 0.7 ** np.arange(10)
    bank = Bank(rewards, gamma=1.0)
    values, counts = run_rido(bank, 400, 1, budget=1000, batch=100, beta=5.0)
    assert np.all(counts.sum(axis=1) == 1000) and np.all(np.diff(counts, axis=1) <= 0)
    expected = np.sum(bank.weights / counts, axis=1).mean()
    assert np.mean((values - bank.truth) ** 2) == pytest.approx(expected, rel=5 * np.sqrt(2 / 400))  # 1e-6


@pytest.mark.parametrize("seed", range(6))
def test_the_solver_finds_the_same_plan(seed):
    """The paper's grouped problem by CVXPY has the optimum that one pass over the steps gives."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(0.3, 1.0, 40) * 0.95 ** np.arange(40)
    ours, solver = (
        kind(horizon=40, budget=4000, gamma=1.0, batch=400)._relax(weights, 400, 1.0) for kind in (Rido, SolverRido)
    )
    assert np.all(np.diff(solver) <= 1e-9) and solver.min() >= 1 and solver.sum() <= 400 + 1e-9

    tied = tie_negative_tail(weights)
    assert np.sum(tied / solver) == pytest.approx(np.sum(tied / ours), rel=1e-4, abs=1e-6)
