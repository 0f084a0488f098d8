"""A zoo of reward processes: small samplers whose best schedules differ as much as possible.

A process stands for a policy in an environment, seen only through its rewards. Strategies are compared on
:data:`ZOO`, which covers the shapes we know of, and on :func:`random_process`, which draws new ones from a seed.
Seeds from :data:`HELD_OUT` upwards are kept for final checks: nothing may be tuned on them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["HELD_OUT", "ZOO", "Process", "random_process", "weights"]

Array = NDArray[np.float64]
Steps = NDArray[np.int64]

HELD_OUT = 10_000
"""The first seed of :func:`random_process` that is reserved for checks after all tuning is done."""


@dataclass(frozen=True)
class Process:
    """A reward process of fixed horizon.

    Attributes:
        name: Short name, used in tables.
        draw: ``draw(rng, n, horizon)`` gives undiscounted rewards ``(n, horizon)``, and for processes that end early
            also the steps ``(n,)`` taken until the end; rewards after the end are 0.
        gamma: Discount factor under which the process is studied.
        horizon: Steps in a full-length trajectory.
        light_tailed: Whether a t interval is expected to hold at 50 full-length trajectories' worth of budget.
    """

    name: str
    draw: Callable[[np.random.Generator, int, int], Array | tuple[Array, Steps]]
    gamma: float = 1.0
    horizon: int = 50
    light_tailed: bool = True

    def sample(self, rng: np.random.Generator, n: int) -> tuple[Array, Steps]:
        """Draws n full-length trajectories: rewards ``(n, horizon)`` and the steps ``(n,)`` until each one ended."""
        drawn = self.draw(rng, n, self.horizon)
        if isinstance(drawn, tuple):
            return drawn
        return drawn, np.full(n, self.horizon)


def weights(rewards: Array, gamma: float) -> Array:
    """Returns the weights f_t, Theorem 3.2 of the paper, of full-length trajectories that are the whole population.

    ``f_t = Var(x_t) + 2 sum_{u>t} Cov(x_t, x_u)`` with ``x_t = gamma^t R_t``, so that a schedule has the variance
    ``sum_t f_t / n_t``.

    >>> weights(np.array([[1.0, 0.0], [-1.0, 0.0]]), gamma=0.5)
    array([1., 0.])
    """
    x = rewards * gamma ** np.arange(rewards.shape[1])
    x -= x.mean(axis=0)
    later = np.cumsum(x[:, ::-1], axis=1)[:, ::-1] - x
    result: Array = (x * (x + 2 * later)).mean(axis=0)
    return result


def autoregression(rng: np.random.Generator, n: int, horizon: int, rho: float) -> Array:
    """Stationary AR(1) paths of unit variance: s_{t+1} = rho s_t + sqrt(1 - rho^2) noise."""
    path = rng.standard_normal((n, horizon))
    scale = np.sqrt(1 - rho**2)
    for t in range(1, horizon):
        path[:, t] = rho * path[:, t - 1] + scale * path[:, t]
    return path


def _noise(rng: np.random.Generator, n: int, scale: Array) -> Array:
    return rng.standard_normal((n, len(scale))) * scale


def _first_only(rng: np.random.Generator, n: int, horizon: int) -> Array:
    return _noise(rng, n, np.eye(horizon)[0])


def _last_only(rng: np.random.Generator, n: int, horizon: int) -> Array:
    return _noise(rng, n, np.eye(horizon)[-1])


def _early(rng: np.random.Generator, n: int, horizon: int) -> Array:
    return _noise(rng, n, np.exp(-np.arange(horizon) / (0.04 * horizon)))


def _late(rng: np.random.Generator, n: int, horizon: int) -> Array:
    return _noise(rng, n, np.exp((np.arange(horizon) - horizon) / (0.1 * horizon)))


def _white(rng: np.random.Generator, n: int, horizon: int) -> Array:
    return 1 + rng.standard_normal((n, horizon))


def _ar_positive(rng: np.random.Generator, n: int, horizon: int) -> Array:
    return 2 + autoregression(rng, n, horizon, 0.9)


def _ar_persistent(rng: np.random.Generator, n: int, horizon: int) -> Array:
    return autoregression(rng, n, horizon, 0.99)


def _ar_negative(rng: np.random.Generator, n: int, horizon: int) -> Array:
    return autoregression(rng, n, horizon, -0.8)


def _growing(rng: np.random.Generator, n: int, horizon: int) -> Array:
    return 10 + _noise(rng, n, np.arange(1.0, horizon + 1))


def _decaying(rng: np.random.Generator, n: int, horizon: int) -> Array:
    return _noise(rng, n, np.arange(horizon, 0.0, -1))


def _alternating(rng: np.random.Generator, n: int, horizon: int) -> Array:
    sign = (-1.0) ** np.arange(horizon)
    return rng.standard_normal((n, 1)) * sign + 0.1 * rng.standard_normal((n, horizon))


def _rare_early(rng: np.random.Generator, n: int, horizon: int) -> Array:
    rewards = 0.1 * rng.standard_normal((n, horizon))
    rewards[:, horizon // 20] += 5.0 * (rng.random(n) < 0.05)
    return rewards


def _rare_late(rng: np.random.Generator, n: int, horizon: int) -> Array:
    rewards = 0.1 * rng.standard_normal((n, horizon))
    rewards[:, horizon - 1 - horizon // 20] += 5.0 * (rng.random(n) < 0.05)
    return rewards


def _end(rewards: Array, steps: Steps) -> tuple[Array, Steps]:
    rewards[np.arange(rewards.shape[1]) >= steps[:, None]] = 0.0
    return rewards, steps


def _termination(rng: np.random.Generator, n: int, horizon: int) -> tuple[Array, Steps]:
    steps = np.minimum(rng.geometric(1.5 / horizon, n), horizon)
    return _end(1 + 0.3 * rng.standard_normal((n, horizon)), steps)


def _goal(rng: np.random.Generator, n: int, horizon: int) -> tuple[Array, Steps]:
    """A cost per step until a goal is reached and paid for; half the starts are near it."""
    mean = np.where(rng.random(n) < 0.5, 0.1 * horizon, 0.8 * horizon)
    steps = np.minimum(1 + rng.poisson(mean), horizon)
    rewards = np.full((n, horizon), -0.1)
    rewards[np.arange(n), steps - 1] += 5.0
    return _end(rewards, steps)


def _middle(rng: np.random.Generator, n: int, horizon: int) -> Array:
    t = np.arange(horizon)
    return _noise(rng, n, ((t >= 0.4 * horizon) & (t < 0.5 * horizon)).astype(float))


def _deterministic(rng: np.random.Generator, n: int, horizon: int) -> Array:
    return np.tile(np.sin(np.arange(horizon)), (n, 1))


def _regime(rng: np.random.Generator, n: int, horizon: int) -> Array:
    """Quiet at first; from a random time on either well or badly."""
    switch = rng.integers(0, horizon, (n, 1))
    level = np.where(rng.random((n, 1)) < 0.5, 1.0, -1.0)
    return np.where(np.arange(horizon) >= switch, level, 0.0) + 0.2 * rng.standard_normal((n, horizon))


def _hedged(rng: np.random.Generator, n: int, horizon: int) -> Array:
    """Each gain is lost again one step later, up to a little noise."""
    rewards = 1 + 0.03 * rng.standard_normal((n, horizon))
    gains = rng.standard_normal((n, horizon // 2))
    rewards[:, 0 : 2 * gains.shape[1] : 2] += gains
    rewards[:, 1 : 2 * gains.shape[1] : 2] -= gains
    return rewards


def _reverting(rng: np.random.Generator, n: int, horizon: int) -> Array:
    """Increments of a stationary level: the sum telescopes to last minus first."""
    level = autoregression(rng, n, horizon + 1, 0.7)
    return np.diff(level, axis=1) + 0.02 * rng.standard_normal((n, horizon))


def _shaping(rng: np.random.Generator, n: int, horizon: int) -> Array:
    """Sparse noise under a shaping term gamma Phi(s') - Phi(s) that is much larger than the reward."""
    potential = 3.0 * autoregression(rng, n, horizon + 1, 0.9)
    return 0.95 * potential[:, 1:] - potential[:, :-1] + 0.5 * rng.standard_normal((n, horizon))


def _start(rng: np.random.Generator, n: int, horizon: int) -> Array:
    """All randomness is in the first state, whose influence fades."""
    return rng.standard_normal((n, 1)) * np.exp(-np.arange(horizon) / (0.1 * horizon)) + 0.01 * rng.standard_normal(
        (n, horizon)
    )


def _level(rng: np.random.Generator, n: int, horizon: int) -> Array:
    """Each trajectory has its own level, drawn once."""
    return rng.standard_normal((n, 1)) + rng.standard_normal((n, horizon))


def _walk(rng: np.random.Generator, n: int, horizon: int) -> Array:
    return np.cumsum(rng.standard_normal((n, horizon)), axis=1)


def _heavy(rng: np.random.Generator, n: int, horizon: int) -> Array:
    return rng.standard_t(3, (n, horizon))


def _noisy_start(rng: np.random.Generator, n: int, horizon: int) -> Array:
    """A few very noisy steps, then almost none."""
    return 1 + _noise(rng, n, np.where(np.arange(horizon) < 0.06 * horizon, 1.0, 0.02))


def _late_goal(rng: np.random.Generator, n: int, horizon: int) -> Array:
    """A final payment that stays large although it is discounted: trust in the discount alone misses it."""
    return _noise(rng, n, np.where(np.arange(horizon) == horizon - 1, 100.0, 0.2))


def _lqg(rng: np.random.Generator, n: int, horizon: int) -> Array:
    """A scalar linear system under quadratic cost, started far from its rest point."""
    state = rng.normal(2.0, 1.0, n)
    rewards = np.empty((n, horizon))
    for t in range(horizon):
        rewards[:, t] = -(state**2)
        state = 0.9 * state + 0.2 * rng.standard_normal(n)
    return rewards


def _falls(rng: np.random.Generator, n: int, horizon: int) -> Array:
    """A steady walker that falls now and then and earns nothing afterwards, without the episode ending."""
    fall = np.where(rng.random((n, 1)) < 0.2, rng.integers(0, horizon, (n, 1)), horizon)
    return np.where(np.arange(horizon) < fall, 1.0, 0.0) + 0.1 * rng.standard_normal((n, horizon))


ZOO: tuple[Process, ...] = (
    Process("first only", _first_only, horizon=100),
    Process("last only", _last_only),
    Process("early", _early, horizon=100),
    Process("late", _late),
    Process("white", _white),
    Process("white, discounted", _white, gamma=0.9, horizon=200),
    Process("AR(1) 0.9", _ar_positive),
    Process("AR(1) 0.9, discounted", _ar_positive, gamma=0.95),
    Process("AR(1) 0.99", _ar_persistent),
    Process("AR(1) -0.8", _ar_negative),
    Process("growing noise", _growing),
    Process("decaying noise", _decaying),
    Process("alternating", _alternating),
    Process("rare early", _rare_early, light_tailed=False),
    Process("rare late", _rare_late, light_tailed=False),
    Process("termination", _termination),
    Process("goal", _goal, gamma=0.98),
    Process("middle only", _middle),
    Process("deterministic", _deterministic),
    Process("regime switch", _regime),
    Process("hedged", _hedged),
    Process("reverting", _reverting),
    Process("shaping", _shaping, gamma=0.95),
    Process("start state", _start),
    Process("level", _level, gamma=0.98),
    Process("random walk", _walk),
    Process("heavy tails", _heavy, light_tailed=False),
    Process("noisy start", _noisy_start, horizon=100),
    Process("late goal, discounted", _late_goal, gamma=0.95),
    Process("late goal, strongly discounted", _late_goal, gamma=0.9),
    Process("LQG", _lqg, gamma=0.98),
    Process("falls", _falls, light_tailed=False),
)
"""The processes that strategies are tuned and tested on."""


def _envelope(rng: np.random.Generator, horizon: int) -> Array:
    """A random non-negative curve over time: flat, fading, growing, a bump, or a few single steps."""
    t = np.arange(horizon) / horizon
    kind = rng.integers(5)
    width = rng.uniform(0.05, 0.5)
    if kind == 0:
        return np.ones(horizon)
    if kind == 1:
        return np.exp(-t / width)
    if kind == 2:
        return np.exp((t - 1) / width)
    if kind == 3:
        return np.exp(-0.5 * ((t - rng.random()) / (0.5 * width)) ** 2)
    chosen = np.zeros(horizon)
    chosen[rng.integers(0, horizon, 3)] = 1.0
    return chosen


def random_process(seed: int) -> Process:
    """A random process: one to three kinds of noise under random curves, sometimes with jumps, resets or early ends.

    The same seed always gives the same process. Use seeds below :data:`HELD_OUT` for tuning only.
    """
    recipe = np.random.default_rng([seed, 26])
    horizon = int(recipe.integers(20, 101))
    gamma = float(recipe.choice([1.0, 0.99, 0.97, 0.9]))
    parts = [
        (
            _envelope(recipe, horizon),
            float(recipe.lognormal(0, 0.7)),
            float(recipe.choice([0, 0.5, 0.9, 0.98, 1.0, -0.7])),
        )
        for _ in range(recipe.integers(1, 4))
    ]
    mean = recipe.normal(0, 2) * _envelope(recipe, horizon)
    background = float(recipe.choice([0.0, 0.05, 0.3]))
    jump = (int(recipe.integers(horizon)), float(recipe.uniform(0.05, 0.3)), float(recipe.uniform(1, 6)))
    jumps, differences = recipe.random() < 0.2, recipe.random() < 0.2
    hazard = float(recipe.uniform(0.3, 3.0)) / horizon if recipe.random() < 0.2 else 0.0

    def draw(rng: np.random.Generator, n: int, horizon: int) -> Array | tuple[Array, Steps]:
        rewards = mean + background * rng.standard_normal((n, horizon))
        for curve, scale, rho in parts:
            rewards += scale * curve * autoregression(rng, n, horizon, rho)
        if differences:
            rewards[:, 1:] -= 0.8 * rewards[:, :-1].copy()
        if jumps:
            at, chance, size = jump
            rewards[:, at] += size * (rng.random(n) < chance)
        if hazard:
            return _end(rewards, np.minimum(rng.geometric(hazard, n), horizon))
        return rewards

    return Process(f"random {seed}", draw, gamma=gamma, horizon=horizon, light_tailed=not jumps)
