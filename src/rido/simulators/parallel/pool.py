"""A simulator whose trajectories are run by a pool of workers, which may die.

A request is cut into chunks, the longest trajectories first. A worker gets its next chunk before it has finished the
present one, and runs whole trajectories: nothing is sent for a single step. A worker that dies or gets stuck is
replaced, and its chunks are run again. Every trajectory depends on its own seed alone, so results stay the same.
"""

import time
from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Required, Self

import numpy as np
from numpy.typing import NDArray

from rido.core import checks
from rido.simulators.base import Batch, Capabilities, Found, Request, SimulationError, Simulator, close
from rido.simulators.gymnasium import GymnasiumSimulator
from rido.simulators.options import SimulatorOptions
from rido.simulators.parallel import sources
from rido.simulators.parallel.serialization import deserialize, packages_in, serialize
from rido.simulators.parallel.worker import Done, Event, Gone, Raised, Ready
from rido.simulators.protocol import Position
from rido.simulators.rehearsal import WORKERS_COPY, WORKERS_REMEMBER, Rehearsal
from rido.simulators.requests import checked, join, part_of, split

_CHUNKS_PER_WORKER = 2  # one that runs and one that waits, so that a worker is never idle
_LEAST_START_SECONDS = 60.0  # importing torch from a cold disk takes that long


class WorkerError(ChildProcessError):
    """Trajectories whose workers were lost too often."""


class PoolSettings(SimulatorOptions, total=False):
    """Arguments of every pool; see :class:`PoolSimulator`."""

    horizon: Required[int]
    gamma: float
    components: Any
    timeout: float
    max_failures: int


@dataclass(eq=False)
class Chunk:
    """Rows of a request that one worker runs."""

    number: int  # never used again, so that late answers to an earlier request are recognised
    rows: NDArray[np.intp]
    call: tuple[str, Request, Rehearsal | None]  # arguments of RemoteSimulator.run
    failures: list[str] = field(default_factory=list)  # why it was lost with a worker, each time
    hung_at: list[tuple[int, int] | None] = field(default_factory=list)  # trajectory and step; None if not known
    slot: int | None = None  # the worker that has it, or had it last
    avoid: int | None = None  # a worker that must not run it


@dataclass(eq=False)
class _WorkerState:
    last_progress: float  # on the monotonic clock, in seconds
    ready: bool = False
    pid: int = 0
    chunks: deque[Chunk] = field(default_factory=deque)
    position: Position | None = None  # in its first chunk, by the last heartbeat
    asked: bool = False  # for a heartbeat that has not come yet


class PoolSimulator(Simulator):
    """A simulator whose trajectories are run by workers, which subclasses start and talk to.

    Args:
        env: an id, or a function that makes an environment.
        policy: as in :class:`GymnasiumSimulator`; functions, models and an agent's files are sent to the workers.
        horizon: as in :class:`GymnasiumSimulator`.
        timeout: seconds without a single step or reset after which a worker counts as stuck and is replaced. A
            trajectory that gets stuck at the same step again is an error.
        max_failures: how often the same trajectories may be lost with a worker; once more is an error.
        **settings: as in :class:`GymnasiumSimulator`; ``num_envs`` are those in each worker.

    Attributes:
        num_envs: environments side by side, in all workers together.
        failures: number of workers lost so far.
    """

    @checks.checked(timeout=checks.positive)
    def __init__(
        self, env: Any, policy: Any, *, horizon: int, timeout: float = 300.0, max_failures: int = 3, **settings: Any
    ) -> None:
        self._content = serialize(env, policy, {"horizon": horizon, **settings})
        self._horizon = horizon
        self._timeout = timeout
        self._packages = packages_in(self._content)
        self._sources: dict[str, str] = {}  # of this process's modules, as they were when a worker was asked first
        self._max_failures = checks.integer("max_failures", max_failures, least=0)
        self._start_seconds = max(self._timeout, _LEAST_START_SECONDS)
        self._workers: dict[int, _WorkerState] = {}
        self._waiting: deque[Chunk] = deque()
        self._next_number = self._first_number = 0  # of the next chunk, and of the present request's first one
        self._failed_starts: list[str] = []
        self._ready: Ready | None = None
        self._reseed = bool(settings.get("reseed", True))
        self._tried: dict[str, Rehearsal] = {}  # by name of the policy
        self._rehearsed = 0  # transitions
        self._last_slot: int | None = None  # the worker that answered last
        self._notes: dict[str, None] = {}  # in the order in which they were found
        self._remarks: dict[str, None] = {}
        self.failures = 0

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers that are ready, on whichever machine."""
        return [worker.pid for worker in self._workers.values() if worker.ready]

    @property
    def fingerprint(self) -> str:
        """Digest of the environment and the policy."""
        return self._simulator_here().fingerprint

    @property
    def policy(self) -> Any:
        """Name and reproducibility of the first policy."""
        return self.capabilities.policy

    @property
    def capabilities(self) -> Capabilities:
        """It returns observations and actions."""
        assert self._ready is not None
        return replace(self._ready.capabilities, load_policy=self._load_policy, found=self.found)

    @property
    def found(self) -> Found:
        """What is known so far."""
        workers = sum(worker.ready for worker in self._workers.values()), len(self._workers)
        return Found(tuple(self._notes), tuple(self._remarks), self._rehearsed, workers)

    def collect(self, request: Request) -> Batch:
        if not self._workers:
            raise ValueError("the simulator was used after close()")
        assert self._ready is not None
        request = checked(request, self._horizon, takes_points=self._ready.capabilities.takes_points)
        if request.wants != "starts":
            self._rehearse(request)
        rows = np.arange(len(request.seeds))
        if request.wants == "trial":
            tried: Batch
            (tried,) = self._run("collect", request, [rows])
            self._rehearsed += tried.found.rehearsed
            return tried
        costs = np.ones_like(rows) if request.lengths is None else request.lengths
        chunks = split(costs, len(self._workers), self.num_envs // len(self._workers))
        return join(self._run("collect", request, chunks), np.concatenate(chunks), self.found)

    def _rehearse(self, request: Request) -> None:
        """Finds out in one worker whether several can run trajectories, and how; in a second one if they may not."""
        if request.policy in self._tried or not self._reseed:
            return
        first, second = (*request.seeds[:2], request.seeds[0] + 1)[:2]
        trial, rows = replace(request, lengths=None, seeds=[first, second], points=None), [np.arange(2)]
        ((found, remembers),) = self._run("audition", trial, rows)
        self._rehearsed += found.transitions
        if len(self._workers) > 1:
            if remembers:
                policy = self.capabilities.policies[request.policy] if request.policy else self.policy
                raise ValueError(WORKERS_REMEMBER.format(policy.name))
            copies = found.kind == "copies"
            if found.kind == "differ":  # another history, which noise that is copied does not depend on
                other_seeds = replace(trial, seeds=[first + 1, second])
                ((other, _),) = self._run("audition", other_seeds, rows, avoid=self._last_slot)
                self._rehearsed += other.transitions
                copies = other.digest == found.digest
            if copies:
                raise ValueError(WORKERS_COPY)
        self._tried[request.policy] = found

    def _load_policy(self, name: str = "") -> Any:
        """Returns a policy of the workers' simulator, made in this process."""
        return self._simulator_here().capabilities.load_policy(*[name] if name else [])

    def _simulator_here(self) -> GymnasiumSimulator:
        """Returns the workers' simulator, made in this process, for its policies and its fingerprint."""
        simulator = deserialize(self._content)
        close(simulator)
        return simulator

    def close(self) -> None:
        """Ends the workers."""
        self._workers.clear()
        self._shut_down()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def _launch(self, slot: int) -> None:
        """Starts a worker, and ends the one that was in this slot before."""

    @abstractmethod
    def _send(self, slot: int, chunk: Chunk | None) -> None:
        """Sends a chunk to a worker, or asks for a heartbeat (None); raises nothing if the worker is gone."""

    @abstractmethod
    def _poll(self, seconds: float) -> list[tuple[int, Event]]:
        """Waits for events for at most this long, and returns them with their slots."""

    @abstractmethod
    def _shut_down(self) -> None:
        """Ends everything that was started."""

    def _start_workers(self, count: int) -> None:
        """Starts all workers and waits until the first one is ready."""
        try:
            for slot in range(count):
                self._start(slot)
            while self._ready is None:
                self._handle_events()
        except BaseException:
            self.close()
            raise
        self.num_envs = count * self._ready.num_envs
        self.observation_space = self._ready.observation_space

    def _run(
        self, method: str, request: Request, parts: Sequence[NDArray[np.intp]], *, avoid: int | None = None
    ) -> list[Any]:
        """Runs a method of the workers' simulators for each of these parts of a request, rows of its trajectories."""
        self._first_number, chunks = self._next_number, {}
        for rows in parts:
            call = method, part_of(request, rows), self._tried.get(request.policy)
            chunks[self._next_number] = Chunk(self._next_number, rows, call, avoid=avoid)
            self._next_number += 1
        self._waiting = deque(chunks.values())
        results: dict[int, Any] = {}
        while len(results) < len(chunks):
            for event in self._handle_events():
                if event.number in chunks:
                    if isinstance(event, Raised):
                        event.throw(chunks[event.number].rows)
                    results[event.number] = event.value
                    self._last_slot = chunks[event.number].slot
                    self._notes.update(dict.fromkeys(event.found.notes))
                    self._remarks.update(dict.fromkeys(event.found.remarks))
        return [results[number] for number in chunks]

    def _handle_events(self) -> list[Done | Raised]:
        """Sends waiting chunks, then waits for events and handles them; returns the answers to chunks."""
        self._send_waiting()
        answers: list[Done | Raised] = []
        for slot, event in self._poll(min(self._timeout / 8, 0.5)):
            worker = self._workers[slot]
            match event:
                case Gone(reason):
                    self._replace(slot, reason)
                    continue
                case Position():
                    worker.asked = False
                    before, worker.position = worker.position, event
                    if before is not None and event.calls == before.calls:
                        continue
                case Ready():
                    self._check_sources(event)
                    worker.ready, worker.pid = True, event.pid
                    self._ready = event
                    self._failed_starts.clear()
                case Raised(number=None):
                    event.throw()
                case Done() | Raised():
                    worker.position = None
                    worker.chunks = deque(chunk for chunk in worker.chunks if chunk.number != event.number)
                    answers.append(event)
            worker.last_progress = time.monotonic()
        self._check_timeouts()
        return answers

    def _check_sources(self, event: Ready) -> None:
        """Raises if a worker has other code than this process, or than it had when the first worker was ready."""
        theirs: dict[str, str] | None = getattr(event, "sources", None)  # an older rido does not tell
        if name := sources.different(theirs, self._packages, self._sources):
            raise WorkerError(
                f"workers must run the same code as this process, got another version of {name} on "
                f"{getattr(event, 'host', 'a node')}: give all nodes the same, and do not edit it during a run"
            )

    def _send_waiting(self) -> None:
        while self._waiting:
            able = [
                (len(worker.chunks), slot)
                for slot, worker in self._workers.items()
                if worker.ready and len(worker.chunks) < _CHUNKS_PER_WORKER and slot != self._waiting[0].avoid
            ]
            if not able:
                return
            _, slot = min(able)
            worker, chunk = self._workers[slot], self._waiting.popleft()
            chunk.slot = slot
            if not worker.chunks:
                worker.last_progress = time.monotonic()
            worker.chunks.append(chunk)
            self._send(slot, chunk)

    def _check_timeouts(self) -> None:
        """Asks silent workers for a heartbeat, and replaces those that make no progress."""
        now = time.monotonic()
        for slot, worker in self._workers.items():
            silent = now - worker.last_progress
            if not worker.ready:
                if silent > self._start_seconds:
                    self._replace(slot, f"was not ready after {self._start_seconds:g} seconds")
            elif worker.chunks and silent > self._timeout:
                # A call that holds the interpreter's lock lets no heartbeat through: then its place is not known.
                self._check_hang(worker.chunks[0], None if worker.asked else worker.position)
                self._replace(slot, f"took no step for {self._timeout:g} seconds (timeout)")
            elif worker.chunks and silent > self._timeout / 4 and not worker.asked:
                worker.asked = True
                self._send(slot, None)

    def _check_hang(self, chunk: Chunk, position: Position | None) -> None:
        """Raises if a chunk was stuck at the same place before, or where its worker cannot tell the place."""
        place = None if position is None else (position.trajectory, position.step)
        if place not in chunk.hung_at:
            chunk.hung_at.append(place)
            return
        seeds, waited = chunk.call[1].seeds, f"within {self._timeout:g} seconds (timeout), also when it was run again"
        if position is None:
            raise WorkerError(f"one of {len(seeds)} trajectories (seeds {_first_of(seeds)}) took no step {waited}")
        row, what = (
            position.trajectory,
            "policy" if position.calling == "policy" else f"environment's {position.calling}",
        )
        raise SimulationError(int(chunk.rows[row]), position.step, seeds[row], f"the {what} did not return {waited}")

    def _start(self, slot: int) -> None:
        self._workers[slot] = _WorkerState(time.monotonic())
        self._launch(slot)

    def _replace(self, slot: int, reason: str) -> None:
        """Starts a new worker in the place of a lost one, whose chunks will be run again."""
        lost, was_ready = self._workers[slot].chunks, self._workers[slot].ready
        reason = f"worker {slot} {reason}"
        self.failures += 1
        self._start(slot)
        self._waiting.extendleft(chunk for chunk in reversed(lost) if chunk.number >= self._first_number)
        if not was_ready:
            self._failed_starts.append(reason)
            waited_twice = "was not ready" in reason and self._failed_starts.count(reason) > 1
            if len(self._failed_starts) > self._max_failures or waited_twice:
                raise WorkerError(f"no worker gets ready: {'; '.join(self._failed_starts)}")
        elif lost:
            running = lost[0]
            running.failures.append(reason)
            if len(running.failures) > self._max_failures:
                seeds = _first_of(running.call[1].seeds)
                raise WorkerError(
                    f"{running.rows.size} trajectories (seeds {seeds}) were lost with their worker "
                    f"{len(running.failures)} times, more than max_failures={self._max_failures}: "
                    f"{'; '.join(running.failures)}"
                )


def _first_of(seeds: Sequence[int]) -> str:
    return ", ".join([*map(str, seeds[:3]), *(["..."] if len(seeds) > 3 else [])])
