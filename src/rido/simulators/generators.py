"""Generators from seeds, many at once: those that environments make at a reset, and those that policies draw from.

Half of the time of a short trajectory goes into hashing seeds, and numpy hashes one at a time. Here its own arithmetic,
``SeedSequence``, runs over all seeds of a request. The generators are the same to the last bit.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
from gymnasium.utils import seeding
from numpy.typing import NDArray

Words = NDArray[np.uint32]

_FEW = 16  # seeds, up to which numpy itself is faster
_POOL = 4  # words
_INIT_A, _MULT_A, _INIT_B, _MULT_B = 0x43B0D7E5, 0x931E8875, 0x8B51F9DD, 0x58F38DED
_MIX_L, _MIX_R = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
_SHIFT = np.uint32(16)


class _Hashed(np.random.bit_generator.ISpawnableSeedSequence):
    """A ``SeedSequence`` whose words for PCG64 are known; it makes numpy's own for everything else."""

    def __init__(self, entropy: Any, words: NDArray[np.uint64]) -> None:
        self.entropy, self._words = entropy, words

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> NDArray[Any]:
        if n_words == _POOL and dtype is np.uint64:
            return self._words
        return self.plain.generate_state(n_words, dtype)

    @cached_property
    def plain(self) -> np.random.SeedSequence:
        """The same sequence, which counts what it spawned."""
        return np.random.SeedSequence(self.entropy)

    def spawn(self, n_children: int) -> list[Any]:
        return self.plain.spawn(n_children)

    def __reduce__(self) -> tuple[Any, ...]:
        return np.random.SeedSequence, (self.entropy,)


def generators(seeds: Sequence[int]) -> Iterator[np.random.Generator]:
    """Yields ``numpy.random.default_rng([seed, 1])`` for each seed, which has at most 64 bits.

    Example:
        >>> next(generators([7])).random() == np.random.default_rng([7, 1]).random()
        True
    """
    for seed, words in zip(seeds, _state_words(seeds, followed=True), strict=True):
        yield _generator([seed, 1], words)


@contextmanager
def resets_with(seeds: Sequence[int]) -> Iterator[None]:
    """Makes Gymnasium's generators of these seeds, each an int of at most 64 bits, in a fifth of the time.

    ``Env.reset`` makes them by ``gymnasium.utils.seeding.np_random``, which a faster one replaces meanwhile.
    """
    plain: Any = seeding.np_random
    replaced = getattr(plain, "__module__", None) != seeding.__name__  # by somebody else
    if replaced or not all(0 <= seed < 1 << 64 for seed in seeds):
        yield
        return
    known = dict(zip(seeds, _state_words(seeds), strict=True))

    def np_random(seed: int | None = None) -> tuple[np.random.Generator, int]:
        words = known.get(seed) if type(seed) is int else None
        return plain(seed) if words is None else (_generator(seed, words), seed)  # type: ignore[return-value]

    module: Any = seeding
    module.np_random = np_random
    try:
        yield
    finally:
        if module.np_random is np_random:
            module.np_random = plain


def _generator(entropy: Any, words: NDArray[np.uint64]) -> np.random.Generator:
    source: Any = _Hashed(entropy, words)
    return np.random.Generator(np.random.PCG64(source))


def _state_words(seeds: Sequence[int], *, followed: bool = False) -> Sequence[NDArray[np.uint64]]:
    """Returns the words from which PCG64 is seeded, a row for each seed, or for each pair ``[seed, 1]``."""
    if len(seeds) < _FEW:
        sources = [np.random.SeedSequence([seed, 1] if followed else seed) for seed in seeds]
        return [source.generate_state(_POOL, np.uint64) for source in sources]  # type: ignore[misc]
    wide = np.asarray(seeds, dtype=np.uint64)
    low, high = wide.astype(np.uint32), (wide >> np.uint64(32)).astype(np.uint32)
    none = np.zeros_like(low)
    entropy = [low, high, none, none]
    if followed:  # a seed of 32 bits is one word, so that the 1 comes second
        entropy = [low, np.where(high, high, np.uint32(1)), (high > 0).astype(np.uint32), none]
    pool, constant = _pool(entropy), _INIT_B
    words = np.empty((low.size, 2 * _POOL), dtype=np.uint32)
    for index in range(2 * _POOL):
        words[:, index], constant = _hashed(pool[index % _POOL], constant, _MULT_B)
    return list(words[:, ::2].astype(np.uint64) | words[:, 1::2].astype(np.uint64) << np.uint64(32))


def _pool(entropy: list[Words]) -> list[Words]:
    pool, constant = [], _INIT_A
    for word in entropy:
        mixed, constant = _hashed(word, constant, _MULT_A)
        pool.append(mixed)
    for source in range(_POOL):
        for target in range(_POOL):
            if source != target:
                mixed, constant = _hashed(pool[source], constant, _MULT_A)
                mixed = _MIX_L * pool[target] - _MIX_R * mixed
                pool[target] = mixed ^ mixed >> _SHIFT
    return pool


def _hashed(words: Words, constant: int, factor: int) -> tuple[Words, int]:
    following = constant * factor & 0xFFFFFFFF
    mixed: Words = (words ^ np.uint32(constant)) * np.uint32(following)
    return mixed ^ mixed >> _SHIFT, following
