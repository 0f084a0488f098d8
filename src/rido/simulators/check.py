"""check(): what is odd about an environment and a policy? Each question is tried, and its answer printed."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Unpack

import gymnasium as gym
import numpy as np

from rido.core import checks
from rido.core.options import takes
from rido.policies.base import Policy
from rido.policies.functions import FunctionPolicy, TakesBatchesError
from rido.policies.observations import alike, leaves, stack_alike
from rido.policies.resolve import resolve_policy
from rido.simulators.base import Request, SimulationError, narrow_seed
from rido.simulators.environments import Environments, SingleEnvironments
from rido.simulators.factory import import_environment, is_in_jax, is_simulator
from rido.simulators.opening import open_environments
from rido.simulators.options import WITHOUT, SimulatorOptions
from rido.simulators.protocol import check_result
from rido.simulators.rehearsal import Rehearsal, can_pair, rehearse
from rido.simulators.repeatability import GlobalState, first_observations, remembers
from rido.simulators.sequence import SequentialRollout
from rido.simulators.wrappers import layers, time_limit

Level = Literal["ok", "note", "found"]
"""All is well; worth knowing; a reason why a number may be wrong, or not repeat."""

_EPISODES = 4
_STEPS = 250  # of an episode, and of each play of the rehearsal
_CALLS = 400  # of a policy whose memory is tried
_JUMP = 20.0  # times the 95th percentile of rewards, which a reward that jumps exceeds
_LONG_RESET = 20.0  # steps that take as long as a reset, from which on that is worth knowing

_KINDS = {  # what a rehearsal found: the question, the answer, and the answer if all is well
    "copies": ("copies of noise", "fresh instances repeat the same noise or history, whatever their seeds", "none"),
    "history": ("state that resets keep", "what an instance does depends on what it did before", "none"),
    "shared": ("shared state", "a trajectory changes when another instance is stepped beside it", "none"),
    "differ": ("determinism", "the same seed and actions gave another trajectory", "seed and actions decide"),
}


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
        answers = sorted(self.answers, key=lambda answer: ("found", "note", "ok").index(answer.level))
        found = sum(answer.level == "found" for answer in self.answers)
        lines = [f"{each.level:5}  {each.name}: {each.text}" for each in answers]
        told = "nothing found" if not found else f"{found} of {len(answers)} questions found something"
        return "\n".join([f"{self.policy} in {self.environment}, {self.transitions:,} transitions: {told}", *lines])

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values, as ``rido check --json`` prints them."""
        return {**asdict(self), "ok": self.ok}


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
    as_it_is = SimulatorOptions(env_kwargs=options["env_kwargs"], num_envs=2, end_on_truncation=True, reseed=True)
    try:
        envs = open_environments(env, 1, as_it_is)
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


class _Episode:
    """An episode as a plain loop plays it. It stands for the environment, whose steps are timed."""

    def __init__(self, envs: SingleEnvironments, policy: Policy, seed: int) -> None:
        self._env, self.step_seconds, self.terminated, self.truncated = envs.first, 0.0, False, False
        request = Request(np.array([_STEPS]), [narrow_seed(seed)], wants="observations")
        rollout, started = SequentialRollout(envs, policy, request, env=self), time.perf_counter()

        def start(row: int) -> Any:
            observation = envs.begin(narrow_seed(seed), None)
            self.reset_seconds = time.perf_counter() - started
            return observation

        try:
            rollout.run(start)
        except SimulationError as error:
            if not error.reason.startswith("the reward is"):  # another question is about rewards
                raise
        self.seen, self.actions = rollout.seen, rollout.taken
        self.rewards = rollout.trajectories().flat[: len(rollout.taken)]

    def step(self, action: Any) -> Any:
        started = time.perf_counter()
        result = self._env.step(action)
        self.step_seconds += time.perf_counter() - started
        _, _, self.terminated, self.truncated, _ = check_result("step", result)
        return result


def _play(envs: SingleEnvironments, policy: Policy, seed: int) -> _Episode:
    try:
        return _Episode(envs, policy, seed)
    except TakesBatchesError as error:
        policy.take_batches(error)
        return _Episode(envs, policy, seed)


class _Questions:
    """Asks all questions and keeps the answers."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.transitions = 0

    def add(self, name: str, found: bool, text: str, fine: str, level: Level = "found") -> None:
        """Answers a question: with a text at this level if something was found, else with one that all is fine."""
        self.answers.append(Answer(name, level if found else "ok", text if found else fine))

    def run(self, envs: Environments, policy: Policy, seed: int) -> None:
        found = self._rehearsal(envs, policy, seed)
        if isinstance(envs, SingleEnvironments) and not found.failed:
            self._memory(envs, policy)
            state = GlobalState()
            try:
                *episodes, again = [_play(envs, policy, seed + number % _EPISODES) for number in range(_EPISODES + 1)]
            except SimulationError as error:
                self.add("steps", True, error.reason, "")
                return
            self.transitions += sum(len(each.rewards) for each in [*episodes, again])
            notes = state.notes()
            self.add("global random numbers", bool(notes), "".join(notes[:1]), "not used")
            self._spaces(envs, episodes)
            self._starts(episodes, again, found)
            self._ends(envs, episodes)
            self._rewards(episodes)
            self._times(episodes)
        told = policy.normalisation or "none"
        self.add("normalisation", "not normalised" in told, told, told, "note")

    def _rehearsal(self, envs: Environments, policy: Policy, seed: int) -> Rehearsal:
        if not can_pair(envs):
            told = "not tried: give a function that makes an environment"
            self.add("copies of noise, shared state", True, told, "", "note")
            return Rehearsal()
        found = rehearse(envs, policy, [seed, seed + 1], _STEPS)
        self.transitions += found.transitions
        for kind, (name, text, fine) in _KINDS.items():
            self.add(name, found.kind == kind, text, fine if found.kind == "same" else "see the others")
        refused = "reset_mask" in found.failed
        if vector := not isinstance(envs, SingleEnvironments):
            self.add("reset_mask", refused, found.failed, "a reset changes the rows of its mask only")
        if found.failed and not (vector and refused):
            self.add("steps", True, found.failed, "")
        if not policy.in_sequence:
            told = "acts differently on several observations at once"
            self.add("policy in batches", found.mixes, told, "acts on each row alone")
        return found

    def _spaces(self, envs: Environments, episodes: Sequence[_Episode]) -> None:
        space, seen = envs.observation_space, [one for each in episodes for one in each.seen]
        outside, text = [one for one in seen if not space.contains(one)], ""
        if outside:
            one = np.asarray(outside[0])
            of = f"{one.dtype} of shape {one.shape}" if one.dtype != object else type(outside[0]).__name__
            if one.dtype == getattr(space, "dtype", None) and one.shape == space.shape and one.size:
                of += f", from {one.min():.4g} to {one.max():.4g}"
            text = f"{len(outside):,} of {len(seen):,} observations are not in {_short(space)}: the first is {of}"
        fine = f"{len(seen):,} observations are in {_short(space)}"
        self.add("dtype and bounds of observations", bool(outside), text, fine)
        taken = [one for each in episodes for one in each.actions]
        beyond = sum(_beyond(one, envs.action_space) for one in taken)
        told = f"{beyond:,} of {len(taken):,} actions are beyond the bounds of {_short(envs.action_space)}"
        self.add("bounds of actions", beyond > 0, told, "kept", "note")
        arrays = [part for one in seen for part in leaves(one)]
        if any(part.dtype.kind == "f" and np.isnan(part).any() for part in arrays):
            self.add("NaN", True, "an observation has NaN", "")

    def _starts(self, episodes: Sequence[_Episode], again: _Episode, found: Rehearsal) -> None:
        first, *others, repeated = [stack_alike([each.seen[0]]) for each in [*episodes, again]]
        same = alike(first, repeated)
        text = "the same seed gives {} first observation"
        self.add("seeds", not same, text.format("another"), text.format("the same"))
        text, fine = "all seeds give the same first observation", "other seeds give other first observations"
        self.add("starts", all(alike(first, one) for one in others), text, fine, "note")
        if same and found.kind == "same" and not alike(episodes[0].rewards, again.rewards):
            text = "the policy or the environment did something else when the first episode was run again"
            self.add("the same episode", True, text, "")

    def _ends(self, envs: SingleEnvironments, episodes: Sequence[_Episode]) -> None:
        limit, ended = time_limit(envs.first), sum(each.terminated for each in episodes)
        cut = [len(each.rewards) for each in episodes if each.truncated and not each.terminated]
        many = f"{ended} of {len(episodes)} episodes terminated within {_STEPS} steps"
        limited = "no time limit" if limit is None else f"a time limit of {limit:,} steps"
        level: Level
        text, level = f"no time limit, and {many}: give a horizon", "note"
        if own := any(length != limit for length in cut):
            text = f"the environment truncated an episode after {min(cut)} steps by itself: give end_on_truncation=True"
            text, level = f"{text}, or a horizon of fewer steps", "found"
        found = own or (limit is None and not ended)
        self.add("time limit and termination", found, text, f"{limited}; {many}", level)
        wraps = any(type(layer).__name__ == "Autoreset" for layer in layers(envs.first))
        self.add("autoreset", wraps, "Autoreset starts the next episode by itself: leave the wrapper out", "none")

    def _rewards(self, episodes: Sequence[_Episode]) -> None:
        rewards = np.concatenate([each.rewards for each in episodes])
        if not np.isfinite(rewards).all():
            self.add("rewards", True, f"a reward is {rewards[~np.isfinite(rewards)][0]}", "")
            return
        size, usual = np.abs(rewards).max(), np.quantile(np.abs(rewards), 0.95)
        fine = f"from {rewards.min():.4g} to {rewards.max():.4g}"
        text = f"{fine}, but nearly all within {usual:.4g}: a value rests on how often the large ones come"
        self.add("rewards that jump", size > _JUMP * usual, text, fine, "note")

    def _times(self, episodes: Sequence[_Episode]) -> None:
        reset = float(np.median([each.reset_seconds for each in episodes]))
        step = sum(each.step_seconds for each in episodes) / max(1, sum(len(each.rewards) for each in episodes))
        times = reset / max(step, 1e-9)
        text = f"a reset takes {1e3 * reset:.2g} ms, as long as {times:.2g} steps"
        self.add("cost of a reset", times > _LONG_RESET, text, text, "note")

    def _memory(self, envs: SingleEnvironments, policy: Policy) -> None:
        if not policy.in_sequence or not isinstance(policy, FunctionPolicy):
            return
        before = GlobalState()
        known = remembers(policy, first_observations(envs), _CALLS)
        held = not known and remembers(policy, first_observations(envs), _CALLS, frozen=False)
        before.restore()
        level: Level
        text, level = "it remembers earlier calls, and nothing clears that: give it reset()", "found"
        if held:
            text = "it draws from its own generator: take a parameter generator, so that the seed repeats it"
            level = "note"
        fine = "its reset() clears it" if policy.remembers else "none seen"
        self.add("memory of the policy", known or held, text, fine, level)


def _beyond(action: Any, space: gym.Space[Any]) -> bool:
    if isinstance(space, gym.spaces.Box):
        return bool(np.any(action < space.low) or np.any(action > space.high))
    return isinstance(space, gym.spaces.Discrete) and not space.start <= int(action) < space.start + space.n


def _short(space: gym.Space[Any]) -> str:
    return " ".join(str(space).split())[:80]
