"""What Stable-Baselines3 takes as an ``eval_env``, as Gymnasium environments whose episodes end where SB3's do."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from numpy.typing import NDArray
from stable_baselines3.common import vec_env as sb3
from stable_baselines3.common.atari_wrappers import EpisodicLifeEnv
from stable_baselines3.common.env_util import unwrap_wrapper
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.preprocessing import is_image_space

from rido.core import checks
from rido.core.estimate import Estimate
from rido.core.reward_moments import RewardMoments
from rido.core.trajectories import Trajectories, concatenate, count_reached
from rido.policies.observations import stack_alike, take
from rido.simulators.base import Batch, Capabilities, Request
from rido.simulators.factory import import_environment, resolve_horizon
from rido.simulators.gymnasium import GymnasiumSimulator
from rido.simulators.identity import environment_name
from rido.simulators.opening import find_spec

_PROBE_STEPS = 10_000  # random steps at most, in search of the time limit of an environment that does not declare one

Env = gym.Env[Any, Any]


class Episodes:
    """Rewards, lengths and successes of the episodes of one evaluation.

    A trajectory shorter than the horizon is only the beginning of an episode. Lengths and successes are therefore
    estimated step by step.
    """

    def __init__(self, horizon: int) -> None:
        self._horizon = horizon
        self._batches: list[Trajectories] = []
        self._seeds: list[int] = []
        self._ends: list[tuple[int, Any]] = []  # steps and successes of episodes

    def add(self, trajectories: Trajectories, seeds: Sequence[int]) -> None:
        """Keeps trajectories with their seeds."""
        self._batches.append(trajectories)
        self._seeds += seeds

    def end(self, steps: int, success: Any) -> None:
        """Counts an episode that ended after some steps; ``success`` is None where the environment does not tell."""
        self._ends.append((steps, success))

    @property
    def mean_length(self) -> float:
        """Mean length of an episode, in steps, the horizon at most; estimated as the return of a reward of 1."""
        planned = count_reached(concatenate(self._batches).lengths, self._horizon)
        return float((self._taken() / planned).sum())

    @property
    def success_rate(self) -> float | None:
        """Share of episodes that end in success (Aalen-Johansen estimate); None where the environment does not tell."""
        if all(success is None for _, success in self._ends):
            return None
        alive = np.maximum(self._taken(), 1)
        successes = np.bincount(
            [steps - 1 for steps, _ in self._ends],
            [float(success or 0) for _, success in self._ends],
            minlength=self._horizon,
        )
        survival = np.cumprod(1 - self._ended() / alive)
        return float((np.append(1, survival[:-1]) * successes / alive).sum())

    @property
    def unfinished(self) -> bool:
        """Whether an episode had not ended at the horizon."""
        return bool(self._taken()[-1] > self._ended()[-1])

    def _taken(self) -> NDArray[np.int64]:
        return count_reached(concatenate(self._batches).steps, self._horizon)

    def _ended(self) -> NDArray[np.int64]:
        return np.bincount([steps - 1 for steps, _ in self._ends], minlength=self._horizon)

    def difference(self, other: Episodes, gamma: float) -> Estimate | None:
        """Estimates how much better these episodes are than others, by trajectories with the same seeds.

        Two trajectories are compared over the shorter of their lengths.

        Returns:
            The difference of the returns; None where no two have full length.
        """
        rows = {seed: row for row, seed in enumerate(self._seeds)}
        common = [(rows[seed], row) for row, seed in enumerate(other._seeds) if seed in rows]
        if not common:
            return None
        batches = [concatenate(episodes._batches) for episodes in (self, other)]
        places = np.array(common).T
        lengths, steps = (
            [getattr(batch, name)[place] for batch, place in zip(batches, places, strict=True)]
            for name in ("lengths", "steps")
        )
        shorter = np.minimum(*lengths)
        if shorter.max() < self._horizon:
            return None
        new, old = (batch.rewards[place] for batch, place in zip(batches, places, strict=True))
        moments = RewardMoments(self._horizon, gamma=gamma)
        moments.update(Trajectories(new - old, shorter, np.minimum(np.maximum(*steps), shorter)))
        return Estimate.from_moments(moments)


class EvalEnvs:
    """The environments in which an agent is evaluated.

    Args:
        eval_env: an id, a function that makes an environment, an environment, or a VecEnv.
        render: whether to render every step.

    Attributes:
        horizon: the horizon; if not given, the environment's time limit, or as :func:`rido.evaluate` chooses it where
            gamma is less than 1.
        name: of the environment, in results.
        probed: whether the time limit was found by random actions; an episode may then be longer.
    """

    def __init__(self, eval_env: Any, *, gamma: float, horizon: int | None, render: bool) -> None:
        eval_env = import_environment(eval_env)
        self._as_is = eval_env  # what evaluate() takes as it is, where there are no single environments
        self._make: Callable[[], Env] | None = None
        self._rows: list[Env] = []
        self._render = render
        # VecMonitor counts what the wrappers of an environment return; Monitor counts what lies below them.
        self._monitored = not (isinstance(eval_env, sb3.VecEnv) and sb3.is_vecenv_wrapped(eval_env, sb3.VecMonitor))
        self.name, self.probed = environment_name(eval_env), False
        match eval_env:
            case SyncVectorEnv():
                self._rows = list(eval_env.envs)
            case str() | VectorEnv():
                self.horizon = resolve_horizon(eval_env, horizon, gamma)
                spec = find_spec(eval_env) if isinstance(eval_env, str) else None
                if spec is not None and (spec.max_episode_steps or spec.vector_entry_point is None):
                    options: dict[str, Any] = {"render_mode": "human"} if render else {}
                    options |= {"max_episode_steps": self.horizon, "disable_env_checker": True}
                    self._make = partial(gym.make, spec.id, **options)
                return
            case sb3.VecEnv():
                self._rows = _translated(eval_env)
            case gym.Env():
                self._rows = [eval_env]
            case _ if callable(eval_env):
                self._make = eval_env
            case _:
                kinds = "an id, a function, an environment or a VecEnv"
                raise ValueError(f"eval_env must be {kinds}, got {checks.shown(eval_env)}")
        first = self._rows[0] if self._make is None else checks.called("eval_env", self._make)
        if not isinstance(first, gym.Env):
            raise ValueError(f"eval_env must make a gymnasium.Env when it is called, got {checks.shown(first)}")
        self.name = environment_name(first)
        self.horizon, self.probed = _find_horizon(first, horizon, gamma)
        if self._make is not None:
            first.close()

    def open(self, episodes: Episodes, agent_space: gym.Space[Any]) -> Any:
        """Returns what :func:`rido.evaluate` takes; ends of episodes are counted by ``episodes``."""

        def wrap(env: Env) -> Env:
            return _EpisodeWrapper(_seen_by(agent_space, env), episodes, monitored=self._monitored, render=self._render)

        if self._make is not None:
            make = self._make
            return lambda: wrap(make())
        if not self._rows:
            return self._as_is
        rows: Iterator[Env] = map(wrap, self._rows)
        return SyncVectorEnv([lambda: next(rows)] * len(self._rows), autoreset_mode=AutoresetMode.DISABLED)

    def simulator(self, episodes: Episodes) -> Callable[..., GymnasiumSimulator]:
        """Returns the simulator that :func:`rido.evaluate` takes, which counts the steps of episodes."""
        return partial(_CountingSimulator, episodes=episodes, name=self.name)


class _CountingSimulator(GymnasiumSimulator):
    def __init__(self, *arguments: Any, episodes: Episodes, name: str, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._episodes, self._name = episodes, name

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, environment=self._name)

    def collect(self, request: Request) -> Batch:
        batch = super().collect(request)
        if len(batch.trajectories):
            self._episodes.add(batch.trajectories, request.seeds[: len(batch.trajectories)])
        return batch


class _EpisodeWrapper(gym.Wrapper[Any, Any, Any, Any]):
    """Counts rewards and ends of episodes as SB3's ``evaluate_policy`` does.

    An environment's own time limit is an end. Where there is a Monitor, rewards are those that it sees, and only what
    it reports is an end: wrappers around it may clip rewards, or end the episode with every life lost.
    """

    def __init__(self, env: Env, episodes: Episodes, *, monitored: bool, render: bool) -> None:
        self._monitor: Any = unwrap_wrapper(env, Monitor) if monitored else None
        self._lives: Any = unwrap_wrapper(env, EpisodicLifeEnv)
        # rido refuses games that go on after a reset, and looks for their wrapper; here reset() starts them again.
        super().__init__(env if self._lives is None else _Row(sb3.DummyVecEnv([lambda: env]), 0))
        self._episodes, self._render_steps = episodes, render

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if self._lives is not None:
            self._lives.was_real_done = True  # otherwise its reset goes on with the game
        self._steps = 0
        result = self.env.reset(seed=seed, options=options)
        self._counted = 0 if self._monitor is None else len(self._monitor.rewards)
        return result

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = self.env.step(action)
        ended = terminated or truncated
        if self._monitor is not None:
            rewards = self._monitor.rewards
            reward, self._counted = sum(rewards[self._counted :]), len(rewards)
            if ended and "episode" not in info:
                ended = False
                observation, info = self.env.reset()
        self._steps += 1
        if ended:
            self._episodes.end(self._steps, info.get("is_success"))
        if self._render_steps:
            self.env.render()
        return observation, reward, ended, False, info


class _Shown(gym.Wrapper[Any, Any, Any, Any]):
    """Shows observations as a wrapper around a VecEnv does, by functions of batches; here of one row.

    Gymnasium's wrapper copies its function, and a VecEnv cannot be copied.
    """

    def __init__(
        self, env: Env, space: gym.Space[Any], first: Callable[[Any], Any], later: Callable[[Any], Any] | None = None
    ) -> None:
        super().__init__(env)
        self.observation_space, self._first, self._later = space, first, later or first

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        observation, info = self.env.reset(seed=seed, options=options)
        return take(self._first(stack_alike([observation])), 0), info

    def step(self, action: Any) -> Any:
        observation, *others = self.env.step(action)
        return take(self._later(stack_alike([observation])), 0), *others


def _stacked(env: Env, like: sb3.StackedObservations[Any]) -> Env:
    """Returns an environment that shows its last observations as a VecFrameStack does."""
    frames = sb3.StackedObservations(1, like.n_stack, like.observation_space, _channels_order(like))
    later = partial(frames.update, dones=np.array([False]), infos=[{}])
    return _Shown(env, frames.stacked_observation_space, frames.reset, lambda seen: later(seen)[0])


class _Row(gym.Env[Any, Any]):
    """One environment of a VecEnv that runs elsewhere."""

    def __init__(self, envs: sb3.VecEnv, row: int) -> None:
        self._call = partial(envs.env_method, indices=[row])
        self.observation_space, self.action_space = envs.observation_space, envs.action_space
        self.spec = envs.get_attr("spec", indices=[row])[0]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self._call("reset", seed=seed)[0]

    def step(self, action: Any) -> Any:
        return self._call("step", action)[0]

    def render(self) -> Any:
        return self._call("render")[0]


def _translated(envs: sb3.VecEnv) -> list[Env]:
    """Returns the environments of a VecEnv, each wrapped as the VecEnv is."""
    match envs:
        case sb3.DummyVecEnv():
            return list(envs.envs)
        case sb3.SubprocVecEnv():
            changed = any(any(envs.env_is_wrapped(kind)) for kind in (gym.RewardWrapper, EpisodicLifeEnv))
            if changed and all(envs.env_is_wrapped(Monitor)):
                raise ValueError("eval_env must be a DummyVecEnv where a wrapper changes what its Monitor counts")
            return [_Row(envs, row) for row in range(envs.num_envs)]
        case sb3.VecNormalize() | sb3.VecMonitor() | sb3.VecCheckNan():
            # The agent brings the statistics of its training. rido checks rewards by itself.
            return _translated(envs.venv)
        case sb3.VecFrameStack():
            return [_stacked(row, envs.stacked_obs) for row in _below(envs)]
        case sb3.VecTransposeImage():
            return [_Shown(row, envs.observation_space, envs.transpose_observations) for row in _below(envs)]
        case sb3.VecExtractDictObs():
            return [_Shown(row, envs.observation_space, itemgetter(envs.key)) for row in _below(envs)]
    raise ValueError(f"eval_env must not be a {type(envs).__name__}: give a function that makes one environment")


def _below(wrapper: sb3.VecEnvWrapper) -> list[Env]:
    normalize = sb3.unwrap_vec_normalize(wrapper.venv)
    if normalize is not None and normalize.norm_obs:
        raise ValueError(f"eval_env must have VecNormalize around {type(wrapper).__name__}, got it inside")
    return _translated(wrapper.venv)


def _find_horizon(env: Env, horizon: int | None, gamma: float) -> tuple[int, bool]:
    try:
        return resolve_horizon(env, horizon, gamma), False
    except ValueError:
        if horizon is not None or (limit := _probe_time_limit(env)) is None:
            raise
        return limit, True


def _probe_time_limit(env: Env) -> int | None:
    """Returns the length of the first episode that is truncated under random actions; None if none is."""
    actions = copy.deepcopy(env.action_space)  # some environments draw from their own
    actions.seed(0)
    env.reset(seed=0)
    length = 0
    for _ in range(_PROBE_STEPS):
        *_, terminated, truncated, _ = env.step(actions.sample())
        length += 1
        if truncated:
            return length
        if terminated:
            env.reset()
            length = 0
    return None


def _seen_by(agent_space: gym.Space[Any], env: Env) -> Env:
    """Returns an environment with images as the agent has them; SB3 moves their channels to the front."""
    space = env.observation_space
    if isinstance(space, gym.spaces.Box) and is_image_space(space) and space.shape != agent_space.shape:
        moved = sb3.VecTransposeImage.transpose_space(space)
        return _Shown(env, moved, sb3.VecTransposeImage.transpose_image)
    return env


def _channels_order(like: sb3.StackedObservations[Any]) -> Any:
    if isinstance(like.observation_space, gym.spaces.Dict):
        return {key: _channels_order(part) for key, part in like.sub_stacked_observations.items()}
    return "first" if like.channels_first else "last"
