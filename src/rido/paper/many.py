"""Many runs of RIDO in lockstep, for studies with thousands of short batches."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rido.core.allocation import Array, allocate, discount_factors, round_down_and_fill, tie_negative_tail
from rido.core.schedule import Schedule

Counts = NDArray[np.int64]


@dataclass
class Sums:
    """Sums of rewards and of their products for many runs, so that a batch costs the same however many came before."""

    counts: Counts  # samples of each step, shape (runs, T)
    totals: Array  # sums of rewards, shape (runs, T)
    products: Array  # sums of products of two rewards of one trajectory, shape (runs, T, T)

    @classmethod
    def nothing(cls, runs: int, horizon: int) -> "Sums":
        """No rewards yet."""
        shape = (runs, horizon)
        return cls(np.zeros(shape, dtype=np.int64), np.zeros(shape), np.zeros((*shape, horizon)))

    def add(self, rewards: Array, counts: Counts) -> None:
        """Takes in a batch of every run.

        Args:
            rewards: shape (runs, trajectories, T), longest trajectories first, full-length.
            counts: how many of them reach each step; later rewards are ignored.
        """
        reached = np.arange(rewards.shape[1])[:, None] < counts[:, None, :]
        seen = np.where(reached, rewards, 0.0)
        self.counts += counts
        self.totals += seen.sum(axis=1)
        self.products += seen.transpose(0, 2, 1) @ seen

    def weights(self, gamma: float, beta: float, width: float) -> Array:
        """Returns the paper's estimates of f_t with its bonuses, as ``RewardMoments.weights("paper", beta)`` does.

        Args:
            gamma: discount factor.
            beta: robustness level, (8) of the paper.
            width: width of the range of rewards.
        """
        discounts = discount_factors(self.counts.shape[1], gamma)
        means = self.totals / self.counts
        bonus = np.sqrt(2 * np.log(beta) / self.counts)
        # Cov(R_t, R_u) = (sum R_t R_u) / n_u - mean_t mean_u, the mean of t over all n_t samples (Appendix A.3).
        covariances = self.products / self.counts[:, None, :] - means[:, :, None] * means[:, None, :]
        own = np.einsum("rtt->rt", self.products) - self.counts * means**2
        deviations = np.sqrt(np.maximum(own, 0.0) / (self.counts - 1)) + width * bonus
        later = np.triu(np.ones(covariances.shape[1:]), 1) * discounts
        sums = np.einsum("rtu,tu->rt", covariances + 3 * width**2 * bonus[:, None, :], later)
        weights: Array = discounts * (discounts * deviations**2 + 2 * sums)
        return weights


def plan(weights: Array, size: int) -> Counts:
    """Returns the next batch of every run: (7) of the paper, solved and rounded as in :class:`rido.Rido`."""
    minimum = 1.0 if size >= weights.shape[1] else 0.0
    return np.array(
        [round_down_and_fill(allocate(tie_negative_tail(row), size, minimum=minimum), size) for row in weights]
    )


def many_rido(
    bank: Array, *, budget: int, gamma: float, batch: int, beta: float, runs: int, seed: int, width: float = 1.0
) -> tuple[Array, Counts]:
    """Runs Algorithm 1 of the paper many times on rows drawn from a bank; returns values and counts of each run."""
    rng, horizon = np.random.default_rng(seed), bank.shape[1]
    sums = Sums.nothing(runs, horizon)
    for spent in range(0, budget, batch):
        size = min(batch, budget - spent)
        if spent == 0:
            counts = np.tile(Schedule.uniform(horizon, size).counts, (runs, 1))
        else:
            counts = plan(sums.weights(gamma, beta, width), size)
        rows = rng.integers(len(bank), size=(runs, int(counts[:, 0].max())))
        sums.add(bank[rows], counts)
    return (sums.totals / sums.counts) @ discount_factors(horizon, gamma), sums.counts
