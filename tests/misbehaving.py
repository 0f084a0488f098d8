"""Environments, policies and critics that misbehave, each in one way, with what should come of it."""

import ctypes
import os
import sys
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from environments import Mortal
from traps import FATES, zeros

SHAPE = r"the environment's step returned an observation of .*, but observation_space has shape \(2,\)"
STEP = r"the environment's step returned .*, Gymnasium's returns \(observation, reward, terminated, truncated, info\)"
RESET = r"the environment's reset returned .*, Gymnasium's takes seed= and options= and returns \(observation, info\)"
LOST = r"were lost with their worker \d+ times, more than max_failures=\d+: worker \d .*"
HUNG = r"did not return within [\d.]+ seconds \(timeout\), also when it was run again"


class Unpicklable(Exception):
    def __init__(self, a, b):
        super().__init__("two\nlines")


def _raise(error):
    raise error


def _leak():
    """Grows by a page and a thread with every call."""
    LEAKED.append(np.ones(1024))
    if len(LEAKED) < 20:
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()


LEAKED: list[Any] = []
BUFFER = np.zeros(2, dtype=np.float32)  # one for all environments of a process

# What happens in place of a step, or before it.
ACTIONS = {
    "hang": lambda: time.sleep(1000),
    "hang with the lock": lambda: ctypes.PyDLL(None).sleep(1000),
    "segfault": FATES["crashed"],
    "kill": FATES["killed"],
    "os._exit": FATES["exited"],
    "sys.exit(0)": lambda: sys.exit(0),
    "sys.exit(text)": lambda: sys.exit("bye"),
    "raise": lambda: _raise(RuntimeError("the robot fell over")),
    "raise KeyError": lambda: _raise(KeyError("weights")),
    "raise StopIteration": lambda: _raise(StopIteration()),
    "raise AssertionError": lambda: _raise(AssertionError()),
    "raise unpicklable": lambda: _raise(Unpicklable(1, 2)),
    "raise MemoryError": lambda: _raise(MemoryError()),
    "raise RecursionError": lambda: _raise(RecursionError("too deep")),
    "print": lambda: print("noise " * 20),
    "print to the descriptor": lambda: os.write(1, b"raw noise\n"),
    "leak": _leak,
    "change the folder": lambda: os.chdir("/"),
}
# What a step returns instead of its (observation, reward, terminated, truncated, info).
RESULTS = {
    "4 values": lambda o, r, e, t, i: (o, r, e, i),
    "6 values": lambda o, r, e, t, i: (o, r, e, t, i, i),
    "None": lambda *_: None,
    "a number": lambda *_: 1.0,
    "longer observation": lambda o, *rest: (np.append(o, o[:1]), *rest),
    "shorter observation": lambda o, *rest: (o[:1], *rest),
    "observation with an axis more": lambda o, *rest: (o[None], *rest),
    "scalar observation": lambda o, *rest: (o[0], *rest),
    "no observation": lambda o, *rest: (None, *rest),
    "text observation": lambda o, *rest: ("here", *rest),
    "dictionary observation": lambda o, *rest: ({"position": o}, *rest),
    "list observation": lambda o, *rest: (o.tolist(), *rest),
    "float64 observation": lambda o, *rest: (o.astype(np.float64), *rest),
    "nan reward": lambda o, r, *rest: (o, np.nan, *rest),
    "inf reward": lambda o, r, *rest: (o, -np.inf, *rest),
    "no reward": lambda o, r, *rest: (o, None, *rest),
    "text reward": lambda o, r, *rest: (o, "much", *rest),
    "vector reward": lambda o, r, *rest: (o, np.array([r, r]), *rest),
    "complex reward": lambda o, r, *rest: (o, complex(r, 1.0), *rest),
    "numpy reward": lambda o, r, *rest: (o, np.float64(r), *rest),
    "numpy flags": lambda o, r, e, t, i: (o, r, np.bool_(e), np.bool_(t), i),
    "no info": lambda o, r, e, t, i: (o, r, e, t, None),
    "time limit": lambda o, r, e, t, i: (o, r, e, True, i),
}


class Misbehaving(Mortal):
    """As Mortal, but at one step of each trajectory whose start is above a threshold something happens."""

    def __init__(self, action=None, result=None, step=3, threshold=1.0):
        super().__init__(death=0.0)
        self.action, self.result, self.when, self.threshold = action, result, step, threshold

    def step(self, action):
        now = self.t == self.when and self.start > self.threshold
        if now and self.action is not None:
            ACTIONS[self.action]()
        result = super().step(action)
        return RESULTS[self.result](*result) if now and self.result is not None else result


class BadReset(Mortal):
    def __init__(self, how):
        super().__init__(death=0.0)
        self.how = how

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        if self.how in ACTIONS:
            ACTIONS[self.how]()
        return {
            "observation alone": observation,
            "three values": (observation, info, info),
            "None": None,
            "no observation": (None, info),
            "longer observation": (np.append(observation, observation), info),
        }.get(self.how, (observation, info))


class OldReset(Mortal):
    def reset(self):
        return super().reset()[0]


class Registered4(Misbehaving):
    """For Gymnasium's own wrappers, which unpack what it returns."""

    def __init__(self):
        super().__init__(result="4 values")


class SharedBuffer(Mortal):
    """All environments of a process return the same array, and go on to write into it."""

    def __init__(self):
        super().__init__(death=0.0)

    def reset(self, *, seed=None, options=None):
        BUFFER[:] = super().reset(seed=seed)[0]
        return BUFFER, {}

    def step(self, action):
        observation, reward, *rest = super().step(action)
        BUFFER[:] = observation
        return BUFFER, reward + float(action), *rest


class OwnBuffer(SharedBuffer):
    """As it should be: a new array each time."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0].copy(), {}

    def step(self, action):
        observation, *rest = super().step(action)
        return observation.copy(), *rest


class Unseeded(Mortal):
    """Ignores its seed, in the start or in every step."""

    def __init__(self, where="start", source="own"):
        super().__init__(death=0.0)
        own = np.random.default_rng(time.perf_counter_ns()).normal  # another one in each environment and process
        self.where, self.draw = where, np.random.normal if source == "numpy" else own

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        return observation + np.float32(self.draw() if self.where == "start" else 0.0), info

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, reward + (self.draw() if self.where == "step" else 0.0), *rest


class BadMaker:
    """A function that makes no environment."""

    def __init__(self, action):
        self.action = action

    def __call__(self):
        return ACTIONS[self.action]()


class BadClose(Misbehaving):
    def close(self):
        raise OSError("already closed")


class DictionaryEnv(Mortal):
    """Loses a part of its observation, or not."""

    def __init__(self, loses=True):
        super().__init__(death=0.0)
        self.loses = loses
        self.observation_space = spaces.Dict(clock=spaces.Box(0, 99, (1,)), start=spaces.Box(-9, 9, (1,)))

    def _split(self, observation):
        parts = {"clock": observation[:1], "start": observation[1:]}
        return {"clock": parts["clock"]} if self.loses and self.t == 3 else parts

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        return self._split(observation), info

    def step(self, action):
        observation, *rest = super().step(action)
        return self._split(observation), *rest


gym.register("Misbehaving4-v0", entry_point=Registered4, max_episode_steps=100)
gym.register("MisbehavingReset-v0", entry_point=OldReset, max_episode_steps=100)


@dataclass
class BadPolicy:
    """Does something in a call in which an observation shows the time step 3."""

    action: str | None = None
    result: str | None = None
    calls: int = 0
    own: Any = field(default_factory=partial(np.random.default_rng, 0))
    fingerprint = "bad policy"  # its content changes while it acts

    def __call__(self, observations):
        clock = observations["clock"] if isinstance(observations, dict) else observations
        actions, rows = np.zeros(len(clock), dtype=int), len(clock)
        self.calls += 1
        if self.action is not None and (clock[:, 0] == 3).any():
            ACTIONS[self.action]()
        return {
            "wrong shape": np.zeros((rows, 3)),
            "tuple": (actions, None),
            "None": None,
            "list": actions.tolist(),
            "too many": np.zeros(rows + 1, dtype=int),
            "global": np.random.randint(0, 2, rows) if self.result == "global" else None,  # noqa: NPY002
            "own": self.own.integers(0, 2, rows),
            "stateful": actions + self.calls % 2,
        }.get(self.result, actions)


def by_observation(observations):
    """Acts on what it sees, so that mixed-up observations show in the rewards."""
    return (observations[:, 1] > 0).astype(int)


def writes_into_observations(observations):
    actions = by_observation(observations)
    observations[:] = -1.0
    return actions


writes_into_observations_of_all_rows = partial(writes_into_observations)
writes_into_observations_of_all_rows.rowwise = True


def critic(observations, steps_to_go):
    return steps_to_go * (observations[:, 0] + 1.0)


@dataclass
class BadCritic:
    how: str

    def __call__(self, observations, steps_to_go):
        values = critic(observations, steps_to_go)
        if self.how in ACTIONS:
            ACTIONS[self.how]()
        if self.how == "writes":
            observations[:] = 0.0
            steps_to_go[:] = 1
        return {"short": values[:-1], "nan": values * np.nan, "None": None, "text": "low", "wide": values[:, None]}.get(
            self.how, values
        )


@dataclass
class Case:
    """One way to misbehave.

    Attributes:
        expected: what the error must match; None where the result must be that of ``same_as``, or of anyone if that is
            None too and the result says that it is not reproducible.
    """

    env: Any
    policy: Any = zeros
    expected: str | None = None
    same_as: Any = None
    critic: Any = None
    fatal: bool = False  # to its process, so it needs a worker
    hangs: bool = False


def plain():
    return Mortal(death=0.0)


def cases(step=3, threshold=1.0):
    """All of them; fatal ones happen in trajectories whose start is above the threshold, at this step."""
    bad = partial(Misbehaving, step=step, threshold=threshold)
    fatal = {"hang", "hang with the lock", "segfault", "kill", "os._exit"}
    harmless = {"print", "print to the descriptor", "leak", "change the folder"}
    found = {}
    for name in ACTIONS:
        hangs = name.startswith("hang")
        if name in harmless:
            env = policy = None
        elif name == "hang with the lock":
            env = policy = r"took no step within [\d.]+ seconds \(timeout\), also when it was run again"
        elif hangs:
            env, policy = rf"the environment's step {HUNG}", rf"the policy {HUNG}"
        elif name in fatal:
            env = policy = LOST
        else:
            env, policy = r"the environment's step raised ", r"the policy raised "
        marks = dict(fatal=name in fatal, hangs=hangs)
        found[f"step: {name}"] = Case(partial(bad, name), zeros, env, plain, **marks)
        found[f"policy: {name}"] = Case(plain, BadPolicy(name), policy, (plain, zeros), **marks)
        if name not in fatal:
            wanted = None if env is None else r"critic must return values of observations, but it raised "
            found[f"critic: {name}"] = Case(plain, zeros, wanted, plain, BadCritic(name))
        if name not in fatal | harmless:
            made = r"env must make a gymnasium.Env when it is called, but it raised "
            found[f"make: {name}"] = Case(BadMaker(name), zeros, made)
            found[f"reset: {name}"] = Case(partial(BadReset, name), zeros, r"the environment's reset raised ")
    found["reset: hang"] = Case(
        partial(BadReset, "hang"), zeros, rf"the environment's reset {HUNG}", fatal=True, hangs=True
    )
    for name in RESULTS:
        wanted = {
            "no reward": r"the reward is nan",
            "nan reward": r"the reward is nan",
            "inf reward": r"the reward is -inf",
            "time limit": r"the environment's time limit cut it before its planned length of \d+ steps",
        }.get(name)
        if name in ("4 values", "6 values", "None", "a number"):
            wanted = STEP
        elif name in ("text reward", "vector reward", "complex reward"):
            wanted = r"the environment's step raised (ValueError|TypeError)"
        elif (name.endswith("observation") and not name.startswith(("list", "float64"))) or "axis" in name:
            wanted = SHAPE
        found[f"result: {name}"] = Case(partial(bad, None, name), zeros, wanted, plain)
    for how in ("observation alone", "three values", "None"):
        found[f"reset: {how}"] = Case(partial(BadReset, how), zeros, RESET)
    for how in ("no observation", "longer observation"):
        found[f"reset: {how}"] = Case(partial(BadReset, how), zeros, SHAPE.replace("step", "reset"))
    found |= {
        "old reset": Case(OldReset, zeros, r"the environment's reset takes no seed, Gymnasium's takes seed="),
        "old reset by id": Case("MisbehavingReset-v0", zeros, r"the environment's reset takes no seed"),
        "old step by id": Case("Misbehaving4-v0", zeros, STEP),
        "missing key": Case(
            DictionaryEnv, BadPolicy(), r"returned the observation \['clock'\], but .* \['clock', 'start'\]"
        ),
        "all keys": Case(partial(DictionaryEnv, False), BadPolicy(), None, (plain, zeros)),
        "shared buffer": Case(SharedBuffer, by_observation, None, (OwnBuffer, by_observation)),
        "shared buffer, critic": Case(SharedBuffer, by_observation, None, (OwnBuffer, by_observation), critic),
        "policy writes": Case(OwnBuffer, writes_into_observations, None, (OwnBuffer, by_observation)),
        "policy writes, critic": Case(
            OwnBuffer, writes_into_observations_of_all_rows, None, (OwnBuffer, by_observation), critic
        ),
        "close raises": Case(BadClose, zeros, None, plain),
        "unseeded start": Case(Unseeded, zeros),
        "unseeded start, numpy": Case(partial(Unseeded, "start", "numpy"), zeros),
        "unseeded step, numpy": Case(partial(Unseeded, "step", "numpy"), zeros),
        "global policy": Case(plain, BadPolicy(result="global")),
        "own policy": Case(plain, BadPolicy(result="own")),
        "stateful policy": Case(plain, BadPolicy(result="stateful")),
        "policy: wrong shape": Case(plain, BadPolicy(result="wrong shape"), "policy must return actions of shape"),
        "policy: tuple": Case(plain, BadPolicy(result="tuple"), "policy must return an array of actions, got a tuple"),
        "policy: None": Case(plain, BadPolicy(result="None"), "policy must return actions of shape"),
        "policy: too many": Case(plain, BadPolicy(result="too many"), "policy must return actions of shape"),
        "policy: list": Case(plain, BadPolicy(result="list"), None, (plain, zeros)),
        "critic: short": Case(
            plain, zeros, r"critic must return \d+ values, one per observation", None, BadCritic("short")
        ),
        "critic: nan": Case(plain, zeros, "values of the critic must be finite, got nan", None, BadCritic("nan")),
        "critic: None": Case(plain, zeros, r"critic must return \d+ values", None, BadCritic("None")),
        "critic: text": Case(plain, zeros, "critic must return values of observations", None, BadCritic("text")),
        "critic: wide": Case(plain, zeros, None, plain, BadCritic("wide")),
        "critic: writes": Case(plain, zeros, None, plain, BadCritic("writes")),
    }
    return found
