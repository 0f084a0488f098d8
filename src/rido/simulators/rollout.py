"""Rollout: the state of one request for trajectories while they are collected side by side."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rido.core.trajectories import Trajectories, starts_of
from rido.policies.base import Actor, Policy
from rido.policies.observations import stack, take
from rido.simulators.base import Request, SimulationError
from rido.simulators.environments import Environments, Slots, Step
from rido.simulators.protocol import SlotError
from rido.simulators.wrappers import TIME_LIMIT


class Rollout:
    """The state of one request: which slot runs which trajectory, and the rewards so far.

    ``busy`` slots run a trajectory, and the ``new`` ones among them must be reset first.
    """

    def __init__(self, envs: Environments, request: Request, slots: int) -> None:
        self._ends, self._components = envs.ends, envs.components
        self._lengths = lengths = request.lengths
        self._seeds = request.seeds
        self._rewards = np.zeros((int(lengths.sum()), *([len(self._components)] if self._components else [])))
        self._starts = starts_of(lengths)
        self._steps = np.zeros(lengths.size, dtype=np.int64)
        self.terminated = np.zeros(lengths.size, dtype=np.bool_)
        self._waiting = np.argsort(-lengths, kind="stable")
        self._next = 0
        self._trajectory = np.zeros(slots, dtype=np.intp)
        self._is_busy = np.zeros(slots, dtype=np.bool_)
        self._generators: dict[int, np.random.Generator] = {}
        self.states: dict[int, Any] = {}  # of a recurrent policy, by trajectory
        self._actors: dict[int, Actor] = {}
        self._observed: list[tuple[Slots, NDArray[np.int64], Any]] = []  # rows, steps taken, batch
        self._acted: list[tuple[Slots, NDArray[np.int64], NDArray[Any]]] = []
        self.start(np.arange(slots))

    def start(self, free: Slots) -> None:
        """Assigns the longest waiting trajectories to free slots."""
        self.new = free
        if not free.size:  # in most steps no trajectory ends
            return
        starting = self._waiting[self._next : self._next + free.size]
        self._next += starting.size
        self.new = free[: starting.size]
        self._trajectory[self.new] = starting
        self._is_busy[free] = False
        self._is_busy[self.new] = True
        self.busy = np.flatnonzero(self._is_busy)
        self._rows = self._trajectory[self.busy]

    def record_step(self, step: Step) -> Slots:
        """Records one step of every running trajectory; returns the slots whose trajectory is finished."""
        rewards, terminated, truncated = step
        rows = self._rows
        finite = np.isfinite(rewards)
        if not finite.all():
            row, *column = np.argwhere(~finite)[0].tolist()
            name = f"component {self._components[column[0]]!r}" if column else "reward"
            raise SlotError(int(self.busy[row]), f"the {name} is {rewards[(row, *column)]}")
        steps = self._steps[rows]
        self._rewards[self._starts[rows] + steps] = rewards
        steps += 1
        self._steps[rows] = steps
        complete = steps == self._lengths[rows]
        if self._ends:
            terminated = terminated | truncated
        elif truncated.any() and (cut := truncated & ~terminated & ~complete).any():
            raise SlotError(int(self.busy[cut][0]), TIME_LIMIT.format(self._lengths[rows[cut][0]]))
        self.terminated[rows] = terminated
        finished: Slots = self.busy[complete | terminated]
        return finished

    def record_observations(self, slots: Slots, observations: Any) -> None:
        rows = self._trajectory[slots]
        self._observed.append((rows, self._steps[rows], observations))

    def record_actions(self, actions: NDArray[Any]) -> None:
        self._acted.append((self._rows, self._steps[self._rows], np.array(actions)))

    def actions(self) -> NDArray[Any]:
        """Returns all recorded actions, one for each step taken, for one trajectory after the other."""
        taken: NDArray[Any] = _in_order(self._acted, self._steps)
        return taken

    def observations(self) -> Any:
        """Returns all recorded observations, ``steps + 1`` for one trajectory after the other."""
        return _in_order(self._observed, self._steps + 1)

    def rows(self, slots: Slots) -> list[int]:
        """Returns the trajectories that run in some slots."""
        rows: list[int] = self._trajectory[slots].tolist()
        return rows

    def generators(self, needed: bool) -> list[Any]:
        """Returns the generator of each running trajectory, which only the policy uses; None if not needed."""
        if not needed:
            return [None] * self.busy.size
        for row in self.rows(self.new):
            self._generators[row] = np.random.default_rng([int(self._seeds[row]), 1])
        return [self._generators[row] for row in self._rows.tolist()]

    def actors(self, policy: Policy) -> list[Actor]:
        """Returns what acts in each running trajectory, of a policy that acts on one observation."""
        if self.new.size:
            generators = dict(zip(self._rows.tolist(), self.generators(policy.draws), strict=True))
            kept = {row: self._actors.get(row) for row in self._rows.tolist()}
            self._actors = {row: act or policy.begin(generators[row]) for row, act in kept.items()}
        return [self._actors[row] for row in self._rows.tolist()]

    def place(self, slot: int) -> tuple[int, int]:
        """Returns the trajectory in a slot and its step."""
        row = int(self._trajectory[slot])
        return row, int(self._steps[row])

    def failure(self, slot: int, reason: str) -> SimulationError:
        row, step = self.place(slot)
        return SimulationError(row, step, int(self._seeds[row]), reason)

    def trajectories(self) -> Trajectories:
        return Trajectories.from_flat(self._rewards, self._lengths, self._steps)


def _in_order(recorded: list[tuple[Slots, NDArray[np.int64], Any]], sizes: NDArray[np.int64]) -> Any:
    """Returns what was recorded of some trajectories at some steps, for one trajectory after the other."""
    rows, steps, batches = zip(*recorded, strict=True)
    return take(stack(batches), np.argsort(starts_of(sizes)[np.concatenate(rows)] + np.concatenate(steps)))
