"""A worker's side of a crew: the simulator that it runs, and the events by which it answers."""

from __future__ import annotations

import os
import pickle
import traceback
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from rido.policies.base import Generators, Policy
from rido.simulators.base import SimulationError
from rido.simulators.parallel.serialization import unpack


@dataclass(frozen=True)
class PolicyCard:
    """What is known of a policy that acts in other processes; see :class:`rido.policies.base.Policy`."""

    name: str
    reproducible: bool


@dataclass(frozen=True)
class Ready:
    """A worker has made its environments and loaded its policy."""

    pid: int
    num_envs: int
    observation_space: Any
    policy: PolicyCard


@dataclass(frozen=True)
class Done:
    """A chunk is finished."""

    number: int
    value: Any


@dataclass(frozen=True)
class Raised:
    """An exception in a chunk, or while a worker got ready (number -1); such things are not tried again."""

    number: int
    error: Exception | None
    place: tuple[int, int, int, str] | None
    trace: str

    @staticmethod
    def catch(number: int, error: Exception) -> Raised:
        """Makes something of an exception that can be sent."""
        trace = traceback.format_exc()
        if isinstance(error, SimulationError):
            return Raised(number, None, (error.trajectory, error.step, error.seed, error.reason), trace)
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            error = RuntimeError(repr(error))
        return Raised(number, error, None, trace)

    def throw(self, rows: NDArray[np.intp] | None = None) -> NoReturn:
        """Raises the exception here, with the trace that it had there as its cause."""
        cause = _RemoteTrace(self.trace)
        if self.place is not None and rows is not None:
            trajectory, step, seed, reason = self.place
            raise SimulationError(int(rows[trajectory]), step, seed, reason) from cause
        raise (self.error or RuntimeError(str(self.place))) from cause


@dataclass(frozen=True)
class Beat:
    """A sign of life: how often the policy was called so far."""

    calls: int


@dataclass(frozen=True)
class Gone:
    """A worker is no more."""

    reason: str


Event = Ready | Done | Raised | Beat | Gone


class _RemoteTrace(Exception):
    def __str__(self) -> str:
        return f'in a worker:\n"""\n{self.args[0]}"""'


class Host:
    """A worker's side: the simulator, and what it answers. It never raises, because answers travel."""

    def __init__(self, recipe: bytes) -> None:
        self._recipe = recipe
        self._calls = 0

    def open(self) -> Event:
        """Makes the simulator."""
        try:
            self._simulator: Any = unpack(self._recipe)
        except Exception as error:
            return Raised.catch(-1, error)
        policy = self._simulator.policy
        self._simulator.policy = _Counted(policy, self)
        card = PolicyCard(policy.name, policy.reproducible)
        return Ready(os.getpid(), self._simulator.num_envs, self._simulator.observation_space, card)

    def run(self, number: int, method: str, arguments: tuple[Any, ...]) -> Event:
        """Runs a chunk."""
        try:
            return Done(number, getattr(self._simulator, method)(*arguments))
        except Exception as error:
            return Raised.catch(number, error)

    def beat(self) -> Event:
        """Tells how far the simulator is; may be called from another thread while it runs."""
        return Beat(self._calls)

    def count(self) -> None:
        """Notes a call of the policy."""
        self._calls += 1


class _Counted(Policy):
    """A policy whose calls are counted: as long as their number grows, the worker is not stuck."""

    def __init__(self, policy: Policy, host: Host) -> None:
        self.name, self.reproducible = policy.name, policy.reproducible
        self.draws = policy.draws
        self._policy = policy
        self._host = host

    def __call__(self, observations: Any, generators: Generators) -> NDArray[Any]:
        self._host.count()
        return self._policy(observations, generators)
