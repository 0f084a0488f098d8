"""How trajectories of mixed lengths are cut into tiles of a few fixed sizes, which a device runs in lockstep."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray


def split(count: int, sizes: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Cuts ``count`` rows into tiles of the given sizes; yields where each starts and its size.

    A tile is filled up with rows that nobody looks at only where it is nearly full, or of the smallest size.
    """
    first = 0
    while (left := count - first) > 0:
        size = next(size for size in reversed(sizes) if size <= left * 4 / 3 or size == sizes[0])
        yield first, size
        first += size


def tiles(planned: NDArray[np.integer[Any]], sizes: tuple[int, ...], steps: int) -> Iterator[tuple[int, list[int]]]:
    """Cuts trajectories into tiles; yields which one each starts with, and its rows in each block of steps.

    Args:
        planned: how many trajectories take each step. They come sorted, the longest first.
        sizes: rows that a tile may have.
        steps: time steps of a block.

    Example:
        >>> list(tiles(np.array([70, 40, 10, 0]), (16, 64), steps=1))
        [(0, [64, 64, 16]), (64, [16])]
    """
    for first, size in split(int(planned[0]), sizes):
        alive = planned[::steps] - first
        yield first, [min(next(s for s in sizes if s >= min(rows, size)), size) for rows in alive[alive > 0].tolist()]


def runs(sizes: list[int], smallest: int, together: int) -> Iterator[tuple[int, int]]:
    """Yields the rows and the number of blocks of each call: one, or more for the smallest tiles where that pays."""
    while sizes:
        blocks = together if sizes[0] == smallest and len(sizes) >= together else 1
        yield sizes[0], blocks
        sizes = sizes[blocks:]
