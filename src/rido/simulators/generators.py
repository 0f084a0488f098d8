"""Generators of the numbers that policies draw: those of ``numpy.random.default_rng([seed, 1])``, many at once.

Half of the time of a short trajectory goes into making generators. Here numpy's own arithmetic runs over all seeds of a
request: ``SeedSequence``, which hashes the seed, and the seeding of PCG64.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]

_FEW = 16  # seeds, up to which numpy itself is faster
_POOL = 4  # words
_INIT_A, _MULT_A, _INIT_B, _MULT_B = 0x43B0D7E5, 0x931E8875, 0x8B51F9DD, 0x58F38DED
_MIX_L, _MIX_R = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
_SHIFT = np.uint32(16)
_PCG_MULT, _WIDE = 0x2360ED051FC65DA44385DF649FCCF645, (1 << 128) - 1


def generator_states(seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Returns the states of the bit generators of ``default_rng([seed, 1])``, for seeds of at most 64 bits.

    Example:
        >>> generator_states([7])[0] == np.random.default_rng([7, 1]).bit_generator.state
        True
    """
    if len(seeds) < _FEW:
        return [dict(np.random.default_rng([seed, 1]).bit_generator.state) for seed in seeds]
    wide = np.asarray(seeds, dtype=np.uint64)
    low, high = wide.astype(np.uint32), (wide >> np.uint64(32)).astype(np.uint32)
    one = np.uint32(1)
    # A seed of 32 bits is one word, so that the 1 comes second.
    entropy = [low, np.where(high, high, one), (high > 0).astype(np.uint32), np.zeros_like(low)]
    pool = _pool(entropy)
    words, constant = [], _INIT_B
    for index in range(2 * _POOL):
        mixed, constant = _hashed(pool[index % _POOL], constant, _MULT_B)
        words.append(mixed.astype(object))
    states = []
    for w in zip(*words, strict=True):
        start = w[1] << 96 | w[0] << 64 | w[3] << 32 | w[2]
        increment = (w[5] << 96 | w[4] << 64 | w[7] << 32 | w[6]) << 1 & _WIDE | 1
        state = ((increment + start) * _PCG_MULT + increment) & _WIDE
        inner = {"state": state, "inc": increment}
        states.append({"bit_generator": "PCG64", "state": inner, "has_uint32": 0, "uinteger": 0})
    return states


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
