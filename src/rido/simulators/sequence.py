"""One environment in sequence: trajectories one after the other, as a plain loop runs them.

The policy gets the very observations that the environment returned, and the environment what the policy returned.
"""

import copy
from array import array
from collections.abc import Callable
from itertools import repeat
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rido.core import checks
from rido.core.trajectories import Trajectories, starts_of
from rido.policies.actions import one_action
from rido.policies.base import Policy
from rido.policies.functions import TakesBatchesError
from rido.policies.observations import stack_alike
from rido.simulators.base import Request, SimulationError
from rido.simulators.environments import SingleEnvironments
from rido.simulators.generators import generators, resets_with
from rido.simulators.protocol import Position, SlotError, check_observation, check_result, slot_error
from rido.simulators.wrappers import TIME_LIMIT


class SequentialRollout:
    """Trajectories that run one after the other in the first environment; it offers what ``Rollout`` offers.

    ``seen`` and ``taken`` are all observations and actions, if asked for. ``env`` is stepped in place of the
    environment.
    """

    def __init__(
        self,
        envs: SingleEnvironments,
        policy: Policy,
        request: Request,
        *,
        ends: bool | None = None,
        env: Any = None,
    ) -> None:
        self._env, self._policy = envs.first if env is None else env, policy
        self._lengths, self._seeds, self._limit = request.lengths, request.seeds, request.limit
        self._spaces = envs.observation_space, envs.action_space
        self._generators = generators(request.seeds) if policy.draws else repeat(None)
        self._ends, self._reader = envs.ends if ends is None else ends, envs.reader
        self._observing = request.wants == "observations"
        self._rewards: Any = array("d") if envs.reader is None else []
        self._counts: list[int] = []  # steps of the trajectories that are over
        self._ended: list[bool] = []
        self.seen: list[Any] = []  # observations, if observing
        self.taken: list[Any] = []  # actions
        self._row, self._first, self._begun = 0, 0, -1  # trajectory, its first reward, step that was begun last

    def run(self, start: Callable[[int], Any]) -> None:
        """Runs the trajectories; ``start`` resets the environment for one and returns its first observation."""
        try:
            with resets_with(self._seeds):
                self._run_all(start)
        except SlotError as error:
            self.check()
            raise self.failure(error.reason) from error.__cause__
        self._lengths = self._lengths[: len(self._counts)]
        self.check()

    def _run_all(self, start: Callable[[int], Any]) -> None:
        rewards, reader, observing, ndarray = self._rewards, self._reader, self._observing, np.ndarray
        step_env, append, (space, actions) = self._env.step, self._rewards.append, self._spaces
        shape, action_shape, known_action = space.shape, actions.shape, None
        keeping = observing or (reader is not None and reader.needs_observations)
        for row, (length, generator) in enumerate(zip(self._lengths.tolist(), self._generators, strict=False)):
            first = len(rewards)
            if self._limit is not None and length > self._limit - first:
                break
            self._row, self._first, self._begun = row, first, -1
            observation = start(row)
            self._begun = -2
            act = self._actor(generator)
            known = observation.__class__
            keys = space.spaces.keys() if known is dict and isinstance(space, gym.spaces.Dict) else ()
            before, ended = None, False
            for step in range(length):
                if keeping:
                    before = _copy(observation)
                    if observing:
                        self.seen.append(before)
                try:
                    action = act(observation)
                    if action.__class__ is not known_action or (
                        known_action is ndarray and action.shape != action_shape
                    ):
                        given, action = action, one_action(action, actions)
                        known_action = action.__class__ if action is given else None
                except TakesBatchesError:
                    raise
                except (Exception, SystemExit) as error:
                    raise SlotError(0, f"the policy raised {error!r}") from error
                if observing:
                    self.taken.append(np.array(action))
                self._begun = step
                try:
                    result = step_env(action)
                except (Exception, SystemExit) as error:
                    raise slot_error(0, "step", error) from error
                try:
                    observation, reward, terminated, truncated, info = result
                    if reader is not None:
                        append(reader.read(before, action, reward, observation, info))
                    elif reward.__class__ is ndarray:
                        append(reward.item())
                    else:
                        append(reward)
                    if (
                        observation.__class__ is not known
                        or (known is ndarray and observation.shape != shape)
                        or (known is dict and observation.keys() != keys)
                    ):
                        check_observation("step", observation, space)
                        known = observation.__class__
                except Exception as error:
                    raise _wrong_result(result, error) from error
                if terminated or truncated:
                    if terminated or self._ends:
                        ended = True
                        break
                    if step + 1 < length:
                        raise SlotError(0, TIME_LIMIT.format(length))
            if observing:
                self.seen.append(_copy(observation))
            self._ended.append(ended)
            self._counts.append(len(rewards) - first)

    def _actor(self, generator: np.random.Generator | None) -> Callable[[Any], Any]:
        try:
            return self._policy.begin(generator)
        except (Exception, SystemExit) as error:
            raise SlotError(0, f"the policy raised {error!r}") from error

    def check(self) -> None:
        """Raises where a reward is not finite, or extreme."""
        rewards = self._array()
        if (place := checks.first_beyond(rewards)) is None:
            return
        first, *column = place
        name = f"component {self._reader.names[column[0]]!r}" if self._reader is not None else "reward"
        ends = np.cumsum([0, *self._counts])
        row = int(np.searchsorted(ends[1:], first, side="right"))
        reason = f"the {name} is {rewards[place]}"
        if np.isfinite(rewards[place]):
            reason += ", which is not below 1e100 in size: rescale the rewards"
        raise SimulationError(row, first - int(ends[row]), int(self._seeds[row]), reason)

    @property
    def terminated(self) -> NDArray[np.bool_]:
        """For each trajectory, whether it ended for good."""
        return np.array(self._ended)

    def trajectories(self) -> Trajectories:
        rewards, lengths, steps = self._array(), self._lengths, np.array(self._counts, dtype=np.int64)
        if rewards.shape[0] < lengths.sum():
            flat = np.zeros((int(lengths.sum()), *rewards.shape[1:]))
            flat[np.repeat(starts_of(lengths) - starts_of(steps), steps) + np.arange(len(rewards))] = rewards
            rewards = flat
        return Trajectories.of_checked(rewards, lengths.copy(), steps)

    def observations(self) -> Any:
        return stack_alike(self.seen)

    def actions(self) -> NDArray[Any]:
        return np.stack(self.taken)

    def position(self, before: int) -> Position:
        """Returns where the request is, after this many calls; may be called from another thread."""
        taken, row, begun = len(self._rewards), self._row, self._begun
        step = max(0, taken - self._first)
        calling: Literal["reset", "policy", "step"] = "reset" if begun == -1 else "step" if begun == step else "policy"
        return Position(before + row + taken, calling, row, step)

    def _array(self) -> NDArray[np.float64]:
        if self._reader is None:
            return np.frombuffer(self._rewards) if self._rewards else np.zeros(0)
        return np.array(self._rewards).reshape(-1, len(self._reader.names))

    def failure(self, reason: str) -> SimulationError:
        row = self._row
        return SimulationError(row, len(self._rewards) - self._first, int(self._seeds[row]), reason)


def _copy(observation: Any) -> Any:
    """Returns a copy of an observation, into which environment and policy cannot write."""
    return observation.copy() if observation.__class__ is np.ndarray else copy.deepcopy(observation)


def _wrong_result(result: Any, error: Exception) -> SlotError:
    """Returns the error of a step whose result could not be used."""
    try:
        check_result("step", result)
    except Exception as refused:
        error = refused
    return slot_error(0, "step", error)
