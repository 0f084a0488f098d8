"""Seeds on the device: the 64 bits of a seed are a key of JAX's, and many are made from a few words."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

GENERATOR = "threefry2x32"
"""Not JAX's default, which users can change: its keys are the 64 bits of a seed."""


def split_seeds(seeds: Sequence[int]) -> NDArray[np.uint32]:
    """Returns two words for each seed, the upper one first, as ``jax.random.key`` takes it."""
    wide = np.asarray(seeds, dtype=np.uint64)
    return np.stack([wide >> np.uint64(32), wide & np.uint64(0xFFFFFFFF)], axis=1).astype(np.uint32)


def join_seeds(words: NDArray[np.uint32]) -> list[int]:
    """Returns the seeds that :func:`split_seeds` split."""
    upper, lower = words.astype(np.uint64).T
    seeds: list[int] = (upper << np.uint64(32) | lower).tolist()
    return seeds


def seed_words(source: np.random.SeedSequence, index: int, stride: int = 1) -> NDArray[np.uint32]:
    """Returns the words from which :func:`make_seeds` makes seeds, from an index on and by a stride."""
    high, low = divmod(index, 1 << 31)  # so that no sum of a word and a row overflows
    if high:
        source = np.random.SeedSequence(source.entropy, spawn_key=(*source.spawn_key, 0, high))
    return np.array([*source.generate_state(2, np.uint32), low, stride], dtype=np.uint32)


@jax.jit
def make_seeds(words: jax.Array, index: jax.Array) -> jax.Array:
    """Returns two words for each trajectory, which do not repeat: folding in is a permutation of 64 bits."""
    base = jax.random.fold_in(jax.random.key(words[0], impl=GENERATOR), words[1])
    keys = jax.vmap(lambda i: jax.random.fold_in(base, i))(words[2] + words[3] * index.astype(jnp.uint32))
    return jax.random.key_data(keys)


def keys_of(words: jax.Array) -> jax.Array:
    """Returns the keys of seeds in two words."""
    keys: jax.Array = jax.random.wrap_key_data(words, impl=GENERATOR)
    return keys
