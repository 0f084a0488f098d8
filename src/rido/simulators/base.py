"""The interface of simulators: ``rollout``, what some of them can do beyond it, their seeds, and how they fail."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rido.core.schedule import Schedule
from rido.core.summaries import Summary
from rido.core.trajectories import Trajectories

NARROW_BITS = 31
"""Bits of a seed that every back end takes: EnvPool's are non-negative int32."""

Points = NDArray[np.float64] | None
"""A row of numbers in [0, 1) for each trajectory, which decide where it starts; None if its seed does."""

_SEEDS = 1024  # computed at once; a multiple of four
_PERMUTATION_KEY = 31  # last spawn key of the random numbers that permute the lower bits of seeds


class Simulator(Protocol):
    """Anything that collects trajectories of given lengths from given seeds.

    A simulator declares what else it can do in an attribute ``capabilities``, a :class:`Capabilities`, if at all. One
    whose rewards have several components names them there, or in a tuple attribute ``components``. A run
    file identifies a simulator by its content. One whose content cannot be read needs a string attribute ``name``, and
    one that changes while it is used a string attribute ``fingerprint``; they must differ where the returns differ.

    Attributes:
        num_envs: trajectories that run side by side; a good number to ask for at once.
    """

    num_envs: int

    def rollout(self, lengths: NDArray[np.int64], seeds: Sequence[int]) -> Trajectories:
        """Collects one trajectory per length, each from its own seed, and returns them in the same order.

        A trajectory depends on its seed only: not on its length (a shorter one is a prefix of a longer one), nor on
        the other trajectories or on how many run side by side. It ends early where the environment terminates.

        Raises:
            SimulationError: a trajectory could not be collected.
        """
        ...


@dataclass(frozen=True, eq=False)
class Observed:
    """Trajectories with their observations.

    Attributes:
        trajectories: the rewards.
        observations: a batch, rows first (a dictionary or tuple of such arrays where the space is one): for one
            trajectory after the other, the observations before each step taken and after the last one.
        terminated: for each trajectory, whether the environment terminated it, at its planned length or before.
        actions: what the policy returned at each step taken, rows first, for one trajectory after the other; None where
            the simulator does not tell.
    """

    trajectories: Trajectories
    observations: Any
    terminated: NDArray[np.bool_]
    actions: NDArray[Any] | None = None


@runtime_checkable
class ObservingSimulator(Simulator, Protocol):
    """A simulator that returns observations, which critics need."""

    observation_space: Any
    """A ``gymnasium.Space`` of one environment; None if observations are plain arrays."""

    def observe(self, lengths: NDArray[np.int64], seeds: Sequence[int]) -> Observed:
        """Collects the same trajectories as ``rollout``, with their observations."""
        ...

    def starts(self, seeds: Sequence[int]) -> Any:
        """Returns a batch of first observations, each from its own seed, without taking a step."""
        ...


class PointSimulator(ObservingSimulator, Protocol):
    """A simulator whose trajectories start where points decide, so that starts can be spread evenly.

    The numbers of a trajectory's point take the place of the random numbers of its reset, as far as they last. All
    other random numbers, also those of its steps, depend on its seed alone. If points are uniform, starts have the
    environment's own distribution.
    """

    def rollout(self, lengths: NDArray[np.int64], seeds: Sequence[int], points: Points = None) -> Trajectories: ...

    def observe(self, lengths: NDArray[np.int64], seeds: Sequence[int], points: Points = None) -> Observed: ...

    def starts(self, seeds: Sequence[int], points: Points = None) -> Any: ...


@dataclass(frozen=True, eq=False)
class Summarised:
    """Sums over trajectories whose rewards stay on the device that simulated them.

    Attributes:
        rewards: sums over the rewards.
        signal: sums over the critic's residuals, if there is a critic.
        starts: the critic's value of each trajectory's first observation, if there is a critic.
    """

    rewards: Summary
    signal: Summary | None
    starts: NDArray[np.float64] | None

    def __add__(self, other: "Summarised") -> "Summarised":
        if self.signal is None or other.signal is None or self.starts is None or other.starts is None:
            return Summarised(self.rewards + other.rewards, None, None)
        starts = np.concatenate([self.starts, other.starts])
        return Summarised(self.rewards + other.rewards, self.signal + other.signal, starts)


@runtime_checkable
class SummarisingSimulator(Simulator, Protocol):
    """A simulator that can return sums instead of rewards, for runs in which copying rewards would take longest."""

    def summarise(
        self,
        schedule: Schedule,
        source: np.random.SeedSequence,
        first: int,
        *,
        critic: Any = None,
        before: Summarised | None = None,
        whole: int | None = None,
    ) -> Summarised:
        """Collects the trajectories of a schedule and returns sums over them.

        Args:
            schedule: how many samples of each step.
            source: the source of randomness; a trajectory depends on it and on the trajectory's index alone.
            first: index of the first trajectory in the evaluation.
            critic: the critic whose residuals are summed too, if there is one.
            before: sums to which these will be added; their centre is used here too, which avoids rounding errors.
            whole: full-length trajectories that the whole budget pays for, if this is not the first request and spends
                about all that is left. Sizes that are compiled can be chosen by it: it is the same for all policies.
        """
        ...

    def start_values(self, source: np.random.SeedSequence, first: int, count: int, critic: Any) -> NDArray[np.float64]:
        """Returns a critic's values of ``count`` first observations, without taking a step."""
        ...


@runtime_checkable
class SwitchingSimulator(Simulator, Protocol):
    """A simulator in which several policies act by turns; it takes :class:`rido.policies.base.Policies`."""

    def use(self, name: str) -> None:
        """Lets the policy of this name act from now on."""


@runtime_checkable
class TogetherSimulator(SwitchingSimulator, Protocol):
    """A simulator whose policies act by turns, and that may run the trajectories of several policies together."""

    def expect(self, names: Sequence[str]) -> None:
        """Says which policies will be asked for the same trajectories, each in its turn, until it is said anew."""


class PolicyInfo(Protocol):
    """What results say of a policy, in whichever process it acts."""

    @property
    def name(self) -> str: ...

    @property
    def reproducible(self) -> bool: ...

    @property
    def normalisation(self) -> str: ...

    @property
    def warnings(self) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class Capabilities:
    """What a simulator can do beyond ``rollout``, and what a reader of its results should know.

    Attributes:
        observes: whether it is an :class:`ObservingSimulator`, which critics need.
        tells_actions: whether it returns actions with its observations.
        summarises: whether it is a :class:`SummarisingSimulator`.
        takes_points: whether it is a :class:`PointSimulator`: rollout, observe and starts take points that drive the
            resets.
        lockstep: whether requests should have ``num_envs`` trajectories, however long they take: the device rounds
            differently for another number of rows.
        in_time_of_one: trajectories that take about as long together as one alone; 0 if no number is known.
        jax_critics: whether a critic is a JAX function of one observation, run on the simulator's device.
        environment: the environment's name in results; None for the name of what the user passed.
        policy: the acting policy; None if it is not known.
        load_policy: returns the policy in this process, for its value function and its fingerprint.
        check_seeds: given two seeds, and two points if it takes points, returns reasons why the same seed does not give
            the same trajectory, which it finds without taking a step. It is called once, before the first trajectory.
        remembers: whether the acting policy keeps a memory that nothing clears where a trajectory begins. Then its
            trajectories must not be cut.
        rehearsed: transitions that were tried before environments ran side by side or in processes, beyond those of
            the trajectories.
        notes: reasons why the same seed may not give the same trajectories. More may be found while collecting.
        remarks: what else the reader of a result may want to know, such as a time limit that was lifted.
        workers: workers that are ready now, and that there should be; this process counts as one where there are none.
        components: names of the components of its rewards, the leading one first; none where rewards are numbers.
        engine: what simulates. Two simulators of one engine give the same trajectories for the same seeds, such as
            Gymnasium in this process, in workers and on Ray; the name of the class if it is empty.
    """

    observes: bool = False
    tells_actions: bool = False
    summarises: bool = False
    takes_points: bool = False
    lockstep: bool = False
    in_time_of_one: int = 0
    jax_critics: bool = False
    environment: str | None = None
    policy: PolicyInfo | None = None
    load_policy: Callable[[], Any] = lambda: None
    check_seeds: Callable[..., tuple[str, ...]] = lambda seeds, points=None: ()
    remembers: Callable[[], bool] = lambda: False
    rehearsed: int = 0
    notes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    workers: tuple[int, int] = (1, 1)
    components: tuple[str, ...] = ()
    engine: str = ""


def describe(simulator: Any) -> Capabilities:
    """Returns the capabilities that a simulator declares, or those that its methods show if it declares none."""
    declared = getattr(simulator, "capabilities", None)
    if isinstance(declared, Capabilities):
        return declared
    observes, summarises = (isinstance(simulator, kind) for kind in (ObservingSimulator, SummarisingSimulator))
    components = tuple(getattr(simulator, "components", ()))
    return Capabilities(observes=observes, summarises=summarises, components=components)


def refuse_components(simulator: Any, what: str) -> None:
    """Raises if the rewards of a simulator have components, which only evaluate() takes."""
    if len(components := describe(simulator).components) > 1:
        raise ValueError(
            f"{what} takes rewards that are numbers, got rewards with the components {', '.join(components)}: wrap the "
            "environment so that its reward is one of them, or evaluate() each policy"
        )


def refuse_memory(simulator: Any, name: str) -> None:
    """Raises if a policy has a memory that nothing clears, where trajectories will be cut."""
    if describe(simulator).remembers():
        raise ValueError(
            f"{name} must have a method reset(), for it remembers earlier calls, and its trajectories are cut: nothing "
            "else clears its memory where one begins"
        )


@dataclass(frozen=True)
class Position:
    """Where a simulator is in a request, for the error that says what a stuck one waits for.

    Attributes:
        calls: steps and resets so far. As long as it grows, the simulator is not stuck.
        calling: what was called last.
        trajectory: its index in the request.
        step: its time step.
    """

    calls: int
    calling: Literal["reset", "policy", "step"]
    trajectory: int
    step: int


def close(simulator: Any) -> tuple[str, ...]:
    """Closes a simulator. Returns a warning if that fails, which is no reason to lose what was collected."""
    try:
        simulator.close()
    except (Exception, SystemExit) as error:
        return (f"closing the environment raised {error!r:.300}",)
    return ()


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
        self.trajectory, self.step, self.seed, self.reason = trajectory, step, seed, reason

    def __reduce__(self) -> tuple[Any, ...]:
        return SimulationError, (self.trajectory, self.step, self.seed, self.reason)

    def at(self, trajectory: int) -> "SimulationError":
        """Returns the same error for the trajectory's index in a larger request."""
        return SimulationError(trajectory, self.step, self.seed, self.reason)


def trajectory_seeds(entropy: int, first: int, count: int, *, stream: int = 0) -> list[int]:
    """Returns the seeds of trajectories ``first, ..., first + count - 1`` of an evaluation.

    A seed depends on the evaluation's entropy and the trajectory's index alone, so trajectories may be collected in
    any order and in any number of requests. Seeds have 63 bits. The lower 31, for environments that take no more, are a
    permutation of the index, so they do not repeat within 2^31 trajectories. The upper 32 are random, so evaluations
    share no seeds. Another stream gives other, independent seeds.
    """
    blocks = range(first // _SEEDS, (first + count - 1) // _SEEDS + 1)
    seeds = [seed for block in blocks for seed in _seeds(entropy, block, stream)]
    return seeds[first % _SEEDS : first % _SEEDS + count]


@functools.lru_cache(maxsize=16)  # rounds are short, and the policies of a comparison ask for the same ones
def _seeds(entropy: int, block: int, stream: int) -> tuple[int, ...]:
    source = seed_source(entropy, stream)
    generator = np.random.Philox(source)  # counter-based: it can start anywhere in its sequence
    generator.advance(block * _SEEDS // 4)  # in blocks of four numbers
    numbers = generator.random_raw(_SEEDS)
    lower = _permute(np.arange(block * _SEEDS, (block + 1) * _SEEDS, dtype=np.uint64), source)
    return tuple((numbers >> np.uint64(32) << np.uint64(NARROW_BITS) | lower).tolist())


def narrow_seed(seed: int) -> int:
    """Returns the lower 31 bits of a seed, which still differ between the trajectories of an evaluation."""
    return seed & (1 << NARROW_BITS) - 1


def _permute(numbers: NDArray[np.uint64], source: np.random.SeedSequence) -> NDArray[np.uint64]:
    """Permutes the numbers below 2^31, differently for each source."""
    spawn_key = (*source.spawn_key, _PERMUTATION_KEY)
    keys = np.random.SeedSequence(source.entropy, spawn_key=spawn_key).generate_state(8)
    mask = np.uint64((1 << NARROW_BITS) - 1)
    # Adding, multiplying by an odd number and xor with a shift are invertible modulo 2^31; four rounds mix all bits.
    for add, multiply in keys.astype(np.uint64).reshape(4, 2):
        numbers = (numbers + add) * (multiply | np.uint64(1)) & mask
        numbers = numbers ^ numbers >> np.uint64(NARROW_BITS // 2)
    return numbers


def seed_source(entropy: int, stream: int = 0) -> np.random.SeedSequence:
    """Returns the source of randomness of an evaluation; another stream gives other, independent numbers."""
    return np.random.SeedSequence(entropy, spawn_key=(stream,) if stream else ())
