"""Trajectories from pure JAX environments, in lockstep on any device."""

from __future__ import annotations

import functools
import inspect
import math
import operator
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from rido.core import checks
from rido.core.schedule import Schedule
from rido.core.summaries import Summary
from rido.core.trajectories import Trajectories, count_reached
from rido.policies.functions import function_name
from rido.policies.observations import stack, take
from rido.policies.resolve import import_attribute
from rido.simulators.base import Capabilities, Observed, SimulationError, Summarised
from rido.simulators.identity import environment_fingerprint
from rido.simulators.jax.batching import runs, split, tiles
from rido.simulators.jax.envs import adapt
from rido.simulators.jax.programs import NUMBERS, Programs, join_seeds, seed_words, split_seeds
from rido.simulators.requests import check_request, join_observed, join_trajectories
from rido.storage.fingerprint import fingerprint, identify

_BLOCKS = 16  # a trajectory is run in up to this many blocks of steps; short ones need fewer
# Rows that are run together: few sizes, because each is compiled, and none so small that a larger one takes no longer.
_SIZES = {"cpu": (16, 128, 1024)}
_LARGE_SIZES = (16384, 65536, 131072, 262144, 524288)
# Blocks of steps of the smallest tiles in one call, because these take no longer than the call.
_TOGETHER = {"cpu": 1}
_LARGE_TOGETHER = 8
_MOST_AT_ONCE = 1 << 30  # trajectories of one schedule that are counted in 32 bits
_MOST_NUMBERS = 1 << 29  # rewards of trajectories that are run together


@dataclass(frozen=True)
class JaxPolicy:
    """A policy as a JAX function.

    Attributes:
        function: from an observation to an action, or from an observation and a parameter ``key``.
        name: what it is called in results.
        reproducible: whether its randomness comes from the seed.
    """

    function: Callable[..., Any]
    name: str
    reproducible: bool = True

    @property
    def fingerprint(self) -> str:
        """Digest of the function."""
        return identify("policy", self.function)


class JaxSimulator:
    """Rolls a policy out in a JAX environment.

    Trajectories are sorted by length, the longest first, and run in tiles of a few fixed sizes, so that few programs
    are compiled. A tile runs in blocks of steps, with fewer rows where fewer go on, until its longest trajectory is
    done; what rows compute beyond their own planned length, or after they ended, is not looked at. All randomness of a
    trajectory comes from its seed. Devices may round a matrix product by the number of rows, so the last bits of a
    trajectory may depend on the others of its request. The same requests give the same bits on one type of device, on a
    GPU only if its compiler is told not to time several ways to compute a product and take the fastest.

    Args:
        env: what :func:`rido.simulators.jax.adapt` takes.
        policy: a JAX function from one observation to one action, or from an observation and a parameter ``key``; or
            "module:attribute". Not needed where the environment has one of its own.
        horizon: the longest trajectory that will be asked for.
        gamma: discount factor, on which the critic's signal and the policy of the paper's LQG depend.
        env_kwargs: arguments of the environment, with the id of a built-in one.
        num_envs: trajectories to run together at most; if not given, 1,024 on a CPU and 524,288 elsewhere, or fewer
            where the horizon is long. Where there is not enough memory, take less.
        deterministic: must be True: what is to be drawn, the policy draws from its key.

    Attributes:
        num_envs: trajectories that are run together at most.
        policy: the policy.
        observation_space: None: observations are plain arrays.
        name: what the environment is called in results.
    """

    observation_space = None

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
        self._steps = -(-self._horizon // _BLOCKS)
        most = max(1, _MOST_NUMBERS // self._horizon)
        most = most if num_envs is None else min(most, checks.integer("num_envs", num_envs, least=1))
        sizes = _SIZES.get(jax.default_backend(), _LARGE_SIZES)
        self._sizes = tuple(size for size in sizes if size < most) + ((most,) if most <= sizes[-1] else ())
        self.num_envs = self._sizes[-1]
        self._together = _TOGETHER.get(jax.default_backend(), _LARGE_TOGETHER)

    @property
    def capabilities(self) -> Capabilities:
        """It can keep rewards on its device, where critics run too."""
        return Capabilities(
            observes=True,
            summarises=True,
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

    def rollout(self, lengths: NDArray[np.int64], seeds: Sequence[int]) -> Trajectories:
        """Collects one trajectory per length, each from its own seed, and returns them in the same order."""
        parts, order = self._collect(lengths, seeds, observing=False)
        return join_trajectories([part.trajectories for part in parts], order)

    def observe(self, lengths: NDArray[np.int64], seeds: Sequence[int]) -> Observed:
        """Collects what ``rollout`` collects, and the observations."""
        return join_observed(*self._collect(lengths, seeds, observing=True))

    def starts(self, seeds: Sequence[int]) -> Any:
        """Returns a batch of first observations, each from its own seed, without taking a step."""
        programs, words = self._programs_for(None), split_seeds(seeds)
        parts = [programs.start(_filled(words, first, size))[2] for first, size in split(len(words), self._sizes)]
        return take(stack([_fetch(part) for part in parts]), np.arange(len(words)))

    def start_values(self, source: np.random.SeedSequence, first: int, count: int, critic: Any) -> NDArray[np.float64]:
        """Returns the critic's values of first observations, without taking a step; see :meth:`summarise`."""
        programs = self._programs_for(critic)
        parts = [
            programs.start(programs.seeds(seed_words(source, first + row), count=size))[4]
            for row, size in split(count, self._sizes)
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
        """Collects the trajectories of a schedule on the device, and returns only sums over them.

        Their seeds are made on the device, too, each from its own index in the evaluation alone.

        Args:
            schedule: how many samples of each step.
            source: what all seeds come from.
            first: index of the first trajectory.
            critic: makes a signal of the rewards, if there is one.
            before: what came before, with which this is to be added up.
        """
        if schedule.trajectories > _MOST_AT_ONCE:
            return self._summarise_parts(schedule, source, first, critic, before)
        programs = self._programs_for(critic)
        planned = np.zeros(programs.width, dtype=np.int32)
        planned[: self._horizon] = schedule.counts
        tables, starts = programs.open(planned, None if before is None else self._centres(before, programs)), []
        for row, sizes in tiles(planned, self._sizes, self._steps):
            carry, work = programs.begin(seed_words(source, first + row), np.int32(row), rows=sizes[0])
            if critic is not None:
                starts.append(carry[4])
            for size, blocks in runs(sizes, self._sizes[0], self._together):
                if size < carry[3].size:
                    carry, work = programs.shrink(carry, work, rows=size)
                carry, work, tables = programs.summarise(carry, work, tables, blocks=blocks)
        taken, numbers = _fetch(programs.close(tables))
        channels = [self._summary(schedule, taken, channel.astype(np.float64)) for channel in numbers]
        for channel, what in zip(channels, ("rewards", "critic"), strict=False):
            if not np.isfinite(np.triu(channel.products)).all():
                largest = self._name_the_failure(schedule, source, first)
                if what == "critic":
                    raise ValueError("critic's values must be finite and small enough to be squared in float32")
                raise ValueError(f"rewards overflow float32 when squared (largest {largest:.3g}): rescale the rewards")
        if critic is None:
            return Summarised(channels[0], None, None)
        values = np.concatenate([np.asarray(part, np.float64) for part in starts])
        return Summarised(channels[0], channels[1], values[: schedule.trajectories])

    def close(self) -> None:
        """Does nothing: there is nothing to close."""

    def _summarise_parts(
        self,
        schedule: Schedule,
        source: np.random.SeedSequence,
        first: int,
        critic: Any,
        before: Summarised | None,
    ) -> Summarised:
        """Collects a schedule of more trajectories than the device can count, some after the other."""
        parts = -(-schedule.trajectories // _MOST_AT_ONCE)
        found: list[Summarised] = []
        for part in range(parts):
            share = Schedule((schedule.counts + part) // parts)  # they add up, and never increase
            found.append(self.summarise(share, source, first, critic=critic, before=found[0] if found else before))
            first += share.trajectories
        signals = [part.signal for part in found if part.signal is not None]
        starts = [part.starts for part in found if part.starts is not None]
        return Summarised(
            functools.reduce(operator.add, [part.rewards for part in found]),
            functools.reduce(operator.add, signals) if signals else None,
            np.concatenate(starts) if starts else None,
        )

    def _name_the_failure(self, schedule: Schedule, source: np.random.SeedSequence, first: int) -> float:
        """Raises an error that names the trajectory with a bad reward, or returns the largest size of a reward."""
        largest = 0.0
        programs, lengths = self._programs_for(None), schedule.lengths
        for row in range(0, lengths.size, self.num_envs):
            seeds = join_seeds(np.asarray(programs.seeds(seed_words(source, first + row), count=self.num_envs)))
            part = lengths[row : row + self.num_envs]
            try:
                rewards = self.rollout(part, seeds[: part.size]).rewards
            except SimulationError as error:
                raise SimulationError(row + error.trajectory, error.step, error.seed, error.reason) from None
            largest = max(largest, float(np.abs(rewards).max()))
        return largest

    def _summary(self, schedule: Schedule, taken: NDArray[np.int32], numbers: NDArray[np.float64]) -> Summary:
        width, horizon = taken.size, self._horizon
        shapes = {name: (width, width) if name in ("sums", "products") else (width,) for name in NUMBERS}
        ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
        parts = {
            name: part.reshape(shape)[(slice(horizon),) * len(shape)]
            for (name, shape), part in zip(shapes.items(), np.split(numbers, ends[:-1]), strict=True)
        }
        return Summary(planned=schedule.counts, taken=taken[:horizon].astype(np.int64), **parts)

    def _centres(self, before: Summarised, programs: Programs) -> NDArray[np.float32]:
        summaries = [before.rewards] if before.signal is None else [before.rewards, before.signal]
        centres = np.zeros((programs.channels, programs.width), dtype=np.float32)
        centres[:, : self._horizon] = [summary.centre for summary in summaries]
        return centres

    def _programs_for(self, critic: Any) -> Programs:
        functions = (self._env, self.policy.function, None if critic is None else critic.function)
        return _programs(*map(_Itself, functions), self._horizon, self._gamma, self._steps)

    def _collect(
        self, lengths: NDArray[np.int64], seeds: Sequence[int], *, observing: bool
    ) -> tuple[list[Observed], NDArray[np.intp]]:
        """Returns the trajectories of each tile, and which ones of the request they are."""
        lengths = check_request(lengths, seeds, self._horizon)
        order = np.argsort(-lengths, kind="stable")
        programs, words, parts = self._programs_for(None), split_seeds(seeds)[order], []
        planned = count_reached(lengths, programs.width)
        for first, sizes in tiles(planned, self._sizes, self._steps):
            rows = order[first : first + sizes[0]]
            carry = programs.start(_filled(words, first, sizes[0]))
            before, blocks = carry[2], []
            for block, size in enumerate(sizes):
                if size < carry[3].size:
                    carry, _ = programs.shrink(carry, None, rows=size)
                carry, out = programs.advance(carry, block * self._steps, observing=observing)
                blocks.append(out)
            parts.append(self._observed(_fetch(before), _fetch(blocks), lengths[rows], rows, seeds, observing))
        return parts, order

    def _join(self, *blocks: NDArray[Any], rows: int) -> NDArray[Any]:
        """Lays blocks of steps side by side, one row for each trajectory."""
        whole = np.zeros((rows, len(blocks) * self._steps, *blocks[0].shape[2:]), dtype=blocks[0].dtype)
        for i, block in enumerate(blocks):
            part = np.moveaxis(block, 0, 1)[:rows]
            whole[: len(part), i * self._steps : (i + 1) * self._steps] = part
        return whole

    def _observed(
        self,
        before: Any,
        blocks: list[Any],
        lengths: NDArray[np.int64],
        rows: NDArray[np.intp],
        seeds: Sequence[int],
        observing: bool,
    ) -> Observed:
        """Puts the blocks of a tile together."""
        lived = np.zeros(lengths.size, dtype=np.int64)
        for _, part, _ in blocks:  # rows that were let go have lived as long as they are looked at
            lived[: part.size] = part[: lengths.size]
        steps, terminated = np.minimum(lived, lengths), lived <= lengths
        rewards = self._join(*(block[0] for block in blocks), rows=lengths.size)
        wrong = ~np.isfinite(rewards) & (np.arange(rewards.shape[1]) < steps[:, None])
        if wrong.any():
            row, step = (int(place[0]) for place in np.nonzero(wrong))
            raise SimulationError(int(rows[row]), step, int(seeds[rows[row]]), f"the reward is {rewards[row, step]}")
        observations = None
        if observing:
            shown = np.arange(rewards.shape[1] + 1) <= steps[:, None]

            def lay_out(first: NDArray[Any], *later: NDArray[Any]) -> NDArray[Any]:
                every = [first[: lengths.size, None], self._join(*later, rows=lengths.size)]
                whole: NDArray[Any] = np.concatenate(every, axis=1)[shown]
                return whole

            observations = jax.tree.map(lay_out, before, *(block[2] for block in blocks))
        return Observed(Trajectories(rewards, lengths, steps), observations, terminated)


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


class _Itself:
    """Something that equals nothing but itself, so that what was compiled for it is found again."""

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self.thing is other.thing

    def __hash__(self) -> int:
        return id(self.thing)


@functools.lru_cache(maxsize=16)
def _programs(env: _Itself, policy: _Itself, critic: _Itself, horizon: int, gamma: float, steps: int) -> Programs:
    """Returns programs that are shared by all evaluations of one policy."""
    return Programs(env.thing, policy.thing, critic.thing, horizon=horizon, gamma=gamma, steps=steps)


def _filled(words: NDArray[np.uint32], first: int, size: int) -> NDArray[np.uint32]:
    """Returns so many rows of words from the first one on, which are repeated where there are not enough."""
    part = words[first : first + size]
    return part[np.arange(size) % len(part)]


def _fetch(tree: Any) -> Any:
    """Returns a tree of arrays of the device as numpy's, all of them in one go."""
    return jax.device_get(tree)
