"""One interface to sub-environments, whether they are single environments or rows of a VectorEnv."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers import PassiveEnvChecker
from numpy.typing import NDArray

from rido.policies.observations import has_rows, leaves, stack_alike, take
from rido.simulators.base import narrow_seed
from rido.simulators.components import ComponentReader, TransitionFunction, info_of, random_action, row_of
from rido.simulators.points import PointGenerator, replaced_np_random
from rido.simulators.protocol import RefusedError, SlotError, check_observation, check_result, slot_error
from rido.simulators.wrappers import Wrappers, layers

Slots = NDArray[np.intp]
Step = tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]

_CHECKED_RESETS = 8
_GENERATORS = "reset_generators"  # in the metadata of a VectorEnv: whether reset takes the option of this name


class Environments(ABC):
    """Independent sub-environments in numbered slots.

    Attributes:
        most: the largest number of slots.
        observation_space: of one sub-environment.
        action_space: of one sub-environment.
        takes_points: whether points can decide where trajectories start.
        calls: steps and resets so far; while it grows, the environments are not stuck.
        slot: the slot whose step or reset was called last.
        rehearsing: what a rehearsal called last, in which trajectory and step; None while there is none.
        components: names of the components of rewards; none where rewards are plain numbers.
        reader: what reads them.
        in_rows: whether observations can be put into a batch, one in each row.
    """

    most: int
    takes_points: bool = False
    calls: int = 0
    slot: int = 0
    rehearsing: tuple[Literal["reset", "policy", "step"], int, int] | None = None
    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]
    reader: ComponentReader | None = None
    in_rows: bool = True

    @property
    def components(self) -> tuple[str, ...]:
        return () if self.reader is None else self.reader.names

    def read_components(self, components: tuple[str, ...] | TransitionFunction | None) -> None:
        """Makes steps return components beside the reward, if some are asked for or the reward is a vector.

        The names of what a function returns and the size of a vector reward are learned from one transition.
        """
        if components is None and not self._vector_reward():
            return
        transition = None
        if callable(components) or self._vector_reward():
            try:
                transition = self._try_step(random_action(self.action_space))
            except (Exception, SystemExit) as error:
                reason = error if isinstance(error, SlotError) else slot_error(0, "step", error)
                raise ValueError(f"env must take a step, to tell its components, but {reason}") from error
        reader = ComponentReader(components, transition)
        self.reader = reader if len(reader.names) > 1 else None

    def _vector_reward(self) -> bool:
        """Returns whether the environment may have a vector reward."""
        return False

    def _try_step(self, action: Any) -> tuple[Any, ...]:
        """Returns a transition with this action: observation, action, reward, next observation and info."""
        raise NotImplementedError

    @abstractmethod
    def provide(self, wanted: int) -> int:
        """Makes up to ``wanted`` slots, which must be reset before they are stepped, and returns how many there are."""

    @abstractmethod
    def reset(self, slots: Slots, seeds: Sequence[int | None], starts: Sequence[PointGenerator] | None = None) -> None:
        """Starts a new trajectory in each of the slots.

        Args:
            slots: the slots.
            seeds: their seeds; None where a sub-environment is not seeded again.
            starts: generators of the numbers that the resets draw, if points decide on them. They are finished here.
        """

    @abstractmethod
    def observe(self, slots: Slots) -> Any:
        """Returns the present observations of the slots, in a new batch."""

    @abstractmethod
    def step(self, slots: Slots, actions: NDArray[Any]) -> Step:
        """Takes one step in each of the slots; returns rewards, terminated and truncated.

        Rewards have a row for each slot where they have components.
        """

    @abstractmethod
    def close(self) -> None:
        """Closes the environments that were made here."""

    def remarks(self) -> list[str]:
        """Returns what was changed about the environments, for the reader of a result."""
        return []


class SingleEnvironments(Environments):
    """A list of ``gymnasium.Env``, of which any can be stepped.

    ``make`` makes one more, up to ``most``; it is None if the user made them. Their ``wrappers`` are prepared first.
    """

    takes_points = True

    def __init__(
        self,
        envs: list[gym.Env[Any, Any]],
        make: Callable[[], gym.Env[Any, Any]] | None,
        most: int,
        wrappers: Wrappers,
    ) -> None:
        self._envs, self._make, self.most, self._wrappers = envs, make, most, wrappers
        self._retired: list[gym.Env[Any, Any]] = []  # not used any more
        for env in envs:
            wrappers.prepare(env)
        self._batch: Any = []  # copies, because an environment may reuse its buffer; an array where the space is a Box
        self._kind: type | None = None  # of the observations of resets, which were checked
        self._takes_wide_seeds: bool | None = None  # seeds of more than 31 bits; None until one was tried
        self.observation_space = envs[0].observation_space
        self.action_space = envs[0].action_space
        self._shape = self.observation_space.shape if isinstance(self.observation_space, gym.spaces.Box) else None
        self.in_rows = has_rows(self.observation_space)
        self._grow()

    def _grow(self) -> None:
        """Makes room for one observation of each environment; what was there is gone."""
        if len(self._batch) < len(self._envs):
            shape, dtype = (len(self._envs), *(self._shape or ())), self.observation_space.dtype
            dtype = getattr(self._batch, "dtype", dtype)
            self._batch = [None] * len(self._envs) if self._shape is None else np.zeros(shape, dtype)

    def provide(self, wanted: int) -> int:
        while self._make is not None and len(self._envs) < min(wanted, self.most):
            self._envs.append(made := self._make())
            self._wrappers.prepare(made)
        self._grow()
        return min(len(self._envs), self.most)

    def pair(self) -> bool:
        """Makes two slots for a rehearsal, whatever ``most`` is; returns whether there are two."""
        while self._make is not None and len(self._envs) < 2:
            self._envs.append(made := self._make())
            self._wrappers.prepare(made)
        self._grow()
        return len(self._envs) > 1

    def renew(self) -> bool:
        """Puts a fresh environment into slot 0, which has forgotten what was tried; returns whether there is one.

        The other one stays open: several may share a connection, or the function may return the same one every time.
        """
        if self._make is None or any((made := self._make()) is each for each in self._envs):
            return False
        self._wrappers.prepare(made)
        self._retired.append(self._envs[0])
        self._envs[0] = made
        return True

    def reset(self, slots: Slots, seeds: Sequence[int | None], starts: Sequence[PointGenerator] | None = None) -> None:
        for row, (slot, seed) in enumerate(zip(slots.tolist(), seeds, strict=True)):
            self.calls, self.slot = self.calls + 1, slot
            try:
                env = self._envs[slot]
                result = self._reset(env, seed) if starts is None else self._start(env, seed, starts[row])
                observation, _ = check_result("reset", result)
                self._keep(slot, "reset", observation)
            except (Exception, SystemExit) as error:
                raise slot_error(slot, "reset", error) from error

    @property
    def first(self) -> gym.Env[Any, Any]:
        """The environment of slot 0."""
        return self._envs[0]

    def begin(self, seed: int | None, start: PointGenerator | None) -> Any:
        """Starts a new trajectory in slot 0; returns the very observation that the environment returned."""
        try:
            env = self._envs[0]
            result = self._reset(env, seed) if start is None else self._start(env, seed, start)
            observation, _ = check_result("reset", result)
            kind = type(observation)
            if kind is not self._kind or (kind is np.ndarray and observation.shape != self.observation_space.shape):
                check_observation("reset", observation, self.observation_space)
                self._kind = kind
            return observation
        except (Exception, SystemExit) as error:
            raise slot_error(0, "reset", error) from error

    def _start(self, env: gym.Env[Any, Any], seed: int | None, start: PointGenerator) -> tuple[Any, Any]:
        """Resets with the seed while np_random is replaced by our generator."""
        if seed is not None and self._takes_wide_seeds is None:
            self._reset(env, seed)  # a reset that fails must not use up the point
        with replaced_np_random(env.unwrapped, start):
            return self._reset(env, seed)

    def _reset(self, env: gym.Env[Any, Any], seed: int | None) -> tuple[Any, Any]:
        """Resets with the whole seed, or with 31 bits if the very first reset shows that the environment takes no more.

        Gymnasium's own generator takes any seed; ``numpy.random.seed``, which some environments call, takes 32 bits.
        """
        if seed is None or self._takes_wide_seeds or seed == narrow_seed(seed):
            return env.reset(seed=seed)
        if self._takes_wide_seeds is None:
            try:
                result = env.reset(seed=seed)
                self._takes_wide_seeds = True
                return result
            except (ValueError, OverflowError, TypeError):
                self._takes_wide_seeds = False
                for layer in layers(env):  # Gymnasium's checker takes a reset that failed for one that it has checked
                    if isinstance(layer, PassiveEnvChecker):
                        layer.checked_reset = False
        return env.reset(seed=narrow_seed(seed))

    def observe(self, slots: Slots) -> Any:
        if self._shape is not None:
            return self._batch[slots]
        return stack_alike([self._batch[slot] for slot in slots.tolist()])

    def _vector_reward(self) -> bool:
        space = getattr(self._envs[0].unwrapped, "reward_space", None)  # MO-Gymnasium's
        return isinstance(space, gym.spaces.Box) and len(space.shape) == 1 and space.shape[0] > 1

    def _try_step(self, action: Any) -> tuple[Any, ...]:
        before, _ = copy.deepcopy(check_result("reset", self._reset(self._envs[0], 0)))
        after, reward, _, _, info = check_result("step", self._envs[0].step(action))
        return before, action, reward, after, info

    def step(self, slots: Slots, actions: NDArray[Any]) -> Step:
        reader = self.reader
        rewards = np.empty(slots.size if reader is None else (slots.size, len(reader.names)))
        terminated, truncated = np.empty((2, slots.size), dtype=np.bool_)
        for row, slot in enumerate(slots.tolist()):
            self.calls, self.slot = self.calls + 1, slot
            try:
                before = copy.deepcopy(self._batch[slot]) if reader is not None and reader.needs_observations else None
                result = self._envs[slot].step(actions[row])
                if type(result) is not tuple or len(result) != 5:
                    check_result("step", result)
                observation, reward, terminated[row], truncated[row], info = result
                if reader is not None:
                    reward = reader.read(before, actions[row], reward, observation, info)
                elif type(reward) is np.ndarray:
                    reward = reward.item()
                rewards[row] = reward
                if (
                    type(observation) is np.ndarray
                    and observation.shape == self._shape
                    and observation.dtype == self._batch.dtype
                ):  # nearly always
                    self._batch[slot] = observation
                else:
                    self._keep(slot, "step", observation)
            except (Exception, SystemExit) as error:
                raise slot_error(slot, "step", error) from error
        return rewards, terminated, truncated

    def _keep(self, slot: int, method: str, observation: Any) -> None:
        check_observation(method, observation, self.observation_space)
        if self._shape is None:
            self._batch[slot] = copy.deepcopy(observation)
            return
        if isinstance(observation, np.ndarray) and observation.dtype != self._batch.dtype:
            # Some observations are not of the space's dtype: nothing may be cut off.
            self._batch = self._batch.astype(np.promote_types(observation.dtype, self._batch.dtype))
        self._batch[slot] = observation

    def close(self) -> None:
        self._wrappers.restore()
        with ExitStack() as stack:  # closes all of them, also where one raises
            for env in (*self._envs, *self._retired) if self._make is not None else ():
                stack.callback(env.close)

    def remarks(self) -> list[str]:
        return list(self._wrappers.remarks)


class VectorEnvironments(Environments):
    """A ``VectorEnv`` without autoreset. All rows are stepped together, those without a trajectory for nothing.

    ``make`` makes one with more rows, up to ``most``; it is None if the user made it. Points can decide where
    trajectories start if the metadata say ``"reset_generators": True``: then ``reset`` takes an option of this name, a
    list with a generator for each row, from which its start and what follows are drawn, or None to go on as without.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        make: Callable[[int], VectorEnv[Any, Any, Any]] | None,
        most: int,
        wrappers: Wrappers,
    ) -> None:
        self._make, self.most, self._wrappers = make, most, wrappers
        wrappers.prepare(env)
        self.observation_space = env.single_observation_space
        self.action_space = env.single_action_space
        if not has_rows(self.observation_space):
            raise ValueError(
                f"env must be a function that makes a single environment where observations are "
                f"{self.observation_space}, got a VectorEnv: a batch of them has no rows"
            )
        self._unchecked = _CHECKED_RESETS  # resets of some rows in which the others are watched
        self.takes_points = bool(env.metadata.get(_GENERATORS))
        self._use(env)

    def _use(self, env: VectorEnv[Any, Any, Any]) -> None:
        self._env = env
        self._batch_space = batch_space(self.observation_space, env.num_envs)
        self._observations: Any = None
        self._actions: NDArray[Any] | None = None
        self._ended = np.zeros(env.num_envs, dtype=np.bool_)

    def provide(self, wanted: int) -> int:
        rows = min(1 << max(wanted - 1, 1).bit_length(), self.most)
        if self._make is not None and rows > self._env.num_envs:
            self._env.close()
            self._use(self._make(rows))
        return self._env.num_envs

    def reset(self, slots: Slots, seeds: Sequence[int | None], starts: Sequence[PointGenerator] | None = None) -> None:
        count = self._env.num_envs
        all_seeds: Any = [None] * count
        for slot, seed in zip(slots.tolist(), seeds, strict=True):
            all_seeds[slot] = seed
        generators: dict[str, Any] = {}
        if starts is not None:
            generators[_GENERATORS] = [None] * count
            for slot, start in zip(slots.tolist(), starts, strict=True):
                generators[_GENERATORS][slot] = start
        mask = self._ended if self._observations is not None else np.ones(count, dtype=np.bool_)
        mask[slots] = True
        others = np.flatnonzero(~mask if self._unchecked else mask[:0])
        before = copy.deepcopy(take(self._observations, others)) if others.size else None
        self.calls, self.slot = self.calls + 1, int(slots[0])
        try:
            # A new dictionary each time: Gymnasium removes the mask from it.
            result = self._env.reset(seed=all_seeds, options={"reset_mask": mask.copy(), **generators})
            self._observations, _ = check_result("reset", result)
            check_observation("reset", self._observations, self._batch_space)
            if others.size:
                self._unchecked -= 1
                after = take(self._observations, others)
                if any(not _equal(*pair) for pair in zip(leaves(before), leaves(after), strict=True)):
                    raise RefusedError(
                        "the VectorEnv's reset changed observations of rows that options['reset_mask'] leaves out: "
                        "reset the rows of the mask alone, or give a function that makes a single environment"
                    )
        except (Exception, SystemExit) as error:
            raise slot_error(int(slots[0]), "reset", error) from error
        for start in starts or ():
            start.finish()
        self._ended = np.zeros(count, dtype=np.bool_)

    def observe(self, slots: Slots) -> Any:
        return take(self._observations, slots)

    def step(self, slots: Slots, actions: NDArray[Any]) -> Step:
        reader = self.reader
        if self._actions is None:
            self._actions = np.repeat(actions[:1], self._env.num_envs, axis=0)
        self._actions[slots] = actions
        if self._ended.any():  # also rows without a trajectory must not be stepped after their end
            self.reset(np.flatnonzero(self._ended), [None] * int(self._ended.sum()))
        self.calls, self.slot = self.calls + 1, int(slots[0])
        try:
            before = copy.deepcopy(self._observations) if reader is not None and reader.needs_observations else None
            result = check_result("step", self._env.step(self._actions.copy()))
            self._observations, rewards, terminated, truncated, info = result
            check_observation("step", self._observations, self._batch_space)
            if np.shape(rewards) == (self._env.num_envs, 1):
                rewards = np.reshape(rewards, -1)
            if np.ndim(rewards) != 1:
                raise RefusedError(
                    f"the environment's step returned rewards of shape {np.shape(rewards)}, but a VectorEnv must have "
                    "one number for each row: for vector rewards give a function that makes a single environment"
                )
        except (Exception, SystemExit) as error:
            raise slot_error(int(slots[0]), "step", error) from error
        self._ended = np.logical_or(terminated, truncated)
        if reader is None:
            return rewards[slots], terminated[slots], truncated[slots]
        read = np.empty((slots.size, len(reader.names)))
        for row, slot in enumerate(slots.tolist()):
            try:
                read[row] = reader.read(*self._transition(slot, before, rewards, info))
            except (Exception, SystemExit) as error:
                raise slot_error(slot, "step", error) from error
        return read, terminated[slots], truncated[slots]

    def _try_step(self, action: Any) -> tuple[Any, ...]:
        slots = np.arange(self._env.num_envs)
        self.reset(slots, slots.tolist())
        self._actions, before = np.stack([action] * slots.size), copy.deepcopy(self._observations)
        self._observations, rewards, _, _, info = check_result("step", self._env.step(self._actions.copy()))
        transition = self._transition(0, before, rewards, info)
        self._use(self._env)
        return transition

    def _transition(self, row: int, before: Any, rewards: Any, info: Mapping[str, Any]) -> tuple[Any, ...]:
        """Returns what a function of the transition gets for a row: observations, action, reward and info."""
        assert self._actions is not None
        observation, following = (
            (None, None) if before is None else (row_of(b, row) for b in (before, self._observations))
        )
        return observation, self._actions[row], rewards[row], following, info_of(info, row)

    def close(self) -> None:
        self._wrappers.restore()
        if self._make is not None:
            self._env.close()

    def remarks(self) -> list[str]:
        return list(self._wrappers.remarks)


def _equal(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return np.array_equal(one, other, equal_nan=one.dtype.kind in "fc")
