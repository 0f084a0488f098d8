"""The rows of a VectorEnv as sub-environments, all of which are stepped together."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from rido.policies.observations import alike, has_rows, take
from rido.simulators.components import info_of
from rido.simulators.environments import Environments, Slots, Step
from rido.simulators.points import PointGenerator
from rido.simulators.protocol import RefusedError, check_observation, check_result, slot_error
from rido.simulators.wrappers import Wrappers

Rows = VectorEnv[Any, Any, Any]

_CHECKED_RESETS = 8
_GENERATORS = "reset_generators"  # in the metadata of a VectorEnv: whether reset takes the option of this name


class VectorEnvironments(Environments):
    """A ``VectorEnv`` without autoreset. All rows are stepped together, those without a trajectory for nothing.

    ``make`` makes one with more rows, up to ``most``; it is None if the user made it. Points can decide where
    trajectories start if the metadata say ``"reset_generators": True``: then ``reset`` takes an option of this name, a
    list with a generator for each row, from which its start and what follows are drawn, or None to go on as without.
    """

    def __init__(self, env: Rows, make: Callable[[int], Rows] | None, most: int, wrappers: Wrappers) -> None:
        self._make, self.most, self._wrappers = make, most, wrappers
        self.remarks = wrappers.remarks
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

    def _use(self, env: Rows) -> None:
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

        def by_row(given: Sequence[Any]) -> Any:
            known = dict(zip(slots.tolist(), given, strict=True))
            return [known.get(row) for row in range(count)]

        generators = {} if starts is None else {_GENERATORS: by_row(starts)}
        mask = self._ended if self._observations is not None else np.ones(count, dtype=np.bool_)
        mask[slots] = True
        others = np.flatnonzero(~mask if self._unchecked else mask[:0])
        before = copy.deepcopy(take(self._observations, others)) if others.size else None
        self.calls, self.slot = self.calls + 1, int(slots[0])
        try:
            # A new dictionary each time: Gymnasium removes the mask from it.
            result = self._env.reset(seed=by_row(seeds), options={"reset_mask": mask.copy(), **generators})
            self._observations, _ = check_result("reset", result)
            check_observation("reset", self._observations, self._batch_space)
            if others.size:
                self._unchecked -= 1
                after = take(self._observations, others)
                if not alike(before, after, 0):
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
        observation, following = (None if before is None else take(b, row) for b in (before, self._observations))
        return observation, self._actions[row], rewards[row], following, info_of(info, row)

    def close(self) -> None:
        self._wrappers.restore()
        if self._make is not None:
            self._env.close()
