"""Sobol starts: points of scrambled Sobol sequences, one independent sequence for each replicate."""

import warnings
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rido.simulators.base import Request, Simulator, seed_source, trajectory_seeds

Starts = Literal["random", "sobol"]
"""Where the starts of trajectories come from."""

COORDINATES = 64
"""Coordinates of a point; resets that draw more numbers draw the rest at random."""


class SobolPoints:
    """Points of several scrambled Sobol sequences (Owen, 1998; Matousek, 1998).

    Every point is uniformly distributed, so means over points are unbiased. The points of a sequence fill the cube more
    evenly than random ones. Sequences are independent of each other.

    Args:
        entropy: what all randomness of the evaluation comes from.
        stream: another one gives other, independent sequences.
        replicates: number of sequences.

    Example:
        >>> points = SobolPoints(entropy=1, stream=2, replicates=3)
        >>> points.take(np.array([0, 1, 0])).shape
        (3, 64)
    """

    def __init__(self, entropy: int, *, stream: int, replicates: int) -> None:
        self._sources = seed_source(entropy, stream).spawn(replicates)
        self._sequences: list[Any] = [None] * replicates
        self._next = np.zeros(replicates, dtype=np.int64)

    def skip(self, replicates: NDArray[np.int64]) -> None:
        """Passes over the next points of these replicates, one for each entry."""
        self._next += np.bincount(replicates, minlength=self._next.size)

    def take(self, replicates: NDArray[np.int64]) -> NDArray[np.float64]:
        """Returns the next points of these replicates, one for each entry."""
        points = np.empty((replicates.size, COORDINATES))
        for replicate in np.unique(replicates).tolist():
            rows = replicates == replicate
            points[rows] = self._draw(replicate, int(rows.sum()))
        self.skip(replicates)
        return points

    def _draw(self, replicate: int, count: int) -> NDArray[np.float64]:
        from scipy.stats import qmc  # slow to import

        sequence = self._sequences[replicate]
        if sequence is None:
            generator = np.random.default_rng(self._sources[replicate])
            sequence = self._sequences[replicate] = qmc.Sobol(COORDINATES, scramble=True, seed=generator)
        missing = int(self._next[replicate]) - sequence.num_generated
        if missing:
            sequence.fast_forward(missing)
        with warnings.catch_warnings():  # that a number of points is no power of 2
            warnings.simplefilter("ignore", UserWarning)
            points: NDArray[np.float64] = sequence.random(count)
        return points


def check_seeds(simulator: Simulator, entropy: int, *, sobol: bool) -> tuple[str, ...]:
    """Returns why the same seed may not give the same trajectory, found without taking a step."""
    if not simulator.capabilities.tries:
        return ()
    points = np.random.default_rng(entropy).random((2, COORDINATES)) if sobol else None
    return simulator.collect(Request(None, trajectory_seeds(entropy, 0, 2), points, wants="trial")).found.notes


def refuse_without_points(simulator: Simulator) -> None:
    """Raises if points cannot decide where trajectories start."""
    able = simulator.capabilities
    if not able.takes_points:
        raise ValueError(
            f"starts='sobol' works only with a simulator that takes points, not "
            f"{able.engine or type(simulator).__name__}: collect with 'gymnasium', 'workers' or 'ray', or offer "
            "reset_from() in JAX; see docs/starts.md"
        )


def means_of_replicates(values: NDArray[np.float64], replicates: int) -> NDArray[np.float64]:
    """Returns the means of values that belong to replicates in turn; the values themselves where these are none."""
    if not replicates:
        return values
    return np.array([values[first::replicates].mean() for first in range(replicates)])
