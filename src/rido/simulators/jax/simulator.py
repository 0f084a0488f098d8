"""Trajectories from pure JAX environments, in lockstep on any device."""

import functools
import operator
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from rido.core import checks
from rido.core.schedule import Schedule
from rido.policies.base import Policies
from rido.policies.functions import function_name
from rido.policies.observations import stack, take
from rido.policies.resolve import import_attribute
from rido.record.fingerprint import fingerprint, identify
from rido.simulators.base import (
    NO_TRAJECTORIES,
    Batch,
    Capabilities,
    Found,
    Request,
    SimulationError,
    Simulator,
    Summarised,
)
from rido.simulators.identity import environment_fingerprint
from rido.simulators.jax.collecting import Dealt, Together
from rido.simulators.jax.device import Device, room
from rido.simulators.jax.envs import adapt
from rido.simulators.jax.functions import SameObject, Structure, is_function, split
from rido.simulators.jax.programs import Programs, RolloutTask, Slots
from rido.simulators.jax.seeds import join_seeds, make_seeds, seed_words
from rido.simulators.jax.summing import sum_on_device
from rido.simulators.requests import checked

Source = np.random.SeedSequence

_LEAST_STARTS = 64  # that are made in one go, so that few sizes are compiled
_MOST_TRANSITIONS = 7 << 25  # transitions that run in one go: with gaps their rewards take 1 to 2 GiB of memory


class JaxPolicy:
    """A JAX function from an observation to an action, with a parameter ``key`` if it draws; or ``(apply, params)``.

    Policies of one ``kind`` can run together.
    """

    reproducible = True
    normalisation = ""
    warnings: tuple[str, ...] = ()

    def __init__(self, given: Any) -> None:
        self._given = given
        self.name = function_name(given[0] if isinstance(given, tuple) else given)
        self.structure, self.arrays = split(given)
        self.kind = self.structure, tuple((array.shape, array.dtype) for array in self.arrays)

    @property
    def fingerprint(self) -> str:
        return identify("policy", self._given)


class JaxSimulator(Simulator):
    """Rolls a policy out in a JAX environment.

    Trajectories run in slots, in lockstep, the longest first; a slot whose trajectory is over takes the next. Programs
    are compiled for a few numbers of slots, and kept: for the same environment and a policy ``(apply, params)`` with
    the same function, nothing is compiled again.

    All randomness of a trajectory comes from its seed. A device may round a matrix product differently for another
    number of slots, so the last bits of a trajectory may depend on the others of its request. The same requests give
    the same bits on one type of device; on a GPU only with XLA's flag for deterministic operations.

    Args:
        env: see :func:`rido.simulators.jax.adapt`.
        policy: a JAX function from one observation to one action, or from an observation and a parameter ``key``; a
            pair ``(apply, params)``, called as ``apply(params, observation)``, whose parameters are arguments of the
            compiled program; or "module:attribute" of either. Not needed where the environment has a default. Or
            several of these, as :class:`rido.policies.base.Policies`.
        horizon: the longest trajectory that will be asked for.
        gamma: discount factor, for critics and the default policy of LQG.
        env_kwargs: arguments of the environment, with the id of a built-in one.
        num_envs: trajectories to run together at most; if not given, 1,024 on a CPU and 1,048,576 elsewhere. Reduce it
            if the device runs out of memory.
        deterministic: must be True: a policy samples from its key.
        trust: ignored: a policy in JAX is never loaded from a file.

    Attributes:
        num_envs: trajectories that run together at most.
        name: of the environment in results.
    """

    @checks.checked()
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
        trust: bool = False,
    ) -> None:
        self._given = env, dict(env_kwargs or {})
        self._env = adapt(env, env_kwargs)
        self.name = self._env.name
        self._horizon = horizon
        self._gamma = gamma
        if self._env.time_limit is not None and self._env.time_limit < self._horizon:
            raise ValueError(
                f"horizon must be at most the environment's time limit of {self._env.time_limit} steps, got {horizon}"
            )
        if not deterministic:
            raise ValueError("deterministic must be True with JAX: a policy with a parameter 'key' draws from it")
        several = policy if isinstance(policy, Policies) else {"": policy}
        self._policies = {name: _resolve_policy(each, self._env.policy, self._gamma) for name, each in several.items()}
        self._ready: tuple[Request, dict[str, Batch | Exception]] | None = None  # what ran ahead
        self._together: dict[Any, Together] = {}
        self._programs: dict[Any, Programs] = {}
        self._let_act()
        self._found = Found(_notes(jax.default_backend(), os.environ.get("XLA_FLAGS", "")))
        self._device = Device.default(num_envs)
        self.num_envs = self._device.width

    @property
    def capabilities(self) -> Capabilities:
        """It can keep rewards on its device, where critics run too."""
        return Capabilities(
            observes=True,
            summarises=True,
            takes_points=self._env.reset_from is not None,
            lockstep=True,
            in_time_of_one=self._device.in_time_of_one,
            jax_critics=True,
            environment=self.name,
            policies=self._policies,
            load_policy=lambda name="": self._policies[name or next(iter(self._policies))],
            engine="jax",
            found=self._found,
        )

    @property
    def fingerprint(self) -> str:
        """Digest of the environment and the policy."""
        env, env_kwargs = self._given
        return fingerprint(environment_fingerprint(env), env_kwargs, self.policy.fingerprint)

    def _let_act(self, name: str = "") -> None:
        self._acting = name or next(iter(self._policies))
        self.policy = self._policies[self._acting]

    def collect(self, request: Request) -> Batch:
        self._let_act(request.policy)
        seeds, critic = request.seeds, request.critic
        if request.wants == "sums":
            known: dict[str, Any] = dict(critic=critic, before=request.before, total=request.total)
            sums = self.summarise(request.lengths, seeds.source, seeds.first, **known)  # type: ignore[attr-defined]
            return Batch(NO_TRAJECTORIES, sums=sums, found=self._found)
        if request.wants == "starts" and critic is not None:
            values = self.start_values(seeds.source, seeds.first, len(seeds), critic)  # type: ignore[attr-defined]
            return Batch(NO_TRAJECTORIES, values, found=self._found)
        if request.wants == "starts":
            return Batch(NO_TRAJECTORIES, self._starts(request), found=self._found)
        if self._ready is None or not request.beside or not _same_trajectories(request, self._ready[0]):
            self._ready = request, {}
        found = self._ready[1]
        if self._acting not in found:
            found.update(self._run(request))
        batch = found.pop(self._acting)
        if isinstance(batch, Exception):
            raise batch
        return replace(batch, found=self._found)

    def _run(self, request: Request) -> dict[str, Batch | Exception]:
        """Runs the trajectories of the acting policy, and of those that act after it on the same ones if they can."""
        kind = self.policy.kind
        if kind not in self._together:
            arrays = {name: policy.arrays for name, policy in self._policies.items() if policy.kind == kind}
            self._together[kind] = Together(self._programs_for(None), self._device, arrays)
        names = [name for name in request.beside if self._policies[name].kind == kind]
        names = names[names.index(self._acting) :] if self._acting in names else [self._acting]
        observing = request.wants == "observations"
        task = self._task(None, None, np.zeros(1, dtype=np.int32))
        return self._together[kind].collect(names, self._dealt(request), task, observing=observing, total=request.total)

    def _dealt(self, request: Request) -> Dealt:
        return Dealt(checked(request, self._horizon, takes_points=self._env.reset_from is not None), self._horizon)

    def _starts(self, request: Request) -> Any:
        count = len(request.seeds)
        words, _, points = self._dealt(replace(request, lengths=np.full(count, self._horizon))).deal(1)

        def part(first: int, size: int) -> list[Any]:
            rows = (first + np.arange(size)) % count
            return [words[:, rows], None if points is None else points[:, rows]]

        parts = [jax.tree.map(lambda array: array[0], slots.observations) for slots in self._start(None, part, count)]
        return take(stack(jax.device_get(parts)), np.arange(count))

    def start_values(self, source: Source, first: int, count: int, critic: Any) -> NDArray[np.float64]:
        """Returns a critic's values of first observations, whose seeds are made on the device."""
        parts = self._start(critic, lambda row, size: [seed_words(source, first + row)[None], None], count)
        return np.concatenate([np.asarray(slots.values[0], np.float64) for slots in parts])[:count]

    def summarise(
        self,
        schedule: Schedule,
        source: Source,
        first: int,
        *,
        critic: Any = None,
        before: Summarised | None = None,
        total: int = 0,
    ) -> Summarised:
        """Returns sums over the trajectories of a schedule, whose seeds are made on the device."""
        found = before
        parts = -(-schedule.transitions // _MOST_TRANSITIONS)
        for part in range(parts):
            share = Schedule((schedule.counts + part) // parts)  # they add up to the counts, and never increase
            summed = self._summarise(share, source, first, critic, found, min(total, _MOST_TRANSITIONS))
            found = summed if part == 0 else found + summed  # type: ignore[operator]
            first += share.trajectories
        assert found is not None
        return found

    def _summarise(
        self, schedule: Schedule, source: Source, first: int, critic: Any, before: Summarised | None, total: int
    ) -> Summarised:
        """Sums over one batch, interleaved over the devices."""
        devices = jax.local_devices()[: schedule.trajectories]
        programs, number = self._programs_for(critic), len(devices)

        def run(place: int) -> Summarised:
            share = Schedule((schedule.counts - place + number - 1) // number)
            task = self._task(critic, seed_words(source, first + place, number)[None], share.counts)
            with jax.default_device(devices[place]):
                task = jax.device_put(task, devices[place]) if number > 1 else task
                return sum_on_device(programs, self._device, task, share, before, total // number)

        if number == 1:
            found = run(0)
        else:  # a thread waits for each device
            with ThreadPoolExecutor(number) as pool:
                found = functools.reduce(operator.add, pool.map(run, range(number)))
        for summary, name in ((found.rewards, "rewards"), (found.signal, "critic")):
            if summary is not None and not np.isfinite(summary.products).all():
                self._raise_overflow(name, schedule, source, first)
        return found

    def _raise_overflow(self, name: str, schedule: Schedule, source: Source, first: int) -> NoReturn:
        """Raises an error that names the trajectory with a reward that is not finite, or the largest reward."""
        largest = 0.0
        lengths, size = schedule.lengths, self.num_envs
        for row in range(0, lengths.size, size):
            seeds = join_seeds(np.asarray(make_seeds(seed_words(source, first + row), jnp.arange(size))))
            part = lengths[row : row + size]
            try:
                rewards = self.rollout(part, seeds[: part.size]).rewards
            except SimulationError as error:
                raise error.at(row + error.trajectory) from None
            largest = max(largest, float(np.abs(rewards).max()))
        if name == "critic":
            raise ValueError("critic's values must be finite and small enough to be squared in float32")
        raise ValueError(f"rewards overflow float32 when squared (largest {largest:.3g}): rescale the rewards")

    def _programs_for(self, critic: Any) -> Programs:
        """Returns the programs of the acting policy, which are kept as long as this simulator."""
        kind = self.policy.structure, None if critic is None else split(critic.function)[0]
        if kind not in self._programs:
            self._programs[kind] = _programs(SameObject(self._env), *kind)
        return self._programs[kind]

    def _task(self, critic: Any, seeds: Any, planned: NDArray[np.integer[Any]], points: Any = None) -> RolloutTask:
        """Returns what a single lane is asked for."""
        values = () if critic is None else split(critic.function)[1]
        policy = tuple(array[None] for array in self.policy.arrays)
        horizon, gamma = np.int32(self._horizon), np.float32(self._gamma)
        return RolloutTask(policy, values, horizon, gamma, seeds, np.asarray(planned, dtype=np.int32)[None], points)

    def _start(self, critic: Any, given: Callable[[int, int], list[Any]], count: int) -> Iterator[Slots]:
        """Yields trajectories that are started and take no step; ``given`` returns the seeds and points of some."""
        programs, size = self._programs_for(critic), min(room(count, _LEAST_STARTS), self.num_envs)
        for first in range(0, count, size):
            seeds, points = given(first, size)
            task = self._task(critic, seeds, np.full(self._horizon, size), points)
            yield programs.start(task, slots=size)


def _same_trajectories(one: Request, other: Request) -> bool:
    same_points = one.points is other.points or (
        one.points is not None and other.points is not None and np.array_equal(one.points, other.points)
    )
    return same_points and np.array_equal(one.lengths, other.lengths) and list(one.seeds) == list(other.seeds)


def _resolve_policy(policy: Any, default: Callable[[float], Any] | None, gamma: float) -> JaxPolicy:
    if policy is None:
        if default is None:
            raise ValueError("policy must be given: a JAX function of one observation")
        policy = default(gamma)
    if isinstance(policy, str) and ":" in policy:
        policy = import_attribute("policy", policy)
    if not is_function(policy):
        raise ValueError(
            "policy must be a JAX function of one observation, a pair (apply, params) or 'module:attribute', got "
            f"{checks.shown(policy)}"
        )
    return JaxPolicy(policy)


def _notes(backend: str, flags: str) -> tuple[str, ...]:
    if backend != "gpu" or "--xla_gpu_deterministic_ops=true" in flags:
        return ()
    return ("another process may round differently: XLA_FLAGS=--xla_gpu_deterministic_ops=true would prevent it",)


@functools.lru_cache(maxsize=16)
def _programs(env: SameObject, policy: Structure, critic: Structure | None) -> Programs:
    """Returns programs that all evaluations of policies of one structure share."""
    return Programs(env.thing, policy, critic)
