"""Trajectories from a Ray cluster; needs the extra ``ray``."""

import logging
import os
import socket
import subprocess
import sys
import time
from typing import Any, Unpack

from rido.core import checks
from rido.core.extras import import_extra
from rido.simulators.parallel.pool import Chunk, PoolSettings, PoolSimulator, WorkerError
from rido.simulators.parallel.worker import Event, Gone, RemoteSimulator

ray = import_extra("RaySimulator", "ray", "ray")

_CONNECT_SECONDS = 30.0  # that a cluster gets to answer
_asked_for: dict[str, str | None] = {}  # the address to which a simulator of this process connected it
_OBJECT_STORE_BYTES = 200 * 2**20  # of a cluster started here: rewards are small


class _RayActor(RemoteSimulator):
    """A worker as an actor. Heartbeats have their own thread, since the other one is busy."""

    @ray.method(concurrency_group="heartbeats")  # type: ignore[untyped-decorator]
    def heartbeat(self) -> Event:
        return super().heartbeat()


class RaySimulator(PoolSimulator):
    """Rolls a policy out in actors of a Ray cluster, each with its own :class:`GymnasiumSimulator`.

    An actor that dies, alone or with its node, is replaced where the cluster has room, and its trajectories are run
    again with the same seeds; so are those whose results were lost on the way. Results are the same for any number of
    actors, bit for bit where the machines have the same kind of processor. If the raylet of this machine is killed, Ray
    ends this process.

    Args:
        env: see :class:`rido.simulators.parallel.pool.PoolSimulator`.
        policy: see there. What it imports must be installed on the nodes.
        address: of a running cluster, as in ``ray.init``. If not given, the cluster that this process is connected to
            already, else a new one on this machine, which :meth:`close` ends.
        num_actors: number of actors; if not given, as many as the cluster has processors.
        num_cpus: processors that an actor reserves.
        start_timeout: seconds to wait while no actor at all is ready, for room in the cluster too.
        **settings: ``horizon``, ``timeout`` and so on; see there.

    Attributes:
        actors: handles of the actors.
    """

    def __init__(
        self,
        env: Any,
        policy: Any = None,
        *,
        address: str | None = None,
        num_actors: int | None = None,
        num_cpus: float = 1,
        start_timeout: float = 120.0,
        **settings: Unpack[PoolSettings],
    ) -> None:
        if num_actors is not None:
            num_actors = checks.integer("num_actors", num_actors, least=1)
        super().__init__(env, policy, **settings)
        self._start_seconds = float("inf")  # an actor may have to wait for room, while others collect
        self._start_timeout, self._last_ready, self._num_cpus = float(start_timeout), time.monotonic(), num_cpus
        self._connected_here = not ray.is_initialized()
        if self._connected_here:
            _connect(address, num_actors, num_cpus)
        elif address is not None and not _is_here(address):
            raise ValueError(
                f"address must be that of the cluster to which this process is connected, "
                f"{ray.get_runtime_context().gcs_address}, got {address!r}: leave it out, or call ray.shutdown() before"
            )
        if num_actors is None:
            num_actors = max(1, int(_cpus() / max(num_cpus, 1e-9)))
        self._content_reference = ray.put(self._content)
        self._make = ray.remote(
            num_cpus=num_cpus, max_restarts=0, concurrency_groups={"heartbeats": 1}, scheduling_strategy="SPREAD"
        )(_RayActor)
        self.actors: dict[int, Any] = {}
        self._pending: dict[Any, int] = {}  # references of expected answers, and the slots they come from
        self._start_workers(num_actors)

    def _launch(self, slot: int) -> None:
        if slot in self.actors:
            ray.kill(self.actors[slot])
            self._pending = {answer: other for answer, other in self._pending.items() if other != slot}
        self.actors[slot] = self._make.remote(self._content_reference)
        self._pending[self.actors[slot].open.remote()] = slot

    def _send(self, slot: int, chunk: Chunk | None) -> None:
        actor = self.actors[slot]
        answer = actor.heartbeat.remote() if chunk is None else actor.run.remote(chunk.number, *chunk.call)
        self._pending[answer] = slot

    def _poll(self, seconds: float) -> list[tuple[int, Event]]:
        finished, _ = ray.wait(list(self._pending), num_returns=1, timeout=seconds)
        if finished:
            finished, _ = ray.wait(list(self._pending), num_returns=len(self._pending), timeout=0)
        events: list[tuple[int, Event]] = []
        lost: dict[int, str] = {}  # by slot: all answers of a dead actor fail, but it is lost once
        for answer in finished:
            slot = self._pending.pop(answer)
            try:
                events.append((slot, ray.get(answer)))
            except ray.exceptions.RayError as error:
                lost[slot] = f"was lost ({_cause(error)})"
        return events + [(slot, Gone(reason)) for slot, reason in lost.items()]

    def _check_timeouts(self) -> None:
        super()._check_timeouts()
        if any(worker.ready for worker in self._workers.values()):
            self._last_ready = time.monotonic()
        elif time.monotonic() - self._last_ready > self._start_timeout:
            raise WorkerError(
                f"no actor got ready within {self._start_timeout:g} seconds (start_timeout): {self._room()}"
            )

    def _room(self) -> str:
        there = _cpus()
        free = min(ray.available_resources().get("CPU", 0.0), there)
        if there < self._num_cpus:
            return f"one needs num_cpus={self._num_cpus:g}, and the cluster has {there:g} CPUs"
        if free < self._num_cpus:
            return f"one needs num_cpus={self._num_cpus:g}, and {free:g} of the cluster's {there:g} CPUs are free"
        return "the cluster has room, so its environment or its policy takes longer to load"

    def _shut_down(self) -> None:
        if not ray.is_initialized():
            return
        for actor in self.actors.values():
            ray.kill(actor)
        self.actors.clear()
        self._pending.clear()
        if self._connected_here:
            ray.shutdown()
            _asked_for.clear()


def _connect(address: str | None, num_actors: int | None, num_cpus: float) -> None:
    # What actors print stays in Ray's own logs, and does not get between the results.
    settings: dict[str, Any] = dict(address=address, log_to_driver=False)
    if address is None:
        processors = None if num_actors is None else max(1, round(num_actors * num_cpus))
        memory = dict(object_store_memory=_OBJECT_STORE_BYTES)
        settings |= dict(address="local", num_cpus=processors, include_dashboard=False, **memory)
    else:
        _require_answer(os.environ.get("RAY_ADDRESS", address) if address == "auto" else address)
    try:
        ray.init(**settings, logging_level=logging.WARNING)
        _asked_for["address"] = address
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise _no_cluster(address, str(error)) from error


def _is_here(address: str) -> bool:
    """Returns whether this process is connected to the cluster at an address."""
    if address in ("auto", _asked_for.get("address")):
        return True
    if address.startswith("ray://"):
        return bool(ray.util.client.ray.is_connected()) and "address" not in _asked_for
    (host, _, port), (here, _, there) = (
        text.rpartition(":") for text in (address, ray.get_runtime_context().gcs_address)
    )
    try:
        return port == there and ({here, "127.0.0.1"} & {host, socket.gethostbyname(host)}) != set()
    except OSError:
        return False


def _cpus() -> float:
    """Returns the number of processors of the nodes that are alive."""
    return float(sum(node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"]))


def _cause(error: Exception) -> str:
    """Returns why an actor was lost, in one line: neither the ids that Ray tells nor a traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.startswith(("\t", "  "))]
    found = " ".join(lines[:4] if len(lines) <= 4 else [lines[0], lines[-1]])
    return found.replace("(", "[").replace(")", "]")[:500]


def _no_cluster(address: str | None, reason: str) -> ConnectionError:
    if "token" in reason.lower():
        reason = "it wants a token, so set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH"
    reason = " ".join(reason.split())[:300]
    return ConnectionError(f"address must be of a running Ray cluster, got {address!r}: {reason}")


def _require_answer(address: str) -> None:
    """Raises unless a Ray cluster answers at this address: ``ray.init`` would wait for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()
        if not address.startswith("ray://"):  # Ray's client gives up by itself
            check = [sys.executable, "-P", "-m", "ray.scripts.scripts", "health-check", "--address", address]
            subprocess.run(check, timeout=_CONNECT_SECONDS, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    except (OSError, OverflowError, subprocess.SubprocessError) as error:
        told = str(error)
        if isinstance(error, subprocess.SubprocessError):
            output = getattr(error, "stderr", None) or b""
            told = output.decode(errors="replace") if b"token" in output.lower() else "it is no Ray cluster"
        raise _no_cluster(address, told) from error
