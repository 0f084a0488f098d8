"""Rates: intervals of a success rate, and of the difference of two, that hold for any number of trials."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from rido.core import checks
from rido.core.allocation import Array
from rido.core.estimate import Estimate

_MOST_OUTCOMES = 90_000  # pairs of counts up to which limits are exact: 300 trials of each, 0.1 s
_ROUNDING = 1e-12  # two outcomes whose order differs by less are tied
# Values of the nuisance parameter over which a probability is maximized, as shares of its range; denser at the ends.
_NUISANCE = (1 - np.cos(np.linspace(0, np.pi, 65))) / 2


@dataclass(frozen=True)
class Rate:
    """The rate of successes in a number of trials.

    Example:
        >>> low, high = Rate(9, 10).interval(0.95)
        >>> round(low, 4), round(high, 4)
        (0.555, 0.9975)
    """

    successes: int
    trials: int

    def interval(self, confidence: float) -> tuple[float, float]:
        """Returns the interval of Clopper and Pearson (1934)."""
        alpha = (1 - checks.probability("confidence", confidence)) / 2
        low, high = _binomial_limits(np.array([self.successes]), self.trials, alpha)
        return float(low[0]), float(high[0])


@dataclass(frozen=True)
class RateDifference:
    """The difference of two rates: that of ``first`` less that of ``second``.

    The limits are Buehler's (1957): outcomes (x, y) are ordered, and the lower limit is the smallest difference d for
    which an outcome at least as high as the observed one has more than the error probability alpha, for some pair of
    rates that differ by d. So each limit errs with a probability of at most alpha, whatever the rates. The order is
    that of a lower limit in closed form, which also stands in for the exact one where there are very many trials.

    Without pairs the order is Newcombe's (1998): the distances from both rates to their limits, here those of Clopper
    and Pearson, are squared and added. The test that it makes at d = 0 has more power than Fisher's.

    With pairs, x and y count the pairs in which only the first or only the second succeeded. The order is an adjusted
    Wald limit (Bonett and Price, 2012), with z^2 / 4 more of each such pair for a normal quantile z.

    Attributes:
        first: successes of the first; with pairs, where the second failed.
        first_trials: trials of the first.
        second: successes of the second; with pairs, where the first failed.
        second_trials: trials of the second.
        paired: whether trial i of both is a pair.

    Example:
        >>> low, high = RateDifference(18, 20, 10, 20).interval(0.95)
        >>> round(low, 3), round(high, 3)
        (0.116, 0.647)
    """

    first: int
    first_trials: int
    second: int
    second_trials: int
    paired: bool = False

    def interval(self, confidence: float) -> tuple[float, float]:
        """Returns the interval, whose limits err with at most (1 - confidence) / 2 each."""
        alpha = (1 - checks.probability("confidence", confidence)) / 2
        low = _lower_limit(self.first, self.first_trials, self.second, self.second_trials, alpha, self.paired)
        high = -_lower_limit(self.second, self.second_trials, self.first, self.first_trials, alpha, self.paired)
        return low, high


@dataclass(frozen=True)
class TwoValuedEstimate(Estimate):
    """An estimate of the mean of outcomes that take two values, or of the difference of two such means.

    Attributes:
        rate: how often the larger of the two values came, or a difference of such rates.
        origin: value where the rate is 0.
        unit: difference of the two values.
    """

    rate: Rate | RateDifference = Rate(0, 1)
    origin: float = 0.0
    unit: float = 1.0

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Returns the interval of the rate, in units of the outcomes."""
        low, high = self.rate.interval(confidence)
        return self.origin + self.unit * low, self.origin + self.unit * high


def _binomial_limits(successes: NDArray[np.int64], trials: int, alpha: float) -> tuple[Array, Array]:
    """Returns Clopper and Pearson's limits, each of which errs with a probability of at most alpha."""
    from scipy.special import betaincinv  # slow to import

    failures = trials - successes
    low = np.where(successes > 0, betaincinv(np.maximum(successes, 1), failures + 1, alpha), 0.0)
    high = np.where(failures > 0, 1 - betaincinv(np.maximum(failures, 1), successes + 1, alpha), 1.0)
    return low, high


@lru_cache(maxsize=10_000)
def _lower_limit(x: int, n: int, y: int, m: int, alpha: float, paired: bool) -> float:
    """Returns the lower limit of the difference of two rates; see :class:`RateDifference`."""
    from scipy.optimize import brentq  # slow to import
    from scipy.special import betainc, gammaln, xlog1py, xlogy

    order = _paired_order if paired else _unpaired_order
    observed = float(order(np.array([x]), n, np.array([y]), m, alpha)[0, 0])
    if (n + 1) * (m + 1) > _MOST_OUTCOMES:
        return observed
    others = np.arange(m + 1)
    reached = order(np.arange(n + 1), n, others, m, alpha) >= observed - _ROUNDING
    least = np.where(reached.any(axis=0), reached.argmax(axis=0), n + 1)  # x that y needs to be as high as observed
    most = n - others if paired else np.full(m + 1, n)
    ways = gammaln(m + 1) - gammaln(others + 1) - gammaln(m - others + 1)

    def log_excess(difference: float) -> float:
        """Returns the logarithm of the largest probability of such outcomes, over alpha."""
        start, end = max(0.0, difference), (1 + difference) / 2 if paired else min(1.0, 1 + difference)
        rates = (start + (end - start) * _NUISANCE)[:, None]
        seconds = np.clip(rates - difference, 0, 1)
        chances = np.exp(ways + xlogy(others, seconds) + xlog1py(m - others, -seconds))
        if paired:  # the rate among the pairs in which the second does not succeed alone
            rates = np.clip(rates / np.maximum(1 - seconds, math.ulp(0.0)), 0, 1)
        tails = betainc(np.maximum(least, 1), np.maximum(most - least + 1, 1), rates)
        tails = np.where(least == 0, 1.0, np.where(least > most, 0.0, tails))
        return math.log(max(float((chances * tails).sum(axis=1).max()), 1e-300) / alpha)

    return -1.0 if log_excess(-1.0) >= 0 else float(brentq(log_excess, -1, 1, xtol=1e-6))


def _unpaired_order(x: NDArray[np.int64], n: int, y: NDArray[np.int64], m: int, alpha: float) -> Array:
    """Returns Newcombe's lower limit with those of Clopper and Pearson, for all x and y."""
    below = x / n - _binomial_limits(x, n, alpha)[0]
    above = _binomial_limits(y, m, alpha)[1] - y / m
    limits: Array = (x / n)[:, None] - y / m - np.hypot(below[:, None], above)
    return limits


def _paired_order(x: NDArray[np.int64], n: int, y: NDArray[np.int64], _: int, alpha: float) -> Array:
    """Returns the adjusted Wald limit of n pairs, for all x and y; infinite where these are more than n."""
    from scipy.special import ndtri  # slow to import

    quantile = -float(ndtri(alpha))
    added = quantile**2 / 4
    pairs = n + 2 * added
    one, other = x[:, None] + added, y + added
    difference, either = (one - other) / pairs, (one + other) / pairs
    limits: Array = difference - quantile * np.sqrt(np.maximum(either - difference**2, 0) / pairs)
    return np.where(x[:, None] + y <= n, limits, np.inf)
