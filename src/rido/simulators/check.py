"""check(): what is odd about an environment and a policy? Each question is tried, and its answer printed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Unpack

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rido.core import checks
from rido.core.options import takes
from rido.policies.base import Policy
from rido.policies.functions import FunctionPolicy, TakesBatchesError
from rido.policies.observations import stack_alike
from rido.policies.resolve import resolve_policy
from rido.simulators.base import SimulationError, narrow_seed
from rido.simulators.environments import Environments, SingleEnvironments
from rido.simulators.factory import import_environment, is_in_jax, is_simulator
from rido.simulators.memory import first_observations, remembers
from rido.simulators.opening import open_environments
from rido.simulators.options import WITHOUT, SimulatorOptions
from rido.simulators.protocol import check_result
from rido.simulators.rehearsal import Rehearsal, can_pair, close, rehearse
from rido.simulators.repeatability import GlobalState
from rido.simulators.sequence import SequentialRollout
from rido.simulators.wrappers import Wrappers, layers, time_limit

Level = Literal["ok", "note", "found"]
"""All is well; worth knowing; a reason why a number may be wrong, or not repeat."""

_EPISODES = 4
_STEPS = 250  # of an episode, and of each play of the rehearsal
_CALLS = 400  # of a policy whose memory is tried
_JUMP = 20.0  # times the 95th percentile of rewards, which a reward that jumps exceeds
_LONG_RESET = 20.0  # steps that take as long as a reset, from which on that is worth knowing


@dataclass(frozen=True)
class Answer:
    """What one question found.

    Attributes:
        name: of the question.
        level: whether that is a reason to worry.
        text: what was found.
    """

    name: str
    level: Level
    text: str


@dataclass(frozen=True)
class Check:
    """What :func:`check` found.

    Attributes:
        environment: its name.
        policy: its name.
        answers: to all questions, in the order in which they were asked.
        transitions: that were taken.
    """

    environment: str
    policy: str
    answers: tuple[Answer, ...]
    transitions: int

    @property
    def ok(self) -> bool:
        """Whether no answer is a reason to worry."""
        return all(answer.level != "found" for answer in self.answers)

    def summary(self) -> str:
        """Returns a line for each question, those that found something first."""
        order = {"found": 0, "note": 1, "ok": 2}
        answers = sorted(self.answers, key=lambda answer: order[answer.level])
        signs = {"found": "found", "note": "note ", "ok": "ok   "}
        found = sum(answer.level == "found" for answer in self.answers)
        lines = [f"{signs[each.level]}  {each.name}: {each.text}" for each in answers]
        told = "nothing found" if not found else f"{found} of {len(answers)} questions found something"
        return "\n".join([f"{self.policy} in {self.environment}, {self.transitions:,} transitions: {told}", *lines])

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values, as ``rido check --json`` prints them."""
        answers = [{"name": each.name, "level": each.level, "text": each.text} for each in self.answers]
        numbers = {"transitions": self.transitions, "ok": self.ok, "answers": answers}
        return {"environment": self.environment, "policy": self.policy, **numbers}


@dataclass(eq=False)
class _PlayedEpisode:
    seen: list[Any]
    rewards: NDArray[np.float64]
    actions: list[Any]
    terminated: bool
    truncated: bool
    reset_seconds: float
    step_seconds: float


@takes(SimulatorOptions, without=WITHOUT["check"])
def check(env: Any, policy: Any = "random", *, seed: int = 0, **options: Unpack[SimulatorOptions]) -> Check:
    """Tries an environment and a policy for what makes numbers wrong: shared state, copied noise, memories and more.

    It takes a few hundred steps, and says for each question what it found.

    Args:
        env: as in :func:`rido.evaluate`: an id, a function that makes an environment, an environment or a VectorEnv.
        policy: as in :func:`rido.evaluate`.
        seed: of the episodes.

    Example:
        >>> check("CartPole-v1", lambda observation: int(observation[2] > 0)).ok
        True
    """
    env = import_environment(env)
    if is_simulator(env) or is_in_jax(env):
        raise ValueError(f"env must be an environment of Gymnasium, got {checks.shown(env)}")
    name = env if isinstance(env, str) else getattr(env, "__name__", type(env).__name__)
    asked = _Questions()
    wrappers = Wrappers(1, end_on_truncation=True)  # time limits stay as they are
    try:
        envs = open_environments(env, wrappers, env_kwargs=dict(options["env_kwargs"] or {}), num_envs=2)
    except ValueError as error:
        called = policy if isinstance(policy, str) else checks.shown(policy)
        return Check(name, called, (Answer("opening", "found", str(error)),), 0)
    try:
        spaces: dict[str, Any] = dict(observation_space=envs.observation_space, action_space=envs.action_space)
        acting = resolve_policy(policy, **spaces, deterministic=options["deterministic"], trust=options["trust"])
        asked.run(envs, acting, seed)
    finally:
        envs.close()
    return Check(name, acting.name, tuple(asked.answers), asked.transitions)


class _Questions:
    """Asks all questions and keeps the answers."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.transitions = 0

    def run(self, envs: Environments, policy: Policy, seed: int) -> None:
        found = self._rehearsal(envs, policy, seed)
        if isinstance(envs, SingleEnvironments) and not found.failed:
            self._memory(envs, policy)
            state, episodes = GlobalState(), []
            try:
                episodes = [_play(envs, policy, seed + number) for number in range(_EPISODES)]
                again = _play(envs, policy, seed)
            except SimulationError as error:
                self.add("steps", "found", error.reason)
                return
            self.transitions += sum(len(each.rewards) for each in [*episodes, again])
            notes = state.notes()
            self.add("global random numbers", "found" if notes else "ok", notes[0] if notes else "not used")
            self._spaces(envs, episodes)
            self._starts(episodes, again, found)
            self._ends(envs, episodes)
            self._rewards(episodes)
            self._times(episodes)
        self.add(
            "normalisation",
            "note" if "not normalised" in policy.normalisation else "ok",
            policy.normalisation or "none",
        )

    def add(self, name: str, level: Level, text: str) -> None:
        self.answers.append(Answer(name, level, text))

    def _rehearsal(self, envs: Environments, policy: Policy, seed: int) -> Rehearsal:
        vector = not isinstance(envs, SingleEnvironments)
        found = Rehearsal()
        if not can_pair(envs):
            self.add("copies of noise, shared state", "note", "not tried: give a function that makes an environment")
        else:
            found = rehearse(envs, policy, [seed, seed + 1], _STEPS)
            self.transitions += found.transitions
            for name, kind, text, fine in (
                (
                    "copies of noise",
                    "copies",
                    "fresh instances repeat the same noise or history, whatever their seeds",
                    "none",
                ),
                ("state that resets keep", "history", "what an instance does depends on what it did before", "none"),
                ("shared state", "shared", "a trajectory changes when another instance is stepped beside it", "none"),
                (
                    "determinism",
                    "differ",
                    "the same seed and actions gave another trajectory",
                    "seed and actions decide",
                ),
            ):
                told = text if found.kind == kind else fine if found.kind == "same" else "see the others"
                self.add(name, "found" if found.kind == kind else "ok", told)
            if vector:
                refused = "reset_mask" in found.failed
                told = found.failed if refused else "a reset changes the rows of its mask only"
                self.add("reset_mask", "found" if refused else "ok", told)
            if found.failed and (not vector or not refused):
                self.add("steps", "found", found.failed)
            if not policy.in_sequence:
                told = "acts differently on several observations at once" if found.mixes else "acts on each row alone"
                self.add("policy in batches", "found" if found.mixes else "ok", told)
        return found

    def _spaces(self, envs: Environments, episodes: Sequence[_PlayedEpisode]) -> None:
        space, seen = envs.observation_space, [one for each in episodes for one in each.seen]
        outside = [one for one in seen if not space.contains(one)]
        text = f"{len(seen):,} observations are in {_short(space)}"
        if outside:
            one = np.asarray(outside[0])
            of = f"{one.dtype} of shape {one.shape}" if one.dtype != object else type(outside[0]).__name__
            if one.dtype == getattr(space, "dtype", None) and one.shape == space.shape and one.size:
                of += f", from {one.min():.4g} to {one.max():.4g}"
            text = f"{len(outside):,} of {len(seen):,} observations are not in {_short(space)}: the first is {of}"
        self.add("dtype and bounds of observations", "found" if outside else "ok", text)
        taken = [one for each in episodes for one in each.actions]
        beyond = sum(_beyond(one, envs.action_space) for one in taken)
        told = f"{beyond:,} of {len(taken):,} actions are beyond the bounds of {_short(envs.action_space)}"
        self.add("bounds of actions", "note" if beyond else "ok", told if beyond else "kept")
        if any(_has_nan(one) for one in seen):
            self.add("NaN", "found", "an observation has NaN")

    def _starts(self, episodes: Sequence[_PlayedEpisode], again: _PlayedEpisode, found: Rehearsal) -> None:
        same = close(stack_alike([episodes[0].seen[0]]), stack_alike([again.seen[0]]))
        text = (
            "the same seed gives the same first observation"
            if same
            else "the same seed gives another first observation"
        )
        self.add("seeds", "ok" if same else "found", text)
        firsts = [stack_alike([each.seen[0]]) for each in episodes]
        alike = all(close(firsts[0], one) for one in firsts[1:])
        told = "all seeds give the same first observation" if alike else "other seeds give other first observations"
        self.add("starts", "note" if alike else "ok", told)
        if same and found.kind == "same" and not _same(episodes[0], again):
            text = "the policy or the environment did something else when the first episode was run again"
            self.add("the same episode", "found", text)

    def _ends(self, envs: SingleEnvironments, episodes: Sequence[_PlayedEpisode]) -> None:
        limit, ended = time_limit(envs.first), sum(each.terminated for each in episodes)
        cut = [len(each.rewards) for each in episodes if each.truncated and not each.terminated]
        many = f"{ended} of {len(episodes)} episodes terminated within {_STEPS} steps"
        if any(length != limit for length in cut):
            told = f"the environment truncated an episode after {min(cut)} steps by itself: give end_on_truncation=True"
            self.add("time limit and termination", "found", f"{told}, or a horizon of fewer steps")
        elif limit is None and not ended:
            self.add("time limit and termination", "note", f"no time limit, and {many}: give a horizon")
        else:
            limited = "no time limit" if limit is None else f"a time limit of {limit:,} steps"
            self.add("time limit and termination", "ok", f"{limited}; {many}")
        wraps = any(type(layer).__name__ == "Autoreset" for layer in layers(envs.first))
        told = "Autoreset starts the next episode by itself: leave the wrapper out" if wraps else "none"
        self.add("autoreset", "found" if wraps else "ok", told)

    def _rewards(self, episodes: Sequence[_PlayedEpisode]) -> None:
        rewards = np.concatenate([each.rewards for each in episodes])
        if not np.isfinite(rewards).all():
            self.add("rewards", "found", f"a reward is {rewards[~np.isfinite(rewards)][0]}")
            return
        size, usual = np.abs(rewards).max(), np.quantile(np.abs(rewards), 0.95)
        text = f"from {rewards.min():.4g} to {rewards.max():.4g}"
        if size > _JUMP * usual:
            text += f", but nearly all within {usual:.4g}: a value rests on how often the large ones come"
        self.add("rewards that jump", "note" if size > _JUMP * usual else "ok", text)

    def _times(self, episodes: Sequence[_PlayedEpisode]) -> None:
        reset = float(np.median([each.reset_seconds for each in episodes]))
        step = sum(each.step_seconds for each in episodes) / max(1, sum(len(each.rewards) for each in episodes))
        times = reset / max(step, 1e-9)
        text = f"a reset takes {1e3 * reset:.2g} ms, as long as {times:.2g} steps"
        self.add("cost of a reset", "note" if times > _LONG_RESET else "ok", text)

    def _memory(self, envs: SingleEnvironments, policy: Policy) -> None:
        if not policy.in_sequence or not isinstance(policy, FunctionPolicy):
            return
        before = GlobalState()
        known = remembers(policy, first_observations(envs), _CALLS)
        held = not known and remembers(policy, first_observations(envs), _CALLS, frozen=False)
        before.restore()
        if known:
            self.add(
                "memory of the policy", "found", "it remembers earlier calls, and nothing clears that: give it reset()"
            )
        elif held:
            told = "it draws from its own generator: take a parameter generator, so that the seed repeats it"
            self.add("memory of the policy", "note", told)
        else:
            cleared = "its reset() clears it" if policy.remembers else "none seen"
            self.add("memory of the policy", "ok", cleared)


def _play(envs: SingleEnvironments, policy: Policy, seed: int) -> _PlayedEpisode:
    """Plays an episode as the plain loop does."""
    timed, resets = _Timed(envs.first), [time.perf_counter()]

    def start(row: int) -> Any:
        observation = envs.begin(narrow_seed(seed), None)
        resets.append(time.perf_counter())
        return observation

    spaces = envs.observation_space, envs.action_space
    options: dict[str, Any] = dict(end_on_truncation=True, spaces=spaces, reader=None, observing=True)
    rollout = SequentialRollout(timed, policy, np.array([_STEPS]), [narrow_seed(seed)], **options)
    try:
        rollout.run(start)
    except TakesBatchesError as error:
        policy.take_batches(error)
        return _play(envs, policy, seed)
    except SimulationError as error:
        if not error.reason.startswith("the reward is"):  # another question is about rewards
            raise
    rewards = rollout.trajectories().flat[: len(rollout.taken)]
    ends = timed.terminated, timed.truncated
    return _PlayedEpisode(rollout.seen, rewards, rollout.taken, *ends, resets[1] - resets[0], timed.seconds)


class _Timed:
    """An environment whose steps are timed."""

    def __init__(self, env: Any) -> None:
        self._env, self.seconds = env, 0.0
        self.terminated = self.truncated = False

    def step(self, action: Any) -> Any:
        started = time.perf_counter()
        result = self._env.step(action)
        self.seconds += time.perf_counter() - started
        _, _, self.terminated, self.truncated, _ = check_result("step", result)
        return result


def _same(one: _PlayedEpisode, other: _PlayedEpisode) -> bool:
    return len(one.rewards) == len(other.rewards) and close(one.rewards, other.rewards)


def _beyond(action: Any, space: gym.Space[Any]) -> bool:
    if isinstance(space, gym.spaces.Box):
        return bool(np.any(action < space.low) or np.any(action > space.high))
    return isinstance(space, gym.spaces.Discrete) and not space.start <= int(action) < space.start + space.n


def _has_nan(observation: Any) -> bool:
    parts = observation.values() if isinstance(observation, Mapping) else [observation]
    arrays = [np.asarray(part) for part in parts if not isinstance(part, (str, tuple))]
    return any(part.dtype.kind == "f" and bool(np.isnan(part).any()) for part in arrays)


def _short(space: gym.Space[Any]) -> str:
    return " ".join(str(space).split())[:80]
