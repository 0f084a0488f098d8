"""Policies without a network: functions of the user, and random actions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rido.policies.base import BLOCK, Generators, Policy, call_in_blocks, draw
from rido.storage.fingerprint import identify

if TYPE_CHECKING:
    import gymnasium as gym


class FunctionPolicy(Policy):
    """A function on batches of observations.

    Args:
        function: Called on blocks of ``BLOCK`` observations, or on whole batches if its attribute ``rowwise`` is True.
        action_space: Action space of one environment.
    """

    def __init__(self, function: Callable[..., Any], action_space: gym.Space[Any]) -> None:
        self.name = function_name(function)
        self._function = function
        self._action_shape = action_space.shape or ()
        self._rowwise = getattr(function, "rowwise", False) is True
        self._padding_generator = np.random.default_rng(0)
        try:
            self.draws = "generators" in inspect.signature(function).parameters
        except (TypeError, ValueError):  # some builtins have no signature
            self.draws = False

    @property
    def fingerprint(self) -> str:
        return identify("policy", self._function)

    def __call__(self, observations: Any, generators: Generators) -> NDArray[Any]:
        rows = len(generators)
        if self._rowwise:
            return self._call(observations, generators)
        # Padding rows have a generator of their own, so that they do not advance those of the trajectories.
        padded = [*generators, *[self._padding_generator] * (-rows % BLOCK)]
        return call_in_blocks(lambda block, start: self._call(block, padded[start : start + BLOCK]), observations, rows)

    def _call(self, observations: Any, generators: Generators) -> NDArray[Any]:
        options = {"generators": generators} if self.draws else {}
        actions = self._function(observations, **options)
        if isinstance(actions, tuple):
            raise ValueError("policy must return an array of actions, got a tuple (pass a model, not its predict)")
        array: NDArray[Any] = np.asarray(actions)
        expected = (len(generators), *self._action_shape)
        if array.shape != expected:
            raise ValueError(
                f"policy must return actions of shape {expected} for {expected[0]} observations, got {array.shape}"
            )
        return array


class RandomPolicy(Policy):
    """Samples the action space as Gymnasium does: uniform where bounded, normal or exponential where not.

    Args:
        action_space: A Discrete, Box, MultiDiscrete or MultiBinary space of one environment.
    """

    name = "random"

    def __init__(self, action_space: gym.Space[Any]) -> None:
        from gymnasium import spaces

        self._shape = action_space.shape or ()
        self._integer = True
        low: Any
        high: Any
        match action_space:
            case spaces.Discrete(start=low, n=choices) | spaces.MultiDiscrete(start=low, nvec=choices):
                high = low + choices
            case spaces.MultiBinary():
                low, high = np.zeros(self._shape), np.full(self._shape, 2)
            case spaces.Box(low=low, high=high):
                self._integer = np.issubdtype(action_space.dtype, np.integer)
                high = high.astype(np.float64) + self._integer
            case _:
                raise ValueError(
                    f"policy 'random' must have a Discrete, Box, MultiDiscrete or MultiBinary space, got {action_space}"
                )
        self._dtype = action_space.dtype
        self._low = np.asarray(low, dtype=np.float64).ravel()
        self._high = np.asarray(high, dtype=np.float64).ravel()
        self._bounded = bool(np.isfinite(self._low).all() and np.isfinite(self._high).all())

    def __call__(self, observations: Any, generators: Generators) -> NDArray[Any]:
        if self._bounded:
            actions = self._low + (self._high - self._low) * draw("random", generators, self._low.size)
        else:
            actions = self._unbounded(generators)
        if self._integer:
            actions = np.floor(actions)
        return actions.astype(self._dtype).reshape(len(generators), *self._shape)

    def _unbounded(self, generators: Generators) -> NDArray[np.float64]:
        below, above = np.isfinite(self._low), np.isfinite(self._high)
        size = self._low.size
        normal = draw("standard_normal", generators, size)
        exponential = draw("standard_exponential", generators, size)
        low, high = np.where(below, self._low, 0.0), np.where(above, self._high, 0.0)
        uniform = low + (high - low) * draw("random", generators, size)
        return np.select(
            [below & above, below, above], [uniform, low + exponential, high - exponential], default=normal
        )


def function_name(function: Callable[..., Any]) -> str:
    """The name of a function in results: its attribute ``name`` if that is a string, else where it is defined."""
    name = getattr(function, "name", None)
    if isinstance(name, str):
        return name
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"
