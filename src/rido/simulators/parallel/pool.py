"""Crews: workers elsewhere that run chunks of a request, and may die.

A request is cut into chunks, the longest trajectories first. A worker gets the next chunk when it is about to be free,
and runs whole trajectories: nothing is sent for a single step. A worker that dies or gets stuck is replaced, and its
chunks are run again by whoever is free. Because every trajectory depends on its own seed alone, none of this
shows in the results.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from rido.core import checks
from rido.core.trajectories import Trajectories
from rido.policies.base import Policy
from rido.simulators.base import Capabilities, Observed
from rido.simulators.parallel.serialization import unpack
from rido.simulators.parallel.worker import Beat, Done, Event, Gone, PolicyCard, Raised, Ready
from rido.simulators.requests import check_request, join_observed, join_starts, join_trajectories

_IN_FLIGHT = 2  # chunks that a worker has at a time: one that runs and one that waits, so that it never waits for us
_LEAST_START_SECONDS = 60.0  # importing torch from a cold disk is no failure


class WorkerError(ChildProcessError):
    """Trajectories that were lost with their workers again and again."""


@dataclass(eq=False)
class Chunk:
    """Some rows of a request, to be run by one worker.

    Attributes:
        number: never used twice, so that late answers to an earlier request are recognised.
        rows: which rows of the request.
        request: the simulator's method and its arguments.
        failures: why it was lost, each time that it was.
    """

    number: int
    rows: NDArray[np.intp]
    request: tuple[str, tuple[Any, ...]]
    failures: list[str] = field(default_factory=list)


@dataclass(eq=False)
class _Member:
    """What is known of the worker in a slot."""

    since: float  # when it last moved on
    ready: bool = False
    pid: int = 0
    chunks: deque[Chunk] = field(default_factory=deque)
    calls: int = -1
    asked: bool = False


class CrewSimulator(ABC):
    """A simulator whose trajectories are run by workers; how they are reached is up to the subclass.

    Args:
        recipe: what the workers' simulators are made of, from :func:`rido.simulators.parallel.serialization.pack`.
        size: number of workers.
        horizon: the longest trajectory that will be asked for.
        timeout: seconds without a single step after which a worker counts as stuck.
        max_failures: how often the same trajectories may be lost with a worker; once more is an error.

    Attributes:
        num_envs: environments side by side, in all workers together.
        policy: what the policy is called, and whether it is reproducible.
        observation_space: of one environment.
        failures: workers lost so far.
    """

    num_envs: int
    policy: PolicyCard
    observation_space: Any

    def __init__(self, recipe: bytes, size: int, *, horizon: int, timeout: float, max_failures: int) -> None:
        self._recipe = recipe
        self._horizon = checks.integer("horizon", horizon, least=1)
        self._timeout = float(timeout)
        if not self._timeout > 0:
            raise ValueError(f"timeout must be positive, got {timeout!r}")
        self._max_failures = checks.integer("max_failures", max_failures, least=0)
        self._start_seconds = max(self._timeout, _LEAST_START_SECONDS)
        self._size = size
        self._members: dict[int, _Member] = {}
        self._waiting: deque[Chunk] = deque()
        self._number = self._oldest = 0  # of the next chunk; of the first one of the present request
        self._bad_starts: list[str] = []
        self._ready: Ready | None = None
        self.failures = 0

    def rollout(self, lengths: NDArray[np.int64], seeds: Sequence[int]) -> Trajectories:
        """Collects one trajectory per length, each from its own seed, and returns them in the same order."""
        parts, rows = self._collect("rollout", check_request(lengths, seeds, self._horizon), seeds)
        return join_trajectories(parts, rows)

    def observe(self, lengths: NDArray[np.int64], seeds: Sequence[int]) -> Observed:
        """Collects what :meth:`rollout` collects, and the observations."""
        parts, rows = self._collect("observe", check_request(lengths, seeds, self._horizon), seeds)
        return join_observed(parts, rows)

    def starts(self, seeds: Sequence[int]) -> Any:
        """Returns a batch of first observations, each from its own seed, without taking a step."""
        parts, rows = self._collect("starts", None, seeds)
        return join_starts(parts, rows)

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers that are ready, wherever they are."""
        return [member.pid for member in self._members.values() if member.ready]

    @property
    def fingerprint(self) -> str:
        """Digest of the environment and the policy."""
        simulator = unpack(self._recipe)
        simulator.close()
        return simulator.fingerprint

    @property
    def capabilities(self) -> Capabilities:
        """It shows the observations of its workers."""
        return Capabilities(observes=True, policy=self.policy, load_policy=self._load_policy)

    def _load_policy(self) -> Policy:
        """Loads the policy in this process too."""
        simulator = unpack(self._recipe)
        simulator.close()
        return simulator.policy

    def close(self) -> None:
        """Ends the workers."""
        self._members.clear()
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def _launch(self, slot: int) -> None:
        """Starts a worker, and ends the one that was in this slot before."""

    @abstractmethod
    def _send(self, slot: int, chunk: Chunk) -> None:
        """Hands a chunk to a worker; raises nothing if the worker is gone."""

    @abstractmethod
    def _ask(self, slot: int) -> None:
        """Asks a worker for a sign of life; raises nothing if the worker is gone."""

    @abstractmethod
    def _poll(self, seconds: float) -> list[tuple[int, Event]]:
        """Waits up to so long for something to happen, and returns what happened in which slots."""

    @abstractmethod
    def _end(self) -> None:
        """Ends everything that was started."""

    def _open(self) -> None:
        """Starts all workers and waits for the first of them."""
        try:
            for slot in range(self._size):
                self._start(slot)
            while self._ready is None:
                self._turn()
        except BaseException:
            self.close()
            raise
        self.num_envs = self._size * self._ready.num_envs
        self.observation_space = self._ready.observation_space
        self.policy = self._ready.policy

    def _collect(
        self, method: str, lengths: NDArray[np.int64] | None, seeds: Sequence[int]
    ) -> tuple[list[Any], NDArray[np.intp]]:
        """Runs a method of the workers' simulators; returns its results by chunk, and the rows that they are of."""
        if not self._members:
            raise ValueError(f"{method}() was called after close()")
        costs = np.ones(len(seeds), dtype=np.int64) if lengths is None else lengths
        self._oldest, chunks = self._number, []
        for rows in split(costs, self._size, self.num_envs // self._size):
            chosen = [seeds[row] for row in rows.tolist()]
            arguments = (chosen,) if lengths is None else (lengths[rows], chosen)
            chunks.append(Chunk(self._number, rows, (method, arguments)))
            self._number += 1
        self._waiting = deque(chunks)
        wanted = {chunk.number: chunk for chunk in chunks}
        results: dict[int, Any] = {}
        while len(results) < len(chunks):
            for event in self._turn():
                if event.number in wanted:
                    if isinstance(event, Raised):
                        event.throw(wanted[event.number].rows)
                    results[event.number] = event.value
        return [results[chunk.number] for chunk in chunks], np.concatenate([chunk.rows for chunk in chunks])

    def _turn(self) -> list[Done | Raised]:
        """Hands out what waits, and sees to whatever happens next; returns the answers to chunks."""
        self._assign()
        answers: list[Done | Raised] = []
        for slot, event in self._poll(min(self._timeout / 8, 0.5)):
            member = self._members[slot]
            match event:
                case Gone(reason):
                    self._replace(slot, reason)
                    continue
                case Beat(calls):
                    member.asked = False
                    if calls == member.calls:
                        continue
                    member.calls = calls
                case Ready():
                    member.ready, member.pid = True, event.pid
                    self._ready = event
                    self._bad_starts.clear()
                case Raised(number=-1):
                    event.throw()
                case Done() | Raised():
                    member.chunks = deque(chunk for chunk in member.chunks if chunk.number != event.number)
                    answers.append(event)
            member.since = time.monotonic()
        self._look_after()
        return answers

    def _assign(self) -> None:
        while self._waiting:
            able = [s for s, member in self._members.items() if member.ready and len(member.chunks) < _IN_FLIGHT]
            if not able:
                return
            slot = min(able, key=lambda s: len(self._members[s].chunks))
            member, chunk = self._members[slot], self._waiting.popleft()
            if not member.chunks:
                member.since = time.monotonic()
            member.chunks.append(chunk)
            self._send(slot, chunk)

    def _look_after(self) -> None:
        """Asks workers that are silent whether they move on, and replaces those that do not."""
        now = time.monotonic()
        for slot, member in self._members.items():
            silent = now - member.since
            if not member.ready:
                if silent > self._start_seconds:
                    self._replace(slot, f"was not ready after {self._start_seconds:g} seconds")
            elif member.chunks and silent > self._timeout:
                self._replace(slot, f"took no step for {self._timeout:g} seconds (timeout)")
            elif member.chunks and silent > self._timeout / 4 and not member.asked:
                member.asked = True
                self._ask(slot)

    def _start(self, slot: int) -> None:
        self._members[slot] = _Member(time.monotonic())
        self._launch(slot)

    def _replace(self, slot: int, reason: str) -> None:
        """Puts a new worker in the place of one that is lost, and its chunks back."""
        lost, was_ready = self._members[slot].chunks, self._members[slot].ready
        reason = f"worker {slot} {reason}"
        self.failures += 1
        self._start(slot)
        self._waiting.extendleft(chunk for chunk in reversed(lost) if chunk.number >= self._oldest)
        if not was_ready:
            self._bad_starts.append(reason)
            if len(self._bad_starts) > self._max_failures:
                raise WorkerError(f"no worker gets ready: {'; '.join(self._bad_starts)}")
        elif lost:  # the first of them was running
            lost[0].failures.append(reason)
            if len(lost[0].failures) > self._max_failures:
                seeds = ", ".join(map(str, lost[0].request[1][-1][:3]))
                raise WorkerError(
                    f"{lost[0].rows.size} trajectories (seeds {seeds}, ...) were lost with their worker "
                    f"{len(lost[0].failures)} times, more than max_failures={self._max_failures}: "
                    f"{'; '.join(lost[0].failures)}"
                )


def split(costs: NDArray[np.int64], workers: int, num_envs: int) -> list[NDArray[np.intp]]:
    """Cuts a request into chunks, costly rows first and in ever smaller chunks, so that all workers end together.

    A chunk takes half of a worker's fair share of what is left. It has at least a quarter as many rows as a
    worker has environments, because few rows side by side cost about as much as many where they are vectorised, and
    at most twice as many, which bounds what is lost with a worker.

    Args:
        costs: of each row.
        workers: how many there are.
        num_envs: rows that a worker runs side by side.

    Example:
        >>> split(np.array([1, 9, 5, 3]), 2, 2)
        [array([1]), array([2]), array([3]), array([0])]
    """
    order = np.argsort(-costs, kind="stable")
    spent = np.cumsum(costs[order])
    least = min(max(num_envs // 4, 1), -(-costs.size // workers))
    chunks, first = [], 0
    while first < order.size:
        before = spent[first - 1] if first else 0
        share = before + (spent[-1] - before) / (2 * workers)
        last = int(np.clip(np.searchsorted(spent, share), first + least, first + 2 * num_envs))
        chunks.append(order[first:last])
        first = last
    return chunks
