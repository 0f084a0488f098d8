"""Simulator: the one method that evaluation needs of any simulator, two more that a critic needs, and how they fail."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rido.trajectories import Trajectories


class Simulator(Protocol):
    """Anything that can collect trajectories of given lengths from given seeds.

    Attributes:
        num_envs: trajectories that it runs side by side; a good number to ask for at once.
    """

    num_envs: int

    def rollout(self, lengths: NDArray[np.int64], seeds: Sequence[int]) -> Trajectories:
        """Collects one trajectory per length, each from its own seed, and returns them in the same order.

        A trajectory depends on its seed only: not on its length (a shorter one is a prefix of a longer one), nor on
        the other trajectories or on how many run side by side. It ends early where the environment ends it.

        Raises:
            SimulationError: a trajectory could not be collected.
        """
        ...


@dataclass(frozen=True, eq=False)
class Observed:
    """Trajectories together with what was observed on the way.

    Attributes:
        trajectories: the rewards.
        observations: a batch, rows first (a dictionary or tuple of such arrays where the space is): for one trajectory
            after the other, what was seen before each step that it took and after the last one.
        terminated: for each trajectory, whether the environment ended it, be it at its planned length.
    """

    trajectories: Trajectories
    observations: Any
    terminated: NDArray[np.bool_]


@runtime_checkable
class ObservingSimulator(Simulator, Protocol):
    """A simulator that shows its observations, from which a critic can be used.

    Attributes:
        observation_space: of one environment, a ``gymnasium.Space``; None if observations are plain arrays.
    """

    observation_space: Any

    def observe(self, lengths: NDArray[np.int64], seeds: Sequence[int]) -> Observed:
        """Collects what ``rollout`` collects, and the observations."""
        ...

    def starts(self, seeds: Sequence[int]) -> Any:
        """Returns a batch of first observations, each from its own seed, without taking a step."""
        ...


class SimulationError(RuntimeError):
    """A trajectory that could not be collected.

    Attributes:
        trajectory: its index in the call of ``rollout``, or in the whole evaluation.
        step: the time step at which it failed.
        seed: its seed.
        reason: what happened.
    """

    def __init__(self, trajectory: int, step: int, seed: int, reason: str) -> None:
        super().__init__(f"trajectory {trajectory} failed at step {step} (seed {seed}): {reason}")
        self.trajectory = trajectory
        self.step = step
        self.seed = seed
        self.reason = reason


def trajectory_seeds(entropy: int, first: int, count: int, *, stream: int = 0) -> list[int]:
    """Returns the seeds of trajectories ``first, ..., first + count - 1`` of an evaluation.

    Each depends on the evaluation's entropy and its index alone (a counter-based generator gives the numbers at any
    place of its sequence), so it does not matter in which order or in how many pieces trajectories are
    collected. Seeds have 32 bits, which every environment takes. Another stream gives other, independent seeds.
    """
    generator = np.random.Philox(np.random.SeedSequence(entropy, spawn_key=(stream,) if stream else ()))
    generator.advance(first // 4)  # it moves by blocks of four numbers
    numbers = generator.random_raw(count + first % 4)[first % 4 :]
    seeds: list[int] = (numbers >> np.uint64(32)).tolist()
    return seeds
