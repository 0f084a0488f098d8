"""How many samples each time step should get: the exact relaxed optimum, and whole trajectories.

A schedule that takes ``n_t`` samples of step ``t`` estimates the return with variance ``sum_t f_t / n_t``
(Theorem 3.2 of the paper), where the weight ``f_t`` is the variance of the discounted reward at ``t`` plus
twice its covariances with the rewards after it. A trajectory that reaches step ``t`` has passed all steps before
it, so ``n_t`` never increases. Everything here chooses such ``n_t`` for given weights and a given budget.
"""

import functools
import importlib.util
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rido.core import checks

Array = NDArray[np.float64]

_ORDINARY = 150  # numbers between 2^-150 and 2^150 have fourth powers that can be added
# fill() adds trajectories one by one. Shortcuts for large budgets save time: tests/core/test_allocation.py compares.
_ONE_BY_ONE = 200  # trajectories up to which there is no shortcut
_START_SHARE = 0.9  # share of the budget that the lower bound of the relaxed optimum may spend
_AT_ONCE = 0.005  # copies added together, as a share of the samples there and of the copies that the budget pays for
_UNNOTICED = 0.001  # copies added together where the budget pays for them, as a share of the samples there


@checks.checked(minimum=checks.not_negative, budget=checks.not_negative)
def allocate(weights: ArrayLike, budget: float, *, minimum: float = 1.0, costs: ArrayLike | None = None) -> Array:
    """Solves the continuous relaxation of the optimal schedule exactly, in one pass over the steps.

    The problem, (6) of the paper with costs, is::

        minimise    sum_t weights[t] / n[t]
        subject to  sum_t costs[t] * n[t] = budget,  n[t] >= n[t + 1],  n[t] >= minimum

    It is not convex where weights are negative. Pooling adjacent steps until ``weights / costs`` never increases
    (antitonic regression) changes neither the optimum nor its value, and contains the paper's grouping of
    negative weights. After it the order constraint is free, and ``n`` is a clipped square root.

    Args:
        weights: f_t, one number per time step; may be negative.
        budget: what all samples together may cost.
        minimum: the fewest samples of any step.
        costs: price of one sample of each step; 1 if not given.

    Returns:
        The samples per step, not rounded. Where no pooled weight is positive, the budget is spread evenly.

    Example:
        >>> allocate([9.0, 4.0, 1.0], 12)
        array([6., 4., 2.])
        >>> allocate([0.0, 0.0, 1.0], 12)  # only the last step varies: uniform is best
        array([4., 4., 4.])
    """
    weights = _weights(weights)
    costs = _costs(costs, weights.size)
    least = minimum * costs.sum()
    if not (budget >= least * (1 - 1e-12)):
        raise ValueError(f"budget must be at least minimum * sum(costs) = {least:g}, got {budget!r}")
    pooled = pool(weights, costs)
    if pooled[0] == 0:
        return np.full(weights.size, budget / costs.sum())
    root = np.sqrt(pooled)
    root /= root[0]
    # n = level * root for the first k steps, and the minimum for the rest. Each k has a level that spends the budget;
    # the right k is the largest whose last step stays above the minimum.
    rest = minimum * (costs.sum() - np.cumsum(costs))
    level = np.maximum(budget - rest, 0) / np.cumsum(costs * root)
    above = np.flatnonzero(level * root >= minimum)
    counts: Array = np.maximum(level[above[-1] if above.size else 0] * root, minimum)
    return counts


def pool(weights: Array, costs: Array) -> Array:
    """Pools ``weights / costs`` over adjacent steps until they never increase, and cuts them off at zero.

    This is the antitonic regression of ``weights / costs`` with weights ``costs``. Its blocks are the steps
    that share one count in the optimal schedule, whatever the budget.
    """
    pooled, prices = (weights / costs)[::-1].copy(), np.array(costs[::-1], dtype=np.float64)
    found: Array = _pava()(pooled, prices, np.full(pooled.size + 1, -1, dtype=np.intp))[0]
    return np.maximum(found[::-1], 0.0)


@functools.cache
def _pava() -> Any:
    """Returns SciPy's pool-adjacent-violators algorithm, without the rest of ``scipy.optimize``.

    That takes longer to import than a short call of :func:`rido.evaluate` takes for everything else.
    """
    spec = importlib.util.find_spec("scipy")
    folders = (spec.submodule_search_locations or []) if spec is not None else []
    for file in (found for folder in folders for found in Path(folder, "optimize").glob("_pava_pybind*")):
        alone = importlib.util.spec_from_file_location("scipy.optimize._pava_pybind", file)
        if alone is not None and alone.loader is not None:
            module = importlib.util.module_from_spec(alone)
            alone.loader.exec_module(module)
            return module.pava
    from scipy.optimize._isotonic import pava

    return pava


def tie_negative_tail(weights: ArrayLike) -> Array:
    """Applies the paper's rule for estimated weights whose tail sums to less than zero.

    True weights never do that (a tail's sum is the variance of the return after it), estimates may. Let ``s`` be
    the first step with a negative weight from which every partial sum stays below zero. If ``s = 0``, the schedule
    is to be uniform. Otherwise steps ``s - 1, ..., T - 1`` get one common count, and only the weight of
    ``s - 1`` has a weight in the objective (Appendix A.4 of the paper).

    Returns:
        Weights for which :func:`allocate` gives that schedule: zeros where it is to be uniform, and
        otherwise the weight of ``s - 1`` spread evenly over the tied steps.

    Example:
        >>> tie_negative_tail([5.0, 3.0, -2.0, 1.0])
        array([5., 1., 1., 1.])
    """
    weights = checks.finite_vector("weights", weights).copy()
    # From s on every partial sum is negative: the prefix sum never comes back to its value before s.
    sums = np.concatenate([[0.0], np.cumsum(weights)])
    highest_after = np.maximum.accumulate(sums[:0:-1])[::-1]
    starts = np.flatnonzero(highest_after < sums[:-1])
    if starts.size == 0:
        return weights
    start = int(starts[0])
    if start == 0:
        return np.zeros_like(weights)
    weights[start - 1 :] = weights[start - 1] / (weights.size - start + 1)
    return weights


def round_down_and_fill(counts: ArrayLike, budget: int) -> NDArray[np.int64]:
    """Rounds a relaxed schedule as the paper does: all down, then one more for each of the first k steps.

    ``k`` is what rounding down left of the budget (Lemma A.5 of the paper). It can split steps that share one
    count in the optimum; :func:`fill` does not.

    Example:
        >>> round_down_and_fill([2.6, 2.2, 1.2], 6)
        array([3, 2, 1])
    """
    counts = checks.finite_vector("counts", counts)
    # A count that is whole up to rounding errors of the solver stays whole.
    whole = np.floor(counts + 1e-9).astype(np.int64)
    left = budget - int(whole.sum())
    if not 0 <= left <= whole.size:
        raise ValueError(f"budget must be the sum of counts, {float(counts.sum()):g}, got {budget!r}")
    whole[:left] += 1
    return whole


def fill(
    weights: ArrayLike,
    budget: float,
    history: ArrayLike,
    *,
    costs: ArrayLike | None = None,
    limit: int | None = None,
    pooled: bool = True,
) -> NDArray[np.int64]:
    """Adds whole trajectories to those already collected, each of the length that pays most.

    A trajectory of length ``h`` lowers ``sum_t g_t / n_t`` by ``sum_{t<h} g_t / (n_t (n_t + 1))`` at the price
    ``sum_{t<h} c_t``, where ``g`` are the pooled weights. The best ratio is taken, ties go to the longer trajectory,
    and no trajectory is longer than what is left can pay for, so that with unit costs the budget is spent exactly.
    Most of a large budget is taken at once from a lower bound of the relaxed optimum.

    Args:
        weights: f_t, one number per time step; may be negative.
        budget: what the new trajectories together may cost; infinite where only ``limit`` counts.
        history: samples of each step that were already collected, at least 1 each.
        costs: price of one sample of each step; 1 if not given.
        limit: the most samples the new trajectories may have in all, whatever they cost.
        pooled: whether gains are computed from pooled weights, which keep the steps of a block together, or from
            the plain weights, which can even out a block whose history is uneven. Of a large budget this concerns
            only the part that is added one by one.

    Returns:
        The samples of each step to add.

    Example:
        >>> fill([9.0, 4.0, 1.0], 9, [1, 1, 1])
        array([5, 3, 1])
    """
    weights = _weights(weights)
    costs = _costs(costs, weights.size)
    history = checks.finite_vector("history", history, length=weights.size)
    if history.min() < 1:
        raise ValueError(f"history must be at least 1 at every step, got {history.min():g}")
    if limit is None and not np.isfinite(budget):
        raise ValueError(f"budget must be finite where no limit is given, got {budget!r}")
    most = np.iinfo(np.int64).max if limit is None else int(limit)
    ratios = pool(weights, costs)
    values = ratios * costs if pooled else weights
    if ratios[0] == 0:  # no length gains: even out the counts, or lose as little as possible
        ratios, values = np.ones(weights.size), costs if pooled or not weights.any() else weights
    prices = np.cumsum(costs)
    added = np.zeros(weights.size, dtype=np.int64)
    left = budget * (1 + 1e-12)
    while (bound := _lower_bound(np.sqrt(ratios), left, history + added, costs, most))[0] > _ONE_BY_ONE:
        added += bound
        left -= float(bound @ costs)
        most -= int(bound.sum())
    total = history + added
    gains = values / (total * (total + 1))
    while (longest := min(int(prices.searchsorted(left, side="right")), most)) >= 1:
        rates = gains[:longest].cumsum() / prices[:longest]
        best = rates.max()
        length = longest - int((rates[::-1] >= best - abs(best) * 1e-12).argmax())
        price = prices[length - 1]
        # Add several copies at once where that barely changes the counts.
        affordable, there = min(left / price, most / length), total[length - 1]
        copies = max(1, int(_AT_ONCE * min(there, affordable)), int(min(_UNNOTICED * there, affordable)))
        added[:length] += copies
        left -= copies * price
        most -= copies * length
        total[:length] += copies
        gains[:length] = values[:length] / (total[:length] * (total[:length] + 1))
    return added


def _lower_bound(root: Array, budget: float, history: Array, costs: Array, limit: int) -> NDArray[np.int64]:
    """Returns a lower bound of what the relaxed optimum adds to the history.

    Without the order constraint the optimum of each step is ``level * root - history``, which may increase with t. The
    ordered optimum averages it over blocks. So it is at least the minimum of the free optimum over steps up to t, which
    is the bound, and at most the maximum over steps from t on, which gives a level that the budget pays for.
    """

    def free(level: float) -> Array:
        return np.maximum(level * root - history, 0)

    def share(level: float) -> float:
        most = np.maximum.accumulate(free(level)[::-1])[::-1]
        return max(float(most @ costs) / budget, float(most.sum()) / limit)

    if budget < costs[0] or limit < 1:
        return np.zeros(root.size, dtype=np.int64)
    # This level spends at least the budget: steps with more than their optimum give nothing back.
    low, reached = 0.0, 0.0
    affordable = (budget + float(history @ costs)) / float(root @ costs)
    high = min(affordable, (limit + float(history.sum())) / float(root.sum()))
    for _ in range(30):
        middle = (low + high) / 2
        if (there := share(middle)) >= _START_SHARE:
            high = middle
        else:
            low, reached = middle, there
        if reached >= 0.95 * _START_SHARE:
            break
    return np.floor(np.minimum.accumulate(free(low))).astype(np.int64)


def hoeffding_weights(horizon: int, gamma: float) -> Array:
    """Returns d_t, the weights of the generalised Hoeffding bound, (2) of the paper.

    ``d_t = gamma^t (gamma^t + gamma^(t+1) - 2 gamma^T) / (1 - gamma)``, and ``2 (T - t) - 1`` for gamma = 1: the
    f_t of rewards in [0, 1] of the largest variance and covariances. It is computed as a sum, because the fraction
    loses all digits near gamma = 1.
    """
    return weight_terms(discount_factors(horizon, gamma))


def weight_terms(rewards: Array) -> Array:
    """Returns ``x_t (x_t + 2 sum_{u>t} x_u)`` along the last axis.

    For discounted rewards less their means, its mean over trajectories is the weight f_t (Theorem 3.2 of the paper).
    """
    return rewards * (rewards + 2 * (tail_sums(rewards) - rewards))


def tail_sums(values: Array) -> Array:
    """Returns ``sum_{u>=t} x_u`` for every t, along the last axis."""
    return np.cumsum(values[..., ::-1], axis=-1)[..., ::-1]


def discount_factors(horizon: int, gamma: float) -> Array:
    """Returns gamma^t for every step of the horizon."""
    return checks.discount("gamma", gamma) ** np.arange(horizon, dtype=np.float64)


def unit_of(*sizes: float) -> float:
    """Returns a power of two by which numbers up to these sizes are divided before they are raised to the fourth power.

    It is 1 for ordinary sizes, from about 1e-45 to 1e45. Infinite sizes are left out.

    Example:
        >>> unit_of(5.0), unit_of(2.0**200) == 2.0**51, unit_of(2.0**-200) == 2.0**-49
        (1.0, True, True)
    """
    exponent = math.frexp(max((size for size in sizes if math.isfinite(size)), default=0.0))[1]
    return math.ldexp(1.0, exponent - min(max(exponent, -_ORDINARY), _ORDINARY))


def _weights(weights: ArrayLike) -> Array:
    """Returns weights in a unit in which sums over them neither overflow nor underflow."""
    weights = checks.finite_vector("weights", weights)
    return weights / unit_of(float(np.abs(weights).max()))


def _costs(costs: ArrayLike | None, horizon: int) -> Array:
    return np.ones(horizon) if costs is None else checks.positive_vector("costs", costs, length=horizon)
