"""Does a policy remember earlier calls, and does it take batches? Tried on a copy, with first observations."""

from __future__ import annotations

import copy
import gc
import random
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from rido.policies.base import Policy
from rido.policies.functions import FunctionPolicy, TakesBatchesError
from rido.simulators.environments import SingleEnvironments
from rido.simulators.rehearsal import close
from rido.simulators.repeatability import GlobalState, copied

MOST_CALLS = 80  # of a policy whose memory is tried
_STARTS = 4  # first observations on which a memory is tried
_MOST_OBJECTS = 5000  # of a policy, among which its generators are looked for


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

    The global generators are put back before each round: what they draw is no memory. A copy is called, because calls
    change what remembers them.

    Args:
        policy: one that acts in sequence.
        observations: as the environment returned them, at least two that differ.
        calls: at most about this many.
        frozen: whether generators that it holds are put back too. In several processes each would have a copy of them.
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
            if any(not close(action, known) for action, known in zip(actions, first, strict=True)):
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
            new = [each for each in _referents(thing) if id(each) not in seen]
            seen.update(map(id, new))
            waiting.extend(new)

    def restore() -> None:
        for put_back in found:
            put_back()

    return restore


def _referents(thing: Any) -> list[Any]:
    """Returns what an object refers to; of the globals of a function only those that it names."""
    if not isinstance(thing, FunctionType):
        return gc.get_referents(thing)
    named = [thing.__globals__[name] for name in thing.__code__.co_names if name in thing.__globals__]
    return [*named, thing.__closure__, thing.__defaults__, thing.__kwdefaults__, thing.__dict__]


def first_observations(envs: SingleEnvironments, *, seeded: bool = True) -> list[Any]:
    """Returns some observations that differ: of resets, or samples of the space where those must not be seeded."""
    found = [copy.deepcopy(envs.begin(seed, None)) for seed in range(_STARTS if seeded else 0)]
    if not found or close(found[0], found[1]):
        space = copy.deepcopy(envs.observation_space)
        space.seed(1)
        found[1:] = [space.sample() for _ in found[1:] or range(_STARTS)]
    return found
