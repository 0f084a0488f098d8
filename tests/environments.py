"""Small environments with known answers, for tests of simulators and evaluation."""

import time

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rido.evaluation.budgets import Clock
from rido.policies.base import Policy, ValueFunction


class Mortal(gym.Env):
    """Reward t + 1 at step t; ends after each step with a given probability. Counts what is done to it."""

    def __init__(self, death=0.1, seconds=0.0):
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,))
        self.action_space = spaces.Discrete(2)
        self.death, self.seconds = death, seconds
        self.log = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        self.start = self.np_random.normal()
        self.log.append(0)
        return np.array([self.t, self.start], dtype=np.float32), {}

    def step(self, action):
        self.t += 1
        self.log[-1] += 1
        if self.seconds:
            time.sleep(self.seconds)
        ended = bool(self.np_random.random() < self.death)
        return np.array([self.t, self.start], dtype=np.float32), float(self.t + self.start), ended, False, {}

    @staticmethod
    def expected_return(horizon, gamma, death):
        t = np.arange(horizon)
        return float(np.sum((gamma * (1 - death)) ** t * (t + 1)))


class Interrupted(Mortal):
    """As Mortal, but what ends it is a truncation."""

    def step(self, action):
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, False, terminated, info


class SlowSeeding(Mortal):
    """A reset with a seed takes 20 ms longer than one without. Counts those of this process."""

    seeded = 0

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            SlowSeeding.seeded += 1
            time.sleep(0.02)
        return super().reset(seed=seed)


class Greedy(Mortal):
    """A reset draws 101 numbers, more than a point has; an action 1 is paid for with the sum of all but the first."""

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        self.sum = self.np_random.normal(size=100).sum()
        return observation + np.float32(self.sum), info

    def step(self, action):
        observation, reward, *ends = super().step(action)
        return observation, reward + action * self.sum, *ends


class Counted(Mortal):
    """Counts the steps of all environments of this process, for tests of budgets; set ``taken`` to 0 first."""

    taken = 0

    def step(self, action):
        Counted.taken += 1
        return super().step(action)


def count_seconds(monkeypatch):
    """Makes time a matter of transitions: each of those that are counted takes 0.1 ms, and nothing else takes any."""
    Counted.taken = 0
    for name in ("perf_counter", "monotonic"):
        monkeypatch.setattr(time, name, now := lambda: 1e-4 * Counted.taken)
    monkeypatch.setitem(Clock.__init__.__kwdefaults__, "now", now)


class Leaving(BaseException):
    """Neither an Exception nor an exit."""


class Leaves(Mortal):
    """Raises something unusual in its third step."""

    def step(self, action):
        if self.t == 2:
            raise Leaving("for good")
        return super().step(action)


class ShortIsSweet(gym.Env):
    """Half of the episodes last 1 step and return 10, the others 50 steps and return 0: the mean is 5."""

    observation_space = spaces.Box(-1, 1, (1,))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.short = 0, self.np_random.random() < 0.5
        return np.zeros(1, dtype=np.float32), {}

    def step(self, action):
        self.t += 1
        return np.zeros(1, dtype=np.float32), 10.0 * self.short, bool(self.short or self.t == 50), False, {}


class Faulty(Mortal):
    """Goes wrong at step 3 of every trajectory whose start is above 1."""

    def __init__(self, fault):
        super().__init__(death=0.0)
        self.fault = fault

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        if self.t == 4 and self.start > 1:
            if self.fault == "raise":
                raise RuntimeError("the robot fell over")
            if self.fault == "truncate":
                truncated = True
            else:
                reward = float(self.fault)
        return observation, reward, terminated, truncated, info


class Costly(Mortal):
    """As Mortal, with a cost in info: twice the start, squared, and a success where it lives to step 5."""

    def step(self, action):
        observation, reward, terminated, truncated, _ = super().step(action)
        info = {"cost": 4 * self.start**2, "is_success": float(self.t >= 5), "name": "Costly"}
        return observation, reward, terminated, truncated, info

    @staticmethod
    def expected_cost(horizon, gamma, death):
        return 4 * float(np.sum((gamma * (1 - death)) ** np.arange(horizon)))


class TwoRewards(Costly):
    """As Costly, with a vector reward, as in MO-Gymnasium: the reward and the cost."""

    reward_space = spaces.Box(-np.inf, np.inf, (2,))

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, np.array([reward, info.pop("cost")], dtype=np.float32), terminated, truncated, info


def of_transition(observation, action, reward, following, info):
    """Components of a transition of Mortal."""
    return {"later": following[0], "twice": 2 * reward, "action": action, "before": observation[0]}


class Urn(gym.Env):
    """The reward is the start, plus ten times the action, plus a little noise; the start is drawn around 3."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.start = self.np_random.normal(3.0, 1.0)
        return np.array([self.start]), {}

    def step(self, action):
        reward = self.start + 10 * action + self.np_random.normal(0.0, 0.1)
        return np.array([self.start]), reward, False, False, {}


class Drawing(Policy):
    """Draws each of the three actions with equal probability. Its Q is wrong by a factor and an offset."""

    name = "drawing"

    def __init__(self, *, tells=True):
        self.tells = tells

    def __call__(self, observations, generators):
        return np.array([generator.integers(3) for generator in generators])

    def value_function(self):
        def advantages(observations, actions, generator):
            other = generator.integers(3, size=(4, len(actions))).mean(axis=0)
            return 20.0 * (actions - other)

        given = advantages if self.tells else None
        return ValueFunction(lambda observations: np.asarray(observations)[:, 0] + 5.0, 0.8, True, given)
