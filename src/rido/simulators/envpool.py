"""Trajectories from EnvPool, which steps many environments in C++ threads; needs the extra ``envpool``."""

from __future__ import annotations

import difflib
import importlib
import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from gymnasium.vector.utils import create_empty_array
from numpy.typing import NDArray

from rido.core import checks
from rido.core.trajectories import Trajectories
from rido.policies.base import Policy
from rido.policies.observations import take
from rido.policies.resolve import resolve_policy
from rido.simulators.base import Capabilities, Observed, SimulationError, narrow_seed
from rido.simulators.environments import Environments, SlotError, Slots, Step
from rido.simulators.gymnasium import GymnasiumSimulator
from rido.simulators.requests import check_request, join_observed, join_trajectories
from rido.storage.fingerprint import fingerprint

try:
    envpool = importlib.import_module("envpool")  # whose types are not complete
except ImportError as error:
    raise ImportError('EnvPoolSimulator needs envpool: pip install "rido[envpool]"') from error

_NUM_ENVS = 32


class EnvPoolSimulator:
    """Rolls a policy out in environments that EnvPool has.

    EnvPool's environments are its own: other arguments than Gymnasium's, sometimes other observations, and not the
    same trajectories for the same seed. It ignores the seed of a reset and takes seeds only when environments are
    made. So environments are made for each trajectory, which for Ant costs what 20 steps cost; then a trajectory
    depends on its seed alone, as with any other simulator. With ``reproducible=False`` environments are made once and
    reset one by one: faster for short trajectories, but every run gives other ones.

    Which trajectories run is settled before any starts, the longest first, and each is waited for: environments whose
    episodes are short are not favoured. They run in two lanes, so that one is stepped while the policy acts in the
    other.

    Args:
        env: an id that ``envpool.list_all_envs()`` has.
        policy: what :func:`rido.policies.resolve.resolve_policy` takes.
        horizon: the longest trajectory that will be asked for; the environments' own time limit is lifted.
        gamma: not used; all simulators take it.
        env_kwargs: EnvPool's arguments of the environment, such as ``use_contact_force=False`` for Ant.
        num_envs: environments side by side; 32 if not given.
        deterministic: whether an agent takes its most likely action or samples one.
        threads: of EnvPool; as many as there are processors if not given.
        reproducible: whether a trajectory is to depend on its seed alone.

    Attributes:
        num_envs: environments side by side at most.
        policy: the resolved policy.
        observation_space: of one environment.
        reproducible: whether the same seeds give the same trajectories.
    """

    def __init__(
        self,
        env: str,
        policy: Any,
        *,
        horizon: int,
        gamma: float = 1.0,
        env_kwargs: Mapping[str, Any] | None = None,
        num_envs: int | None = None,
        deterministic: bool = True,
        threads: int | None = None,
        reproducible: bool = True,
    ) -> None:
        known = envpool.list_all_envs()
        if env not in known:
            close = difflib.get_close_matches(str(env), known, n=3, cutoff=0.5)
            hint = f"; did you mean {' or '.join(close)}?" if close else ""
            raise ValueError(f"env must be one of the {len(known)} ids that EnvPool has, got {env!r}{hint}")
        if policy is None:
            raise ValueError('policy must be given: an agent, a function of observations, or "random"')
        self._horizon = checks.integer("horizon", horizon, least=1)
        self.num_envs = _NUM_ENVS if num_envs is None else checks.integer("num_envs", num_envs, least=1)
        threads = (os.cpu_count() or 1) if threads is None else checks.integer("threads", threads, least=1)
        pools = [
            _Pool(env, self._horizon, dict(env_kwargs or {}), rows, share, reproducible)
            for rows, share in _lanes(self.num_envs, threads)
        ]
        self.observation_space = pools[0].observation_space
        self.policy = resolve_policy(
            policy,
            observation_space=self.observation_space,
            action_space=pools[0].action_space,
            deterministic=deterministic,
        )
        self._fresh = reproducible
        self.reproducible = reproducible and self.policy.reproducible
        self._given = env, dict(env_kwargs or {})
        lock = threading.Lock()
        self._lanes = [_Lane(pool, self.policy, lock, self._horizon) for pool in pools]

    @property
    def capabilities(self) -> Capabilities:
        """It shows its observations, and says so where the seed does not control them."""
        notes = () if self._fresh else ("EnvPool draws starts and noise that the seed does not control",)
        return Capabilities(observes=True, policy=self.policy, load_policy=lambda: self.policy, notes=notes)

    @property
    def fingerprint(self) -> str:
        """Digest of the environment and the policy."""
        return fingerprint(*self._given, self.policy.fingerprint)

    def rollout(self, lengths: NDArray[np.int64], seeds: Sequence[int]) -> Trajectories:
        """Collects one trajectory per length, each from its own seed, and returns them in the same order."""
        return join_trajectories(*self._collect("rollout", lengths, seeds))

    def observe(self, lengths: NDArray[np.int64], seeds: Sequence[int]) -> Observed:
        """Collects what :meth:`rollout` collects, and the observations."""
        return join_observed(*self._collect("observe", lengths, seeds))

    def starts(self, seeds: Sequence[int]) -> Any:
        """Returns a batch of first observations, each from its own seed, without taking a step."""
        return self._lanes[0].starts(seeds)

    def close(self) -> None:
        """Closes the environments."""
        for lane in self._lanes:
            lane.close()

    def _collect(
        self, method: str, lengths: NDArray[np.int64], seeds: Sequence[int]
    ) -> tuple[list[Any], NDArray[np.intp]]:
        """Returns what the lanes collect, in parts, and the rows that they are of."""
        lengths = check_request(lengths, seeds, self._horizon)
        order = np.argsort(-lengths, kind="stable")
        size = self._lanes[0].num_envs
        if self._fresh:  # a trajectory for each environment
            groups = [order[first : first + size] for first in range(0, order.size, size)]
        else:
            groups = [order[lane :: len(self._lanes)] for lane in range(len(self._lanes)) if lane < order.size]
        waiting = iter(enumerate(groups))
        parts: dict[int, Any] = {}

        def work(lane: _Lane) -> None:
            for number, rows in waiting:
                try:
                    parts[number] = getattr(lane, method)(lengths[rows], [seeds[row] for row in rows.tolist()])
                except SimulationError as error:
                    row = int(rows[error.trajectory])
                    raise SimulationError(row, error.step, error.seed, error.reason) from error.__cause__

        with ThreadPoolExecutor(len(self._lanes)) as executor:
            for finished in [executor.submit(work, lane) for lane in self._lanes]:
                finished.result()
        return [parts[number] for number in range(len(groups))], np.concatenate(groups)


def _lanes(num_envs: int, threads: int) -> list[tuple[int, int]]:
    """Returns environments and threads of each lane."""
    return [(num_envs, threads)] if min(num_envs, threads) == 1 else [((num_envs + 1) // 2, (threads + 1) // 2)] * 2


class _Lane(GymnasiumSimulator):
    """Half of the environments. The policy acts in one lane at a time, because it may not be made for threads."""

    def __init__(self, pool: _Pool, policy: Policy, lock: threading.Lock, horizon: int) -> None:
        self._envs = pool
        self._horizon = horizon
        self._lock = lock
        self.policy = policy
        self.num_envs = pool.most
        self.observation_space = pool.observation_space

    def _act(self, observations: Any, running: Any) -> NDArray[Any]:
        with self._lock:
            return super()._act(observations, running)


class _Pool(Environments):
    """Environments of EnvPool in its synchronous mode, in which any of them can be reset and stepped.

    Args:
        env_id: EnvPool's id.
        horizon: the longest trajectory.
        arguments: of the environment.
        most: environments there are at most.
        threads: of EnvPool.
        fresh: whether environments are made anew, with their seeds, when all of them are reset.
    """

    def __init__(
        self, env_id: str, horizon: int, arguments: dict[str, Any], most: int, threads: int, fresh: bool
    ) -> None:
        # One step more than the horizon: where both come at once, EnvPool reports a termination as a time limit.
        self._arguments = {**arguments, "max_episode_steps": horizon + 1}
        self._id = env_id
        self._threads = threads
        self.most = most
        self.fresh = fresh
        self._pool: Any = None
        self._observations: Any = None
        try:
            spec = envpool.make_spec(env_id, **self._arguments)
        except (TypeError, AssertionError) as error:
            raise ValueError(
                f"env_kwargs must be EnvPool's arguments of {env_id}, got {arguments!r}: {error}"
            ) from error
        if spec.config.max_num_players != 1:
            raise ValueError(f"env must have one player, got {env_id} with up to {spec.config.max_num_players}")
        self.observation_space = spec.gymnasium_observation_space
        self.action_space = spec.gymnasium_action_space

    def provide(self, wanted: int) -> int:
        return min(wanted, self.most)

    def reset(self, slots: Slots, seeds: Sequence[int | None]) -> None:
        try:
            if self.fresh:
                self._make([narrow_seed(int(seed or 0)) for seed in seeds])
            elif self._pool is None:
                words = np.random.SeedSequence(seeds[0]).generate_state(self.most).tolist()
                self._make([narrow_seed(word) for word in words])
            observations, _ = self._pool.reset(slots.astype(np.int32))
        except Exception as error:
            raise SlotError(int(slots[0]), f"EnvPool's reset raised {error!r}") from error
        self._keep(slots, observations)

    def observe(self, slots: Slots) -> Any:
        return take(self._observations, slots)

    def step(self, slots: Slots, actions: NDArray[Any]) -> Step:
        try:
            observations, rewards, terminated, truncated, _ = self._pool.step(actions, slots.astype(np.int32))
        except Exception as error:
            raise SlotError(int(slots[0]), f"EnvPool's step raised {error!r}") from error
        self._keep(slots, observations)
        return rewards.astype(np.float64), terminated, truncated

    def close(self) -> None:
        self._pool = None

    def _make(self, seeds: list[int]) -> None:
        self._pool = None  # before there is another one, since each has its threads
        self._pool = envpool.make(
            self._id,
            env_type="gymnasium",
            num_envs=len(seeds),
            num_threads=min(self._threads, len(seeds)),
            seed=seeds,
            **self._arguments,
        )
        self._observations = create_empty_array(self.observation_space, len(seeds))

    def _keep(self, slots: Slots, observations: Any) -> None:
        _assign(self._observations, slots, observations)


def _assign(batch: Any, slots: Slots, observations: Any) -> None:
    if isinstance(batch, Mapping):
        for key, part in batch.items():
            _assign(part, slots, observations[key])
    else:
        batch[slots] = observations
