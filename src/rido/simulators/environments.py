"""One interface to sub-environments, whether they are single environments or rows of a VectorEnv."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import PassiveEnvChecker
from numpy.typing import NDArray

from rido.policies.observations import has_rows, stack_alike
from rido.simulators.base import WIDE, narrow_seed
from rido.simulators.components import ComponentReader, TransitionFunction
from rido.simulators.points import PointGenerator, replaced_np_random
from rido.simulators.protocol import SlotError, check_observation, check_result, slot_error
from rido.simulators.wrappers import Wrappers, layers

Env = gym.Env[Any, Any]
Slots = NDArray[np.intp]
Step = tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]


class Environments(ABC):
    """Independent sub-environments in numbered slots.

    Attributes:
        most: the largest number of slots.
        ends: whether a truncation ends a trajectory as a termination does.
        reseeds: whether each trajectory's reset gets its seed, or only the first one of each sub-environment.
        observation_space: of one sub-environment.
        action_space: of one sub-environment.
        takes_points: whether points can decide where trajectories start.
        calls: steps and resets so far; while it grows, the environments are not stuck.
        slot: the slot whose step or reset was called last.
        rehearsing: what a rehearsal called last, in which trajectory and step; None while there is none.
        components: names of the components of rewards; none where rewards are plain numbers.
        reader: what reads them.
        vector_reward: whether rewards are vectors.
        remarks: what was changed about the environments, for the reader of a result.
        in_rows: whether observations can be put into a batch, one in each row.
    """

    most: int
    ends: bool = False
    reseeds: bool = True
    takes_points: bool = False
    calls: int = 0
    slot: int = 0
    rehearsing: tuple[Literal["reset", "policy", "step"], int, int] | None = None
    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]
    components: tuple[str, ...] = ()
    reader: ComponentReader | None = None
    vector_reward: bool = False
    remarks: Iterable[str] = ()
    in_rows: bool = True

    def read_components(self, components: tuple[str, ...] | TransitionFunction | None) -> None:
        """Makes steps return components beside the reward, if some are asked for or the reward is a vector.

        The names of what a function returns and the size of a vector reward are learned from one transition.
        """
        if components is None and not self.vector_reward:
            return
        transition = None
        if callable(components) or self.vector_reward:
            try:
                space = copy.deepcopy(self.action_space)  # its own random numbers do not change
                space.seed(0)
                transition = self._try_step(space.sample())
            except (Exception, SystemExit) as error:
                reason = error if isinstance(error, SlotError) else slot_error(0, "step", error)
                raise ValueError(f"env must take a step, to tell its components, but {reason}") from error
        reader = ComponentReader(components, transition)
        if len(reader.names) > 1:
            self.reader, self.components = reader, reader.names

    def _try_step(self, action: Any) -> tuple[Any, ...]:
        """Returns a transition with this action: observation, action, reward, next observation and info."""
        raise NotImplementedError

    @abstractmethod
    def provide(self, wanted: int) -> int:
        """Makes up to ``wanted`` slots, which must be reset before they are stepped, and returns how many there are."""

    @abstractmethod
    def reset(self, slots: Slots, seeds: Sequence[int | None], starts: Sequence[PointGenerator] | None = None) -> None:
        """Starts a trajectory in each of the slots; a sub-environment whose seed is None is not seeded again.

        ``starts`` are the generators of what resets draw, if points decide on that. They are finished here.
        """

    @abstractmethod
    def observe(self, slots: Slots) -> Any:
        """Returns the present observations of the slots, in a new batch."""

    @abstractmethod
    def step(self, slots: Slots, actions: NDArray[Any]) -> Step:
        """Takes one step in each of the slots; returns rewards or their components, terminated and truncated."""

    @abstractmethod
    def close(self) -> None:
        """Closes the environments that were made here."""


class SingleEnvironments(Environments):
    """A list of ``gymnasium.Env``, of which any can be stepped.

    ``make`` makes one more, up to ``most``; it is None if the user made them. Their ``wrappers`` are prepared first.
    """

    takes_points = True

    def __init__(self, envs: list[Env], make: Callable[[], Env] | None, most: int, wrappers: Wrappers) -> None:
        self._envs, self._make, self.most, self._wrappers = envs, make, most, wrappers
        self._retired: list[Env] = []  # not used any more
        self.remarks = wrappers.remarks
        for env in envs:
            wrappers.prepare(env)
        rewards = getattr(envs[0].unwrapped, "reward_space", None)  # MO-Gymnasium's
        self.vector_reward = isinstance(rewards, gym.spaces.Box) and len(rewards.shape) == 1 and rewards.shape[0] > 1
        self._batch: Any = []  # copies, because an environment may reuse its buffer; an array where the space is a Box
        self._kind: type | None = None  # of the observations of resets, which were checked
        self._takes_wide_seeds: bool | None = None  # seeds of more than 31 bits; None until one was tried
        self.observation_space = envs[0].observation_space
        self.action_space = envs[0].action_space
        self._shape = self.observation_space.shape if isinstance(self.observation_space, gym.spaces.Box) else None
        self.in_rows = has_rows(self.observation_space)
        self._grow(0)

    def _grow(self, wanted: int) -> None:
        """Makes environments, and room for one observation of each; what was there is gone."""
        while self._make is not None and len(self._envs) < wanted:
            self._envs.append(made := self._make())
            self._wrappers.prepare(made)
        if len(self._batch) < len(self._envs):
            shape, dtype = (len(self._envs), *(self._shape or ())), self.observation_space.dtype
            dtype = getattr(self._batch, "dtype", dtype)
            self._batch = [None] * len(self._envs) if self._shape is None else np.zeros(shape, dtype)

    def provide(self, wanted: int) -> int:
        self._grow(min(wanted, self.most))
        return min(len(self._envs), self.most)

    def pair(self) -> bool:
        """Makes two slots for a rehearsal, whatever ``most`` is; returns whether there are two."""
        self._grow(2)
        return len(self._envs) > 1

    @property
    def makes(self) -> bool:
        """Whether more of them can be made."""
        return self._make is not None

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
                self._keep(slot, "reset", self._begun(slot, seed, None if starts is None else starts[row]))
            except (Exception, SystemExit) as error:
                raise slot_error(slot, "reset", error) from error

    @property
    def first(self) -> Env:
        """The environment of slot 0."""
        return self._envs[0]

    def begin(self, seed: int | None, start: PointGenerator | None) -> Any:
        """Starts a new trajectory in slot 0; returns the very observation that the environment returned."""
        try:
            observation = self._begun(0, seed, start)
            kind = type(observation)
            if kind is not self._kind or (kind is np.ndarray and observation.shape != self.observation_space.shape):
                check_observation("reset", observation, self.observation_space)
                self._kind = kind
            return observation
        except (Exception, SystemExit) as error:
            raise slot_error(0, "reset", error) from error

    def _begun(self, slot: int, seed: int | None, start: PointGenerator | None) -> Any:
        """Resets with the seed, while np_random is replaced by our generator if there is one."""
        env = self._envs[slot]
        if start is None:
            return check_result("reset", self._reset(env, seed))[0]
        if seed is not None and self._takes_wide_seeds is None:
            self._reset(env, seed)  # a reset that fails must not use up the point
        with replaced_np_random(env.unwrapped, start):
            return check_result("reset", self._reset(env, seed))[0]

    def _reset(self, env: Env, seed: int | None) -> tuple[Any, Any]:
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

    def _try_step(self, action: Any) -> tuple[Any, ...]:
        before, _ = copy.deepcopy(check_result("reset", self._reset(self._envs[0], WIDE)))
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
