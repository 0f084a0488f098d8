"""Trajectories from pure JAX environments, in lockstep on any device."""

import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import jax
import numpy as np
from numpy.typing import NDArray

from rido.core import checks
from rido.core.schedule import Schedule
from rido.core.trajectories import Trajectories, count_reached
from rido.policies.functions import function_name
from rido.policies.observations import stack, take
from rido.policies.resolve import import_attribute
from rido.simulators.base import Capabilities, Observed, Points, SimulationError, Summarised
from rido.simulators.identity import environment_fingerprint
from rido.simulators.jax.batching import Batching
from rido.simulators.jax.envs import adapt
from rido.simulators.jax.programs import join_seeds, round_points, seed_words, split_seeds
from rido.simulators.jax.summing import SummingPrograms, sum_on_device
from rido.simulators.requests import check_points, check_request, join_observed, join_trajectories
from rido.storage.fingerprint import fingerprint, identify

_MOST_AT_ONCE = 1 << 30  # trajectories of one schedule, which the device counts in 32 bits


@dataclass(frozen=True)
class JaxPolicy:
    """A JAX function from an observation to an action, or from an observation and a parameter ``key``."""

    function: Callable[..., Any]
    name: str
    reproducible: bool = True
    normalisation: str = ""

    @property
    def fingerprint(self) -> str:
        return identify("policy", self.function)


class JaxSimulator:
    """Rolls a policy out in a JAX environment.

    Trajectories run in batches of a few fixed sizes, the longest first, so that few programs are compiled. All
    randomness of a trajectory comes from its seed. A device may round a matrix product differently for another number
    of rows, so the last bits of a trajectory may depend on the others of its request. The same requests give the same
    bits on one type of device; on a GPU only with XLA's flag for deterministic operations.

    Args:
        env: see :func:`rido.simulators.jax.adapt`.
        policy: a JAX function from one observation to one action, or from an observation and a parameter ``key``; or
            "module:attribute". Not needed where the environment has a default.
        horizon: the longest trajectory that will be asked for.
        gamma: discount factor, for critics and the default policy of LQG.
        env_kwargs: arguments of the environment, with the id of a built-in one.
        num_envs: trajectories to run together at most; if not given, 1,024 on a CPU and 524,288 elsewhere, or fewer
            where the horizon is long. Reduce it if the device runs out of memory.
        deterministic: must be True: a policy samples from its key.
        trust: ignored: a policy in JAX is never loaded from a file.

    Attributes:
        num_envs: trajectories that run together at most.
        name: of the environment in results.
    """

    observation_space = None  # observations are plain arrays

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
        trust: bool = True,
    ) -> None:
        self._given = env, dict(env_kwargs or {})
        self._env = adapt(env, env_kwargs)
        self.name = self._env.name
        self._horizon = checks.integer("horizon", horizon, least=1)
        self._gamma = checks.discount("gamma", gamma)
        if self._env.time_limit is not None and self._env.time_limit < self._horizon:
            raise ValueError(
                f"horizon must be at most the environment's time limit of {self._env.time_limit} steps, got {horizon}"
            )
        if not deterministic:
            raise ValueError("deterministic must be True with JAX: a policy with a parameter 'key' draws from it")
        self.policy = _resolve_policy(policy, self._env.policy, self._gamma)
        num_envs = None if num_envs is None else checks.integer("num_envs", num_envs, least=1)
        self._batching = Batching.for_device(self._horizon, num_envs)
        self.num_envs = self._batching.sizes[-1]

    @property
    def capabilities(self) -> Capabilities:
        """It can keep rewards on its device, where critics run too."""
        return Capabilities(
            observes=True,
            summarises=True,
            takes_points=self._env.reset_from is not None,
            lockstep=True,
            jax_critics=True,
            environment=self.name,
            policy=self.policy,
            load_policy=lambda: self.policy,
            notes=_notes(jax.default_backend(), os.environ.get("XLA_FLAGS", "")),
        )

    @property
    def fingerprint(self) -> str:
        """Digest of the environment and the policy."""
        env, env_kwargs = self._given
        return fingerprint(environment_fingerprint(env), env_kwargs, self.policy.fingerprint)

    def rollout(self, lengths: NDArray[np.int64], seeds: Sequence[int], points: Points = None) -> Trajectories:
        parts, order = self._collect(lengths, seeds, points, observing=False)
        return join_trajectories([part.trajectories for part in parts], order)

    def observe(self, lengths: NDArray[np.int64], seeds: Sequence[int], points: Points = None) -> Observed:
        return join_observed(*self._collect(lengths, seeds, points, observing=True))

    def starts(self, seeds: Sequence[int], points: Points = None) -> Any:
        start, given = self._programs_for(None).start, (words := split_seeds(seeds), *self._points(points, len(seeds)))
        parts = [
            start(*(_filled(each, first, size) for each in given)) for first, size in self._batching.split(len(words))
        ]
        return take(stack([jax.device_get(part.observations) for part in parts]), np.arange(len(words)))

    def start_values(self, source: np.random.SeedSequence, first: int, count: int, critic: Any) -> NDArray[np.float64]:
        programs = self._programs_for(critic)
        parts = [
            programs.start(programs.seeds(seed_words(source, first + row), count=size)).values
            for row, size in self._batching.split(count)
        ]
        return np.concatenate([np.asarray(part, np.float64) for part in parts])[:count]

    def summarise(
        self,
        schedule: Schedule,
        source: np.random.SeedSequence,
        first: int,
        *,
        critic: Any = None,
        before: Summarised | None = None,
    ) -> Summarised:
        """See :meth:`rido.simulators.base.SummarisingSimulator.summarise`; seeds are made on the device too."""
        total: Summarised | None = None
        parts = -(-schedule.trajectories // _MOST_AT_ONCE)
        for part in range(parts):
            share = Schedule((schedule.counts + part) // parts)  # they add up to the counts, and never increase
            programs, earlier = self._programs_for(critic), before if total is None else total
            found = sum_on_device(programs, self._batching, share, source, first, earlier)
            for summary, name in ((found.rewards, "rewards"), (found.signal, "critic")):
                if summary is not None and not np.isfinite(np.triu(summary.products)).all():
                    self._raise_overflow(name, share, source, first)
            total = found if total is None else total + found
            first += share.trajectories
        assert total is not None
        return total

    def close(self) -> None:
        """Does nothing: there is nothing to close."""

    def _raise_overflow(self, name: str, schedule: Schedule, source: np.random.SeedSequence, first: int) -> NoReturn:
        """Raises an error that names the trajectory with a reward that is not finite, or the largest reward."""
        largest = 0.0
        programs, lengths = self._programs_for(None), schedule.lengths
        for row in range(0, lengths.size, self.num_envs):
            seeds = join_seeds(np.asarray(programs.seeds(seed_words(source, first + row), count=self.num_envs)))
            part = lengths[row : row + self.num_envs]
            try:
                rewards = self.rollout(part, seeds[: part.size]).rewards
            except SimulationError as error:
                raise error.at(row + error.trajectory) from None
            largest = max(largest, float(np.abs(rewards).max()))
        if name == "critic":
            raise ValueError("critic's values must be finite and small enough to be squared in float32")
        raise ValueError(f"rewards overflow float32 when squared (largest {largest:.3g}): rescale the rewards")

    def _programs_for(self, critic: Any) -> SummingPrograms:
        functions = (self._env, self.policy.function, None if critic is None else critic.function)
        return _programs(*map(_SameObject, functions), self._horizon, self._gamma, self._batching.steps)

    def _points(self, points: Points, trajectories: int) -> list[NDArray[np.float32]]:
        """Returns the points as the last argument of :attr:`Programs.start`, if there are any."""
        if points is not None and self._env.reset_from is None:
            raise ValueError(f"points must be None, got some: {self.name} has no reset_from, which takes their numbers")
        checked = check_points(points, trajectories)
        return [] if checked is None else [round_points(checked)]

    def _collect(
        self, lengths: NDArray[np.int64], seeds: Sequence[int], points: Points, *, observing: bool
    ) -> tuple[list[Observed], NDArray[np.intp]]:
        """Returns the trajectories of each batch, and the rows of the request."""
        lengths = check_request(lengths, seeds, self._horizon)
        order = np.argsort(-lengths, kind="stable")
        programs, parts = self._programs_for(None), []
        given = [each[order] for each in (split_seeds(seeds), *self._points(points, lengths.size))]
        for first, sizes in self._batching.batches(count_reached(lengths, programs.width)):
            rows = order[first : first + sizes[0]]
            batch = programs.start(*(_filled(each, first, sizes[0]) for each in given))
            before, blocks = batch.observations if observing else None, []
            for block, size in enumerate(sizes):
                if size < batch.ends.size:
                    batch = programs.shrink(batch, rows=size)
                batch, out = programs.advance(batch, block * programs.steps, observing=observing)
                blocks.append(out)
            before, blocks = jax.device_get((before, blocks))
            parts.append(_observed(before, blocks, lengths[rows], rows, seeds))
        return parts, order


def _observed(
    before: Any, blocks: list[Any], lengths: NDArray[np.int64], rows: NDArray[np.intp], seeds: Sequence[int]
) -> Observed:
    """Joins the blocks of a batch; ``before`` are its first observations, if they are asked for."""
    ends = np.zeros(lengths.size, dtype=np.int64)
    for _, part, _ in blocks:  # dropped rows had reached their length
        ends[: part.size] = part[: lengths.size]
    steps, terminated = np.minimum(ends, lengths), ends <= lengths
    rewards = _by_row([block[0] for block in blocks], lengths.size)
    wrong = ~np.isfinite(rewards) & (np.arange(rewards.shape[1]) < steps[:, None])
    if wrong.any():
        row, step = (int(place[0]) for place in np.nonzero(wrong))
        raise SimulationError(int(rows[row]), step, int(seeds[rows[row]]), f"the reward is {rewards[row, step]}")
    observed = np.arange(rewards.shape[1] + 1) <= steps[:, None]

    def lay_out(first: NDArray[Any], *later: NDArray[Any]) -> NDArray[Any]:
        joined = np.concatenate([first[: lengths.size, None], _by_row(later, lengths.size)], axis=1)
        return joined[observed]

    observations = jax.tree.map(lay_out, before, *(block[2] for block in blocks))
    return Observed(Trajectories(rewards, lengths, steps), observations, terminated)


def _by_row(blocks: Sequence[NDArray[Any]], rows: int) -> NDArray[Any]:
    """Returns blocks of shape (steps, rows, ...) side by side, one row for each trajectory."""
    steps, first = len(blocks[0]), blocks[0]
    joined = np.zeros((rows, len(blocks) * steps, *first.shape[2:]), dtype=first.dtype)
    for i, block in enumerate(blocks):
        part = np.moveaxis(block, 0, 1)[:rows]
        joined[: len(part), i * steps : (i + 1) * steps] = part
    return joined


def _resolve_policy(policy: Any, default: Callable[[float], Any] | None, gamma: float) -> JaxPolicy:
    if policy is None:
        if default is None:
            raise ValueError("policy must be given: a JAX function of one observation")
        policy = default(gamma)
    if isinstance(policy, str) and ":" in policy:
        policy = import_attribute("policy", policy)
    if not callable(policy) or inspect.isclass(policy):
        raise ValueError(f"policy must be a JAX function of one observation or 'module:attribute', got {policy!r:.80}")
    return JaxPolicy(policy, function_name(policy))


def _notes(backend: str, flags: str) -> tuple[str, ...]:
    if backend != "gpu" or "--xla_gpu_deterministic_ops=true" in flags:
        return ()
    return ("another process may round differently: XLA_FLAGS=--xla_gpu_deterministic_ops=true would prevent it",)


@dataclass(frozen=True, eq=False)
class _SameObject:
    """A cache key that compares by identity, for objects that may not be hashable."""

    thing: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _SameObject) and self.thing is other.thing

    def __hash__(self) -> int:
        return id(self.thing)


@functools.lru_cache(maxsize=16)
def _programs(
    env: _SameObject, policy: _SameObject, critic: _SameObject, horizon: int, gamma: float, steps: int
) -> SummingPrograms:
    """Returns programs that all evaluations of one policy share."""
    return SummingPrograms(env.thing, policy.thing, critic.thing, horizon=horizon, gamma=gamma, steps=steps)


def _filled(array: NDArray[Any], first: int, size: int) -> NDArray[Any]:
    """Returns ``size`` rows of an array from the first one on, repeated where there are not enough."""
    part = array[first : first + size]
    return part[np.arange(size) % len(part)]
