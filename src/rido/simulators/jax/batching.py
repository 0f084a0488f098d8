"""How trajectories of mixed lengths are cut into batches of a few fixed sizes, which a device runs in lockstep."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

_BLOCKS = 16  # a trajectory of full length is run in up to this many blocks of steps
# Numbers of rows, each of which is compiled: few, and none so small that a larger one takes no longer.
_CPU_SIZES = (16, 128, 1024)
_GPU_SIZES = (16384, 65536, 131072, 262144, 524288)
_GPU_BLOCKS_PER_CALL = 8  # blocks of the smallest batches are shorter than a call of the device
_MOST_REWARDS = 1 << 29  # in one batch, for its memory


@dataclass(frozen=True)
class Batching:
    """Sizes of batches. A batch is run in blocks of steps, with fewer rows where fewer trajectories go on.

    Attributes:
        sizes: rows that a batch may have, ascending.
        steps: time steps of a block.
        blocks_per_call: blocks in one call of the device, for batches of the smallest size.
    """

    sizes: tuple[int, ...]
    steps: int
    blocks_per_call: int = 1

    @staticmethod
    def for_device(horizon: int, num_envs: int | None) -> Batching:
        """Returns sizes that suit JAX's default device, at most ``num_envs``."""
        on_cpu = jax.default_backend() == "cpu"
        sizes: tuple[int, ...] = _CPU_SIZES if on_cpu else _GPU_SIZES
        most = max(1, _MOST_REWARDS // horizon)
        most = most if num_envs is None else min(most, num_envs)
        sizes = tuple(size for size in sizes if size < most) + ((most,) if most <= sizes[-1] else ())
        return Batching(sizes, -(-horizon // _BLOCKS), 1 if on_cpu else _GPU_BLOCKS_PER_CALL)

    def split(self, count: int) -> Iterator[tuple[int, int]]:
        """Cuts ``count`` rows into batches; yields the first row and the size of each.

        A batch may be larger than the remaining rows: by at most a third, or if it is of the smallest size.
        """
        first = 0
        while (left := count - first) > 0:
            size = next(size for size in reversed(self.sizes) if size <= left * 4 / 3 or size == self.sizes[0])
            yield first, size
            first += size

    def batches(self, planned: NDArray[np.integer[Any]]) -> Iterator[tuple[int, list[int]]]:
        """Cuts trajectories, the longest first, into batches; yields each one's first row, and its rows in each block.

        Args:
            planned: how many trajectories take each step.

        Example:
            >>> list(Batching(sizes=(16, 64), steps=1).batches(np.array([70, 40, 10, 0])))
            [(0, [64, 64, 16]), (64, [16])]
        """
        for first, size in self.split(int(planned[0])):
            alive = planned[:: self.steps] - first
            needed = np.minimum(alive[alive > 0], size).tolist()
            yield first, [min(next(s for s in self.sizes if s >= rows), size) for rows in needed]

    def calls(self, rows: list[int]) -> Iterator[tuple[int, int]]:
        """Yields the rows and the number of blocks of each call, for a batch with these rows in each block."""
        while rows:
            together = rows[0] == self.sizes[0] and len(rows) >= self.blocks_per_call
            blocks = self.blocks_per_call if together else 1
            yield rows[0], blocks
            rows = rows[blocks:]
