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
from stable_baselines3.common import vec_env as sb3
from stable_baselines3.common.atari_wrappers import EpisodicLifeEnv
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.preprocessing import is_image_space

from rido.core import checks
from rido.core.estimate import Estimate
from rido.core.reward_moments import RewardMoments
from rido.core.trajectories import Trajectories, concatenate, count_reached
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
        self._planned, self._taken, self._ended = np.zeros((3, horizon), dtype=np.int64)
        self._successes = np.zeros(horizon)
        self._tells_success = False
        self._batches: list[Trajectories] = []
        self._seeds: list[int] = []

    def add(self, trajectories: Trajectories, seeds: Sequence[int]) -> None:
        """Keeps trajectories with their seeds, and counts the steps that were planned and taken."""
        self._batches.append(trajectories)
        self._seeds += seeds
        self._planned += count_reached(trajectories.lengths, self._planned.size)
        self._taken += count_reached(trajectories.steps, self._taken.size)

    def end(self, steps: int, success: Any) -> None:
        """Counts an episode that ended after some steps; ``success`` is None where the environment does not tell."""
        self._ended[steps - 1] += 1
        if success is not None:
            self._tells_success = True
            self._successes[steps - 1] += float(success)

    @property
    def mean_length(self) -> float:
        """Mean length of an episode, in steps, the horizon at most; estimated as the return of a reward of 1."""
        return float((self._taken / self._planned).sum())

    @property
    def success_rate(self) -> float | None:
        """Share of episodes that end in success (Aalen-Johansen estimate); None where the environment does not tell."""
        if not self._tells_success:
            return None
        alive = np.maximum(self._taken, 1)
        survival = np.cumprod(1 - self._ended / alive)
        return float((np.append(1, survival[:-1]) * self._successes / alive).sum())

    def difference(self, other: Episodes, gamma: float) -> Estimate | None:
        """Estimates how much better these episodes are than others, by trajectories with the same seeds.

        Two trajectories are compared over the shorter of their lengths.

        Returns:
            The difference of the returns; None where no two have full length.
        """
        horizon, rows = self._planned.size, {seed: row for row, seed in enumerate(self._seeds)}
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
        if shorter.max() < horizon:
            return None
        new, old = (batch.rewards[place] for batch, place in zip(batches, places, strict=True))
        moments = RewardMoments(horizon, gamma=gamma)
        moments.update(Trajectories(new - old, shorter, np.minimum(np.maximum(*steps), shorter)))
        return Estimate.from_moments(moments)

    @property
    def unfinished(self) -> bool:
        """Whether an episode had not ended at the horizon."""
        return bool(self._taken[-1] > self._ended[-1])


class EvalEnvs:
    """The environments in which an agent is evaluated.

    Args:
        eval_env: an id, a function that makes an environment, an environment, or a VecEnv.
        gamma: discount factor.
        horizon: steps over which the return is summed, or None.
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
        self.name = environment_name(eval_env)
        self.probed = False
        if isinstance(eval_env, SyncVectorEnv):
            self._rows = list(eval_env.envs)
        elif isinstance(eval_env, str | VectorEnv):
            self.horizon = resolve_horizon(eval_env, horizon, gamma)
            spec = find_spec(eval_env) if isinstance(eval_env, str) else None
            if spec is not None and (spec.max_episode_steps or spec.vector_entry_point is None):
                options: dict[str, Any] = {"render_mode": "human"} if render else {}
                options |= {"max_episode_steps": self.horizon, "disable_env_checker": True}
                self._make = partial(gym.make, spec.id, **options)
            return
        elif isinstance(eval_env, sb3.VecEnv):
            self._rows = _translated(eval_env)
        elif isinstance(eval_env, gym.Env):
            self._rows = [eval_env]
        elif callable(eval_env):
            self._make = eval_env
        else:
            raise ValueError(
                f"eval_env must be an id, a function, an environment or a VecEnv, got {checks.shown(eval_env)}"
            )
        first = self._rows[0] if self._make is None else self._make()
        if not isinstance(first, gym.Env):
            raise ValueError(f"eval_env must make a gymnasium.Env when it is called, got {checks.shown(first)}")
        self.name = environment_name(first)
        self.horizon, self.probed = _find_horizon(first, horizon, gamma)
        if self._make is not None:
            first.close()

    def open(self, episodes: Episodes, agent_space: gym.Space[Any]) -> Any:
        """Returns what :func:`rido.evaluate` takes.

        Args:
            episodes: where the ends of episodes are counted.
            agent_space: the agent's observation space.
        """

        def wrap(env: Env) -> Env:
            return _Episode(_seen_by(agent_space, env), episodes, monitored=self._monitored, render=self._render)

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
            self._episodes.add(batch.trajectories, request.seeds)
        return batch


class _Episode(gym.Wrapper[Any, Any, Any, Any]):
    """Counts rewards and ends of episodes as SB3's ``evaluate_policy`` does.

    An environment's own time limit is an end. Where there is a Monitor, rewards are those that it sees, and only what
    it reports is an end: wrappers around it may clip rewards, or end the episode with every life lost.
    """

    def __init__(self, env: Env, episodes: Episodes, *, monitored: bool, render: bool) -> None:
        self._monitor = _layer(env, Monitor) if monitored else None
        self._lives = _layer(env, EpisodicLifeEnv)
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


class _Transformed(gym.ObservationWrapper[Any, Any, Any]):
    """Shows a function of the observation. Gymnasium's wrapper copies the function, and a VecEnv cannot be copied."""

    def __init__(self, env: Env, function: Callable[[Any], Any], space: gym.Space[Any]) -> None:
        super().__init__(env)
        self._function, self.observation_space = function, space

    def observation(self, observation: Any) -> Any:
        return self._function(observation)


class _Stacked(gym.Wrapper[Any, Any, Any, Any]):
    """Stacks the last observations of one environment as a VecFrameStack does."""

    def __init__(self, env: Env, like: sb3.StackedObservations[Any]) -> None:
        super().__init__(env)
        self._frames = sb3.StackedObservations(1, like.n_stack, like.observation_space, _channels_order(like))
        self.observation_space = self._frames.stacked_observation_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        observation, info = self.env.reset(seed=seed, options=options)
        return _first(self._frames.reset(_batch(observation))), info

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = self.env.step(action)
        stacked, _ = self._frames.update(_batch(observation), np.array([False]), [{}])
        return _first(stacked), reward, terminated, truncated, info


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
            return [_Stacked(row, envs.stacked_obs) for row in _below(envs)]
        case sb3.VecTransposeImage():
            return [_Transformed(row, envs.transpose_observations, envs.observation_space) for row in _below(envs)]
        case sb3.VecExtractDictObs():
            return [_Transformed(row, itemgetter(envs.key), envs.observation_space) for row in _below(envs)]
    raise ValueError(f"eval_env must not be a {type(envs).__name__}: give a function that makes one environment")


def _below(wrapper: sb3.VecEnvWrapper) -> list[Env]:
    """Returns the environments below a wrapper that changes observations."""
    normalize = sb3.unwrap_vec_normalize(wrapper.venv)
    if normalize is not None and normalize.norm_obs:
        raise ValueError(f"eval_env must have VecNormalize around {type(wrapper).__name__}, got it inside")
    return _translated(wrapper.venv)


def _layer(env: Any, kind: type[Any]) -> Any:
    """Returns the outermost wrapper of a kind; None if there is none."""
    while isinstance(env, gym.Wrapper):
        if isinstance(env, kind):
            return env
        env = env.env
    return None


def _find_horizon(env: Env, horizon: int | None, gamma: float) -> tuple[int, bool]:
    """Returns the horizon, and whether it had to be found by random actions."""
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
        return _Transformed(env, sb3.VecTransposeImage.transpose_image, moved)
    return env


def _channels_order(like: sb3.StackedObservations[Any]) -> Any:
    if isinstance(like.observation_space, gym.spaces.Dict):
        return {key: _channels_order(part) for key, part in like.sub_stacked_observations.items()}
    return "first" if like.channels_first else "last"


def _batch(observation: Any) -> Any:
    if isinstance(observation, dict):
        return {key: value[None] for key, value in observation.items()}
    return np.asarray(observation)[None]


def _first(batch: Any) -> Any:
    return {key: value[0] for key, value in batch.items()} if isinstance(batch, dict) else batch[0]
