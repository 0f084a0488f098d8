"""The environments: each of another kind, with a horizon short enough for a table of many."""

from collections.abc import Callable
from dataclasses import dataclass

import gymnasium as gym
import numpy as np


@dataclass(frozen=True)
class Environment:
    """An environment and how it is evaluated.

    Attributes:
        kind: what is special about it, for the table.
        make: makes it, with a time limit of at least the horizon.
        horizon: steps of a trajectory.
    """

    kind: str
    make: Callable[[], gym.Env]
    horizon: int


class Reach(gym.Env):
    """Observations are dictionaries: move a point towards a goal on a plane."""

    observation_space = gym.spaces.Dict(
        position=gym.spaces.Box(-3, 3, (2,)), goal=gym.spaces.Box(-1, 1, (2,)), wind=gym.spaces.Discrete(3)
    )
    action_space = gym.spaces.Box(-1, 1, (2,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._position, self._goal = self.np_random.uniform(-1, 1, (2, 2)).astype(np.float32)
        self._wind = int(self.np_random.integers(3))
        return self._observation(), {}

    def step(self, action):
        drift = self.np_random.normal(0.1 * (self._wind - 1), 0.05, 2)
        self._position = np.clip(self._position + 0.3 * np.clip(action, -1, 1) + drift, -3, 3).astype(np.float32)
        reward = -float(np.abs(self._position - self._goal).sum())
        return self._observation(), reward, False, False, {}

    def _observation(self):
        return {"position": self._position.copy(), "goal": self._goal.copy(), "wind": np.int64(self._wind)}


class Levers(gym.Env):
    """Actions are several choices at once: two levers, each of which should follow a dial that drifts."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.MultiDiscrete([3, 4])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._dials = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self._dials.copy(), {}

    def step(self, action):
        targets = np.floor((self._dials + 1) / 2 * [3, 4]).clip(0, [2, 3])
        reward = float((targets == np.asarray(action)).sum())
        self._dials = np.clip(self._dials + self.np_random.normal(0, 0.3, 2), -1, 1).astype(np.float32)
        return self._dials.copy(), reward, bool(self.np_random.random() < 0.03), False, {}


def _phoenix(**settings):
    import ale_py

    gym.register_envs(ale_py)
    return gym.make("ALE/Phoenix-v5", **settings)


def _phoenix_pixels():
    env = gym.wrappers.AtariPreprocessing(_phoenix(frameskip=1), noop_max=0, screen_size=84)
    return gym.wrappers.FrameStackObservation(env, 4)


def _phoenix_memory():
    return _phoenix(obs_type="ram")


def _minigrid():
    import minigrid  # noqa: F401

    return gym.make("MiniGrid-Empty-Random-6x6-v0")


def _minigrid_flat():
    import minigrid.wrappers

    return minigrid.wrappers.FlatObsWrapper(_minigrid())


ENVIRONMENTS = {
    "CartPole-v1": Environment("classic, discrete", lambda: gym.make("CartPole-v1"), 120),
    "Pendulum-v1": Environment("classic, continuous", lambda: gym.make("Pendulum-v1"), 30),
    "FrozenLake-v1": Environment("toy text, discrete observations", lambda: gym.make("FrozenLake-v1"), 40),
    "HalfCheetah-v5": Environment("MuJoCo, continuous", lambda: gym.make("HalfCheetah-v5"), 30),
    "Hopper-v5": Environment("MuJoCo, continuous, early ends", lambda: gym.make("Hopper-v5"), 60),
    "ALE/Phoenix-v5, memory": Environment("Atari, bytes of memory", _phoenix_memory, 40),
    "ALE/Phoenix-v5, pixels": Environment("Atari, stacked frames", _phoenix_pixels, 25),
    "MiniGrid-Empty-Random-6x6": Environment("Minigrid, dictionary with text", _minigrid, 60),
    "MiniGrid-Empty-Random-6x6, flat": Environment("Minigrid, FlatObsWrapper", _minigrid_flat, 60),
    "Reach": Environment("dictionary observations, continuous", Reach, 20),
    "Levers": Environment("multi-discrete actions", Levers, 30),
}
