"""The paper's solver."""

import numpy as np
import pytest

from rido import Rido
from rido.core.allocation import tie_negative_tail
from rido.paper.live import SolverRido


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
