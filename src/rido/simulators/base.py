"""Simulator: the one method that evaluation needs of any simulator, two more that a critic needs, and how they fail."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rido.core.schedule import Schedule
from rido.core.summaries import Summary
from rido.core.trajectories import Trajectories

NARROW_BITS = 31
"""Bits of a seed that every back end takes: EnvPool's are non-negative int32."""

_PERMUTATION = 31  # of spawn keys: what the lower bits of seeds are permuted by


class Simulator(Protocol):
    """Anything that can collect trajectories of given lengths from given seeds.

    Attributes:
        num_envs: trajectories that it runs side by side; a good number to ask for at once.

    Where a run is recorded, a simulator is known by its content. Attributes ``name``, for one whose content cannot be
    read, and ``fingerprint``, for one that changes while it is used, are strings that say which one it is. What else
    there is to know of a simulator it declares in an attribute ``capabilities``, if it has any.
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


@dataclass(frozen=True, eq=False)
class Summarised:
    """Sums over trajectories whose rewards stay on the device that simulated them.

    Attributes:
        rewards: sums over the rewards.
        signal: sums over what a critic made of them, if there is one.
        starts: the critic's value of what each trajectory saw first, if there is one.
    """

    rewards: Summary
    signal: Summary | None
    starts: NDArray[np.float64] | None


@runtime_checkable
class SummarisingSimulator(Simulator, Protocol):
    """A simulator that can keep the rewards to itself, for runs in which moving them would take longest."""

    def summarise(
        self,
        schedule: Schedule,
        source: np.random.SeedSequence,
        first: int,
        *,
        critic: Any = None,
        before: Summarised | None = None,
    ) -> Summarised:
        """Collects the trajectories of a schedule, and returns only sums over them.

        Args:
            schedule: how many samples of each step.
            source: what the randomness comes from; that of a trajectory depends on it and the trajectory's index alone.
            first: index of the first trajectory.
            critic: makes a signal of the rewards, if there is one.
            before: what came before, with which this is to be added up; best with the same centre.
        """
        ...

    def start_values(self, source: np.random.SeedSequence, first: int, count: int, critic: Any) -> NDArray[np.float64]:
        """Returns a critic's values of so many first observations, without taking a step."""
        ...


class PolicyInfo(Protocol):
    """What results say of a policy, wherever it acts."""

    @property
    def name(self) -> str: ...

    @property
    def reproducible(self) -> bool: ...


@dataclass(frozen=True)
class Capabilities:
    """What a simulator can do beyond ``rollout``, and what a reader of its results should know.

    Attributes:
        observes: whether it is an :class:`ObservingSimulator`, which critics need.
        summarises: whether it is a :class:`SummarisingSimulator`.
        lockstep: whether it is asked for at most ``num_envs`` trajectories at once, and never for more or fewer because
            of the time that they take: for devices that round by the number of rows.
        jax_critics: whether a critic is a JAX function of one observation, run on its device.
        environment: what its environment is called in results; None for the name of what the user passed.
        policy: what acts; None if that is not known.
        load_policy: returns the policy in this process, for its value function and its fingerprint.
        notes: why the same seed may not give the same trajectories.
    """

    observes: bool = False
    summarises: bool = False
    lockstep: bool = False
    jax_critics: bool = False
    environment: str | None = None
    policy: PolicyInfo | None = None
    load_policy: Callable[[], Any] = lambda: None
    notes: tuple[str, ...] = ()


def describe(simulator: Any) -> Capabilities:
    """Returns what a simulator declares, or what its methods show if it declares nothing."""
    declared = getattr(simulator, "capabilities", None)
    if isinstance(declared, Capabilities):
        return declared
    observes, summarises = (isinstance(simulator, kind) for kind in (ObservingSimulator, SummarisingSimulator))
    return Capabilities(observes=observes, summarises=summarises)


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

    Each depends on the evaluation's entropy and its index alone, so it does not matter in which order or in how many
    pieces trajectories are collected. Seeds have 63 bits. The lower 31, for environments that take no more, are a
    permutation of the index, so that they do not repeat within 2^31 trajectories. The upper 32 are random (a
    counter-based generator gives the numbers at any place of its sequence), so that evaluations share no seeds. Another
    stream gives other, independent seeds.
    """
    source = seed_source(entropy, stream)
    generator = np.random.Philox(source)
    generator.advance(first // 4)  # it moves by blocks of four numbers
    numbers = generator.random_raw(count + first % 4)[first % 4 :]
    lower = _permute(np.arange(first, first + count, dtype=np.uint64), source)
    seeds: list[int] = (numbers >> np.uint64(32) << np.uint64(NARROW_BITS) | lower).tolist()
    return seeds


def narrow_seed(seed: int) -> int:
    """Returns a seed of 31 bits, still another one for each trajectory of an evaluation."""
    return seed & (1 << NARROW_BITS) - 1


def _permute(numbers: NDArray[np.uint64], source: np.random.SeedSequence) -> NDArray[np.uint64]:
    """Permutes the numbers below 2^31, each source in its own way.

    Adding, multiplying by an odd number and xor with a shift are each invertible modulo 2^31; four rounds mix all bits.
    """
    keys = np.random.SeedSequence(source.entropy, spawn_key=(*source.spawn_key, _PERMUTATION)).generate_state(8)
    mask = np.uint64((1 << NARROW_BITS) - 1)
    for add, multiply in keys.astype(np.uint64).reshape(4, 2):
        numbers = (numbers + add) * (multiply | np.uint64(1)) & mask
        numbers = numbers ^ numbers >> np.uint64(NARROW_BITS // 2)
    return numbers


def seed_source(entropy: int, stream: int = 0) -> np.random.SeedSequence:
    """Returns what the randomness of an evaluation comes from; another stream gives other, independent numbers."""
    return np.random.SeedSequence(entropy, spawn_key=(stream,) if stream else ())
