"""Trajectories from a Ray cluster; needs the extra ``ray``."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping
from typing import Any

from rido.core import checks
from rido.simulators.parallel.pool import Chunk, CrewSimulator
from rido.simulators.parallel.serialization import pack
from rido.simulators.parallel.worker import Event, Gone, Host

try:
    ray = importlib.import_module("ray")  # whose types do not know all of its options
except ImportError as error:
    raise ImportError('RaySimulator needs ray: pip install "rido[ray]"') from error

_OBJECT_STORE_BYTES = 200 * 2**20  # of a cluster of our own: rewards are small


class _Actor(Host):
    """A worker as an actor. Signs of life have a thread of their own, since the other one is busy."""

    @ray.method(concurrency_group="life")  # type: ignore[untyped-decorator]
    def beat(self) -> Event:
        return super().beat()


class RaySimulator(CrewSimulator):
    """Rolls a policy out in actors of a Ray cluster, each with a :class:`GymnasiumSimulator` of its own.

    Trajectories go to whichever actor is free, the longest first, at most two chunks at a time. An actor that dies,
    alone or with its node, is replaced where the cluster has room, and its trajectories are run again with the same
    seeds; so are those whose results were lost on the way. Neither that nor the number of actors shows in the
    results, which are the same bit for bit where the machines have the same kind of processor.

    Args:
        env: an id, or a function that makes an environment; see :class:`GymnasiumSimulator`.
        policy: what :func:`rido.policies.resolve.resolve_policy` takes. Functions, models and an agent's files are sent
            to the actors; what they import must be installed on the nodes.
        horizon: the longest trajectory that will be asked for.
        gamma: discount factor, on which the policy of the paper's LQG depends.
        env_kwargs: arguments of the environment, with an id.
        num_envs: sub-environments side by side in each actor.
        deterministic: whether an agent takes its most likely action or samples one.
        address: of a running cluster, as in ``ray.init``. If not given, the cluster that this process is connected to
            already, else one of its own on this machine, which ends with :meth:`close`.
        num_actors: number of actors; if not given, as many as the cluster has processors.
        num_cpus: processors that an actor reserves.
        timeout: seconds without a single step after which an actor counts as stuck.
        max_failures: how often the same trajectories may be lost with an actor; once more is an error.

    Attributes:
        num_envs: environments side by side, in all actors together.
        policy: what the policy is called, and whether it is reproducible.
        observation_space: of one environment.
        failures: actors lost so far.
        actors: handles of the actors.
    """

    def __init__(
        self,
        env: Any,
        policy: Any = None,
        *,
        horizon: int,
        gamma: float = 1.0,
        env_kwargs: Mapping[str, Any] | None = None,
        num_envs: int | None = None,
        deterministic: bool = True,
        address: str | None = None,
        num_actors: int | None = None,
        num_cpus: float = 1,
        timeout: float = 300.0,
        max_failures: int = 3,
    ) -> None:
        if num_actors is not None:
            num_actors = checks.integer("num_actors", num_actors, least=1)
        recipe = pack(
            env,
            policy,
            dict(horizon=horizon, gamma=gamma, env_kwargs=env_kwargs, num_envs=num_envs, deterministic=deterministic),
        )
        self._connected_here = not ray.is_initialized()
        if self._connected_here:
            _connect(address, num_actors, num_cpus)
        if num_actors is None:
            num_actors = max(1, int(ray.cluster_resources().get("CPU", 1) / max(num_cpus, 1e-9)))
        super().__init__(recipe, num_actors, horizon=horizon, timeout=timeout, max_failures=max_failures)
        self._start_seconds = float("inf")  # an actor may have to wait for room
        self._shipped = ray.put(recipe)
        self._make = ray.remote(
            num_cpus=num_cpus, max_restarts=0, concurrency_groups={"life": 1}, scheduling_strategy="SPREAD"
        )(_Actor)
        self.actors: dict[int, Any] = {}
        self._pending: dict[Any, int] = {}  # the slots from which answers are expected
        self._open()

    def _launch(self, slot: int) -> None:
        if slot in self.actors:
            ray.kill(self.actors[slot])
            self._pending = {answer: other for answer, other in self._pending.items() if other != slot}
        self.actors[slot] = self._make.remote(self._shipped)
        self._pending[self.actors[slot].open.remote()] = slot

    def _send(self, slot: int, chunk: Chunk) -> None:
        self._pending[self.actors[slot].run.remote(chunk.number, *chunk.request)] = slot

    def _ask(self, slot: int) -> None:
        self._pending[self.actors[slot].beat.remote()] = slot

    def _poll(self, seconds: float) -> list[tuple[int, Event]]:
        finished, _ = ray.wait(list(self._pending), num_returns=1, timeout=seconds)
        if finished:
            finished, _ = ray.wait(list(self._pending), num_returns=len(self._pending), timeout=0)
        events: list[tuple[int, Event]] = []
        lost: dict[int, str] = {}  # all answers of a dead actor fail, but it died only once
        for answer in finished:
            slot = self._pending.pop(answer)
            try:
                events.append((slot, ray.get(answer)))
            except ray.exceptions.RayError as error:
                lost[slot] = f"was lost ({str(error).splitlines()[0]})"
        return events + [(slot, Gone(reason)) for slot, reason in lost.items()]

    def _end(self) -> None:
        if not ray.is_initialized():
            return
        for actor in self.actors.values():
            ray.kill(actor)
        self.actors.clear()
        self._pending.clear()
        if self._connected_here:
            ray.shutdown()


def _connect(address: str | None, num_actors: int | None, num_cpus: float) -> None:
    if address is not None:
        ray.init(address=address, logging_level=logging.WARNING)
        return
    ray.init(
        address="local",
        num_cpus=None if num_actors is None else max(1, round(num_actors * num_cpus)),
        include_dashboard=False,
        object_store_memory=_OBJECT_STORE_BYTES,
        log_to_driver=False,
        logging_level=logging.WARNING,
    )
