"""Policies without a network: functions of the user, and random actions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rido.core import checks
from rido.policies.base import BLOCK, Generators, Policy, call_in_blocks, draw
from rido.policies.observations import leaves, take
from rido.policies.tensors import as_array
from rido.storage.fingerprint import identify

if TYPE_CHECKING:
    import gymnasium as gym


class FunctionPolicy(Policy):
    """A function of a batch of observations, or of one observation.

    A parameter ``generators`` says that it takes a batch and draws random numbers, a parameter ``generator`` that it
    takes one observation and draws. Of other functions the first call finds it out: one that fails on a batch, or
    returns another number of actions, but returns an action for one observation, is called row by row from then on.

    Args:
        function: Called on blocks of ``BLOCK`` observations, on whole batches if its attribute ``rowwise`` is True, or
            on one observation at a time.
        action_space: Action space of one environment.
    """

    def __init__(self, function: Callable[..., Any], action_space: gym.Space[Any]) -> None:
        self.name = function_name(function)
        self._function = function
        self._space = action_space
        self._block = BLOCK
        self._rowwise = getattr(function, "rowwise", False) is True
        self._padding_generator = np.random.default_rng(0)
        parameters = function_parameters(function)
        self.draws = not parameters.isdisjoint({"generators", "generator"})
        self._takes_one: bool | None = None  # None until the first call tells
        if self.draws or self._rowwise:
            self._takes_one = "generator" in parameters

    @property
    def fingerprint(self) -> str:
        return identify("policy", self._function)

    def __call__(self, observations: Any, generators: Generators) -> NDArray[Any]:
        if self._takes_one is None:
            return self._first_call(observations, generators)
        act = self._row_by_row if self._takes_one else self._in_blocks
        return act(observations, generators)

    def _evaluate(self, observations: Any, **options: Any) -> Any:
        """Call the function; subclasses convert observations and actions here."""
        return self._function(observations, **options)

    def _first_call(self, observations: Any, generators: Generators) -> NDArray[Any]:
        """Find out whether the function takes a batch or one observation."""
        try:
            actions = self._in_blocks(observations, generators)
            if any(leaf.shape[1:2] == (self._block,) for leaf in leaves(observations)):
                # A function of one observation may then return as many numbers as there are rows.
                more = take(observations, np.zeros(self._block + 1, dtype=np.intp))
                self._batch_actions(more, [None] * (self._block + 1))
            self._takes_one = False
            return actions
        except Exception as error:
            on_batch = error
        try:
            actions = self._row_by_row(observations, generators)
        except Exception as on_one:
            if repr(on_one) == repr(on_batch):
                raise on_batch from None
            shape = leaves(observations)[0].shape[1:]
            given = "" if isinstance(observations, (dict, tuple)) else f" of shape {(self._block, *shape)}"
            told = on_batch if isinstance(on_batch, ActionError) else f"policy raised {on_batch!r} for a batch{given}"
            instead = str(on_one) if isinstance(on_one, ActionError) else f"raised {on_one!r} for one"
            raise ActionError(f"{told}, or {instead.removeprefix('policy must return actions ')}") from on_batch
        self._takes_one = True
        return actions

    def _in_blocks(self, observations: Any, generators: Generators) -> NDArray[Any]:
        rows = len(generators)
        if self._rowwise:
            return self._batch_actions(observations, generators)
        # Padding rows have a generator of their own, so that they do not advance those of the trajectories.
        padded = [*generators, *[self._padding_generator] * (-rows % self._block)]

        def act(block: Any, start: int) -> NDArray[Any]:
            return self._batch_actions(block, padded[start : start + self._block])

        return call_in_blocks(act, observations, rows, self._block)

    def _batch_actions(self, observations: Any, generators: Sequence[Any]) -> NDArray[Any]:
        options = {"generators": generators} if self.draws else {}
        return check_actions(self._evaluate(observations, **options), self._space, len(generators))

    def _row_by_row(self, observations: Any, generators: Generators) -> NDArray[Any]:
        actions = []
        for row, generator in enumerate(generators):
            options = {"generator": generator} if self.draws else {}
            actions.append(check_actions(self._evaluate(take(observations, row), **options), self._space))
        return np.stack(actions)


class ActionError(ValueError):
    """A policy returned something else than actions."""


def check_actions(actions: Any, space: gym.Space[Any], rows: int | None = None) -> NDArray[Any]:
    """Actions as an array, checked to have the right shape.

    Args:
        actions: What a policy returned.
        space: Action space of one environment.
        rows: Number of actions in a batch; None for the action of one observation.
    """
    if isinstance(actions, tuple):
        raise ActionError(
            f"policy must return an array of actions, got a tuple of {len(actions)}: return actions alone"
        )
    array = as_array(actions)
    batch, observations = ((), "one observation") if rows is None else ((rows,), f"{rows} observations")
    expected = (*batch, *(space.shape or ()))
    if (*array.shape, 1) == expected or array.shape == (*expected, 1):
        array = array.reshape(expected)  # a number and an array of one number are the same action
    if array.shape != expected or array.dtype.kind not in "biuf":
        found = array.shape if array.dtype.kind in "biuf" else type(actions).__name__
        raise ActionError(f"policy must return actions of shape {expected} for {observations}, got {found}")
    return array


class RandomPolicy(Policy):
    """Samples the action space as Gymnasium does: uniform where bounded, normal or exponential where not.

    Args:
        action_space: A Discrete, Box, MultiDiscrete or MultiBinary space of one environment.
    """

    name = "random"

    def __init__(self, action_space: gym.Space[Any]) -> None:
        from gymnasium import spaces

        self._shape, self._integer = getattr(action_space, "shape", None) or (), True
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
                    "action_space must be Discrete, Box, MultiDiscrete or MultiBinary for policy 'random', got "
                    f"{checks.shown(action_space)}"
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


def function_parameters(function: Callable[..., Any]) -> set[str]:
    """The names of a function's parameters; none where it does not tell them, as some builtins."""
    try:
        return set(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return set()
