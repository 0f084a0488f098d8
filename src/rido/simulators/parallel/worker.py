"""The worker's side of a pool: the simulator that it runs, and the events with which it answers."""

import os
import socket
import traceback
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, NoReturn

import cloudpickle  # type: ignore[import-untyped]
import numpy as np
from numpy.typing import NDArray

from rido.simulators.base import Capabilities, Found, Request, SimulationError
from rido.simulators.gymnasium import GymnasiumSimulator
from rido.simulators.parallel import sources
from rido.simulators.parallel.serialization import deserialize, packages_in
from rido.simulators.protocol import Position
from rido.simulators.rehearsal import Rehearsal


@dataclass(frozen=True)
class Ready:
    """Event: a worker has made its environments and loaded its policies; sources are digests of its modules."""

    pid: int
    num_envs: int
    observation_space: Any
    capabilities: Capabilities
    sources: dict[str, str] | None = None
    host: str = ""


@dataclass(frozen=True)
class Done:
    """Event: a chunk is finished; what was found is the simulator's."""

    number: int
    value: Any
    found: Found


@dataclass(frozen=True)
class Raised:
    """Event: an exception in a chunk, or while a worker got ready (number None). It is not tried again.

    The exception is sent as cloudpickle writes it, because its class may be one that no other process can import.
    """

    number: int | None
    content: bytes
    trace: str

    @staticmethod
    def catch(number: int | None, error: BaseException) -> "Raised":
        """Returns the event for the exception being handled, in a form that can be sent."""
        try:
            content = cloudpickle.dumps(error)
            cloudpickle.loads(content)
        except Exception:
            content = cloudpickle.dumps(RuntimeError(repr(error)))
        return Raised(number, content, traceback.format_exc())

    def throw(self, rows: NDArray[np.intp] | None = None) -> NoReturn:
        """Raises the exception in this process, with the worker's traceback as its cause."""
        error: BaseException = cloudpickle.loads(self.content)
        if isinstance(error, SimulationError) and rows is not None:
            error = error.at(int(rows[error.trajectory]))
        raise error from _RemoteTraceback(self.trace)


@dataclass(frozen=True)
class Gone:
    """Event: a worker has died or cannot be reached."""

    reason: str


Event = Ready | Done | Raised | Position | Gone
"""A position is where a worker is in its chunk."""


class _RemoteTraceback(Exception):
    def __str__(self) -> str:
        return f'in a worker:\n"""\n{self.args[0]}"""'


class RemoteSimulator:
    """The simulator in a worker. Its methods return events and never raise, because answers are sent."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._simulator: GymnasiumSimulator | None = None

    def open(self) -> Event:
        """Makes the environments and loads the policy."""
        try:
            simulator = deserialize(self._content)
        except BaseException as error:  # sys.exit() must not end the worker, which would be tried again
            return Raised.catch(None, error)
        said = ("name", "reproducible", "normalisation", "warnings")
        policies = {
            name: SimpleNamespace(**{each: getattr(one, each) for each in said})
            for name, one in simulator.policies.items()
        }
        self._simulator = simulator
        unsent = dict(load_policy=Capabilities.load_policy, remembers=Capabilities.remembers, limits=False)
        able = replace(simulator.capabilities, policies=policies, **unsent)  # type: ignore[arg-type]
        digests = sources.digests(packages_in(self._content))
        return Ready(os.getpid(), simulator.num_envs, simulator.observation_space, able, digests, socket.gethostname())

    def run(self, number: int, method: str, request: Request, rehearsed: Rehearsal | None) -> Event:
        """Runs a chunk: a method of the simulator, as a rehearsal in one of the workers demands."""
        assert self._simulator is not None
        try:
            if rehearsed is not None:
                self._simulator.follow(rehearsed, request)
            value = getattr(self._simulator, method)(request)
            return Done(number, value, self._simulator.found)
        except BaseException as error:
            return Raised.catch(number, error)

    def heartbeat(self) -> Event:
        """Reports progress; may be called from another thread during :meth:`run`."""
        assert self._simulator is not None
        return self._simulator.position()
