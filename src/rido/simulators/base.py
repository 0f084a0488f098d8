"""The contract of simulators: a request for trajectories and the batch that answers it, seeds, and how they fail."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rido.core.summaries import Summary
from rido.core.trajectories import Trajectories

NARROW_BITS = 31
"""Bits of a seed that every back end takes: EnvPool's are non-negative int32."""

WIDE = 1 << 62
"""A seed for first resets. Where it is too wide, the reset fails, which some environments survive only while fresh."""

Points = NDArray[np.float64] | None
"""A row of numbers in [0, 1) for each trajectory, which decide where it starts; None if its seed does."""

Wants = Literal["rewards", "observations", "starts", "trial", "sums"]
"""What a request is for; see :class:`Request`."""

_SEEDS = 1024  # computed at once; a multiple of four
_PERMUTATION_KEY = 31  # last spawn key of the random numbers that permute the lower bits of seeds


@dataclass(frozen=True, eq=False)
class Request:
    """Trajectories to collect.

    Attributes:
        lengths: planned length of each trajectory; for sums a :class:`rido.Schedule`. Starts and trials need none.
        seeds: an integer for each trajectory; for sums :class:`Seeds`.
        points: where trajectories start, if their seeds do not decide it. The numbers of a point take the place of the
            random numbers of the reset, as far as they last. All other random numbers depend on the seed alone.
        policy: name of the policy that acts; the first one if empty.
        wants: "rewards"; "observations" too, with actions, which critics need; "starts", first observations without a
            step; "trial", to find out without a trajectory why two seeds may not give the same trajectories again; or
            "sums" over trajectories whose rewards stay on the device.
        beside: policies that will be asked for the same trajectories, which may run together.
        limit: transitions. A trajectory begins if the rest of it pays for its full length; none does after the first
            one for which it does not. Only for rewards, where :class:`Capabilities` have ``limits``.
        critic: for sums, the critic whose residuals are summed too. With it, starts are its values.
        before: sums to which these will be added; their centre is used here too, which avoids rounding errors.
        total: transitions that the evaluation may take in all, in requests like this; 0 if it is not known. A device
            chooses by it the sizes that it compiles for, which are then the same for every policy.
    """

    lengths: Any
    seeds: Sequence[int]
    points: Points = None
    policy: str = ""
    wants: Wants = "rewards"
    beside: Sequence[str] = ()
    limit: int | None = None
    critic: Any = None
    before: "Summarised | None" = None
    total: int = 0


@dataclass(frozen=True)
class Found:
    """What a simulator has found out so far.

    Attributes:
        notes: reasons why the same seed may not give the same trajectories.
        remarks: what else the reader of a result may want to know, such as a time limit that was lifted.
        rehearsed: transitions that were tried before environments ran side by side or in processes, beyond those of
            the trajectories.
        workers: ready and configured numbers of workers; (1, 1) without a pool.
    """

    notes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    rehearsed: int = 0
    workers: tuple[int, int] = (1, 1)


@dataclass(frozen=True, eq=False)
class Batch:
    """What was collected for a request.

    Attributes:
        trajectories: the rewards, of the first ones alone where the request has a limit that does not pay for all;
            :data:`NO_TRAJECTORIES` for starts, trials and sums.
        observations: a batch, rows first (a dictionary or tuple of such arrays where the space is one): for one
            trajectory after the other, the observations before each step taken and after the last one. For starts, the
            first observation of each.
        terminated: for each trajectory, whether the environment terminated it, at its planned length or before.
        actions: what the policy returned at each step taken, rows first, for one trajectory after the other; None where
            the simulator does not tell.
        sums: over rewards, where these were wanted.
        found: what is known after it; after a trial, only what it found.
    """

    trajectories: Trajectories
    observations: Any = None
    terminated: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    actions: NDArray[Any] | None = None
    sums: "Summarised | None" = None
    found: Found = Found()


NO_TRAJECTORIES = Trajectories.of_checked(np.zeros(0), *np.zeros((2, 0), dtype=np.int64))
"""In the batch of a request that takes no trajectory to the host."""


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


def _no_policy(name: str = "") -> Any:
    return None


@dataclass(frozen=True)
class Capabilities:
    """What a simulator can do beyond rewards, and what is known of it before it collects.

    Attributes:
        observes: whether it returns observations and starts, which critics need.
        tells_actions: whether it returns actions with its observations.
        summarises: whether it returns sums, for runs in which copying rewards would take longest.
        takes_points: whether points can decide where trajectories start.
        limits: whether it heeds the limit of a request.
        tries: whether it finds out in a trial why the same seed may not give the same trajectory.
        lockstep: whether requests should have ``num_envs`` trajectories, however long they take: the device rounds
            differently for another number of rows.
        in_time_of_one: trajectories that run in about the time of one; 0 if no number is known.
        jax_critics: whether a critic is a JAX function of one observation, run on the simulator's device.
        environment: the environment's name in results; None for the name of what the user passed.
        policies: those that can act, by name, the first one first; none if they are not known. Each has the attributes
            name, reproducible, normalisation and warnings, in whichever process it acts.
        load_policy: returns a policy in this process, for its value function and its fingerprint; the first one if no
            name is given.
        remembers: whether a policy keeps a memory that nothing clears where a trajectory begins; the first one if no
            name is given. Then its trajectories must not be cut.
        components: names of the components of its rewards, the leading one first; none where rewards are numbers.
        engine: what simulates. Two simulators of one engine give the same trajectories for the same seeds, such as
            Gymnasium in this process, in workers and on Ray; the name of the class if it is empty.
        found: what is known so far.
    """

    observes: bool = False
    tells_actions: bool = False
    summarises: bool = False
    takes_points: bool = False
    limits: bool = False
    tries: bool = False
    lockstep: bool = False
    in_time_of_one: int = 0
    jax_critics: bool = False
    environment: str | None = None
    policies: Mapping[str, Any] = field(default_factory=dict)
    load_policy: Callable[..., Any] = _no_policy
    remembers: Callable[..., bool] = _no_policy
    components: tuple[str, ...] = ()
    engine: str = ""
    found: Found = Found()

    @property
    def policy(self) -> Any:
        """The first policy; None if it is not known."""
        return next(iter(self.policies.values()), None)


class Simulator(ABC):
    """Collects trajectories of given lengths from given seeds.

    A trajectory depends on its seed only: not on its length (a shorter one is a prefix of a longer one), nor on the
    other trajectories or on how many run side by side. It ends early where the environment terminates.

    A run file identifies a simulator by its content. One whose content cannot be read needs a string attribute
    ``name``, and one that changes while it is used a string attribute ``fingerprint``; they must differ where the
    returns differ.

    Attributes:
        num_envs: trajectories that run side by side; a good number to ask for at once.
        observation_space: a ``gymnasium.Space`` of one environment; None if observations are plain arrays.
    """

    num_envs: int
    observation_space: Any = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if named := [name for name in ("rollout", "observe", "starts") if name in vars(cls)]:
            raise TypeError(f"{cls.__name__} must override collect() and not {named[0]}(), which nothing else calls")

    @property
    def capabilities(self) -> Capabilities:
        """What it can do beyond rewards."""
        return Capabilities()

    @abstractmethod
    def collect(self, request: Request) -> Batch:
        """Returns what was asked for, in the order of the request.

        Raises:
            SimulationError: a trajectory could not be collected.
        """

    def rollout(self, lengths: Any, seeds: Sequence[int], points: Points = None) -> Trajectories:
        """Collects trajectories of the first policy; see :meth:`collect`."""
        return self.collect(Request(lengths, seeds, points)).trajectories

    def observe(self, lengths: Any, seeds: Sequence[int], points: Points = None) -> Batch:
        """Collects the same trajectories with their observations."""
        return self.collect(Request(lengths, seeds, points, wants="observations"))

    def starts(self, seeds: Sequence[int], points: Points = None) -> Any:
        """Returns a batch of first observations, each from its own seed, without taking a step."""
        return self.collect(Request(None, seeds, points, wants="starts")).observations

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Closes what was made here."""


class _Simple(Simulator):
    """An object of the user with a method ``rollout(lengths, seeds)`` and an attribute ``num_envs``."""

    capabilities = Capabilities()

    def __init__(self, given: Any) -> None:
        self._given, self.num_envs = given, given.num_envs
        able = getattr(given, "capabilities", None)
        if not isinstance(able, Capabilities):
            able = Capabilities(components=tuple(getattr(given, "components", ())))
        self.capabilities = replace(able, engine=able.engine or type(given).__qualname__)

    def collect(self, request: Request) -> Batch:
        rewards: Trajectories = self._given.rollout(request.lengths, request.seeds)
        return Batch(rewards, found=self.capabilities.found)

    def close(self) -> None:
        getattr(self._given, "close", lambda: None)()


def as_simulator(given: Any) -> Simulator:
    """Returns a simulator of the user's own, which may be any object with a method ``rollout(lengths, seeds)``."""
    return given if isinstance(given, Simulator) else _Simple(given)


def refuse_side_by_side(simulator: Simulator, policy: str, what: str) -> None:
    """Raises if only evaluate() takes what a simulator collects: components, or a memory that nothing clears."""
    if len(components := simulator.capabilities.components) > 1:
        raise ValueError(
            f"{what} takes rewards that are numbers, got rewards with the components {', '.join(components)}: wrap the "
            "environment so that its reward is one of them, or evaluate() each policy"
        )
    if simulator.capabilities.remembers():
        raise ValueError(
            f"{policy} must have a method reset(), for it remembers earlier calls, and its trajectories are cut: "
            "nothing else clears its memory where one begins"
        )


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
        trajectory: its index in the request, or in the whole evaluation.
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


class Seeds(Sequence[int]):
    """Seeds of trajectories ``first, ..., first + count - 1`` of an evaluation, computed where they are needed.

    Args:
        entropy: what all randomness of the evaluation comes from.
        first: index of the first trajectory.
        count: number of trajectories.
        stream: as in :func:`trajectory_seeds`.

    Attributes:
        source: the source of randomness, from which a device makes the same seeds.
    """

    def __init__(self, entropy: int, first: int, count: int, *, stream: int = 0) -> None:
        self.source, self.first = seed_source(entropy, stream), first
        self._made = partial(trajectory_seeds, entropy, stream=stream)
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        return self._made(self.first, self._count)[index]


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
