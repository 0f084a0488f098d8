"""An interval that holds for any rewards within a known range, however the schedules were chosen."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rido.core import checks
from rido.core.allocation import discount_factors
from rido.core.schedule import Schedule
from rido.core.trajectories import Trajectories

_LARGEST_STAKE = 0.5  # of the 1 at which the bound breaks down


def guaranteed_interval(
    batches: Sequence[Trajectories],
    *,
    horizon: int,
    gamma: float,
    reward_range: tuple[float, float],
    confidence: float = 0.95,
    budget: int | None = None,
) -> tuple[float, float]:
    """Returns an interval that holds J with at least this confidence, for rewards in the range and any plans.

    Each batch must have been planned before its own rewards were seen; it may depend on all batches before it. Within a
    batch, trajectory i contributes ``x_i = sum_{t<h_i} gamma^t R_t / n_t``, independent and with a known
    range; together the contributions estimate J. With stakes ``a`` chosen before each batch,
    ``exp(sum a (x_i - E x_i) - penalty_i)`` is a supermartingale, so by Ville's inequality::

        |sum_k a_k (estimate_k - J)| <= log(2 / delta) + sum_i penalty_i      with probability 1 - delta

    at every moment at once, so that also the moment to stop may depend on the data. The penalty of the first batch is
    Hoeffding's, ``a^2 range_i^2 / 8``: with one batch the result is (2) of the paper, the generalised Hoeffding
    interval. Later ones use what was learned: ``psi(a range_i) (x_i - c_i)^2 / range_i^2`` with centres c_i from
    the batches before and ``psi(l) = -log(1 - l) - l``, the empirical Bernstein bound of Howard et al. (2021) and
    Waudby-Smith and Ramdas (2024). The tail after a batch's longest trajectory lies somewhere in its range; batches
    for which that is more than their own Hoeffding width are left out, a choice that sees no reward.

    Args:
        batches: all trajectories, in the order in which they were planned.
        horizon: number of time steps T.
        gamma: discount factor.
        reward_range: lowest and highest possible reward. The zeros after an early end must lie in it too, so it is
            widened to contain 0 where there were any.
        confidence: the probability 1 - delta of holding J.
        budget: transitions meant to be spent in all, which scales the stakes; those of the batches if not given. It
            must not depend on the rewards.
    """
    low, high = checks.reward_range("reward_range", reward_range)
    delta = 1 - checks.probability("confidence", confidence)
    if any((batch.steps < batch.lengths).any() for batch in batches):
        low, high = min(low, 0.0), max(high, 0.0)
    lowest = min(float(batch.flat.min()) for batch in batches)
    highest = max(float(batch.flat.max()) for batch in batches)
    if lowest < low or highest > high:
        raise ValueError(f"reward_range must contain all rewards, got {reward_range!r} and {lowest:g} to {highest:g}")
    discounts = discount_factors(horizon, gamma)
    log_odds = math.log(2 / delta)
    total = sum(int(batch.lengths.sum()) for batch in batches) if budget is None else budget
    sums, seen = np.zeros(horizon), np.zeros(horizon)
    weighted = stakes = penalties = slack = 0.0
    spread = math.nan  # variance of an estimate times its transitions, as far as known
    for batch in batches:
        counts = Schedule.from_lengths(batch.lengths, horizon).counts
        scale = discounts / np.maximum(counts, 1)
        reach = int(batch.lengths.max())
        ranges = (high - low) * np.cumsum(scale)[batch.lengths - 1]
        hoeffding = float(ranges @ ranges) / 4
        unknown = (high - low) / 2 * float(discounts[reach:].sum())
        rewards = np.bincount(_steps(batch), batch.flat, horizon)
        if unknown <= math.sqrt(2 * log_odds * hoeffding):
            size = float(batch.lengths.sum())
            first = math.isnan(spread)
            if first:
                spread = hoeffding * size
            stake = size * math.sqrt(2 * log_odds / (total * max(spread, 1e-300)))
            value = float(scale @ rewards) + (low + high) / 2 * float(discounts[reach:].sum())
            centres = np.where(seen > 0, sums / np.maximum(seen, 1), (low + high) / 2)
            deviations = np.bincount(_rows(batch), (batch.flat - centres[_steps(batch)]) * scale[_steps(batch)])
            squares = float(deviations @ deviations)
            if first:
                penalties += stake**2 * hoeffding / 2
            else:
                stake = min(stake, _LARGEST_STAKE / float(ranges.max()))
                penalties += float(_psi(stake * ranges) / ranges**2 @ deviations**2)
            spread = size * squares
            weighted += stake * value
            stakes += stake
            slack += stake * unknown
        sums += rewards
        seen += counts
    if stakes == 0:
        return -math.inf, math.inf
    half_width = (log_odds + penalties + slack) / stakes
    return weighted / stakes - half_width, weighted / stakes + half_width


def check_rewards(batch: Trajectories, reward_range: tuple[float, float]) -> None:
    """Raises if a reward of these trajectories is not in the range; zeros after an early end are no rewards."""
    low, high = reward_range
    outside = (batch.flat < low) | (batch.flat > high)
    if outside.any():
        outside &= _steps(batch) < np.repeat(batch.steps, batch.lengths)
    if outside.any():
        raise ValueError(
            f"reward_range must contain all rewards, got {reward_range!r} and a reward of {batch.flat[outside][0]:g}"
        )


def _psi(stakes: NDArray[np.float64]) -> NDArray[np.float64]:
    return -np.log1p(-stakes) - stakes


def _rows(batch: Trajectories) -> NDArray[np.int64]:
    return np.repeat(np.arange(len(batch)), batch.lengths)


def _steps(batch: Trajectories) -> NDArray[np.int64]:
    return np.arange(batch.flat.size) - np.repeat(np.cumsum(batch.lengths) - batch.lengths, batch.lengths)
