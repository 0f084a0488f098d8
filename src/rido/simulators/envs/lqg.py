"""The paper's linear-quadratic-Gaussian domain, its optimal policy and its closed forms.

    s_0 ~ U[-80, 80],   s_{t+1} = s_t + (a_t + xi_t) + eta_t,   R_t = s_t^2 + (a_t + xi_t)^2

The reward is a cost (the paper's sign). Under a linear policy a = -K s the state is an autoregression of
order one, so its moments, and with them the expected return and the weights f_t, follow by recursion.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import gymnasium as gym
import numpy as np
from numpy.typing import ArrayLike, NDArray

from rido.core import checks
from rido.simulators.envs.base import Array, DomainEnv, DomainVectorEnv, NoiseReading, deviation

START = 80.0
"""The first state is uniform on [-START, START]."""
NOISE = 0.1
"""Second parameter of the normal distributions of the controller's noise xi and of the system's noise eta."""


class LQGVectorEnv(DomainVectorEnv):
    """A batch of one-dimensional LQG systems.

    Observations and actions are float64 arrays of shape (num_envs, 1), both unbounded.

    Args:
        num_envs: number of sub-environments.
        noise: see :data:`rido.simulators.envs.base.NoiseReading`.
    """

    noise_size = 2

    def __init__(self, num_envs: int = 1, *, noise: NoiseReading = "variance") -> None:
        unbounded = gym.spaces.Box(-np.inf, np.inf, (1,), np.float64)
        super().__init__(num_envs, observation_space=unbounded, action_space=unbounded)
        self._deviation = deviation(NOISE, noise)

    def start(self, generator: np.random.Generator) -> Array:
        """Uniform on [-80, 80]."""
        return generator.uniform(-START, START, size=1)

    def transition(self, states: Array, actions: NDArray[np.float64], noise: Array) -> tuple[Array, Array]:
        """Adds the noisy action and the system's noise; the reward is quadratic in state and noisy action."""
        scaled = self._deviation * noise
        controls = actions + scaled[:, :1]
        rewards = states**2 + controls**2
        return states + controls + scaled[:, 1:], rewards[:, 0]


class LQGEnv(DomainEnv):
    """One LQG system; see :class:`LQGVectorEnv`."""

    vector_env = LQGVectorEnv


@dataclass(frozen=True)
class LinearPolicy:
    """The linear feedback a = -gain * s."""

    gain: float
    rowwise: ClassVar[bool] = True  # see rido.policies.base.resolve_policy

    @property
    def name(self) -> str:
        """Name in results."""
        return f"linear({self.gain:.6g})"

    def __call__(self, observations: Array) -> Array:
        """Returns the actions for a batch of states."""
        return -self.gain * observations


def riccati_gain(gamma: float) -> float:
    """Returns the gain K of the policy a = -K s with the least expected discounted cost over an infinite horizon.

    The cost-to-go P s^2 solves the Riccati equation P = 1 + gamma P - (gamma P)^2 / (1 + gamma P), and
    K = gamma P / (1 + gamma P). In one dimension P = 1 + K, which leaves gamma K^2 + K - gamma = 0.

    Example:
        >>> round(riccati_gain(1.0), 6)
        0.618034
    """
    gamma = checks.discount("gamma", gamma)
    return 2 * gamma / (math.sqrt(4 * gamma**2 + 1) + 1)


def value(
    states: ArrayLike, steps_to_go: int, gamma: float, *, gain: float | None = None, noise: NoiseReading = "variance"
) -> Array:
    """Returns the expected discounted sum of the next rewards under the linear policy, for each state.

    Args:
        states: states of any shape.
        steps_to_go: number of rewards in the sum.
        gamma: discount factor in (0, 1].
        gain: gain of the linear policy; the Riccati gain for ``gamma`` if None.
        noise: as in the environment.
    """
    steps_to_go = checks.integer("steps_to_go", steps_to_go, least=0)
    gain = riccati_gain(gamma) if gain is None else gain
    curvature, constant = _value_coefficients(steps_to_go, gamma, gain, deviation(NOISE, noise) ** 2)
    squares: Array = np.square(np.asarray(states, dtype=np.float64))
    values: Array = curvature[-1] * squares + constant[-1]
    return values


def expected_return(
    horizon: int, gamma: float, *, gain: float | None = None, noise: NoiseReading = "variance"
) -> float:
    """Returns the expected discounted return J of the linear policy; arguments as in :func:`value`."""
    horizon = checks.integer("horizon", horizon, least=1)
    root_mean_square = START / math.sqrt(3)  # V is quadratic without a linear term
    return float(value(root_mean_square, horizon, gamma, gain=gain, noise=noise))


def weights(horizon: int, gamma: float, *, gain: float | None = None, noise: NoiseReading = "variance") -> Array:
    """Returns the true weights f_t = gamma^2t Var(R_t) + 2 sum_{u>t} gamma^(t+u) Cov(R_t, R_u) of the linear policy.

    Given s_{t+1}, the discounted rewards after t have the mean V(s_{t+1}) = A s_{t+1}^2 + B, so the sum of
    covariances is gamma A Cov(R_t, s_{t+1}^2); both need the second and fourth moments of s_t only. Arguments as in
    :func:`value`.
    """
    horizon = checks.integer("horizon", horizon, least=1)
    gain = riccati_gain(gamma) if gain is None else gain
    variance = deviation(NOISE, noise) ** 2
    curvature, _ = _value_coefficients(horizon, gamma, gain, variance)
    contraction, quadratic = 1 - gain, 1 + gain**2
    second, fourth = START**2 / 3, START**4 / 5
    result = np.empty(horizon)
    for t in range(horizon):
        spread = fourth - second**2  # Var(s_t^2)
        # R_t = (1 + K^2) s^2 - 2 K s xi + xi^2 and s_{t+1}^2 = c^2 s^2 + 2 c s (xi + eta) + (xi + eta)^2
        own = quadratic**2 * spread + 4 * gain**2 * variance * second + 2 * variance**2
        shared = quadratic * contraction**2 * spread - 4 * gain * contraction * variance * second + 2 * variance**2
        result[t] = gamma ** (2 * t) * (own + 2 * gamma * curvature[horizon - t - 1] * shared)
        fourth = contraction**4 * fourth + 12 * contraction**2 * variance * second + 12 * variance**2
        second = contraction**2 * second + 2 * variance
    return result


def _value_coefficients(steps: int, gamma: float, gain: float, variance: float) -> tuple[Array, Array]:
    """Returns A_h and B_h of V(s) = A_h s^2 + B_h with h = 0, ..., steps rewards to go."""
    curvature, constant = np.zeros(steps + 1), np.zeros(steps + 1)
    for h in range(steps):
        curvature[h + 1] = 1 + gain**2 + gamma * (1 - gain) ** 2 * curvature[h]
        constant[h + 1] = variance + gamma * (2 * variance * curvature[h] + constant[h])
    return curvature, constant
