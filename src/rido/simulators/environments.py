"""Sub-environments that a simulator resets and steps as it likes, whatever the user's environment is."""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array
from numpy.typing import NDArray

from rido.policies.observations import take
from rido.simulators.base import narrow_seed

Slots = NDArray[np.intp]
Step = tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]

_MOST_SINGLE = 16  # more side by side make the policy's batch hardly cheaper per row
_MOST_VECTORISED = 256


class SlotError(Exception):
    """Something that went wrong in one slot; its cause is the original exception."""

    def __init__(self, slot: int, reason: str) -> None:
        super().__init__(reason)
        self.slot = slot
        self.reason = reason


class Environments(ABC):
    """Independent sub-environments in numbered slots.

    Attributes:
        most: slots there are at most.
        observation_space: of one sub-environment.
        action_space: of one sub-environment.
    """

    most: int
    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]

    @abstractmethod
    def provide(self, wanted: int) -> int:
        """Makes up to ``wanted`` slots ready and returns how many there are; forgets where they were."""

    @abstractmethod
    def reset(self, slots: Slots, seeds: Sequence[int | None]) -> None:
        """Starts a new trajectory in each of the slots."""

    @abstractmethod
    def observe(self, slots: Slots) -> Any:
        """Returns the present observations of the slots, as one batch that is never written to again."""

    @abstractmethod
    def step(self, slots: Slots, actions: NDArray[Any]) -> Step:
        """Takes one step in each of the slots; returns rewards, whether each ended, whether a time limit cut it."""

    @abstractmethod
    def close(self) -> None:
        """Closes what was opened here."""


class SingleEnvironments(Environments):
    """A list of ``gymnasium.Env``: only the slots named are stepped.

    Args:
        envs: environments that are there already.
        make: makes one more; None if there are to be no more.
        most: slots there are at most.
    """

    def __init__(self, envs: list[gym.Env[Any, Any]], make: Callable[[], gym.Env[Any, Any]] | None, most: int) -> None:
        self._envs = envs
        self._make = make
        self._observations: list[Any] = [None] * len(envs)
        self._wide: bool | None = None  # whether seeds of more than 31 bits are taken, once that is known
        self.most = most
        self.observation_space = envs[0].observation_space
        self.action_space = envs[0].action_space

    def provide(self, wanted: int) -> int:
        while self._make is not None and len(self._envs) < min(wanted, self.most):
            self._envs.append(self._make())
            self._observations.append(None)
        return len(self._envs)

    def reset(self, slots: Slots, seeds: Sequence[int | None]) -> None:
        for slot, seed in zip(slots.tolist(), seeds, strict=True):
            try:
                self._observations[slot], _ = self._reset(self._envs[slot], seed)
            except Exception as error:
                raise SlotError(slot, f"the environment's reset raised {error!r}") from error

    def _reset(self, env: gym.Env[Any, Any], seed: int | None) -> tuple[Any, Any]:
        """Resets with the whole seed, or with 31 bits if the very first reset shows that the environment takes no more.

        Gymnasium's own generator takes any seed; ``numpy.random.seed``, which some environments call, takes 32 bits.
        """
        if seed is None or self._wide or seed == narrow_seed(seed):
            return env.reset(seed=seed)
        if self._wide is None:
            try:
                result = env.reset(seed=seed)
                self._wide = True
                return result
            except (ValueError, OverflowError, TypeError):
                self._wide = False
        return env.reset(seed=narrow_seed(seed))

    def observe(self, slots: Slots) -> Any:
        observations = [self._observations[slot] for slot in slots.tolist()]
        if isinstance(self.observation_space, gym.spaces.Box):  # the same as below, in less time
            return np.array(observations, dtype=self.observation_space.dtype)
        batch: Any = create_empty_array(self.observation_space, slots.size)
        return concatenate(self.observation_space, observations, batch)

    def step(self, slots: Slots, actions: NDArray[Any]) -> Step:
        rewards = np.empty(slots.size)
        terminated = np.empty(slots.size, dtype=np.bool_)
        truncated = np.empty(slots.size, dtype=np.bool_)
        for row, slot in enumerate(slots.tolist()):
            try:
                result = self._envs[slot].step(actions[row])
                self._observations[slot], rewards[row], terminated[row], truncated[row], _ = result
            except Exception as error:
                raise SlotError(slot, f"the environment's step raised {error!r}") from error
        return rewards, terminated, truncated

    def close(self) -> None:
        if self._make is not None:
            for env in self._envs:
                env.close()


class VectorEnvironments(Environments):
    """A ``VectorEnv`` without autoreset: all rows are stepped together, those without a trajectory idle.

    Args:
        env: the vector environment.
        make: makes one with more rows, if the present ones are too few; None if there are to be no more.
        most: rows there are at most.
    """

    def __init__(
        self, env: VectorEnv[Any, Any, Any], make: Callable[[int], VectorEnv[Any, Any, Any]] | None, most: int
    ) -> None:
        self._make = make
        self.most = most
        self._use(env)

    def _use(self, env: VectorEnv[Any, Any, Any]) -> None:
        self._env = env
        self.observation_space = env.single_observation_space
        self.action_space = env.single_action_space
        self._observations: Any = None
        self._actions: NDArray[Any] | None = None
        self._ended = np.zeros(env.num_envs, dtype=np.bool_)

    def provide(self, wanted: int) -> int:
        rows = min(1 << max(wanted - 1, 1).bit_length(), self.most)
        if self._make is not None and rows > self._env.num_envs:
            self._env.close()
            self._use(self._make(rows))
        return self._env.num_envs

    def reset(self, slots: Slots, seeds: Sequence[int | None]) -> None:
        count = self._env.num_envs
        # A full list of Python ints; a new dictionary each time, because Gymnasium takes the mask out of it.
        everything: Any = [None] * count
        for slot, seed in zip(slots.tolist(), seeds, strict=True):
            everything[slot] = seed
        mask = self._ended if self._observations is not None else np.ones(count, dtype=np.bool_)
        mask[slots] = True
        try:
            self._observations, _ = self._env.reset(seed=everything, options={"reset_mask": mask.copy()})
        except Exception as error:
            raise SlotError(int(slots[0]), f"the environment's reset raised {error!r}") from error
        self._ended = np.zeros(count, dtype=np.bool_)

    def observe(self, slots: Slots) -> Any:
        return take(self._observations, slots)

    def step(self, slots: Slots, actions: NDArray[Any]) -> Step:
        if self._actions is None:
            self._actions = np.repeat(actions[:1], self._env.num_envs, axis=0)
        self._actions[slots] = actions
        if self._ended.any():  # rows that idle must not be stepped when they have ended
            self.reset(np.flatnonzero(self._ended), [None] * int(self._ended.sum()))
        try:
            self._observations, rewards, terminated, truncated, _ = self._env.step(self._actions.copy())
        except Exception as error:
            raise SlotError(int(slots[0]), f"the environment's step raised {error!r}") from error
        self._ended = np.logical_or(terminated, truncated)
        return rewards[slots], terminated[slots], truncated[slots]

    def close(self) -> None:
        if self._make is not None:
            self._env.close()


def open_environments(env: Any, *, horizon: int, env_kwargs: Mapping[str, Any], num_envs: int | None) -> Environments:
    """Returns sub-environments of whatever the user named or passed.

    Args:
        env: an id, a function that makes an environment, an environment, or a VectorEnv without autoreset.
        horizon: the longest trajectory that will be asked for.
        env_kwargs: arguments of the environment, with an id.
        num_envs: sub-environments side by side at most.
    """
    if isinstance(env, str):
        return _open_id(env, horizon, env_kwargs, num_envs)
    if env_kwargs:
        raise ValueError("env_kwargs must come with an environment's id, got them with something else")
    if isinstance(env, VectorEnv):
        if env.metadata.get("autoreset_mode") != AutoresetMode.DISABLED:
            raise ValueError(
                "env must be a VectorEnv without autoreset, got autoreset_mode="
                f"{env.metadata.get('autoreset_mode')!r}: make it with autoreset_mode=AutoresetMode.DISABLED"
            )
        if isinstance(env, SyncVectorEnv):
            _check_time_limit(env.envs[0], horizon)
            return SingleEnvironments(list(env.envs), None, env.num_envs)
        _check_time_limit(env, horizon)
        return VectorEnvironments(env, None, env.num_envs)
    if isinstance(env, gym.Env):
        _check_time_limit(env, horizon)
        return SingleEnvironments([env], None, 1)
    if not callable(env):
        raise ValueError(f"env must be an id, a function that makes an environment, or an environment, got {env!r}")
    first = env()
    if not isinstance(first, gym.Env):
        raise ValueError(f"env must make a gymnasium.Env when it is called, got {first!r}")
    _check_time_limit(first, horizon)
    return SingleEnvironments([first], env, num_envs or _MOST_SINGLE)


def find_spec(env_id: str) -> gym.envs.registration.EnvSpec:
    """Returns Gymnasium's entry for an id, or says which ids come close to it."""
    module, _, name = env_id.rpartition(":")
    if module:
        try:
            __import__(module)
        except ImportError as error:
            raise ValueError(f"env must name a module that can be imported, got {env_id!r}: {error}") from error
    try:
        spec = gym.spec(name)
    except gym.error.Error:
        close = difflib.get_close_matches(name, gym.registry, n=3, cutoff=0.5)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        raise ValueError(f"env must be a registered environment, got {env_id!r}{hint}") from None
    assert spec is not None
    return spec


def _open_id(env_id: str, horizon: int, env_kwargs: Mapping[str, Any], num_envs: int | None) -> Environments:
    spec = find_spec(env_id)
    try:
        if spec.vector_entry_point is not None and not spec.max_episode_steps:
            most = num_envs or _MOST_VECTORISED

            def make_rows(rows: int) -> VectorEnv[Any, Any, Any]:
                return gym.make_vec(spec.id, num_envs=rows, vectorization_mode="vector_entry_point", **env_kwargs)

            env = make_rows(min(most, 2))
            if env.metadata.get("autoreset_mode") == AutoresetMode.DISABLED:
                return VectorEnvironments(env, make_rows, most)
            env.close()

        def make() -> gym.Env[Any, Any]:
            return gym.make(spec.id, max_episode_steps=horizon, disable_env_checker=True, **env_kwargs)

        return SingleEnvironments([make()], make, num_envs or _MOST_SINGLE)
    except gym.error.DependencyNotInstalled as error:
        extra = "mujoco" if "mujoco" in str(error).lower() else "all"
        raise ImportError(f'{env_id} needs a package that is not installed: pip install "rido[{extra}]"') from error
    except TypeError as error:
        raise ValueError(f"env_kwargs must be arguments of {env_id}, got {dict(env_kwargs)!r}: {error}") from error


def _check_time_limit(env: Any, horizon: int) -> None:
    limit = env.spec.max_episode_steps if env.spec is not None else None
    if limit is not None and limit < horizon:
        raise ValueError(
            f"horizon must be at most the environment's time limit of {limit} steps, got {horizon}: make the "
            f"environment with max_episode_steps={horizon}, or give its id"
        )
