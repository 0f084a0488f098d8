"""Trajectories from EnvPool, which steps many environments in C++ threads; needs the extra ``envpool``."""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import create_empty_array
from numpy.typing import NDArray

from rido.core import checks
from rido.core.extras import import_extra
from rido.core.options import takes
from rido.policies.base import Policy
from rido.policies.observations import take
from rido.policies.resolve import resolve_policy
from rido.simulators.base import Batch, Capabilities, Request, SimulationError, Simulator, narrow_seed
from rido.simulators.environments import Environments, Slots, Step
from rido.simulators.environments_simulator import EnvironmentsSimulator
from rido.simulators.opening import did_you_mean
from rido.simulators.options import SimulatorOptions
from rido.simulators.points import PointGenerator
from rido.simulators.protocol import SlotError
from rido.simulators.rehearsal import ROWS, Rehearsal, mixes_rows
from rido.simulators.requests import checked, join, part_of
from rido.simulators.wrappers import lifted, limit_error

envpool = import_extra("EnvPoolSimulator", "envpool", "envpool")

_NUM_ENVS = 32
_SET_HERE = ("batch_size", "env_type", "num_envs", "num_threads", "seed")  # EnvPool's arguments that are no env_kwargs
_NO_LIMIT = (0, 2**31 - 1)  # what EnvPool calls the limit of an environment that has none, or computes it itself
# Families whose max_episode_steps cuts episodes and does nothing else, tried with EnvPool 1.2.5. MiniGrid and BabyAI
# put it into rewards, MuJoCo Playground into observations, and Jumanji keeps its limits whatever it is.
_LIFTABLE = (
    "atari",
    "box2d",
    "classic_control",
    "toy_text",
    *(f"mujoco.{name}" for name in ("dmc", "gym", "robotics")),
)


class EnvPoolSimulator(Simulator):
    """Rolls a policy out in EnvPool's environments.

    They differ from Gymnasium's: other arguments, sometimes other observations, and other trajectories for the same
    seed. EnvPool takes seeds only when environments are made and ignores the seed of a reset. So environments are made
    anew for each trajectory, which for Ant costs as much as 20 steps; then a trajectory depends on its seed alone. With
    ``reseed=False`` environments are made once and reset one by one: faster for short trajectories, but every run gives
    different ones.

    All trajectories are assigned before any starts, the longest first, and each is waited for, so that short episodes
    are not favoured. The environments form two halves: one is stepped while the policy acts in the other.

    Args:
        env: one of ``envpool.list_all_envs()``.
        policy: see :func:`rido.policies.resolve.resolve_policy`.
        horizon: the longest trajectory that will be asked for. A shorter time limit of the environment is lifted where
            it only cuts episodes, and an error where it is part of rewards or observations, or is in ``env_kwargs``.
        gamma: not used; all simulators take it.
        threads: EnvPool's threads; one for each processor if not given.
        **options: as in :func:`rido.evaluate`: ``env_kwargs``, EnvPool's own, such as ``use_contact_force=False`` for
            Ant; ``num_envs``, 32 if not given; ``deterministic``, ``trust``, ``end_on_truncation`` and ``reseed``.

    Attributes:
        num_envs: environments side by side.
        reproducible: whether the same seeds give the same trajectories.
    """

    @takes(SimulatorOptions)
    def __init__(
        self,
        env: str,
        policy: Any,
        *,
        horizon: int,
        gamma: float = 1.0,
        threads: int | None = None,
        **options: Unpack[SimulatorOptions],
    ) -> None:
        self._given = env, dict(options["env_kwargs"] or {})
        num_envs, reseed, ends = options["num_envs"], options["reseed"], options["end_on_truncation"]
        spec = _find_spec(*self._given)
        if policy is None:
            raise ValueError('policy must be given: an agent, a function of observations, or "random"')
        self._horizon = horizon
        self.num_envs = _NUM_ENVS if num_envs is None else num_envs
        threads = (os.cpu_count() or 1) if threads is None else checks.integer("threads", threads, least=1)
        parts = 1 if min(self.num_envs, threads) == 1 else 2
        most, threads = -(-self.num_envs // parts), -(-threads // parts)
        arguments, remarks = self._given[1], []
        if not ends and self._lifts(limit := int(spec.config.max_episode_steps)):
            # One step more than the horizon: where both come at once, EnvPool reports a termination as a time limit.
            arguments = {**arguments, "max_episode_steps": self._horizon + 1}
            remarks = [lifted(limit, self._horizon)] if limit < self._horizon else []
        make = partial(envpool.make, env, env_type="gymnasium", **arguments)
        envs = [_EnvPoolEnvironments(make, spec, remarks, most, threads) for _ in range(parts)]
        self.observation_space = envs[0].observation_space
        spaces = dict(observation_space=self.observation_space, action_space=envs[0].action_space)
        self.policy = resolve_policy(policy, **spaces, deterministic=options["deterministic"], trust=options["trust"])
        self._remake = reseed
        self.reproducible = reseed and self.policy.reproducible
        lock = threading.Lock()
        for part in envs:
            part.ends, part.remakes = ends, reseed
        self._halves = [_Half(part, self.policy, self._horizon, lock, leads=part is envs[0]) for part in envs]
        if not reseed:
            note = "EnvPool draws starts and noise that the seed does not control"
            self._halves[0].note(note)

    def _lifts(self, limit: int) -> bool:
        """Returns whether a time limit is to be lifted, or raises where it would cut trajectories and cannot be."""
        if limit in _NO_LIMIT or limit > self._horizon:
            return False
        env, arguments = self._given
        family = envpool.registration.registry.specs[env][0].removeprefix("envpool.")
        if family in _LIFTABLE and "max_episode_steps" not in arguments:
            return True
        if limit < self._horizon:
            raise limit_error(limit, self._horizon)
        return False

    @property
    def capabilities(self) -> Capabilities:
        """It returns observations; a note says so where the seed does not control the environments."""
        able = self._halves[0].capabilities  # neither half knows what the other one has left of a limit
        return replace(able, limits=False, tries=self._remake, engine="envpool")

    @property
    def fingerprint(self) -> str:
        """Digest of the environment and the policy."""
        return self._halves[0].fingerprint_of(*self._given)

    def close(self) -> None:
        """Closes the environments."""
        for half in self._halves:
            half.close()

    def collect(self, request: Request) -> Batch:
        first = self._halves[0]
        if request.wants in ("starts", "trial"):
            return first.collect(request)
        request = checked(request, self._horizon, takes_points=False)
        order = np.argsort(-request.lengths, kind="stable")
        first._try(request.seeds)  # before the other half runs
        size = first.num_envs
        if self._remake:  # one trajectory for each environment
            groups = [order[begin : begin + size] for begin in range(0, order.size, size)]
        else:
            groups = [order[half :: len(self._halves)] for half in range(min(len(self._halves), order.size))]
        waiting = iter(enumerate(groups))
        parts: dict[int, Batch] = {}

        def work(half: _Half) -> None:
            for number, rows in waiting:
                try:
                    parts[number] = half.collect(part_of(request, rows))
                except SimulationError as error:
                    raise error.at(int(rows[error.trajectory])) from error.__cause__

        halves = self._halves[: 1 if self.policy.remembers else None]
        with ThreadPoolExecutor(len(halves)) as executor:
            for finished in [executor.submit(work, half) for half in halves]:
                finished.result()
        return join([parts[number] for number in range(len(groups))], np.concatenate(groups), first.found)


class _Half(EnvironmentsSimulator):
    """Half of the environments. The policy acts in one half at a time, because it may not be thread-safe."""

    def __init__(self, envs: Environments, policy: Policy, horizon: int, lock: threading.Lock, *, leads: bool) -> None:
        super().__init__(envs, policy, horizon)
        self._lock, self._leads = lock, leads

    def _act(self, observations: Any, rollout: Any) -> NDArray[Any]:
        with self._lock:
            return super()._act(observations, rollout)

    def rehearse(self, seeds: Sequence[int]) -> Rehearsal:
        """Tries the policy on a batch of starts. Environments need no trial: each is made for one trajectory."""
        policy = self.policy
        if not self._leads or policy.in_sequence or not policy.reproducible:
            return Rehearsal()
        try:
            starts = self.starts(seeds[:ROWS])
            rows = [take(starts, np.array([row])) for row in range(len(seeds[:ROWS]))]
            return Rehearsal(mixes=mixes_rows(policy, rows))
        except (Exception, SystemExit) as error:  # the first trajectory fails in the same way, and its error says where
            return Rehearsal(failed=str(error) or repr(error))


class _EnvPoolEnvironments(Environments):
    """Environments of EnvPool in its synchronous mode, in which any of them can be reset and stepped.

    If it ``remakes``, a reset makes new environments, with the seeds; then all are reset together.
    """

    remakes = True

    def __init__(self, make: Callable[..., Any], spec: Any, remarks: list[str], most: int, threads: int) -> None:
        self._new, self.remarks, self.most, self._threads = make, remarks, most, threads
        self._pool: Any = None
        self._observations: Any = None
        self.observation_space = spec.gymnasium_observation_space
        self.action_space = spec.gymnasium_action_space

    def provide(self, wanted: int) -> int:
        return min(wanted, self.most)

    def reset(self, slots: Slots, seeds: Sequence[int | None], starts: Sequence[PointGenerator] | None = None) -> None:
        try:
            if self.remakes:
                self._make([narrow_seed(int(seed or 0)) for seed in seeds])
            elif self._pool is None:
                words = np.random.SeedSequence(seeds[0]).generate_state(self.most).tolist()
                self._make([narrow_seed(word) for word in words])
            observations, _ = self._pool.reset(slots.astype(np.int32))
        except Exception as error:
            raise SlotError(int(slots[0]), f"EnvPool's reset raised {error!r}") from error
        _assign(self._observations, slots, observations)

    def observe(self, slots: Slots) -> Any:
        return take(self._observations, slots)

    def step(self, slots: Slots, actions: NDArray[Any]) -> Step:
        if (wrong := ~_valid(actions, self.action_space)).any():
            row = int(np.flatnonzero(wrong)[0])
            raise SlotError(
                int(slots[row]), f"the policy must return actions of {self.action_space}, got {actions[row]!r}"
            )
        try:
            observations, rewards, terminated, truncated, _ = self._pool.step(actions, slots.astype(np.int32))
        except Exception as error:
            raise SlotError(int(slots[0]), f"EnvPool's step raised {error!r}") from error
        _assign(self._observations, slots, observations)
        return rewards.astype(np.float64), terminated, truncated

    def close(self) -> None:
        self._pool = None

    def _make(self, seeds: list[int]) -> None:
        self._pool = None  # ends the threads of the old one first
        self._pool = self._new(num_envs=len(seeds), num_threads=min(self._threads, len(seeds)), seed=seeds)
        self._observations = create_empty_array(self.observation_space, len(seeds))


def time_limit(env: str, env_kwargs: Mapping[str, Any]) -> int | None:
    """Returns the number of steps after which EnvPool cuts an environment's episodes, if that is known."""
    limit = int(_find_spec(env, dict(env_kwargs)).config.max_episode_steps)
    return None if limit in _NO_LIMIT else limit


def _find_spec(env: str, arguments: dict[str, Any]) -> Any:
    """Returns EnvPool's specification of an environment, or raises where it has none with these arguments."""
    known = envpool.list_all_envs()
    if env not in known:
        hint = did_you_mean(str(env), known)
        raise ValueError(f"env must be one of the {len(known)} ids that EnvPool has, got {env!r}{hint}")
    if taken := [name for name in _SET_HERE if name in arguments]:
        raise ValueError(
            f"env_kwargs must leave {', '.join(taken)} to rido, got {arguments!r}: see the arguments num_envs and seed"
        )
    try:
        spec = envpool.make_spec(env, **arguments)
    except (TypeError, ValueError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"env_kwargs must be EnvPool's arguments of {env}, got {arguments!r}: {reason}") from error
    if spec.config.max_num_players != 1:
        raise ValueError(f"env must have one player, got {env} with up to {spec.config.max_num_players}")
    return spec


def _valid(actions: NDArray[Any], space: gym.Space[Any]) -> NDArray[np.bool_]:
    """Returns for each row whether EnvPool, which casts whatever it gets, would take the action as it is meant."""
    flat = actions.reshape(len(actions), -1)
    match space:
        case gym.spaces.Discrete(start=low, n=count) | gym.spaces.MultiDiscrete(start=low, nvec=count):
            whole = flat.dtype.kind in "biu"
            valid = whole & (flat >= np.ravel(low)) & (flat < np.ravel(low) + np.ravel(count))
        case _:
            valid = np.isfinite(flat)
    rows: NDArray[np.bool_] = valid.all(axis=1)
    return rows


def _assign(batch: Any, slots: Slots, observations: Any) -> None:
    if isinstance(batch, Mapping):
        for key, part in batch.items():
            _assign(part, slots, observations[key])
    else:
        batch[slots] = observations
