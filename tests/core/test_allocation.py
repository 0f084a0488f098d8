"""The exact allocation against a convex solver, brute force and the paper's statements."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import needs
from rido import Schedule, allocate
from rido.core.allocation import fill, hoeffding_weights, pool, round_down_and_fill, tie_negative_tail


def convex_optimum(weights, budget, minimum, costs):
    """Solves the relaxation with a solver, in v = mean count / n: linear in v, so convex for weights of any sign."""
    cp = needs("cvxpy", "paper")
    scale, mean = np.abs(weights).max(), budget / costs.sum()
    v = cp.Variable(weights.size)
    constraints = [cp.sum(cp.multiply(costs / costs.sum(), cp.inv_pos(v))) <= 1, v <= mean / minimum]
    if weights.size > 1:
        constraints.append(cp.diff(v) >= 0)
    problem = cp.Problem(cp.Minimize(weights / scale @ v), constraints)
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10, max_iter=500)
    return problem.value * scale / mean


@st.composite
def problems(draw):
    horizon = draw(st.integers(1, 300))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    weights = rng.normal(draw(st.sampled_from([0.0, 0.3, 1.0])), 1, horizon) * rng.gamma(1.0, 1.0, horizon)
    weights *= draw(st.sampled_from([1.0, 1e-2, 1e-4])) ** (np.arange(horizon) / horizon)
    weights[0] += max(0.0, 1e-3 - np.cumsum(weights).max())  # something to gain somewhere
    costs = np.ones(horizon) if draw(st.booleans()) else rng.uniform(0.05, 3, horizon)
    minimum = draw(st.sampled_from([1.0, 0.5, 4.0]))
    slack = draw(st.sampled_from([1.0001, 1.05, 2.0, 20.0, 1000.0]))
    return weights, slack * minimum * costs.sum(), minimum, costs


@settings(max_examples=220)
@given(problems())
def test_allocate_equals_the_convex_solver(problem):
    weights, budget, minimum, costs = problem
    counts = allocate(weights, budget, minimum=minimum, costs=costs)
    assert counts @ costs == pytest.approx(budget, rel=1e-9)
    assert (np.diff(counts) <= 1e-9 * counts[0]).all()
    assert counts.min() >= minimum * (1 - 1e-12)
    size = np.sum(np.abs(weights) / counts)  # the objective may cancel to nearly nothing
    assert np.sum(weights / counts) == pytest.approx(convex_optimum(weights, budget, minimum, costs), abs=1e-6 * size)


def all_schedules(horizon, budget):
    def extend(prefix, left):
        if len(prefix) == horizon:
            yield prefix
            return
        for count in range(1, min(prefix[-1] if prefix else left, left - (horizon - len(prefix) - 1)) + 1):
            yield from extend([*prefix, count], left - count)

    return np.array(list(extend([], budget)))


def rounding_gaps(problems_per_size=20, seed=0):
    """Objectives over the integer optimum, less 1, of both roundings for weights of random covariance matrices."""
    rng = np.random.default_rng(seed)
    gaps = {"fill": [], "round_down_and_fill": []}
    for horizon, budget in itertools.product(range(1, 6), range(5, 21)):
        feasible = all_schedules(horizon, budget)
        for _ in range(problems_per_size):
            factor = rng.normal(size=(horizon, horizon)) * rng.gamma(0.5, 1.0, horizon)
            covariance = factor @ factor.T
            weights = np.diag(covariance) + 2 * np.tril(covariance, -1).sum(axis=0)
            best = np.min(np.sum(weights / feasible, axis=1))
            filled = Schedule.optimal(weights, budget).counts
            rounded = round_down_and_fill(allocate(weights, budget), budget)
            for name, counts in (("fill", filled), ("round_down_and_fill", rounded)):
                assert counts.sum() == budget
                gaps[name].append(np.sum(weights / counts) / best - 1)
    return {name: np.array(values) for name, values in gaps.items()}


def test_greedy_filling_is_never_worse_on_average_than_rounding_down():
    gaps = rounding_gaps()
    assert all((values >= -1e-9).all() for values in gaps.values())
    assert gaps["fill"].mean() <= gaps["round_down_and_fill"].mean() + 1e-9
    assert np.mean(gaps["fill"] < 1e-9) > 0.6  # mostly it is the optimum itself


@settings(max_examples=100)
@given(st.integers(1, 40), st.integers(0, 2000), st.integers(0, 2**32 - 1))
def test_filling_spends_the_budget_exactly_and_keeps_the_order(horizon, budget, seed):
    rng = np.random.default_rng(seed)
    history = np.sort(rng.integers(1, 30, horizon))[::-1]
    added = fill(rng.normal(0.3, 1, horizon), budget, history)
    assert added.sum() == budget
    assert (np.diff(added) <= 0).all()


@settings(max_examples=60)
@given(st.integers(2, 60), st.integers(0, 2**32 - 1))
def test_filling_in_bulk_is_as_good_as_one_by_one(horizon, seed):
    """With history the relaxed optimum is not known; one greedy trajectory at a time is the reference."""
    rng = np.random.default_rng(seed)
    weights = rng.gamma(0.5, 1, horizon)
    history = Schedule.optimal(rng.gamma(0.5, 1, horizon), 40 * horizon).counts
    budget = 60 * horizon
    pooled = pool(weights, np.ones(horizon))
    total, left = history.copy(), budget
    while left:
        gains = np.cumsum(pooled[:left] / (total[:left] * (total[:left] + 1))) / np.arange(1, min(left, horizon) + 1)
        length = gains.size - int(np.argmax(gains[::-1] >= gains.max() * (1 - 1e-12)))
        total[:length] += 1
        left -= length
    added = fill(weights, budget, history)
    assert np.sum(weights / (history + added)) <= 1.005 * np.sum(weights / total)


def one_by_one(weights, budget, history, costs):
    """Trajectory after trajectory, the length with the largest fall of sum_t f_t / n_t per cost, as it is defined."""
    counts, left = np.array(history, dtype=float), float(budget)
    while left > 1e-9:
        best, best_length = -np.inf, 0
        for length in range(1, len(weights) + 1):
            price = costs[:length].sum()
            more = counts + (np.arange(len(weights)) < length)
            rate = (np.sum(weights / counts) - np.sum(weights / more)) / price
            if price <= left + 1e-9 and rate >= best - 1e-12 * abs(best):
                best, best_length = max(best, rate), length
        if best_length == 0:
            break
        counts[:best_length] += 1
        left -= costs[:best_length].sum()
    return counts - history


@settings(max_examples=60)
@given(st.integers(1, 12), st.integers(1, 60), st.integers(0, 2**32 - 1))
def test_unpooled_filling_takes_the_best_prefix(horizon, budget, seed):
    rng = np.random.default_rng(seed)
    weights = rng.normal(rng.choice([-0.5, 0.5]), 1, horizon)
    history = np.sort(rng.integers(1, 9, horizon))[::-1]
    costs = np.sort(rng.uniform(0.2, 1, horizon))[::-1] if seed % 2 else np.ones(horizon)
    added = fill(weights, budget, history, costs=costs, pooled=False)
    np.testing.assert_array_equal(added, one_by_one(weights, budget, history, costs))


def test_very_large_budgets_are_spent_exactly_and_as_well_as_not_rounded():
    weights = np.random.default_rng(0).gamma(0.7, 1, 200) * 0.98 ** (2 * np.arange(200))
    history = np.full(200, 1000)
    for budget in (10**6 + 7, 10**8 + 7, 10**11 + 7):
        added = fill(weights, budget, history)
        assert added.sum() == budget and (np.diff(added) <= 0).all()
        relaxed = allocate(weights, budget + history.sum(), minimum=1000)
        assert np.sum(weights / (history + added)) <= 1.0001 * np.sum(weights / relaxed)


def test_an_overfull_step_does_not_mislead_large_budgets():
    """Steps that were sampled too often stand between the first and the last, which alone lack samples."""
    weights = np.array([1.0, 1e-6, 1e-6, 1.0])
    history = np.array([2000, 2000, 2000, 10])
    added = fill(weights, 40_000, history)
    long = np.arange(10_000)
    short = 40_000 - 4 * long  # of length 1: nothing between pays
    reference = np.min(1.0 / (2000 + short + long) + 2e-6 / (2000 + long) + 1.0 / (10 + long))
    assert np.sum(weights / (history + added)) <= 1.005 * reference


def test_filling_respects_costs_and_the_limit_on_transitions():
    costs = 0.5 ** np.arange(6)
    added = fill([0, 0, 0, 0, 0, 1.0], 10, np.ones(6), costs=costs, limit=17)
    assert added.sum() <= 17 and added @ costs <= 10
    assert added[-1] == 2
    assert fill(np.ones(6), 0, np.ones(6)).sum() == 0
    assert fill(np.ones(6), 100, np.ones(6), limit=0).sum() == 0


def test_no_weight_anywhere_spreads_evenly():
    np.testing.assert_allclose(allocate([-1.0, 0.0, -2.0], 12), [4, 4, 4])
    np.testing.assert_array_equal(fill([0.0, 0.0, 0.0], 9, [1, 1, 1]), [3, 3, 3])


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ([3.0, -1.0, 2.0], [3.0, -1.0, 2.0]),  # comes back above zero: untouched
        ([-1.0, -2.0, 2.0], [0.0, 0.0, 0.0]),  # negative from the start: uniform
        ([4.0, 2.0, -1.0], [4.0, 1.0, 1.0]),
        ([4.0, -1.0, 6.0, -3.0, 1.0], [4.0, -1.0, 2.0, 2.0, 2.0]),
        ([1.0, 1.0, -1.0, 1.0], [1.0, 1.0, -1.0, 1.0]),  # the sum from step 2 reaches exactly 0
    ],
)
def test_negative_tail_is_tied_to_the_step_before_it(weights, expected):
    np.testing.assert_allclose(tie_negative_tail(weights), expected)


def test_tied_tail_shares_one_count():
    counts = allocate(tie_negative_tail([9.0, 4.0, -3.0, 1.0]), 60)
    # one variable for steps 1 to 3 with weight 4: minimise 9 / a + 4 / b with a + 3 b = 60
    np.testing.assert_allclose(counts[1:], counts[1])
    np.testing.assert_allclose(counts[0] / counts[1], np.sqrt(9 / (4 / 3)))


def test_rounding_down_gives_what_is_left_to_the_first_steps():
    np.testing.assert_array_equal(round_down_and_fill([3.9, 2.9, 1.2], 8), [4, 3, 1])
    np.testing.assert_array_equal(round_down_and_fill([3.0 - 1e-12, 3.0, 2.0], 8), [3, 3, 2])
    with pytest.raises(ValueError, match="budget must be the sum of counts"):
        round_down_and_fill([3.0, 2.0], 9)


@pytest.mark.parametrize("gamma", [0.5, 0.9, 0.999, 1 - 1e-12])
def test_hoeffding_weights_are_those_of_the_paper(gamma):
    t, horizon = np.arange(20.0), 20
    if gamma < 0.9999:
        expected = gamma**t * (gamma**t + gamma ** (t + 1) - 2 * gamma**horizon) / (1 - gamma)
    else:
        expected = 2 * (horizon - t) - 1
    np.testing.assert_allclose(hoeffding_weights(horizon, gamma), expected, rtol=1e-9)
    np.testing.assert_allclose(hoeffding_weights(horizon, 1.0), 2 * (horizon - t) - 1)


@given(st.integers(1, 30), st.floats(1.1, 50), st.integers(0, 2**32 - 1))
def test_budget_scaling(horizon, alpha, seed):
    """Lemma A.3 of the paper: the optimum for alpha times the budget is alpha times the optimum."""
    weights = np.random.default_rng(seed).normal(0.5, 1, horizon)
    np.testing.assert_allclose(allocate(weights, alpha * 100, minimum=0), alpha * allocate(weights, 100, minimum=0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(weights=[1.0, np.nan], budget=5), "weights must be finite, got nan at index 1"),
        (dict(weights=[np.inf], budget=5), "weights must be finite, got inf at index 0"),
        (dict(weights=[], budget=5), "weights must be a non-empty one-dimensional array"),
        (dict(weights=[1.0, 1.0], budget=1), r"budget must be at least minimum \* sum\(costs\) = 2, got 1"),
        (dict(weights=[1.0], budget=5, minimum=-1), "minimum must be at least 0 and finite, got -1"),
        (dict(weights=[1.0], budget=5, costs=[0.0]), "costs must be positive, got 0.0 at index 0"),
        (dict(weights=[1.0], budget=5, costs=[1.0, 2.0]), "costs must have 1 entries, got 2"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        allocate(**arguments)
    with pytest.raises(ValueError, match="history must be at least 1"):
        fill([1.0, 1.0], 4, [1, 0])
    with pytest.raises(ValueError, match="budget must be finite where no limit is given, got inf"):
        fill([1.0, 1.0], np.inf, [1, 1])
