"""Exact intervals of rates: coverage by binomial sums, and power, against scipy's tests."""

from itertools import pairwise, product

import numpy as np
import pytest
from scipy import stats

import rido
from rido.core.proportions import Rate, RateDifference, TwoValuedEstimate

CONFIDENCES = (0.95, 0.995)  # of 2 and of 20 policies


@pytest.mark.parametrize("trials", [1, 7, 20])
def test_a_rate_has_the_exact_interval_of_scipy(trials):
    for successes, confidence in product(range(trials + 1), CONFIDENCES):
        expected = stats.binomtest(successes, trials).proportion_ci(confidence, method="exact")
        assert Rate(successes, trials).interval(confidence) == pytest.approx(tuple(expected), abs=1e-9)


def _limits(n, m, confidence, paired=False):
    """The limits of all outcomes; those that cannot be never err."""
    limits = np.full((2, n + 1, m + 1), np.nan)
    for x, y in product(range(n + 1), range(m + 1)):
        if not paired or x + y <= n:
            limits[:, x, y] = RateDifference(x, n, y, m, paired).interval(confidence)
    return limits


def _chances(n, m, p, q):
    return np.outer(stats.binom.pmf(range(n + 1), n, p), stats.binom.pmf(range(m + 1), m, q))


def _paired_chances(n, p, q):
    """Probabilities of x pairs of which only the first succeeds, and y of which only the second does."""
    cells = [[(x, y, max(n - x - y, 0)) for y in range(n + 1)] for x in range(n + 1)]
    possible = np.add.outer(range(n + 1), range(n + 1)) <= n
    return np.where(possible, stats.multinomial.pmf(cells, n, (p, q, max(1 - p - q, 0))), 0)


RATES = (0.001, 0.01, 0.03, 0.07, 0.15, 0.3, 0.45, 0.5, 0.6, 0.77, 0.9, 0.96, 0.995)


@pytest.mark.parametrize("n, m", [(1, 1), (5, 5), (9, 9), (4, 14)])
@pytest.mark.parametrize("confidence", CONFIDENCES)
def test_each_limit_of_an_unpaired_difference_errs_with_half_of_alpha_at_most(n, m, confidence):
    low, high = _limits(n, m, confidence)
    for p, q in product(RATES, RATES):
        chances = _chances(n, m, p, q)
        worst = max(chances[low > p - q + 1e-6].sum(), chances[high < p - q - 1e-6].sum())
        assert worst <= 1.01 * (1 - confidence) / 2, (p, q)  # 1% for a nuisance parameter between the grid's


@pytest.mark.parametrize("n", [1, 5, 11])
@pytest.mark.parametrize("confidence", CONFIDENCES)
def test_each_limit_of_a_paired_difference_errs_with_half_of_alpha_at_most(n, confidence):
    low, high = _limits(n, n, confidence, paired=True)
    for p, q in product(RATES, RATES):
        if p + q <= 1:
            chances = _paired_chances(n, p, q)
            worst = max(chances[low > p - q + 1e-6].sum(), chances[high < p - q - 1e-6].sum())
            assert worst <= 1.01 * (1 - confidence) / 2, (p, q)


@pytest.mark.parametrize("n, m, p, q", [(20, 20, 0.9, 0.5), (10, 25, 0.9, 0.4)])
def test_an_unpaired_difference_is_found_more_often_than_by_fishers_test(n, m, p, q):
    chances, found, fisher = _chances(n, m, p, q), 0.0, 0.0
    for x, y in product(range(n + 1), range(m + 1)):
        if x / n > y / m and chances[x, y] > 1e-3:
            table = [[x, n - x], [y, m - y]]
            found += chances[x, y] * (RateDifference(x, n, y, m).interval(0.95)[0] > 0)
            fisher += chances[x, y] * (stats.fisher_exact(table, alternative="greater").pvalue <= 0.025)
    assert found > fisher + 0.02


def test_an_unpaired_difference_is_decided_as_by_barnards_test_up_to_its_order():
    table = np.array([[16, 8], [4, 12]])  # columns are the samples
    value = stats.barnard_exact(table, alternative="greater").pvalue
    low = RateDifference(16, 20, 8, 20).interval
    assert low(1 - 2 * 1.5 * value)[0] > 0 > low(1 - 2 * value / 1.5)[0]


@pytest.mark.parametrize("n, p, q", [(20, 0.4, 0.05), (40, 0.1, 0.01)])
def test_a_paired_difference_is_found_as_often_as_by_the_exact_mcnemar_test(n, p, q):
    chances, found, mcnemar = _paired_chances(n, p, q), 0.0, 0.0
    for x, y in product(range(n + 1), range(n + 1)):
        if x > y and chances[x, y] > 1e-3:
            found += chances[x, y] * (RateDifference(x, n, y, n, paired=True).interval(0.95)[0] > 0)
            mcnemar += chances[x, y] * (stats.binomtest(x, x + y, alternative="greater").pvalue <= 0.025)
    assert found >= mcnemar - 1e-6


def test_pairs_that_never_differ_say_how_rare_differences_are():
    low, high = RateDifference(0, 50, 0, 50, paired=True).interval(0.95)
    assert high == -low == pytest.approx(1 - 0.025 ** (1 / 50), abs=1e-5)


@pytest.mark.parametrize("paired", [False, True])
def test_more_successes_move_the_interval_up_and_swapping_turns_it_round(paired):
    ends = [RateDifference(x, 25, 3, 25, paired).interval(0.95) for x in range(0, 20, 3)]
    assert all(before[0] <= after[0] and before[1] <= after[1] for before, after in pairwise(ends))
    low, high = RateDifference(3, 25, 18, 25, paired).interval(0.95)
    assert (-high, -low) == ends[6]


@pytest.mark.parametrize("paired", [False, True])
def test_limits_in_closed_form_take_over_without_a_jump(paired):
    few = RateDifference(60, 299, 40, 299, paired).interval(0.95)
    many = RateDifference(61, 302, 40, 302, paired).interval(0.95)
    assert many == pytest.approx(few, abs=0.01)


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("rate", [0.003, 0.02])
def test_limits_in_closed_form_rarely_find_a_difference_where_there_is_none(paired, rate):
    n, alpha = 400, 0.0036
    counts = range(int(n * rate + 8 * np.sqrt(n * rate)) + 8)
    chances = (
        np.exp(stats.poisson.logpmf(counts, n * rate)[:, None] + stats.poisson.logpmf(counts, n * rate))
        if paired
        else np.outer(*[stats.binom.pmf(counts, n, rate)] * 2)
    )
    found = sum(
        chances[x, y]
        for x, y in product(counts, counts)
        if x > y and chances[x, y] > 1e-8 and RateDifference(x, n, y, n, paired).interval(1 - 2 * alpha)[0] > 0
    )
    assert found <= alpha


def test_an_estimate_of_two_values_has_the_exact_interval_in_their_units():
    """Outcomes -3 and 2: the rate of the larger, stretched by 5 and moved by -3."""
    exact = stats.binomtest(7, 20).proportion_ci(0.9, method="exact")
    schedule = rido.Schedule([20])
    plain = dict(degrees_of_freedom=19.0, schedule=schedule, gamma=1.0, early_ends=False)
    found = TwoValuedEstimate(-1.25, 0.5, **plain, rate=Rate(7, 20), origin=-3.0, unit=5.0).interval(0.9)
    np.testing.assert_allclose(found, (-3 + 5 * exact.low, -3 + 5 * exact.high), rtol=1e-9)
