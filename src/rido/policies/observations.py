"""Batches of observations: arrays with one row per observation, or dictionaries and tuples of such arrays.

A batch of texts is a tuple of strings, as Gymnasium has it.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray


def has_rows(space: Any) -> bool:
    """Whether observations of a Gymnasium space have parts of fixed shape, so that batches of them have rows."""
    parts = getattr(space, "spaces", ())
    parts = parts.values() if isinstance(parts, Mapping) else parts
    kinds = {kind.__name__ for kind in type(space).__mro__}
    return kinds.isdisjoint({"Sequence", "Graph", "OneOf"}) and all(map(has_rows, parts))


def take(observations: Any, index: NDArray[np.intp] | int) -> Any:
    """Selects rows of a batch into a new batch, or a single row.

    Example:
        >>> take({"position": np.array([0.5, 1.5, 2.5])}, np.array([2, 0]))
        {'position': array([2.5, 0.5])}
    """
    if isinstance(observations, dict):
        return {key: take(part, index) for key, part in observations.items()}
    if _are_texts(observations):
        return observations[index] if isinstance(index, int) else tuple(observations[row] for row in index.tolist())
    if isinstance(observations, tuple):
        return tuple(take(part, index) for part in observations)
    return observations[index]


def leaves(observations: Any) -> list[NDArray[Any]]:
    """The arrays of a batch."""
    if isinstance(observations, dict):
        return [leaf for part in observations.values() for leaf in leaves(part)]
    if isinstance(observations, tuple) and not _are_texts(observations):
        return [leaf for part in observations for leaf in leaves(part)]
    return [np.asarray(observations)]


def count(observations: Any) -> int:
    """The number of observations in a batch."""
    return len(leaves(observations)[0])


def stack_alike(observations: Sequence[Any]) -> Any:
    """Makes a batch of single observations, in new memory and in the dtype that they have."""
    first = observations[0]
    if isinstance(first, Mapping):
        return {key: stack_alike([observation[key] for observation in observations]) for key in first}
    if isinstance(first, str):
        return tuple(observations)
    if isinstance(first, tuple):
        return tuple(stack_alike(parts) for parts in zip(*observations, strict=True))
    return np.stack(observations)


def stack(batches: Sequence[Any]) -> Any:
    """Concatenates batches into one."""
    first = batches[0]
    if isinstance(first, dict):
        return {key: stack([batch[key] for batch in batches]) for key in first}
    if _are_texts(first):
        return tuple(chain(*batches))
    if isinstance(first, tuple):
        return tuple(stack(parts) for parts in zip(*batches, strict=True))
    return np.concatenate(batches)


def alike(one: Any, other: Any, tolerance: float = 1e-5) -> bool:
    """Whether two batches, rewards or actions are the same, but for rounding up to a relative tolerance."""
    mine, theirs = leaves(one), leaves(other)
    for a, b in zip(mine, theirs, strict=False):
        if a.shape != b.shape:
            return False
        if a.dtype == b.dtype and a.tobytes() == b.tobytes():  # nearly always
            continue
        if a.dtype.kind in "fc":
            with np.errstate(invalid="ignore"):
                near = np.abs(a - b) <= tolerance * np.maximum(1.0, np.maximum(np.abs(a), np.abs(b)))
            same = (near | (a == b) | (np.isnan(a) & np.isnan(b))).all()
        else:
            same = np.array_equal(a, b)
        if not same:
            return False
    return len(mine) == len(theirs)


def _are_texts(observations: Any) -> bool:
    return isinstance(observations, tuple) and bool(observations) and isinstance(observations[0], str)
