"""Does the same seed give the same trajectory? Checked without a single step, so that it costs no budget.

Does a policy remember earlier calls, and does it take batches? Tried on a copy of it, with first observations.

Three kinds of evidence: the same reset twice, with another one in between, must give the same first observation; the
policy must give the same actions for the same observations and generators; and collecting must not draw from the global
generators of numpy, Python and torch. What seeding costs is measured on the way.

What stays unseen: random numbers that ``step`` alone draws, from a generator of the environment's own that its seed
does not reach, and state that changes with steps alone. To see those, steps would have to be taken twice.
"""

import copy
import gc
import io
import random
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import numpy as np

from rido.policies.actions import one_action
from rido.policies.base import Policy
from rido.policies.functions import FunctionPolicy, TakesBatchesError
from rido.policies.observations import alike, stack_alike, take
from rido.simulators.base import WIDE, Points
from rido.simulators.environments import Environments, SingleEnvironments
from rido.simulators.points import PointGenerator

_ROWS, _CALLS = 8, 4  # of the policy: a coin that it tosses for each row shows in all but 1 of 2^24 checks
_MOST_BYTES = 1 << 25  # of the copy of a policy
_LONG_RESET = 0.01  # seconds of a reset with a seed, above which one without is taken to compare
MOST_CALLS = 80  # of a policy whose memory is tried
_STARTS = 4  # first observations on which a memory is tried
_MOST_OBJECTS = 5000  # of a policy, among which its generators are looked for


class GlobalState:
    """The state of the global random generators of this process: numpy's, Python's, and torch's if it is imported."""

    def __init__(self) -> None:
        state: Any = np.random.get_state(legacy=True)  # noqa: NPY002 - it is the global state that is meant
        self._numpy = state
        self._states: dict[str, Any] = {
            "numpy.random": (state[1].tobytes(), *state[2:]),
            "random": random.getstate(),
        }
        self._torch = sys.modules["torch"].get_rng_state() if "torch" in sys.modules else None
        if self._torch is not None:
            self._states["torch"] = (self._torch.numpy().tobytes(),)

    def notes(self) -> list[str]:
        """Returns a note for each generator that was used since then."""
        now = GlobalState()
        used = [name for name, state in self._states.items() if state != now._states[name]]
        return [
            f"the global random numbers of {name} were used while collecting, which the seed does not control"
            for name in used
        ]

    def restore(self) -> None:
        """Puts all generators back into this state."""
        if GlobalState()._states == self._states:  # nearly always, and faster to see than to set
            return
        np.random.set_state(self._numpy)  # noqa: NPY002
        random.setstate(self._states["random"])
        if self._torch is not None:
            sys.modules["torch"].set_rng_state(self._torch)


@dataclass(frozen=True)
class Findings:
    """Why the same seed does not give the same trajectory, and the seconds of a reset with a seed and without one."""

    notes: tuple[str, ...] = ()
    seeded: float = 0.0
    unseeded: float = 0.0


def check_seeds(envs: Environments, policy: Policy, seeds: Sequence[int], points: Points = None) -> Findings:
    """Looks for reasons why the same seed does not give the same trajectory, in the first of the environments."""
    notes, before = [], GlobalState()
    try:
        first, clock = _first_observation(envs, seeds, points, 0), [time.perf_counter()]
        for row in (1, 0):
            again = _first_observation(envs, seeds, points, row)
            clock.append(time.perf_counter())
        seeded = unseeded = float(np.diff(clock).min())  # the other one may have waited for a busy processor
        if not alike(first, again, 0):
            notes.append("the environment's first observation differs when it is reset with the same seed again")
        if (tried := copied(policy) if policy.in_sequence else policy) is not None:
            actions = [_act(tried, again, seeds[0], envs.action_space) for _ in range(_CALLS)]
            if policy.reproducible and not all(alike(actions[0], other, 0) for other in actions[1:]):
                notes.append(f"{policy.name} acts differently when it gets the same observation again")
        if seeded > _LONG_RESET:
            started = time.perf_counter()
            envs.reset(np.zeros(1, dtype=np.intp), [None])
            unseeded = time.perf_counter() - started
    except (Exception, SystemExit):
        return Findings()  # the first trajectory fails in the same way, and its error says where
    finally:
        before.restore()
    return Findings(tuple(notes), seeded, unseeded)


def content(thing: Any) -> bytes | None:
    """Returns an object as bytes; None if it cannot be copied, or is too large."""
    try:
        cloudpickle.dump(thing, file := _Small())
        return file.getvalue()
    except Exception:
        return None


class _Small(io.BytesIO):
    """A file that takes some bytes only: copies of replay buffers are not worth their time."""

    def write(self, content: Any) -> int:
        if self.tell() + len(content) > _MOST_BYTES:
            raise OverflowError
        return super().write(content)


def copied(policy: Policy) -> Any:
    """Returns a copy of a policy, which may remember its calls; None if it cannot be copied, or is too large."""
    with suppress(Exception):
        if (found := content(policy)) is not None:
            return cloudpickle.loads(found)
    return None


def _act(policy: Policy, observation: Any, seed: int, space: Any) -> list[Any]:
    """Returns what a policy does at the start of some trajectories that are all the same."""
    generators: list[Any] = [np.random.default_rng([seed, 1]) if policy.draws else None for _ in range(_ROWS)]
    if policy.in_sequence:
        try:
            return [one_action(policy.begin(each)(copy.deepcopy(observation)), space) for each in generators]
        except TakesBatchesError as error:
            policy.take_batches(error)
    return list(policy(stack_alike([observation] * _ROWS), generators))


def _first_observation(envs: Environments, seeds: Sequence[int], points: Points, row: int) -> Any:
    seed, start = seeds[row], None if points is None else PointGenerator(points[row], seeds[row])
    if isinstance(envs, SingleEnvironments):
        return copy.deepcopy(envs.begin(seed, start))
    slot = np.zeros(1, dtype=np.intp)
    envs.reset(slot, [seed], None if start is None else [start])
    return take(envs.observe(slot), 0)


def memory_notes(policy: str) -> list[str]:
    """Returns what a reader should know of a policy whose memory nothing clears."""
    return [
        f"{policy} remembers earlier calls, and nothing clears its memory where a trajectory begins: complete episodes "
        "ran one after the other; give it a method reset() to cut trajectories, see "
        "docs/warnings.md#a-policy-with-a-memory"
    ]


def as_batched(policy: FunctionPolicy, observation: Any) -> FunctionPolicy | None:
    """Returns a copy of a policy that takes batches, if the policy fails on this first observation; None if not."""
    before, tried = GlobalState(), copied(policy)
    try:
        tried.begin(np.random.default_rng(1) if tried.draws else None)(copy.deepcopy(observation))
    except TakesBatchesError as error:
        tried.take_batches(error)
        batched: FunctionPolicy = tried
        return batched
    except (Exception, SystemExit):
        return None  # the first trajectory says where
    finally:
        before.restore()
    return None


def remembers(policy: Policy, observations: Sequence[Any], calls: int = MOST_CALLS, *, frozen: bool = True) -> bool:
    """Returns whether a policy acts differently on the same observations when it gets them again in the same order.

    The global generators are put back before each round, and those that it holds too if ``frozen``: what they draw is
    no memory, but each of several processes would have a copy. A copy is called, because calls change what remembers.
    """
    before, tried = GlobalState(), copied(policy)
    try:
        restore, rounds = _freeze(tried) if frozen else lambda: None, 0
        first: list[Any] = []
        calls_left = calls
        while calls_left > 0:
            # A round begins after one call more each time, so that no period hides behind its length.
            for episode in ([observations[-1]] * rounds, observations):
                before.restore()
                restore()
                act = tried.begin(np.random.default_rng(1) if tried.draws else None)
                actions = [np.array(act(copy.deepcopy(observation))) for observation in episode]
            first = first or actions
            if any(not alike(action, known) for action, known in zip(actions, first, strict=True)):
                return True
            rounds, calls_left = rounds + 1, calls_left - rounds - len(observations)
    except (Exception, SystemExit):
        return False  # it cannot be copied, or it fails: then the first trajectory says where
    finally:
        before.restore()
    return False


def _freeze(root: Any) -> Callable[[], None]:
    """Returns a function that puts all generators that an object holds back into their present state."""
    found: list[Callable[[], None]] = []
    seen, waiting = {id(root)}, deque([root])
    while waiting and len(seen) < _MOST_OBJECTS:
        thing: Any = waiting.popleft()
        if isinstance(thing, np.random.Generator):
            found.append(partial(setattr, thing.bit_generator, "state", thing.bit_generator.state))
        elif isinstance(thing, np.random.RandomState):
            found.append(partial(thing.set_state, thing.get_state()))
        elif isinstance(thing, random.Random):
            found.append(partial(thing.setstate, thing.getstate()))
        elif type(thing).__module__ == "torch" and type(thing).__name__ == "Generator":
            found.append(partial(thing.set_state, thing.get_state()))
        elif not isinstance(thing, (ModuleType, type, np.ndarray, str, bytes)):
            referents = gc.get_referents(thing)
            if isinstance(thing, FunctionType):  # of its globals only those that it names
                known = thing.__globals__
                named = [known[name] for name in thing.__code__.co_names if name in known]
                referents = [*named, thing.__closure__, thing.__defaults__, thing.__kwdefaults__, thing.__dict__]
            new = [each for each in referents if id(each) not in seen]
            seen.update(map(id, new))
            waiting.extend(new)

    def restore() -> None:
        for put_back in found:
            put_back()

    return restore


def first_observations(envs: SingleEnvironments, *, seeded: bool = True) -> list[Any]:
    """Returns some observations that differ: of resets, or samples of the space where those must not be seeded."""
    found = [copy.deepcopy(envs.begin(seed, None)) for seed in range(WIDE, WIDE + _STARTS * seeded)]
    if not found or alike(found[0], found[1]):
        space = copy.deepcopy(envs.observation_space)
        space.seed(1)
        found[1:] = [space.sample() for _ in found[1:] or range(_STARTS)]
    return found
