"""Policies and critics as functions whose arrays are arguments of the compiled programs."""

import functools
import inspect
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np


@dataclass(frozen=True, eq=False)
class SameObject:
    """A cache key that compares by identity, for objects that may not be hashable."""

    thing: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SameObject) and self.thing is other.thing

    def __hash__(self) -> int:
        return id(self.thing)


@dataclass(frozen=True)
class Structure:
    """All of a function but its arrays. Functions of equal structure share compiled programs.

    Attributes:
        tree: how the function is put together from its parts.
        parts: its parts; None in place of an array.
    """

    tree: Any
    parts: tuple[Hashable, ...]

    def bind(self, arrays: tuple[Any, ...]) -> Callable[..., Any]:
        """Returns the function with these arrays."""
        left = iter(arrays)
        parts = [part.thing if isinstance(part, SameObject) else part for part in self.parts]
        whole = jax.tree.unflatten(self.tree, [next(left) if part is None else part for part in parts])
        function: Callable[..., Any] = functools.partial(whole[0], whole[1]) if isinstance(whole, tuple) else whole
        return function

    @functools.cached_property
    def draws(self) -> bool:
        """Whether the function has a parameter ``key``."""
        function = self.bind((None,) * self.parts.count(None))
        function = function.func if isinstance(function, functools.partial) else function
        return "key" in inspect.signature(function).parameters


def is_function(given: Any) -> bool:
    """Returns whether something is a function, or a pair of a function and its parameters."""
    if isinstance(given, tuple):
        return len(given) == 2 and is_function(given[0]) and not isinstance(given[0], tuple)
    return callable(given) and not inspect.isclass(given)


def split(given: Any) -> tuple[Structure, tuple[Any, ...]]:
    """Splits a function into its structure and its arrays.

    Args:
        given: a pair ``(apply, params)``, called as ``apply(params, ...)``; a callable pytree, such as
            ``jax.tree_util.Partial(apply, params)`` or a module of Equinox; or any other function, whose structure is
            the function itself.
    """
    leaves, tree = jax.tree.flatten(given)
    arrays = tuple(leaf for leaf in leaves if isinstance(leaf, (jax.Array, np.ndarray)))
    parts = (None if isinstance(leaf, (jax.Array, np.ndarray)) else _hashable(leaf) for leaf in leaves)
    return Structure(tree, tuple(parts)), arrays


def _hashable(thing: Any) -> Hashable:
    try:
        hash(thing)
    except TypeError:
        return SameObject(thing)
    return thing  # type: ignore[no-any-return]
