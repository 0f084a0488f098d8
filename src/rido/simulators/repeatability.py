"""Does the same seed give the same trajectory? Checked without a single step, so that it costs no budget.

Three kinds of evidence: the same reset twice, with another one in between, must give the same first observation; the
policy must give the same actions for the same observations and generators; and collecting must not draw from the global
generators of numpy, Python and torch. What seeding costs is measured on the way.

What stays unseen: random numbers that ``step`` alone draws, from a generator of the environment's own that its seed
does not reach, and state that changes with steps alone. To see those, steps would have to be taken twice.
"""

import copy
import io
import random
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import numpy as np

from rido.policies.actions import one_action
from rido.policies.base import Policy
from rido.policies.functions import TakesBatchesError
from rido.policies.observations import stack_alike, take
from rido.simulators.base import Points
from rido.simulators.environments import Environments, SingleEnvironments
from rido.simulators.points import PointGenerator

_ROWS, _CALLS = 8, 4  # of the policy: a coin that it tosses for each row shows in all but 1 of 2^24 checks
_MOST_BYTES = 1 << 25  # of the copy of a policy
_LONG_RESET = 0.01  # seconds of a reset with a seed, above which one without is taken to compare


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
    """What two seeds show.

    Attributes:
        notes: reasons why the same seed does not give the same trajectory.
        seeded: seconds of a reset with a seed.
        unseeded: seconds of one without; the same where resets are quick.
    """

    notes: tuple[str, ...] = ()
    seeded: float = 0.0
    unseeded: float = 0.0


def check_seeds(envs: Environments, policy: Policy, seeds: Sequence[int], points: Points = None) -> Findings:
    """Looks for reasons why the same seed does not give the same trajectory; see the module.

    Args:
        envs: the sub-environments, of which the first one is reset.
        policy: what acts.
        seeds: two different ones.
        points: the points of their resets, if they have some.
    """
    notes, before = [], GlobalState()
    try:
        first, clock = _first_observation(envs, seeds, points, 0), [time.perf_counter()]
        for row in (1, 0):
            again = _first_observation(envs, seeds, points, row)
            clock.append(time.perf_counter())
        seeded = unseeded = float(np.diff(clock).min())  # the other one may have waited for a busy processor
        if not _same(first, again):
            notes.append("the environment's first observation differs when it is reset with the same seed again")
        if (tried := copied(policy) if policy.in_sequence else policy) is not None:
            actions = [_act(tried, again, seeds[0], envs.action_space) for _ in range(_CALLS)]
            if policy.reproducible and not all(_same(actions[0], other) for other in actions[1:]):
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


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return all(_same(part, other[key]) for key, part in one.items())
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(_same(*parts) for parts in zip(one, other, strict=True))
    numeric = np.issubdtype(np.asarray(one).dtype, np.number)
    return np.array_equal(one, other, equal_nan=bool(numeric))
