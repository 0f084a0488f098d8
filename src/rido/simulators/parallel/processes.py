"""Trajectories from several processes on one machine."""

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
from typing import Any, Unpack

from rido.core import checks
from rido.simulators.parallel.pool import Chunk, PoolSettings, PoolSimulator
from rido.simulators.parallel.worker import Event, Gone, RemoteSimulator

_THREADED_LIBRARIES = ("OMP_NUM", "OPENBLAS_NUM", "MKL_NUM", "VECLIB_MAXIMUM", "NUMEXPR_NUM")
_WORKER_CODE = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); "
    "from rido.simulators.parallel.processes import main; main()"
)
_EXIT_SECONDS = 5.0  # that a process gets to exit by itself


class WorkerSimulator(PoolSimulator):
    """Rolls a policy out in several processes, each with its own :class:`GymnasiumSimulator`.

    It pays where a step of the environment costs much more than a step of numpy, as in MuJoCo: there, N workers on N
    free cores are about N times as fast. Vectorised environments such as the paper's are faster in one process.

    Results are the same, bit for bit, for any number of workers: one that dies or gets stuck is replaced, and its
    trajectories are run again with the same seeds. An exception in an environment or a policy is passed on.

    Workers are new interpreters, not forks: forking a process in which torch or MuJoCo run threads may deadlock. The
    user's script is not run again, so it needs no ``if __name__ == "__main__"``. Each worker computes with one thread,
    and ends when this process does, even if it is killed.

    Args:
        env: see :class:`rido.simulators.parallel.pool.PoolSimulator`.
        policy: see there.
        workers: number of processes.
        **settings: ``horizon``, ``timeout`` and so on; see there.
    """

    def __init__(self, env: Any, policy: Any = None, *, workers: int, **settings: Unpack[PoolSettings]) -> None:
        if os.name != "posix":
            raise RuntimeError("workers need Linux or macOS: use workers=1, or the Ray simulator")
        workers = checks.integer("workers", workers, least=1)
        super().__init__(env, policy, **settings)
        self._processes: dict[int, _WorkerProcess] = {}
        self._start_workers(workers)

    @property
    def pids(self) -> list[int]:
        """Process ids of all workers, ready or not."""
        return [worker.process.pid for worker in self._processes.values()]

    def _launch(self, slot: int) -> None:
        if slot in self._processes:
            self._processes[slot].end()
        self._processes[slot] = _WorkerProcess(self._content)

    def _send(self, slot: int, chunk: Chunk | None) -> None:
        self._processes[slot].send(None if chunk is None else (chunk.number, *chunk.call))

    def _poll(self, seconds: float) -> list[tuple[int, Event]]:
        from multiprocessing.connection import wait

        slots: dict[Any, int] = {worker.connection: slot for slot, worker in self._processes.items()}
        return [(slots[ready], self._processes[slots[ready]].receive()) for ready in wait(list(slots), seconds)]

    def _shut_down(self) -> None:
        for worker in self._processes.values():
            worker.connection.close()
        for worker in self._processes.values():
            worker.end()
        self._processes.clear()


class _WorkerProcess:
    """A process and the connection to it."""

    def __init__(self, content: bytes) -> None:
        from multiprocessing.connection import Connection

        ours, theirs = socket.socketpair()
        with theirs:
            # A worker inherits what is blocked here: Ctrl-C is for the process that has the run file.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                self.process = subprocess.Popen(
                    [sys.executable, "-P", "-c", _WORKER_CODE, str(theirs.fileno()), json.dumps(sys.path)],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=None if sys.stderr is None else 2,  # standard output is for results
                    env={**os.environ, **{f"{library}_THREADS": "1" for library in _THREADED_LIBRARIES}},
                )
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self.connection = Connection(ours.detach())
        self.send(content)

    def send(self, request: Any) -> None:
        with contextlib.suppress(OSError):  # the next poll reports a process that is gone
            self.connection.send(request)

    def receive(self) -> Event:
        try:
            event: Event = self.connection.recv()
            return event
        except (EOFError, OSError, pickle.UnpicklingError):
            pass
        try:
            code = self.process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            return Gone("closed its connection")
        return Gone(f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}")

    def end(self) -> None:
        """Ends the process, by force if it does not exit by itself when the connection is closed."""
        was_open = not self.connection.closed
        self.connection.close()
        try:
            self.process.wait(0.0 if was_open else _EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def main() -> None:
    """Runs in a worker: answers requests until the connection is closed."""
    import faulthandler
    from multiprocessing.connection import Connection

    faulthandler.enable()
    connection: Connection = Connection(int(sys.argv[1]))
    try:
        simulator = RemoteSimulator(connection.recv())
    except (EOFError, OSError):  # the parent was killed before it had sent anything
        os._exit(0)
    requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
    lock = threading.Lock()

    def answer(event: Event) -> None:
        try:
            with lock:
                connection.send(event)
        except OSError:
            os._exit(0)

    def listen() -> None:
        """Receives requests during a rollout too, so that heartbeats and the parent's end are not missed."""
        try:
            while True:
                request = connection.recv()
                if request is None:
                    answer(simulator.heartbeat())
                else:
                    requests.put(request)
        except (EOFError, OSError):
            os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    answer(simulator.open())
    while True:
        answer(simulator.run(*requests.get()))
