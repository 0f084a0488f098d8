"""Trajectories from sub-environments, in sequence or many side by side, of different lengths."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rido.policies.actions import one_by_one
from rido.policies.base import Policy
from rido.policies.functions import FunctionPolicy, RandomPolicy, TakesBatchesError
from rido.policies.observations import stack_alike, take
from rido.policies.recurrent import RecurrentPolicy
from rido.record.fingerprint import fingerprint
from rido.simulators import rehearsal, repeatability
from rido.simulators.base import NO_TRAJECTORIES, Batch, Capabilities, Found, Points, Request, Simulator
from rido.simulators.environments import Environments, SingleEnvironments
from rido.simulators.points import PointGenerator
from rido.simulators.protocol import Position, SlotError
from rido.simulators.rehearsal import Rehearsal
from rido.simulators.repeatability import as_batched, first_observations
from rido.simulators.requests import checked
from rido.simulators.rollout import Rollout
from rido.simulators.sequence import SequentialRollout

_SEEDING_SHARE = 0.5  # of the collecting time, from which on seeding is worth a remark


class EnvironmentsSimulator(Simulator):
    """Rolls a policy out in :class:`rido.simulators.environments.Environments`.

    A sub-environment that has finished its trajectory starts the next one at once, the longest first, so that all stay
    busy to the end. None is stepped beyond its planned length. The policy is called for all of them together.
    """

    def __init__(self, envs: Environments, policies: Policy | Mapping[str, Policy], horizon: int) -> None:
        self._envs, self._horizon, self._reseed = envs, horizon, envs.reseeds
        self.policies = {"": policies} if isinstance(policies, Policy) else dict(policies)
        self._seeded: set[int] = set()  # slots that have had a seed
        self._rollout: Rollout | SequentialRollout | None = None
        self._calling: Literal["reset", "policy", "step"] = "reset"
        self._findings = repeatability.Findings()
        self._alone = False  # whether trajectories must run one after the other, in one environment
        self._rehearsed = 0  # transitions
        self._let_act()
        self._tried: set[str] = set()  # names of policies
        self._memories: dict[str, bool] = {}  # of policies by name
        self._resets, self._seconds = 0, 0.0  # of all rollouts
        self._calls = 0  # steps and resets of those in sequence
        self._used: set[str] = set()  # what resets used of their points
        self._notes: dict[str, None] = {}  # in the order in which they were found
        if not self._reseed:
            note = "environments were seeded once, not for each trajectory (reseed=False)"
            self.note(note)
        self.num_envs = envs.most
        self.observation_space = envs.observation_space

    @property
    def capabilities(self) -> Capabilities:
        """It returns observations and actions."""
        return Capabilities(
            observes=True,
            tells_actions=True,
            takes_points=self._envs.takes_points,
            limits=True,
            tries=True,
            policies=self.policies,
            load_policy=lambda name="": self.policies[name or next(iter(self.policies))],
            remembers=self.remembers,
            components=self._envs.components,
            engine="gymnasium",
            found=self.found,
        )

    def _let_act(self, name: str = "") -> Policy:
        self._acting = name or next(iter(self.policies))
        self.policy = self.policies[self._acting]
        return self.policy

    @property
    def found(self) -> Found:
        """What is known so far."""
        return Found(tuple(self._notes), self._remarks(), self._rehearsed)

    def fingerprint_of(self, *environment: Any) -> str:
        """Returns a digest of the environment, the policy, and whether truncation ends episodes."""
        return fingerprint(*environment, self.policy.fingerprint, *["end_on_truncation"] * self._envs.ends)

    def note(self, *notes: str) -> None:
        """Keeps reasons why the same seed may not give the same trajectories."""
        self._notes.update(dict.fromkeys(notes))

    def collect(self, request: Request) -> Batch:
        self._let_act(request.policy)
        request = checked(request, self._horizon, takes_points=self._envs.takes_points)
        if request.wants == "starts":
            request = replace(request, lengths=np.ones(len(request.seeds), dtype=np.int64))
            return Batch(NO_TRAJECTORIES, self._side_by_side(request).observations(), found=self.found)
        if request.wants == "trial":
            rehearsed, notes = self._rehearsed, self._check_seeds(request.seeds, request.points)
            return Batch(NO_TRAJECTORIES, found=Found(notes, rehearsed=self._rehearsed - rehearsed))
        observing = request.wants == "observations"
        if observing and not self._envs.in_rows:
            raise ValueError(
                f"critic must be left out where observations are {self.observation_space}: a batch of them has no rows"
            )
        rollout = self._run(request)
        if not observing:
            return Batch(rollout.trajectories(), found=self.found)
        seen = rollout.observations(), rollout.terminated, rollout.actions()
        return Batch(rollout.trajectories(), *seen, found=self.found)

    def _check_seeds(self, seeds: Sequence[int], points: Points) -> tuple[str, ...]:
        """Checks that resets and actions repeat."""
        if not self._reseed:
            return ()
        if not self.policy.in_sequence:
            self._try(seeds)  # first of all, while environments are fresh
        self._envs.provide(1)
        notes: list[str] = []
        if self.policy.in_sequence and isinstance(self._envs, SingleEnvironments):
            differ, taken = rehearsal.instances_differ(self._envs, seeds[0])
            self._rehearsed += taken
            if differ:
                notes.append(
                    "another instance of the environment gives another trajectory for the same seed and actions: its "
                    "constructor or its steps draw random numbers that the seed does not control"
                )
        self._findings = repeatability.check_seeds(self._envs, self.policy, seeds, points)
        return (*self._findings.notes, *notes)

    def remembers(self, name: str = "") -> bool:
        """Returns whether a policy has a memory that nothing clears; see :class:`Capabilities`."""
        policy, name, envs = self._let_act(name), self._acting, self._envs
        if name not in self._memories:
            self._memories[name] = False
            if policy.in_sequence and isinstance(policy, FunctionPolicy) and isinstance(envs, SingleEnvironments):
                with suppress(Exception, SystemExit):  # the first trajectory fails in the same way
                    self._memories[name] = repeatability.remembers(
                        policy, first_observations(envs, seeded=self._reseed)
                    )
            if self._memories[name]:
                self.note(*repeatability.memory_notes(policy.name))
        return self._memories[name]

    def _try(self, seeds: Sequence[int]) -> None:
        """Rehearses before environments first run side by side with this policy."""
        if self._acting not in self._tried:
            self._follow(self.rehearse(seeds))

    def rehearse(self, seeds: Sequence[int]) -> Rehearsal:
        """Tries in fresh environments what trajectories depend on; see :mod:`rido.simulators.rehearsal`."""
        if not self._reseed or not rehearsal.can_pair(self._envs):
            return Rehearsal()
        found = rehearsal.rehearse(self._envs, self.policy, [seeds[0], seeds[1] if len(seeds) > 1 else seeds[0] + 1])
        self._rehearsed += found.transitions
        return found

    def audition(self, request: Request) -> tuple[Rehearsal, bool]:
        """Rehearses for several processes; returns what was found, and whether each would have the policy's memory."""
        policy, found = self._let_act(request.policy), self.rehearse(request.seeds)
        if not policy.in_sequence or not isinstance(self._envs, SingleEnvironments):
            return found, False
        with suppress(Exception, SystemExit):
            starts = first_observations(self._envs, seeded=self._reseed)
            if isinstance(policy, FunctionPolicy) and (batched := as_batched(policy, starts[0])) is not None:
                mixes = rehearsal.mixes_rows(batched, [stack_alike([one]) for one in starts])
                return replace(found, batches=True, mixes=mixes), False
            return found, repeatability.remembers(policy, starts, frozen=False)
        return found, False

    def follow(self, found: Rehearsal, request: Request) -> None:
        """Runs trajectories of a policy as a rehearsal in another process demands."""
        self._let_act(request.policy)
        later = request.wants == "trial" and found.batches  # it was called as its author wrote it there
        if self._acting not in self._tried and not later:
            self._follow(found)

    def _follow(self, found: Rehearsal) -> None:
        """Runs trajectories from now on as a rehearsal demands: one after the other where it found a difference."""
        if found.batches or not self.policy.in_sequence:  # one that turns out to take batches later is tried then
            self._tried.add(self._acting)
        if found.kind == "same" and not found.mixes:
            return
        vectorised = not isinstance(self._envs, SingleEnvironments)
        if vectorised and found.kind == "copies":
            raise ValueError(rehearsal.ROWS_COPY)
        if isinstance(self._envs, SingleEnvironments):
            self._envs.renew()
            self._alone = True
        self.note(*rehearsal.rehearsal_notes(found, self.policy.name, vectorised=vectorised))
        if found.mixes:
            self.policy.act_alone()

    def close(self) -> None:
        """Closes the environments that were made here."""
        self._envs.close()

    def position(self) -> Position:
        """Returns where a request is; may be called from another thread during it."""
        calls, slot, rollout = self._envs.calls, self._envs.slot, self._rollout
        if (rehearsing := self._envs.rehearsing) is not None:
            return Position(calls, *rehearsing)
        if rollout is None:
            return Position(calls, self._calling, slot, 0)
        if isinstance(rollout, SequentialRollout):
            return rollout.position(self._calls)
        return Position(calls, self._calling, *rollout.place(slot))

    def _run(self, request: Request) -> Rollout | SequentialRollout:
        before, started = repeatability.GlobalState(), time.perf_counter()
        rollout: Rollout | SequentialRollout | None = None
        if self.policy.in_sequence and isinstance(self._envs, SingleEnvironments):
            rollout = self._in_sequence(self._envs, request)
        rollout = rollout or self._side_by_side(request)
        self._rollout = None
        self.note(*before.notes())
        self._resets += len(rollout.terminated)
        self._seconds += time.perf_counter() - started
        return rollout

    def _in_sequence(self, envs: SingleEnvironments, request: Request) -> SequentialRollout | None:
        """Runs trajectories one after the other; None if the policy turns out to take batches."""
        self._rollout = rollout = SequentialRollout(envs, self.policy, request)

        def start(row: int) -> Any:
            seed: int | None = int(request.seeds[row])
            if not self._reseed:
                (seed,) = self._fresh([0], [request.seeds[row]])
            if request.points is None:
                return envs.begin(seed, None)
            generator = PointGenerator(request.points[row], request.seeds[row])
            observation = envs.begin(seed, generator)
            self._used.add(generator.used)
            return observation

        try:
            rollout.run(start)
            self._calls = rollout.position(self._calls).calls + 1
        except TakesBatchesError as error:
            if not envs.in_rows:
                raise rollout.failure(f"the policy raised {error.__cause__!r}") from error.__cause__
            self.policy.take_batches(error)
            return None
        return rollout

    def _side_by_side(self, request: Request) -> Rollout:
        if request.limit is not None:  # those that it pays for in any case
            paid = int(np.searchsorted(request.lengths.cumsum(), request.limit, side="right"))
            request = replace(request, lengths=request.lengths[:paid], seeds=request.seeds[:paid])
        starting, observing = request.wants == "starts", request.wants == "observations"
        if not (starting or self._envs.in_rows):
            raise ValueError(
                f"policy must take one observation at a time where observations are {self.observation_space}, got "
                f"{self.policy.name}, which takes batches"
            )
        if starting:
            alone = self.policy.in_sequence
        else:
            self._try(request.seeds)
            alone = self._alone or self.policy.remembers
        slots = self._envs.provide(1 if alone else request.lengths.size)
        self._rollout = rollout = Rollout(self._envs, request, 1 if alone else slots)
        try:
            while rollout.busy.size:
                if rollout.new.size:
                    self._calling = "reset"
                    rows, points, starts = rollout.rows(rollout.new), request.points, None
                    seeds = [int(request.seeds[row]) for row in rows]
                    if points is not None:
                        starts = [PointGenerator(points[row], seed) for row, seed in zip(rows, seeds, strict=True)]
                    self._envs.reset(rollout.new, self._fresh(rollout.new.tolist(), seeds), starts)
                    self._used |= {start.used for start in starts or () if not starting}  # those alone are a critic's
                observations = self._envs.observe(rollout.busy)
                if starting or observing:
                    rollout.record_observations(rollout.busy, observations)
                if starting:
                    rollout.start(rollout.busy)
                    continue
                if observing:
                    observations = take(observations, np.arange(rollout.busy.size))  # the policy may write into it
                self._calling = "policy"
                actions = self._act(observations, rollout)
                if observing:
                    rollout.record_actions(actions)
                self._calling = "step"
                finished = rollout.record_step(self._envs.step(rollout.busy, self.policy.executed(actions)))
                if observing and finished.size:
                    rollout.record_observations(finished, self._envs.observe(finished))
                rollout.start(finished)
        except SlotError as error:
            raise rollout.failure(error.slot, error.reason) from error.__cause__
        return rollout

    def _fresh(self, slots: list[int], seeds: Sequence[int]) -> Sequence[int | None]:
        """Returns the seeds of resets; None where a sub-environment is not seeded again."""
        if self._reseed:
            return seeds
        fresh = [None if slot in self._seeded else seed for slot, seed in zip(slots, seeds, strict=True)]
        self._seeded.update(slots)
        return fresh

    def _remarks(self) -> tuple[str, ...]:
        remarks, found = [*self.policy.remarks, *self._envs.remarks], self._findings
        if self._used == {"nothing"}:
            remarks.append(
                "the environment's reset draws no random numbers from np_random, so starts='sobol' changes nothing"
            )
        elif "all" in self._used:
            remarks.append(
                "the environment's reset draws more random numbers than starts='sobol' gives: others are pseudo-random"
            )
        if (found.seeded - found.unseeded) * self._resets > _SEEDING_SHARE * self._seconds:
            remarks.append(
                f"seeding takes most of the time: a reset takes {found.seeded:.2g} s with a seed and "
                f"{found.unseeded:.2g} s without; reseed=False (--no-reseed) seeds once, but no seed repeats the result"
            )
        return tuple(remarks)

    def _act(self, observations: Any, rollout: Rollout) -> NDArray[Any]:
        policy, space = self.policy, self._envs.action_space
        try:
            if policy.in_sequence and not isinstance(policy, RandomPolicy):
                try:
                    return one_by_one(rollout.actors(policy), observations, space)
                except TakesBatchesError as error:
                    policy.take_batches(error)
            generators = rollout.generators(self.policy.draws)
            if not isinstance(self.policy, RecurrentPolicy):
                return self.policy(observations, generators)
            rows = rollout.rows(rollout.busy)
            actions, states = self.policy.step(observations, list(map(rollout.states.get, rows)), generators)
            rollout.states = dict(zip(rows, states, strict=True))
            return actions
        except (Exception, SystemExit) as error:
            raise SlotError(int(rollout.busy[0]), f"the policy raised {error!r}") from error
