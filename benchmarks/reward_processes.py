"""A zoo of reward processes whose best schedules differ as much as possible.

A process samples the rewards of a policy in an environment. Strategies are compared on :data:`ZOO`, which covers known
shapes, and on :func:`random_process`, which draws new ones from a seed. Seeds from :data:`HELD_OUT` upwards are for
final checks: nothing may be tuned on them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rido.core.allocation import Array

Steps = NDArray[np.int64]
Draw = Callable[[np.random.Generator, int, int], Array | tuple[Array, Steps]]

HELD_OUT = 10_000
"""The first seed of :func:`random_process` that is reserved for final checks."""


@dataclass(frozen=True)
class Process:
    """A reward process of fixed horizon.

    Attributes:
        name: name in tables.
        draw: ``draw(rng, n, horizon)`` returns undiscounted rewards ``(n, horizon)``, and for processes that end early
            also the steps ``(n,)`` taken until the end; rewards after the end are 0.
        gamma: discount factor.
        horizon: steps in a full-length trajectory.
        light_tailed: whether a t interval is expected to hold with a budget of 50 full-length trajectories.
    """

    name: str
    draw: Draw
    gamma: float = 1.0
    horizon: int = 50
    light_tailed: bool = True

    def sample(self, rng: np.random.Generator, n: int) -> tuple[Array, Steps]:
        """Draws n full-length trajectories: rewards ``(n, horizon)`` and the steps ``(n,)`` until each one ended."""
        drawn = self.draw(rng, n, self.horizon)
        return drawn if isinstance(drawn, tuple) else (drawn, np.full(n, self.horizon))


def autoregression(rng: np.random.Generator, n: int, horizon: int, rho: float) -> Array:
    """Draws stationary AR(1) paths of unit variance: s_{t+1} = rho s_t + sqrt(1 - rho^2) noise."""
    path = rng.standard_normal((n, horizon))
    scale = np.sqrt(1 - rho**2)
    for t in range(1, horizon):
        path[:, t] = rho * path[:, t - 1] + scale * path[:, t]
    return path


def _noise(scale: Callable[[Steps, int], Any], mean: float = 0.0) -> Draw:
    """Makes independent normal rewards whose standard deviation is a function of step and horizon."""

    def draw(rng: np.random.Generator, n: int, horizon: int) -> Array:
        noise: Array = rng.standard_normal((n, horizon)) * scale(np.arange(horizon), horizon)
        return mean + noise if mean else noise

    return draw


def _ar(rho: float, mean: float = 0.0) -> Draw:
    return lambda rng, n, horizon: mean + autoregression(rng, n, horizon, rho)


def _rare(step: Callable[[int], int]) -> Draw:
    """Makes small noise, and at one step a payment of 5 in one trajectory out of twenty."""

    def draw(rng: np.random.Generator, n: int, horizon: int) -> Array:
        rewards = 0.1 * rng.standard_normal((n, horizon))
        rewards[:, step(horizon)] += 5.0 * (rng.random(n) < 0.05)
        return rewards

    return draw


def _alternating(rng: np.random.Generator, n: int, horizon: int) -> Array:
    sign = (-1.0) ** np.arange(horizon)
    return rng.standard_normal((n, 1)) * sign + 0.1 * rng.standard_normal((n, horizon))


def _end(rewards: Array, steps: Steps) -> tuple[Array, Steps]:
    rewards[np.arange(rewards.shape[1]) >= steps[:, None]] = 0.0
    return rewards, steps


def _termination(rng: np.random.Generator, n: int, horizon: int) -> tuple[Array, Steps]:
    steps = np.minimum(rng.geometric(1.5 / horizon, n), horizon)
    return _end(1 + 0.3 * rng.standard_normal((n, horizon)), steps)


def _goal(rng: np.random.Generator, n: int, horizon: int) -> tuple[Array, Steps]:
    """A cost per step until a goal is reached, which pays; half of the starts are near it."""
    mean = np.where(rng.random(n) < 0.5, 0.1 * horizon, 0.8 * horizon)
    steps = np.minimum(1 + rng.poisson(mean), horizon)
    rewards = np.full((n, horizon), -0.1)
    rewards[np.arange(n), steps - 1] += 5.0
    return _end(rewards, steps)


def _deterministic(rng: np.random.Generator, n: int, horizon: int) -> Array:
    return np.tile(np.sin(np.arange(horizon)), (n, 1))


def _regime(rng: np.random.Generator, n: int, horizon: int) -> Array:
    """Reward 0 at first, from a random time on either 1 or -1."""
    switch = rng.integers(0, horizon, (n, 1))
    level = np.where(rng.random((n, 1)) < 0.5, 1.0, -1.0)
    return np.where(np.arange(horizon) >= switch, level, 0.0) + 0.2 * rng.standard_normal((n, horizon))


def _hedged(rng: np.random.Generator, n: int, horizon: int) -> Array:
    """Each gain is lost one step later, up to a little noise."""
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


def _lqg(rng: np.random.Generator, n: int, horizon: int) -> Array:
    """A scalar linear system under quadratic cost, started far from its rest point."""
    state = rng.normal(2.0, 1.0, n)
    rewards = np.empty((n, horizon))
    for t in range(horizon):
        rewards[:, t] = -(state**2)
        state = 0.9 * state + 0.2 * rng.standard_normal(n)
    return rewards


def _falls(rng: np.random.Generator, n: int, horizon: int) -> Array:
    """A walker that sometimes falls and earns nothing afterwards, without the episode ending."""
    fall = np.where(rng.random((n, 1)) < 0.2, rng.integers(0, horizon, (n, 1)), horizon)
    return np.where(np.arange(horizon) < fall, 1.0, 0.0) + 0.1 * rng.standard_normal((n, horizon))


_white = _noise(lambda t, horizon: 1, mean=1)
_late_goal = _noise(lambda t, horizon: np.where(t == horizon - 1, 100.0, 0.2))

ZOO: tuple[Process, ...] = (
    Process("first only", _noise(lambda t, horizon: t == 0), horizon=100),
    Process("last only", _noise(lambda t, horizon: t == horizon - 1)),
    Process("early", _noise(lambda t, horizon: np.exp(-t / (0.04 * horizon))), horizon=100),
    Process("late", _noise(lambda t, horizon: np.exp((t - horizon) / (0.1 * horizon)))),
    Process("white", _white),
    Process("white, discounted", _white, gamma=0.9, horizon=200),
    Process("AR(1) 0.9", _ar(0.9, mean=2)),
    Process("AR(1) 0.9, discounted", _ar(0.9, mean=2), gamma=0.95),
    Process("AR(1) 0.99", _ar(0.99)),
    Process("AR(1) -0.8", _ar(-0.8)),
    Process("growing noise", _noise(lambda t, horizon: t + 1, mean=10)),
    Process("decaying noise", _noise(lambda t, horizon: horizon - t)),
    Process("alternating", _alternating),
    Process("rare early", _rare(lambda horizon: horizon // 20), light_tailed=False),
    Process("rare late", _rare(lambda horizon: horizon - 1 - horizon // 20), light_tailed=False),
    Process("termination", _termination),
    Process("goal", _goal, gamma=0.98),
    Process("middle only", _noise(lambda t, horizon: (t >= 0.4 * horizon) & (t < 0.5 * horizon))),
    Process("deterministic", _deterministic),
    Process("regime switch", _regime),
    Process("hedged", _hedged),
    Process("reverting", _reverting),
    Process("shaping", _shaping, gamma=0.95),
    Process("start state", _start),
    Process("level", _level, gamma=0.98),
    Process("random walk", _walk),
    Process("heavy tails", _heavy, light_tailed=False),
    Process("noisy start", _noise(lambda t, horizon: np.where(t < 0.06 * horizon, 1.0, 0.02), mean=1), horizon=100),
    # The final payment stays large although it is discounted: a plan from the discount alone misses it.
    Process("late goal, discounted", _late_goal, gamma=0.95),
    Process("late goal, strongly discounted", _late_goal, gamma=0.9),
    Process("LQG", _lqg, gamma=0.98),
    Process("falls", _falls, light_tailed=False),
)
"""The processes that strategies are tuned and tested on."""


def _envelope(rng: np.random.Generator, horizon: int) -> Array:
    """Draws a non-negative curve over time: flat, fading, growing, a bump, or a few single steps."""
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
    """Makes a random process: one to three kinds of noise under random curves, some with jumps or early ends.

    The same seed gives the same process. Tune on seeds below :data:`HELD_OUT` only.
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
