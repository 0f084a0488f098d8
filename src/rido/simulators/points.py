"""Starts that a point decides: a numpy generator whose numbers are functions of the coordinates of one point.

Starts from points that fill the cube evenly, such as a Sobol sequence, have less variance than random ones if near
points give near starts. So each number is the inverse of its distribution function at one coordinate.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

_START = "_start_of_rido"  # attribute of an environment during a reset: the generator
_STREAM = 2  # of a trajectory's seed, for its environment; 1 is its policy's
_RESET_OFFSET = 1 << 96  # numbers between those of the steps and those of the reset, in one sequence
_LEAST = 2.0**-54  # coordinate in place of 0, whose normal number would be infinite
_WIDEST = 1 << 24  # integers of a range; a larger one is for seeds of something else, where near points mean nothing
_EXACT = 1 << 52  # bounds of integers up to which a difference in float64 is exact
_FLOAT32_STEPS = 2.0**24  # numbers in [0, 1) that numpy draws in single precision


class PointGenerator(np.random.Generator):
    """A generator for one reset, whose numbers come from a point instead of a pseudo-random sequence.

    Uniform, normal, exponential and integer numbers and choices with replacement take one coordinate each. Other
    distributions, permutations, and all numbers after the last coordinate are pseudo-random, by the seed.

    Args:
        point: coordinates in [0, 1).
        seed: the trajectory's seed.

    Attributes:
        drawn: numbers of the reset so far that take a coordinate each, or would if there were more.

    Example:
        >>> generator = PointGenerator([0.5, 0.975, 0.3], seed=1)
        >>> generator.uniform(-2.0, 2.0), round(generator.normal(), 2), str(generator.choice(["left", "right"]))
        (0.0, 1.96, 'left')
        >>> generator.drawn
        3
    """

    def __init__(self, point: ArrayLike, seed: int) -> None:
        bits = np.random.PCG64([seed, _STREAM])
        super().__init__(bits)
        self._for_steps = bits.state
        bits.advance(_RESET_OFFSET)
        self._point: NDArray[np.float64] = np.asarray(point, dtype=np.float64)
        self._finished = False
        self.drawn = 0

    @property
    def used(self) -> Literal["nothing", "some", "all"]:
        """Which coordinates the reset used: all, if it asked for more numbers than the point has."""
        return "all" if self.drawn > self._point.size else "some" if self.drawn else "nothing"

    def finish(self) -> np.random.Generator:
        """Ends the reset and returns the generator for the steps, which is the same for all points.

        This one gives the same numbers from now on, if the environment kept it.
        """
        self._finished = True
        self.bit_generator.state = self._for_steps
        return np.random.Generator(self.bit_generator)

    def random(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        """See ``numpy.random.Generator.random``."""
        drawn = super().random(size, dtype, out)
        if np.dtype(dtype) == np.float32:  # the nearest float32 may be 1
            return self._drive(drawn, lambda u: np.floor(u * _FLOAT32_STEPS) / _FLOAT32_STEPS)
        return self._drive(drawn, lambda u: u)

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
        """See ``numpy.random.Generator.uniform``."""
        drawn = super().uniform(low, high, size)
        return self._drive(drawn, lambda u, low, high: low + (high - low) * u, low, high)

    def standard_normal(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        """See ``numpy.random.Generator.standard_normal``."""
        return self._drive(super().standard_normal(size, dtype, out), _normal)

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        """See ``numpy.random.Generator.normal``."""
        drawn = super().normal(loc, scale, size)
        return self._drive(drawn, lambda u, loc, scale: loc + scale * _normal(u), loc, scale)

    def standard_exponential(
        self, size: Any = None, dtype: Any = np.float64, method: Any = "zig", out: Any = None
    ) -> Any:
        """See ``numpy.random.Generator.standard_exponential``."""
        return self._drive(super().standard_exponential(size, dtype, method, out), lambda u: -np.log1p(-u))

    def exponential(self, scale: Any = 1.0, size: Any = None) -> Any:
        """See ``numpy.random.Generator.exponential``."""
        return self._drive(super().exponential(scale, size), lambda u, scale: -scale * np.log1p(-u), scale)

    def integers(
        self, low: Any, high: Any = None, size: Any = None, dtype: Any = np.int64, endpoint: bool = False
    ) -> Any:
        """See ``numpy.random.Generator.integers``."""
        drawn = super().integers(low, high, size, dtype, endpoint)
        least, beyond = (0, low) if high is None else (low, high)
        widths = np.asarray(beyond, dtype=np.float64) - np.asarray(least, dtype=np.float64) + endpoint
        if not np.size(drawn) or np.max(widths) > _WIDEST or np.max(np.abs(least)) > _EXACT:
            return drawn
        return self._drive(drawn, lambda u, least, widths: least + np.floor(widths * u), least, widths)

    def choice(
        self, a: Any, size: Any = None, replace: bool = True, p: Any = None, axis: int = 0, shuffle: bool = True
    ) -> Any:
        """See ``numpy.random.Generator.choice``, which draws with :meth:`random` or :meth:`integers`."""
        alone = size is None or np.prod(size) == 1  # one that is not replaced has the same distribution
        return super().choice(a, size, replace or alone, p, axis, shuffle)

    def spawn(self, n_children: int) -> list[np.random.Generator]:
        """Returns pseudo-random generators."""
        return [np.random.Generator(bits) for bits in self.bit_generator.spawn(n_children)]

    def _drive(self, drawn: Any, inverse: Callable[..., Any], *parameters: Any) -> Any:
        """Replaces the first of the numbers that numpy drew, as many as there are coordinates left.

        ``inverse`` is the inverse distribution function, of coordinates and parameters.
        """
        if self._finished:
            return drawn
        first, several = self.drawn, isinstance(drawn, np.ndarray)
        self.drawn += drawn.size if several else 1
        if first >= self._point.size:
            return drawn
        if not several:
            return type(drawn)(inverse(self._point.item(first), *parameters))
        coordinates = self._point[first : self.drawn]
        parts = [
            each if isinstance(each, (int, float)) else np.broadcast_to(each, drawn.shape).ravel()[: coordinates.size]
            for each in parameters
        ]
        drawn.flat[: coordinates.size] = inverse(coordinates, *parts)
        return drawn


def _normal(uniforms: NDArray[np.float64]) -> NDArray[np.float64]:
    numbers: NDArray[np.float64] = ndtri(np.maximum(uniforms, _LEAST))
    return numbers


@contextmanager
def replaced_np_random(env: Any, start: PointGenerator) -> Iterator[None]:
    """Lets a generator stand for the np_random of an unwrapped environment, also while a reset seeds it.

    The environment's class is replaced by a subclass for the time of the reset: so the seed reaches all that it always
    reaches, with a single reset. Afterwards np_random is the generator for the steps.
    """
    kind: Any = type(env)
    with suppress(TypeError):  # a class that allows no subclass draws as before
        env.__class__ = _subclass(kind)
    env.__dict__[_START] = start
    try:
        yield
    finally:
        env.__class__ = kind
        del env.__dict__[_START]
        env._np_random = start.finish()


@functools.lru_cache(maxsize=64)
def _subclass(kind: Any) -> Any:
    """Returns a subclass of an environment's class whose np_random is the generator of its reset, if it has one."""

    def get(env: Any) -> Any:
        return env.__dict__.get(_START, env.__dict__.get("_np_random"))

    def put(env: Any, generator: Any) -> None:
        env.__dict__["_np_random"] = generator

    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__slots__": ()}
    return type(kind)(kind.__name__, (kind,), {**names, "_np_random": property(get, put)})
