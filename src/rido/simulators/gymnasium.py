"""Trajectories from Gymnasium environments, many side by side, each of its own length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import rido.simulators.envs
from rido.core import checks
from rido.core.trajectories import Trajectories
from rido.policies.base import Policy
from rido.policies.observations import stack, take
from rido.policies.resolve import resolve_policy
from rido.simulators.base import Capabilities, Observed, SimulationError
from rido.simulators.environments import SlotError, Slots, Step, open_environments
from rido.simulators.identity import environment_fingerprint
from rido.simulators.requests import check_request
from rido.storage.fingerprint import fingerprint


class GymnasiumSimulator:
    """Rolls a policy out in Gymnasium environments.

    Sub-environments run side by side. One that has finished its trajectory starts the next at once, the longest
    first, so that they stay busy to the end; none is stepped beyond its planned length; and the policy is called
    for all of them together. Only a VectorEnv that steps all its rows at a time cannot stop some of them: rows without
    a trajectory idle there.

    Args:
        env: an id ("Pendulum-v1", "module:Env-v0"), a function that makes an environment, an environment, or
            a VectorEnv without autoreset.
        policy: what :func:`rido.policies.resolve.resolve_policy` takes. If not given, ``env`` is the id of one of the
            paper's domains, and the policy is the one that the paper evaluates there.
        horizon: the longest trajectory that will be asked for. Environments made from an id get it as their time
            limit; the time limit of others must not be shorter.
        gamma: discount factor, on which the policy of the paper's LQG depends.
        env_kwargs: arguments of the environment, with an id.
        num_envs: sub-environments side by side; if not given, 16, or 256 where the environment is vectorised.
        deterministic: whether an agent takes its most likely action or samples one.

    Attributes:
        num_envs: sub-environments side by side at most.
        policy: the resolved policy.
        observation_space: of one environment.
    """

    def __init__(
        self,
        env: Any,
        policy: Any = None,
        *,
        horizon: int,
        gamma: float = 1.0,
        env_kwargs: Mapping[str, Any] | None = None,
        num_envs: int | None = None,
        deterministic: bool = True,
    ) -> None:
        self._horizon = checks.integer("horizon", horizon, least=1)
        if num_envs is not None:
            num_envs = checks.integer("num_envs", num_envs, least=1)
        env_kwargs = dict(env_kwargs or {})
        if policy is None:
            if not isinstance(env, str) or env.rpartition(":")[2] not in rido.simulators.envs.ENV_IDS:
                raise ValueError('policy must be given: an agent, a function of observations, or "random"')
            policy = rido.simulators.envs.default_policy(env, gamma, **env_kwargs)
        self._envs = open_environments(env, horizon=self._horizon, env_kwargs=env_kwargs, num_envs=num_envs)
        self._given = env, env_kwargs
        self.num_envs = self._envs.most
        self.observation_space = self._envs.observation_space
        self.policy: Policy = resolve_policy(
            policy,
            observation_space=self._envs.observation_space,
            action_space=self._envs.action_space,
            deterministic=deterministic,
        )

    @property
    def capabilities(self) -> Capabilities:
        """It shows its observations."""
        return Capabilities(observes=True, policy=self.policy, load_policy=lambda: self.policy)

    @property
    def fingerprint(self) -> str:
        """Digest of the environment and the policy."""
        env, env_kwargs = self._given
        return fingerprint(environment_fingerprint(env), env_kwargs, self.policy.fingerprint)

    def rollout(self, lengths: NDArray[np.int64], seeds: Sequence[int]) -> Trajectories:
        """Collects one trajectory per length, each from its own seed, and returns them in the same order."""
        return self._run(lengths, seeds, None).trajectories()

    def observe(self, lengths: NDArray[np.int64], seeds: Sequence[int]) -> Observed:
        """Collects what :meth:`rollout` collects, and the observations."""
        recorder = _Recorder()
        running = self._run(lengths, seeds, recorder)
        trajectories = running.trajectories()
        return Observed(trajectories, recorder.batch(trajectories.steps), running.terminated)

    def starts(self, seeds: Sequence[int]) -> Any:
        """Returns a batch of first observations, each from its own seed, without taking a step."""
        batches = []
        for first in range(0, len(seeds), self._envs.provide(len(seeds))):
            part = list(seeds[first : first + self._envs.provide(len(seeds))])
            slots = np.arange(len(part))
            try:
                self._envs.reset(slots, part)
            except SlotError as error:
                raise SimulationError(first + error.slot, 0, part[error.slot], error.reason) from error.__cause__
            batches.append(self._envs.observe(slots))
        return stack(batches)

    def _run(self, lengths: NDArray[np.int64], seeds: Sequence[int], recorder: _Recorder | None) -> _Running:
        lengths = check_request(lengths, seeds, self._horizon)
        running = _Running(lengths, seeds, self._envs.provide(lengths.size))
        try:
            while running.slots.size:
                if running.fresh.size:
                    self._envs.reset(running.fresh, running.seeds(running.fresh))
                observations = self._envs.observe(running.slots)
                if recorder is not None:
                    recorder.add(*running.places(running.slots), observations)
                finished = running.advance(self._envs.step(running.slots, self._act(observations, running)))
                if recorder is not None and finished.size:
                    recorder.add(*running.places(finished), self._envs.observe(finished))
                running.start(finished)
        except SlotError as error:
            raise running.failure(error.slot, error.reason) from error.__cause__
        return running

    def _act(self, observations: Any, running: _Running) -> NDArray[Any]:
        try:
            return self.policy(observations, running.generators(self.policy.draws))
        except Exception as error:
            raise SlotError(int(running.slots[0]), f"the policy raised {error!r}") from error

    def close(self) -> None:
        """Closes the environments that were made here."""
        self._envs.close()


class _Running:
    """The book of one rollout: which slot runs which trajectory, and what came of each.

    Attributes:
        slots: the slots that run a trajectory.
        fresh: those among them that must be reset first.
        terminated: for each trajectory, whether the environment ended it.
    """

    def __init__(self, lengths: NDArray[np.int64], seeds: Sequence[int], size: int) -> None:
        self._lengths = lengths
        self._seeds = np.asarray(seeds)
        self._rewards = np.zeros(int(lengths.sum()))
        self._starts = np.cumsum(lengths) - lengths
        self._steps = np.zeros(lengths.size, dtype=np.int64)
        self.terminated = np.zeros(lengths.size, dtype=np.bool_)
        self._waiting = np.argsort(-lengths, kind="stable")
        self._next = 0
        self._trajectory = np.zeros(size, dtype=np.intp)
        self._busy = np.zeros(size, dtype=np.bool_)
        self._generators: dict[int, np.random.Generator] = {}
        self.start(np.arange(size))

    def start(self, free: Slots) -> None:
        """Gives the free slots the longest trajectories that wait."""
        self.fresh = free
        if not free.size:  # nearly always
            return
        starting = self._waiting[self._next : self._next + free.size]
        self._next += starting.size
        self.fresh = free[: starting.size]
        self._trajectory[self.fresh] = starting
        self._busy[free] = False
        self._busy[self.fresh] = True
        self.slots = np.flatnonzero(self._busy)
        self._rows = self._trajectory[self.slots]

    def advance(self, step: Step) -> Slots:
        """Takes in one step of every running trajectory; returns the slots whose trajectory is finished."""
        rewards, terminated, truncated = step
        rows = self._rows
        finite = np.isfinite(rewards)
        if not finite.all():
            raise SlotError(int(self.slots[~finite][0]), f"the reward is {rewards[~finite][0]}")
        steps = self._steps[rows]
        self._rewards[self._starts[rows] + steps] = rewards
        steps += 1
        self._steps[rows] = steps
        complete = steps == self._lengths[rows]
        if truncated.any() and (cut := truncated & ~terminated & ~complete).any():
            raise SlotError(
                int(self.slots[cut][0]),
                f"the environment's time limit cut it before its planned length of {self._lengths[rows[cut][0]]} "
                "steps; make the environment with a larger max_episode_steps, or ask for a shorter horizon",
            )
        self.terminated[rows] = terminated
        finished: Slots = self.slots[complete | terminated]
        return finished

    def places(self, slots: Slots) -> tuple[Slots, NDArray[np.int64]]:
        """Returns which trajectory is in each of the slots, and the steps that it has taken."""
        rows = self._trajectory[slots]
        return rows, self._steps[rows]

    def seeds(self, slots: Slots) -> list[int]:
        """Returns the seeds of the trajectories in these slots."""
        seeds: list[int] = self._seeds[self._trajectory[slots]].tolist()
        return seeds

    def generators(self, wanted: bool) -> list[Any]:
        """Returns the generator of each running trajectory, from which only the policy draws; None if unwanted."""
        if not wanted:
            return [None] * self.slots.size
        for row in self._trajectory[self.fresh].tolist():
            self._generators[row] = np.random.default_rng([int(self._seeds[row]), 1])
        return [self._generators[row] for row in self._trajectory[self.slots].tolist()]

    def failure(self, slot: int, reason: str) -> SimulationError:
        """Returns the error that names the trajectory in a slot."""
        row = int(self._trajectory[slot])
        return SimulationError(row, int(self._steps[row]), int(self._seeds[row]), reason)

    def trajectories(self) -> Trajectories:
        """Returns what was collected, in the order in which it was asked for."""
        return Trajectories(self._rewards, self._lengths, self._steps)


class _Recorder:
    """Observations in the order in which they were made, to be laid out one trajectory after the other."""

    def __init__(self) -> None:
        self._rows: list[Slots] = []
        self._steps: list[NDArray[np.int64]] = []
        self._batches: list[Any] = []

    def add(self, rows: Slots, steps: NDArray[np.int64], observations: Any) -> None:
        """Takes in what was observed in some trajectories after some steps."""
        self._rows.append(rows)
        self._steps.append(steps)
        self._batches.append(observations)

    def batch(self, steps: NDArray[np.int64]) -> Any:
        """Returns all observations, ``steps + 1`` for one trajectory after the other."""
        starts = np.cumsum(steps + 1) - (steps + 1)
        order = np.argsort(starts[np.concatenate(self._rows)] + np.concatenate(self._steps))
        return take(stack(self._batches), order)
