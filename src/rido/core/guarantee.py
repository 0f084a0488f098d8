"""An interval that holds for any rewards within a known range, however the schedules were chosen."""

import math
from collections.abc import Sequence

import numpy as np

from rido.core import checks
from rido.core.allocation import discount_factors, unit_of
from rido.core.schedule import Schedule
from rido.core.trajectories import Trajectories, positions

_LARGEST_STAKE = 0.5  # stake times range; the bound is infinite at 1


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
    batch, the contributions ``x_i = sum_{t<h_i} gamma^t R_t / n_t`` of trajectories are independent, each with a known
    range, and their sum estimates J. With stakes ``a`` chosen before each batch,
    ``exp(sum a (x_i - E x_i) - penalty_i)`` is a supermartingale, so by Ville's inequality::

        |sum_k a_k (estimate_k - J)| <= log(2 / delta) + sum_i penalty_i      with probability 1 - delta

    after all batches at once, so the decision to stop may depend on the data. The penalty of the first batch is
    Hoeffding's, ``a^2 range_i^2 / 8``: with one batch the result is (2) of the paper, the generalised Hoeffding
    interval. Later penalties are ``psi(a range_i) (x_i - c_i)^2 / range_i^2`` with centres c_i from the batches before
    and ``psi(l) = -log(1 - l) - l``, the empirical Bernstein bound of Howard et al. (2021) and Waudby-Smith and Ramdas
    (2024). Rewards after a batch's longest trajectory are only known to lie in the range. A batch for which this
    uncertainty exceeds its own Hoeffding width is left out; this choice depends on no reward.

    Args:
        batches: all trajectories, in the order in which they were planned.
        horizon: number of time steps T.
        gamma: discount factor.
        reward_range: lowest and highest possible reward. The zeros after an early end must lie in it too, so it is
            widened to contain 0 where there were any.
        confidence: the probability 1 - delta of holding J.
        budget: transitions that the whole run may spend, which scales the stakes; those of the batches if not given.
            It must not depend on the rewards.
    """
    low, high = checks.reward_range("reward_range", reward_range)
    delta = 1 - checks.probability("confidence", confidence)
    if any((batch.steps < batch.lengths).any() for batch in batches):
        low, high = min(low, 0.0), max(high, 0.0)
    lowest = min(float(batch.flat.min()) for batch in batches)
    highest = max(float(batch.flat.max()) for batch in batches)
    if lowest < low or highest > high:
        raise ValueError(f"reward_range must contain all rewards, got {reward_range!r} and {lowest:g} to {highest:g}")
    unit = unit_of(abs(low), abs(high))
    low, high = low / unit, high / unit
    discounts = discount_factors(horizon, gamma)
    log_odds = math.log(2 / delta)
    total = sum(int(batch.lengths.sum()) for batch in batches) if budget is None else budget
    sums, seen = np.zeros(horizon), np.zeros(horizon)
    weighted = stakes = penalties = slack = 0.0
    spread = math.nan  # variance of a batch's estimate times its transitions, from the batch before
    for batch in batches:
        counts = Schedule.from_lengths(batch.lengths, horizon).counts
        scale = discounts / np.maximum(counts, 1)
        reach = int(batch.lengths.max())
        ranges = (high - low) * np.cumsum(scale)[batch.lengths - 1]
        hoeffding = float(ranges @ ranges) / 4
        unknown = (high - low) / 2 * float(discounts[reach:].sum())
        steps = positions(batch.lengths)
        flat = batch.flat / unit
        rewards = np.bincount(steps, flat, horizon)
        if unknown <= math.sqrt(2 * log_odds * hoeffding):
            size = float(batch.lengths.sum())
            first = math.isnan(spread)
            if first:
                spread = hoeffding * size
            stake = size * math.sqrt(2 * log_odds / (total * max(spread, 1e-300)))
            value = float(scale @ rewards) + (low + high) / 2 * float(discounts[reach:].sum())
            centres = np.where(seen > 0, sums / np.maximum(seen, 1), (low + high) / 2)
            rows = np.repeat(np.arange(len(batch)), batch.lengths)
            deviations = np.bincount(rows, (flat - centres[steps]) * scale[steps])
            squares = float(deviations @ deviations)
            if first:
                penalties += stake**2 * hoeffding / 2
            else:
                stake = min(stake, _LARGEST_STAKE / float(ranges.max()))
                staked = stake * ranges
                penalties += float((-np.log1p(-staked) - staked) / ranges**2 @ deviations**2)
            spread = size * squares
            weighted += stake * value
            stakes += stake
            slack += stake * unknown
        sums += rewards
        seen += counts
    if stakes == 0:
        return -math.inf, math.inf
    half_width = (log_odds + penalties + slack) / stakes
    value = weighted / stakes
    return (value - half_width) * unit, (value + half_width) * unit
