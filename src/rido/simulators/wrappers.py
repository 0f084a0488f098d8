"""What the wrappers of an environment do to its trajectories: time limits, running statistics, games that go on.

A trajectory must depend on its seed alone, and must not be cut before its planned length. So time limits are lifted and
statistics of observations are frozen. What can be neither lifted nor frozen is refused before the first step.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import wrappers
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import vector

_OBSERVATION_STATISTICS = (wrappers.NormalizeObservation, vector.NormalizeObservation)
_REWARD_STATISTICS = (wrappers.NormalizeReward, vector.NormalizeReward)
TIME_LIMIT = (
    "the environment's time limit cut it before its planned length of {} steps; count that as the end of the episode "
    "with end_on_truncation=True, make the environment with a longer limit, or ask for a shorter horizon"
)
_EPISODIC_LIFE = "EpisodicLifeEnv"  # SB3's, Tianshou's and CleanRL's name of the wrapper


def layers(env: Any) -> Iterator[Any]:
    """Yields an environment and all that it wraps, outermost first; of a SyncVectorEnv all sub-environments."""
    while isinstance(env, (gym.Env, VectorEnv)):
        yield env
        if isinstance(env, SyncVectorEnv):
            for part in env.envs:
                yield from layers(part)
        env = getattr(env, "env", None)


def _remote_layers(env: Any) -> list[Any]:
    """Returns the layers of one environment of an AsyncVectorEnv, made here and closed again."""
    found: list[Any] = []
    for layer in layers(env):
        if isinstance(layer, AsyncVectorEnv):
            found = list(layers(made := layer.env_fns[0]()))
            made.close()
    return found


def time_limit(env: Any) -> int | None:
    """Returns the number of steps after which an environment's own time limit cuts an episode, if it has one."""
    return _limit([*layers(env), *_remote_layers(env)])


def _limit(found: list[Any]) -> int | None:
    limits = [layer._max_episode_steps for layer in found if isinstance(layer, wrappers.TimeLimit)]
    if not limits and found and found[0].spec is not None:  # an environment that counts steps by itself
        return found[0].spec.max_episode_steps or None
    return min(limits, default=None)


def statistics(env: Any) -> list[bytes]:
    """Returns the statistics by which the wrappers of an environment normalise observations."""
    found = [layer.obs_rms for layer in layers(env) if isinstance(layer, _OBSERVATION_STATISTICS)]
    return [np.asarray(number).tobytes() for each in found for number in (each.mean, each.var)]


def lifted(limit: int, horizon: int) -> str:
    """Returns the remark that the environment's own time limit was lifted."""
    return f"the environment's own limit of {limit:,} steps was lifted: the horizon is {horizon:,}"


def limit_error(limit: int, horizon: int) -> ValueError:
    """Returns the error of a time limit that is shorter than the horizon and cannot be lifted."""
    return ValueError(
        f"horizon must be at most the environment's time limit of {limit} steps, got {horizon}: make the environment "
        f"with max_episode_steps={horizon}, or count its limit as the end of the episode with end_on_truncation=True"
    )


class Wrappers:
    """Prepares the wrappers of environments for trajectories, and puts them back.

    If ``ends``, truncation ends a trajectory and time limits stay as they are. ``remarks`` say what was changed.
    """

    def __init__(self, horizon: int, *, ends: bool) -> None:
        self._horizon, self.ends = horizon, ends
        self._changed = ExitStack()
        self._statistics: list[bytes] | None = None  # of the first environment
        self.remarks: dict[str, None] = {}  # in the order in which they were found

    def lifts(self, limit: int | None) -> bool:
        """Returns whether an environment may be made without its time limit; notes it where that is shorter."""
        if limit is not None and limit < self._horizon and not self.ends:
            self.remarks[lifted(limit, self._horizon)] = None
        return not self.ends

    def prepare(self, env: Any) -> None:
        """Lifts the time limits of an environment and freezes its statistics, or raises where that cannot be done."""
        here, remote = list(layers(env)), _remote_layers(env)
        for place, layer in enumerate([*here, *remote]):
            _refuse(layer)
            if isinstance(layer, _OBSERVATION_STATISTICS) and layer.update_running_mean:
                if place >= len(here):
                    raise ValueError(
                        f"env must have constant statistics, got {type(layer).__name__} in other processes: set "
                        "update_running_mean = False in the function that makes it"
                    )
                self._set(layer, "update_running_mean", False)
                self.remarks[f"the statistics of {type(layer).__name__} were frozen"] = None
        for part in next((layer.envs for layer in here if isinstance(layer, SyncVectorEnv)), [env]):
            if self._statistics is None:
                self._statistics = statistics(part)
            elif self._statistics != statistics(part):
                raise ValueError(
                    "env must have the same statistics everywhere, got NormalizeObservation with others in each "
                    "environment: load those of training into all of them"
                )
        limit = _limit([*here, *remote])
        if limit is None or limit >= self._horizon or self.ends:
            return
        liftable = [layer for layer in here if isinstance(layer, wrappers.TimeLimit)]
        if not liftable:
            raise limit_error(limit, self._horizon)
        for layer in liftable:
            self._set(layer, "_max_episode_steps", max(layer._max_episode_steps, self._horizon))
        self.lifts(limit)

    def restore(self) -> None:
        """Undoes all changes."""
        self._changed.close()

    def _set(self, layer: Any, name: str, value: Any) -> None:
        self._changed.callback(setattr, layer, name, getattr(layer, name))
        setattr(layer, name, value)


def _refuse(layer: Any) -> None:
    """Raises where a wrapper makes trajectories depend on each other, or rewards mean nothing."""
    name = type(layer).__name__
    if isinstance(layer, _REWARD_STATISTICS):
        raise ValueError(
            f"env must pay its own rewards, got {name}, which divides them by a number that only training knows: "
            "leave the wrapper out, no policy sees rewards"
        )
    if isinstance(layer, _OBSERVATION_STATISTICS):
        statistics = layer.obs_rms
        if np.all(statistics.mean == 0) and np.all(statistics.var == 1):
            raise ValueError(
                f"env must have the statistics of training, got {name} at its initial values: load them into obs_rms "
                "in the function that makes the environment, or leave the wrapper out"
            )
    if name == _EPISODIC_LIFE:
        raise ValueError(
            f"env must start again at every reset, got {name}, which goes on with the same game: leave the wrapper out"
        )
