"""Returns: how returns are distributed, from the trajectories that were planned to full length.

A truncated trajectory has no return. How long a trajectory is to be was decided before any of its own rewards were
known, so those of full length are a fair sample, if a smaller one than all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rido.core import checks
from rido.core.allocation import Array, discount_factors
from rido.core.digits import with_interval
from rido.core.proportions import Rate
from rido.core.trajectories import Trajectories

_RESAMPLES = 1000  # of the bootstrap, where there are few returns
_FEWEST_RESAMPLES = 200
_DRAWS = 20_000_000  # numbers that the bootstrap draws at most
_SEED = 1  # of the bootstrap: the same numbers in every call
_LEAST_TAIL = 5  # returns in a tail whose mean gets an interval


class Statistic(NamedTuple):
    """A number with the ends of its confidence interval, which may be infinite."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Returns:
    """The returns of the trajectories that were planned to full length.

    Attributes:
        names: of the components.
        values: return of each trajectory, a row each, and a column for each component.
        last: what each component was at the last step that a trajectory took.
        leading: column that methods are about if no component is named.
    """

    names: tuple[str, ...]
    values: Array
    last: Array
    leading: int = 0

    @classmethod
    def of(
        cls, batches: Sequence[Trajectories], *, horizon: int, gamma: float, names: tuple[str, ...], leading: int
    ) -> Returns:
        """Returns those of the full-length trajectories of several batches.

        Args:
            batches: rewards, with a column for each name where there are several.
            horizon: length of a full trajectory.
            gamma: discount factor.
            names: of the components.
            leading: the component that methods are about if none is named.
        """
        values, last = [np.zeros((0, len(names)))], [np.zeros((0, len(names)))]
        discounts = discount_factors(horizon, gamma)
        for batch in batches:
            if not (full := batch.lengths == horizon).any():
                continue
            flat = batch.flat if full.all() else batch.flat[np.repeat(full, batch.lengths)]
            rows = flat.reshape(-1, horizon, len(names))
            values.append(np.stack([rows[..., column] @ discounts for column in range(len(names))], axis=1))
            last.append(rows[np.arange(len(rows)), batch.steps[full] - 1])
        return cls(names, np.concatenate(values), np.concatenate(last), leading)

    def __len__(self) -> int:
        return len(self.values)

    def quantile(self, probability: float, component: str | None = None, *, confidence: float = 0.95) -> Statistic:
        """Returns a quantile of the returns, with an interval between order statistics.

        The interval holds for any distribution: the number of returns below the quantile is binomial. It has an
        infinite end where there are too few returns.

        Args:
            probability: of a return below the quantile, 0.5 for the median.
            component: whose return; the leading one's if not given.
            confidence: of the interval.
        """
        probability = checks.probability("probability", probability)
        alpha = (1 - checks.probability("confidence", confidence)) / 2
        found = np.sort(self._column(component))
        from scipy.stats import binom  # slow to import

        # P(X_(k) > q) = P(fewer than k below or at q), P(X_(k) < q) <= P(at least k below q).
        chances = binom.cdf(np.arange(len(found) + 1), len(found), probability)
        below = int(np.searchsorted(chances, alpha, side="right")) - 1  # P(B <= below) <= alpha
        above = int(np.searchsorted(chances, 1 - alpha)) + 1  # P(B >= above) <= alpha
        low = found[below] if below >= 0 else -math.inf
        high = found[above - 1] if above <= len(found) else math.inf
        value = np.quantile(found, probability, method="inverted_cdf")
        return Statistic(float(value), float(low), float(high))

    def cvar(
        self, share: float, component: str | None = None, *, upper: bool = False, confidence: float = 0.95
    ) -> Statistic:
        """Returns the conditional value at risk, the mean of the worst share of returns, with a bootstrap interval.

        The interval is between percentiles of the bootstrap, and infinite with fewer than five returns in the tail.

        Args:
            share: of the returns, 0.1 for the worst tenth.
            component: whose return; the leading one's if not given.
            upper: whether large ones are the worst, as for costs.
            confidence: of the interval.
        """
        share = checks.probability("share", share)
        alpha = (1 - checks.probability("confidence", confidence)) / 2
        sign = -1.0 if upper else 1.0
        found = np.sort(sign * self._column(component))
        size, tail = len(found), share * len(found)
        value = _tail_mean(found, np.ones(size, dtype=np.int64), tail)
        low, high = -math.inf, math.inf
        if tail >= _LEAST_TAIL:
            rng, resamples = np.random.default_rng(_SEED), int(np.clip(_DRAWS / size, _FEWEST_RESAMPLES, _RESAMPLES))
            even = np.full(size, 1 / size)
            drawn = [_tail_mean(found, rng.multinomial(size, even), tail) for _ in range(resamples)]
            low, high = np.quantile(drawn, [alpha, 1 - alpha]).tolist()
        return Statistic(value, low, high) if not upper else Statistic(-value, -high, -low)

    def success(
        self, component: str | None = None, *, above: float | None = None, confidence: float = 0.95
    ) -> Statistic:
        """Returns the share of trajectories that succeeded, with the interval of Clopper and Pearson.

        Args:
            component: success is a positive number at the last step that a trajectory took, such as "is_success"; or,
                with ``above``, a return of this component above it. The leading one's if not given.
            above: success is a return above this number.
            confidence: of the interval.
        """
        if component is None and above is None:
            raise ValueError(
                'success() needs component="is_success", or the like, which must be among the components of the run, '
                "or above=NUMBER for returns above it"
            )
        column = self._column(component)
        succeeded = self.last[:, self.names.index(component or "")] > 0 if above is None else column > above
        rate = Rate(int(succeeded.sum()), succeeded.size)
        return Statistic(rate.successes / rate.trials, *rate.interval(confidence))

    def quantities(self, component: str | None = None) -> dict[str, str]:
        """Returns quantiles and tails of a component as texts, with their 95% intervals where there are any."""
        found = {
            "median": self.quantile(0.5, component),
            "a tenth is below": self.quantile(0.1, component),
            "a tenth is above": self.quantile(0.9, component),
            "mean of the lowest tenth": self.cvar(0.1, component),
            "mean of the highest tenth": self.cvar(0.1, component, upper=True),
        }
        return {name: _shown(statistic) for name, statistic in found.items()}

    def summary(self) -> str:
        """Returns what the returns of each component tell, in a few lines."""
        lines = [f"from the {len(self):,} trajectories planned to full length, chosen before their rewards were known:"]
        for name in self.names:
            lines += [f"{name}: {quantity} {shown}" for quantity, shown in self.quantities(name).items()]
        return "returns " + "\n".join(lines)

    def _column(self, component: str | None) -> Array:
        if not len(self):
            raise ValueError("returns need at least one trajectory of full length, got none: give a larger budget")
        if component is not None and component not in self.names:
            raise ValueError(
                f"component must be one of {', '.join(map(repr, self.names))}, got {checks.shown(component)}"
            )
        column: Array = self.values[:, self.leading if component is None else self.names.index(component)]
        return column


def _shown(statistic: Statistic) -> str:
    """Returns a number with its interval, if that is finite."""
    if math.isfinite(statistic.low) and math.isfinite(statistic.high):
        return with_interval(*statistic)
    return f"{statistic.value:.4g}, too few trajectories for an interval"


def _tail_mean(values: Array, counts: NDArray[np.int64], tail: float) -> float:
    """Returns the mean of the lowest ``tail`` of sorted values, each with its number of occurrences."""
    before = np.cumsum(counts) - counts
    return float(np.clip(tail - before, 0, counts) @ values) / tail
