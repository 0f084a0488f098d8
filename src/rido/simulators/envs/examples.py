"""The paper's two extreme examples: all reward in the first step, or all of it in the last.

The state is the time step, an action is 0 or 1. In the one step that pays, the reward is N(3, 10) for action
0 and N(2, 10) for action 1; every other step pays 0. Under the uniform random policy the expected return is 2.5
for FirstStep and 2.5 gamma^(horizon - 1) for LastStep, and the only weight that is not 0 is that step's,
gamma^2t (10 + 1/4) with the noise read as a variance.
"""

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from rido.core import checks
from rido.simulators.envs.base import Array, DomainEnv, DomainVectorEnv, NoiseReading, deviation

MEANS = np.array([3.0, 2.0])
"""Mean reward of each action in the step that pays."""
NOISE = 10.0


class _OneStepVectorEnv(DomainVectorEnv):
    """A batch of one of the examples.

    Args:
        num_envs: number of sub-environments.
        horizon: number of steps. Nothing ends there: later steps pay 0.
        noise: see :data:`rido.simulators.envs.base.NoiseReading`.
    """

    noise_size = 1
    pays_last: ClassVar[bool]

    @checks.checked()
    def __init__(self, num_envs: int = 1, *, horizon: int = 10, noise: NoiseReading = "variance") -> None:
        observation_space = gym.spaces.Box(0.0, np.inf, (1,), np.float64)
        super().__init__(num_envs, observation_space=observation_space, action_space=gym.spaces.Discrete(2))
        last = horizon - 1
        self._paying_step = last if self.pays_last else 0
        self._deviation = deviation(NOISE, noise)

    def start(self, generator: np.random.Generator) -> Array:
        """Time step 0."""
        return np.zeros(1)

    def transition(self, states: Array, actions: npt.NDArray[Any], noise: Array) -> tuple[Array, Array]:
        """Counts the steps; pays in one of them."""
        pays = states[:, 0] == self._paying_step
        return states + 1.0, np.where(pays, MEANS[actions] + self._deviation * noise[:, 0], 0.0)


class FirstStepVectorEnv(_OneStepVectorEnv):
    """Example 2 of the paper: only the first step pays, so every later transition is wasted."""

    pays_last = False


class LastStepVectorEnv(_OneStepVectorEnv):
    """Example 1 of the paper: only the last step pays, so every trajectory that is cut short is wasted."""

    pays_last = True


class FirstStepEnv(DomainEnv):
    """One trajectory of Example 2."""

    vector_env = FirstStepVectorEnv


class LastStepEnv(DomainEnv):
    """One trajectory of Example 1."""

    vector_env = LastStepVectorEnv
