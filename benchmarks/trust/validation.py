"""Processes for validation: sparse rewards, rare failures and early ends, whose expected returns are exact.

Strategies are tuned on ``benchmarks/reward_processes.py`` and on recorded agents, see ``zoo.py``. They stand for what
most people evaluate, episodes that end in success or failure. Each is there without a discount and with gamma 0.99.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

import numpy as np
import tabular
from numpy.typing import NDArray
from reward_processes import Array, Process, Steps

__all__ = ["FAMILIES", "GAMMAS", "Problem", "problem", "problems"]

GAMMAS = (1.0, 0.99)
"""The discounts under which every process is studied."""

FAMILIES = ("tabular", "success", "hazard", "goal")
"""Kinds of processes: tables of Gymnasium, success at the end, failures of a survivor, goals with a cost per step."""

SUCCESS_CHANCES = (0.02, 0.1, 0.5, 0.9, 0.98)
_SUCCESS_HORIZON = 60
_HAZARD_HORIZON = 100
_GOAL_HORIZON = 100
_GOAL_REWARD = 10.0

Shape = Literal["growing", "constant", "falling"]


@dataclass(frozen=True)
class Problem(Process):
    """A process whose expected return is known exactly.

    Attributes:
        family: One of :data:`FAMILIES`.
        means: Expected reward of each step, which is 0 after the end; shape (horizon,).
    """

    family: str = ""
    means: Array = field(default_factory=lambda: np.zeros(0), compare=False)

    @property
    def truth(self) -> float:
        """The expected discounted return J."""
        return float(self.means @ self.gamma ** np.arange(self.horizon))


@lru_cache(maxsize=1)
def problems() -> tuple[Problem, ...]:
    """Returns all validation problems. The tables of Gymnasium are read at the first call, which takes a second.

    >>> sum(problem.family == "success" for problem in problems())
    10
    """
    found = [*_tabular(), *_success(), *_hazards(), *_goals()]
    return tuple(
        replace(single, name=f"{single.name}, gamma {gamma:g}", gamma=gamma) for single in found for gamma in GAMMAS
    )


def problem(name: str) -> Problem:
    """Returns the problem of this name."""
    for single in problems():
        if single.name == name:
            return single
    raise ValueError(f"name must be that of a validation problem, got {name!r}")


def _tabular() -> Iterator[Problem]:
    chains = {
        "FrozenLake 4x4, optimal": (tabular.frozen_lake("4x4"), 100),
        "FrozenLake 4x4, 0.3 random": (tabular.frozen_lake("4x4", 0.3), 100),
        "FrozenLake 8x8, optimal": (tabular.frozen_lake("8x8"), 200),
        "CliffWalking, 0.1 random": (tabular.cliff_walking(0.1), 100),
        "Taxi, 0.1 random": (tabular.taxi(0.1), 100),
        "Blackjack, sticks at 18": (tabular.blackjack(18), 10),
    }
    for name, (chain, horizon) in chains.items():
        yield Problem(name, chain.sample, horizon=horizon, family="tabular", means=chain.expected_rewards(horizon))


def success_lengths(horizon: int) -> Array:
    """Returns the distribution of the lengths 1 to T of episodes that end in success or not: uniform on [T/4, T]."""
    possible = np.arange(1, horizon + 1) >= horizon / 4
    distribution: Array = possible / possible.sum()
    return distribution


def _success() -> Iterator[Problem]:
    lengths = success_lengths(_SUCCESS_HORIZON)
    for chance in SUCCESS_CHANCES:

        def draw(rng: np.random.Generator, n: int, horizon: int, chance: float = chance) -> tuple[Array, Steps]:
            steps = 1 + rng.choice(horizon, size=n, p=success_lengths(horizon))
            rewards = np.zeros((n, horizon))
            rewards[np.arange(n), steps - 1] = rng.random(n) < chance
            return rewards, steps

        yield Problem(f"success {chance:g}", draw, horizon=_SUCCESS_HORIZON, family="success", means=chance * lengths)


def hazards(shape: Shape, total: float, horizon: int) -> Array:
    """Returns the probability of failing in each step, given survival until then.

    Args:
        shape: Whether the hazard grows linearly with time, is constant, or falls linearly.
        total: Probability of failing within the horizon.
        horizon: Number of steps.
    """
    rates = {
        "growing": np.arange(1.0, horizon + 1),
        "constant": np.ones(horizon),
        "falling": np.arange(horizon, 0.0, -1),
    }
    chosen = rates[shape]
    chances: Array = -np.expm1(np.log1p(-total) * chosen / chosen.sum())
    return chances


def _hazards() -> Iterator[Problem]:
    """One for each step alive, and a payment at failure, which ends the episode."""
    kinds: tuple[tuple[Shape, float, float], ...] = (
        ("growing", 0.05, 0.0),
        ("growing", 0.2, -10.0),
        ("growing", 0.6, 0.0),
        ("constant", 0.05, -100.0),
        ("constant", 0.2, 0.0),
        ("falling", 0.05, -10.0),
        ("falling", 0.2, -100.0),
        ("falling", 0.6, -10.0),
    )
    for shape, total, payment in kinds:
        hazard = hazards(shape, total, _HAZARD_HORIZON)
        alive = np.cumprod(np.concatenate([[1.0], 1 - hazard[:-1]]))
        yield Problem(
            f"{shape} hazard {total:g}, {payment:g} on failure",
            _survivor(shape, total, payment),
            horizon=_HAZARD_HORIZON,
            family="hazard",
            means=alive * (1 + hazard * payment),
        )


def _survivor(
    shape: Shape, total: float, payment: float
) -> Callable[[np.random.Generator, int, int], tuple[Array, Steps]]:
    def draw(rng: np.random.Generator, n: int, horizon: int) -> tuple[Array, Steps]:
        surviving = np.cumprod(1 - hazards(shape, total, horizon))  # after each step; falls to 1 - total
        failing = np.searchsorted(-surviving, -rng.random(n))  # the first step t with surviving[t] <= u, or the horizon
        return _ends_with(np.ones((n, horizon)), failing, payment)

    return draw


def goal_times(mean: float, never: float, horizon: int) -> Array:
    """Returns the probability that the goal is reached in each step: one less than a negative binomial of shape 4.

    Args:
        mean: Mean number of steps before the step that reaches the goal.
        never: Probability of never reaching it, however long the episode.
        horizon: Number of steps.
    """
    from scipy.stats import nbinom

    times: Array = (1 - never) * nbinom.pmf(np.arange(horizon), 4, 4 / (4 + mean))
    return times


def _goals() -> Iterator[Problem]:
    """A cost of 1 in each step, and 10 more in the step that reaches the goal, where the episode ends."""
    for mean, never in ((15.0, 0.3), (30.0, 0.0), (60.0, 0.1), (90.0, 0.0)):
        times = goal_times(mean, never, _GOAL_HORIZON)
        alive = 1 - np.concatenate([[0.0], np.cumsum(times)[:-1]])
        never_name = f", {never:g} never" if never else ""
        yield Problem(
            f"goal after {mean:g}{never_name}",
            _searcher(mean, never),
            horizon=_GOAL_HORIZON,
            family="goal",
            means=_GOAL_REWARD * times - alive,
        )


def _searcher(mean: float, never: float) -> Callable[[np.random.Generator, int, int], tuple[Array, Steps]]:
    def draw(rng: np.random.Generator, n: int, horizon: int) -> tuple[Array, Steps]:
        reaching = rng.negative_binomial(4, 4 / (4 + mean), n)
        reaching[rng.random(n) < never] = horizon
        return _ends_with(np.full((n, horizon), -1.0), np.minimum(reaching, horizon), _GOAL_REWARD)

    return draw


def _ends_with(rewards: Array, last: NDArray[np.int64], payment: float) -> tuple[Array, Steps]:
    """Ends each row after its last step, with a payment in that step; rows whose last step is the horizon go on."""
    horizon = rewards.shape[1]
    ended = last < horizon
    rewards[np.flatnonzero(ended), last[ended]] += payment
    rewards[np.arange(horizon) > last[:, None]] = 0.0
    return rewards, np.minimum(last + 1, horizon)
