"""Trajectories from several processes on one machine."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rido.core import checks
from rido.simulators.parallel.pool import Chunk, CrewSimulator
from rido.simulators.parallel.serialization import pack
from rido.simulators.parallel.worker import Event, Gone, Host

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
_MAIN = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); "
    "from rido.simulators.parallel.processes import main; main()"
)
_END_SECONDS = 5.0


class WorkerSimulator(CrewSimulator):
    """Rolls a policy out in several processes, each with a :class:`GymnasiumSimulator` of its own.

    It pays where a step of the environment costs much more than a step of numpy, as in MuJoCo: there, N workers on N
    free cores are about N times as fast. Vectorised environments such as the paper's are faster in one process.

    Results are the same, bit for bit, for any number of workers and whatever happens to them: a worker that dies or
    gets stuck is replaced, and its trajectories are run again with the same seeds. An exception in an environment or
    a policy is no such failure: it is passed on.

    Workers are fresh interpreters, not forks: forking a process in which torch or MuJoCo already run threads may
    deadlock. They do not run the user's script again either, so no ``if __name__ == "__main__"`` is needed. Each
    computes with one thread. They end when this process does, however it does.

    Args:
        env: an id, or a function that makes an environment; see :class:`GymnasiumSimulator`.
        policy: what :func:`rido.policies.resolve.resolve_policy` takes; functions and models are copied to the workers.
        workers: number of processes.
        horizon: the longest trajectory that will be asked for.
        gamma: discount factor, on which the policy of the paper's LQG depends.
        env_kwargs: arguments of the environment, with an id.
        num_envs: sub-environments side by side in each worker.
        deterministic: whether an agent takes its most likely action or samples one.
        timeout: seconds without a single step after which a worker counts as stuck.
        max_failures: how often the same trajectories may be lost with a worker; once more is an error.

    Attributes:
        num_envs: environments side by side, in all workers together.
        policy: what the policy is called, and whether it is reproducible.
        observation_space: of one environment.
        failures: workers lost so far.
    """

    def __init__(
        self,
        env: Any,
        policy: Any = None,
        *,
        workers: int,
        horizon: int,
        gamma: float = 1.0,
        env_kwargs: Mapping[str, Any] | None = None,
        num_envs: int | None = None,
        deterministic: bool = True,
        timeout: float = 300.0,
        max_failures: int = 3,
    ) -> None:
        if os.name != "posix":
            raise RuntimeError("workers need Linux or macOS: use workers=1, or the Ray simulator")
        workers = checks.integer("workers", workers, least=1)
        recipe = pack(
            env,
            policy,
            dict(horizon=horizon, gamma=gamma, env_kwargs=env_kwargs, num_envs=num_envs, deterministic=deterministic),
        )
        super().__init__(recipe, workers, horizon=horizon, timeout=timeout, max_failures=max_failures)
        self._workers: dict[int, _Worker] = {}
        self._open()

    @property
    def pids(self) -> list[int]:
        """Process ids of all workers, ready or not."""
        return [worker.process.pid for worker in self._workers.values()]

    def _launch(self, slot: int) -> None:
        if slot in self._workers:
            self._workers[slot].end()
        self._workers[slot] = _Worker(self._recipe)

    def _send(self, slot: int, chunk: Chunk) -> None:
        self._workers[slot].send((chunk.number, *chunk.request))

    def _ask(self, slot: int) -> None:
        self._workers[slot].send(None)

    def _poll(self, seconds: float) -> list[tuple[int, Event]]:
        from multiprocessing.connection import wait

        slots: dict[Any, int] = {worker.connection: slot for slot, worker in self._workers.items()}
        return [(slots[ready], self._workers[slots[ready]].receive()) for ready in wait(list(slots), seconds)]

    def _end(self) -> None:
        for worker in self._workers.values():
            worker.connection.close()
        for worker in self._workers.values():
            worker.end()
        self._workers.clear()


class _Worker:
    """A process and the connection to it."""

    def __init__(self, recipe: bytes) -> None:
        from multiprocessing.connection import Connection

        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _MAIN, str(theirs.fileno()), json.dumps(sys.path)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, **dict.fromkeys(_THREADS, "1")},  # libraries read it when they are loaded
            )
        self.connection = Connection(ours.detach())
        self.send(recipe)

    def send(self, request: Any) -> None:
        with contextlib.suppress(OSError):  # if it is gone, the next poll will tell
            self.connection.send(request)

    def receive(self) -> Event:
        try:
            event: Event = self.connection.recv()
            return event
        except (EOFError, OSError, pickle.UnpicklingError):
            return Gone(self._fate())

    def end(self) -> None:
        """Ends the process, by force where it does not end by itself when the connection is closed."""
        was_open = not self.connection.closed
        self.connection.close()
        try:
            self.process.wait(0.0 if was_open else _END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _fate(self) -> str:
        try:
            code = self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            return "closed its connection"
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"


def main() -> None:
    """Runs in a worker: answers requests until the connection is closed."""
    import faulthandler
    from multiprocessing.connection import Connection

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that has the run file
    faulthandler.enable()
    connection: Connection = Connection(int(sys.argv[1]))
    host = Host(connection.recv())
    requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
    lock = threading.Lock()

    def answer(event: Event) -> None:
        try:
            with lock:
                connection.send(event)
        except OSError:
            os._exit(0)

    def listen() -> None:
        """Takes requests in at any time, so that nothing blocks and the end of the other side is noticed at once."""
        try:
            while True:
                request = connection.recv()
                if request is None:
                    answer(host.beat())
                else:
                    requests.put(request)
        except (EOFError, OSError):
            os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    answer(host.open())
    while True:
        answer(host.run(*requests.get()))
