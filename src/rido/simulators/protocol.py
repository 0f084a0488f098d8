"""What ``reset`` and ``step`` of an environment must return, and the error of one slot where they do not."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium as gym
import numpy as np

from rido.simulators.components import ComponentError

_SIGNATURES = {
    "reset": "Gymnasium's takes seed= and options= and returns (observation, info): update or wrap it (shimmy)",
    "step": "Gymnasium's returns (observation, reward, terminated, truncated, info): update or wrap it (shimmy)",
}
_AS_SPACE = "but observation_space has"


class SlotError(Exception):
    """An error in one slot; its cause is the original exception."""

    def __init__(self, slot: int, reason: str) -> None:
        super().__init__(reason)
        self.slot, self.reason = slot, reason


@dataclass(frozen=True)
class Position:
    """Where a simulator is in a request, for the error that says what a stuck one waits for.

    As long as ``calls`` grows, the steps and resets so far, it is not stuck. ``calling`` is what was called last.
    """

    calls: int
    calling: Literal["reset", "policy", "step"]
    trajectory: int
    step: int


class RefusedError(Exception):
    """A result of reset or step that does not follow Gymnasium's interface; its text says what is wrong with it."""


def slot_error(slot: int, method: str, error: BaseException) -> SlotError:
    """Returns the error of a slot whose ``reset`` or ``step`` raised another."""
    text = str(error)
    if isinstance(error, (RefusedError, ComponentError)):
        return SlotError(slot, text)
    # The same texts for a wrapper that unpacks what an old environment returns, or passes the seed on to it.
    if isinstance(error, ValueError) and "expected 5, got 4" in text:
        return SlotError(slot, f"the environment's step returned 4 values, {_SIGNATURES['step']}")
    if isinstance(error, TypeError) and "unexpected keyword argument 'seed'" in text:
        return SlotError(slot, f"the environment's reset takes no seed, {_SIGNATURES['reset']}")
    return SlotError(slot, f"the environment's {method} raised {error!r}")


def check_result(method: Literal["reset", "step"], result: Any) -> Any:
    """Returns what ``reset`` or ``step`` returned, or raises if it is not a tuple as Gymnasium wants it."""
    count = 2 if method == "reset" else 5
    if not isinstance(result, (tuple, list)) or len(result) != count:
        found = f"{len(result)} values" if isinstance(result, (tuple, list)) else f"a {type(result).__name__}"
        raise RefusedError(f"the environment's {method} returned {found}, {_SIGNATURES[method]}")
    return result


def check_observation(method: str, observation: Any, space: gym.Space[Any]) -> None:
    """Raises if an observation has not the shape or the parts of its space. Bounds are not checked."""
    match space:
        case gym.spaces.Dict():
            if not isinstance(observation, Mapping) or not set(space.spaces) <= set(observation):
                found = sorted(map(str, observation)) if isinstance(observation, Mapping) else _kind(observation)
                wanted = f"a dictionary with {sorted(map(str, space.spaces))}"
                raise RefusedError(f"the environment's {method} returned the observation {found}, {_AS_SPACE} {wanted}")
            for key, part in space.spaces.items():
                check_observation(method, observation[key], part)
        case gym.spaces.Tuple():
            if not isinstance(observation, (tuple, list)) or len(observation) != len(space.spaces):
                wanted = f"a tuple of {len(space.spaces)}"
                raise RefusedError(
                    f"the environment's {method} returned the observation {_kind(observation)}, {_AS_SPACE} {wanted}"
                )
            for value, part in zip(observation, space.spaces, strict=True):
                check_observation(method, value, part)
        case gym.spaces.Box() | gym.spaces.Discrete() | gym.spaces.MultiDiscrete() | gym.spaces.MultiBinary():
            if observation is None or np.shape(observation) != space.shape:
                raise RefusedError(
                    f"the environment's {method} returned an observation of {_kind(observation)}, {_AS_SPACE} shape "
                    f"{space.shape}"
                )


def _kind(observation: Any) -> str:
    if observation is None or isinstance(observation, (str, Mapping)):
        return f"type {type(observation).__name__}"
    return f"shape {np.shape(observation)}"
