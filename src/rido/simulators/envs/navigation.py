"""The paper's two-dimensional continuous navigation: walk to a goal, noisy rewards only there."""

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from rido.core import checks
from rido.simulators.envs.base import Array, DomainEnv, DomainVectorEnv, NoiseReading, deviation

SIDE = 92.0
GOAL = 91.0
"""Both coordinates of the goal's centre; its radius is 1."""
STEP_NOISE = 0.1
REWARD_NOISE = 1.0


class NavigationVectorEnv(DomainVectorEnv):
    """A batch of walkers in the square [0, 92] x [0, 92], starting uniformly in [0, 5] x [0, 5].

    An action in [-1, 1]^2 (values outside are clipped) moves the walker by N(a, 0.1) in each coordinate, up to the
    border. The reward is N(1, 1) if the new position is within distance 1 of the goal (91, 91), and 0 elsewhere.
    Reaching the goal ends nothing.

    Args:
        num_envs: number of sub-environments.
        noise: see :data:`rido.simulators.envs.base.NoiseReading`.
    """

    noise_size = 3

    def __init__(self, num_envs: int = 1, *, noise: NoiseReading = "variance") -> None:
        square = gym.spaces.Box(0.0, SIDE, (2,), np.float64)
        moves = gym.spaces.Box(-1.0, 1.0, (2,), np.float64)
        super().__init__(num_envs, observation_space=square, action_space=moves)
        self._step_deviation = deviation(STEP_NOISE, noise)
        self._reward_deviation = deviation(REWARD_NOISE, noise)

    def start(self, generator: np.random.Generator) -> Array:
        """Uniform in the corner [0, 5] x [0, 5]."""
        return generator.uniform(0.0, 5.0, size=2)

    def transition(self, states: Array, actions: npt.NDArray[np.float64], noise: Array) -> tuple[Array, Array]:
        """Walks, stops at the border, pays at the goal."""
        steps = np.clip(actions, -1.0, 1.0) + self._step_deviation * noise[:, :2]
        moved = np.clip(states + steps, 0.0, SIDE)
        offsets = moved - GOAL
        at_goal = offsets[:, 0] ** 2 + offsets[:, 1] ** 2 <= 1.0
        return moved, np.where(at_goal, 1.0 + self._reward_deviation * noise[:, 2], 0.0)


class NavigationEnv(DomainEnv):
    """One walker; see :class:`NavigationVectorEnv`."""

    vector_env = NavigationVectorEnv


class Expert:
    """The paper's hand-coded policy: towards the goal's centre, at most 1 per coordinate and step."""

    name = "expert"
    rowwise = True  # see rido.policies.base.resolve_policy

    def __call__(self, observations: Array) -> Array:
        """Returns the actions for a batch of positions."""
        return np.clip(GOAL - checks.numbers("observations", observations), -1.0, 1.0)


expert = Expert()
