"""Scores of policies in JAX, which act in environments of Gymnasium."""

from typing import Any

import jax
import numpy as np
from jax.flatten_util import ravel_pytree
from numpy.typing import NDArray

from rido.policies.actions import check_actions
from rido.policies.base import Generators, Space, call_in_blocks, draw, steady_block
from rido.policies.differentiable import DifferentiablePolicy, Floats, StochasticPolicy, parts
from rido.policies.functions import function_name
from rido.policies.observations import take


class JaxScores(DifferentiablePolicy):
    """A :class:`rido.policies.differentiable.StochasticPolicy` that acts and tells its scores."""

    def __init__(self, policy: StochasticPolicy, observation_space: Space, action_space: Space) -> None:
        super().__init__(action_space)
        self.name = function_name(policy.log_prob)
        flat, self._unravel = ravel_pytree(policy.params)
        self._flat, self.size = flat, int(flat.size)
        if not self.size:
            raise ValueError("policy must have parameters, got an empty pytree")

        def sample(numbers: Any, observations: Any) -> Any:
            keys = jax.vmap(lambda pair: jax.random.fold_in(jax.random.key(pair[0]), pair[1]))(numbers)
            return jax.vmap(policy.sample, (None, 0, 0))(policy.params, keys, observations)

        def log_probs(flat: Any, observations: Any, actions: Any) -> Any:
            return jax.vmap(policy.log_prob, (None, 0, 0))(self._unravel(flat), observations, actions)

        def along(direction: Any, observations: Any, actions: Any) -> Any:
            return jax.jvp(lambda flat: log_probs(flat, observations, actions), (self._flat,), (direction,))[1]

        def weighted(flat: Any, observations: Any, actions: Any, weights: Any) -> Any:
            return log_probs(flat, observations, actions) @ weights

        self._sample = jax.jit(sample)
        self._along = jax.jit(jax.vmap(along, (0, None, None), 1))
        self._weighted = jax.jit(jax.grad(weighted))
        self._block = steady_block(
            lambda block, start: self._act(block, np.zeros((len(block), 2), np.uint32)), observation_space
        )

    def _act(self, observations: Any, numbers: NDArray[np.uint32]) -> NDArray[Any]:
        return check_actions(self._sample(numbers, observations), self._space, len(numbers))

    def __call__(self, observations: Any, generators: Generators) -> NDArray[Any]:
        rows = len(generators)
        numbers = (draw("random", generators, 2) * 2**32).astype(np.uint32)
        index = np.arange(rows + self._block)

        def act(block: Any, start: int) -> NDArray[Any]:
            return self._act(block, numbers[np.minimum(index[start : start + self._block], rows - 1)])

        return call_in_blocks(act, observations, rows, self._block)

    def scores(self, observations: Any, actions: NDArray[Any], directions: Floats) -> Floats:
        vectors, found = directions.astype(self._flat.dtype), []
        for rows in parts(len(actions)):
            padded = _padded(rows)
            part = self._along(vectors, take(observations, padded), actions[padded])
            found.append(np.asarray(part, dtype=np.float64)[: rows.size])
        return np.concatenate(found)

    def weighted_scores(self, observations: Any, actions: NDArray[Any], weights: Floats) -> Floats:
        total = np.zeros(self.size)
        for rows in parts(len(actions)):
            padded = _padded(rows)
            own = np.where(np.arange(padded.size) < rows.size, weights[padded], 0.0).astype(self._flat.dtype)
            total += np.asarray(self._weighted(self._flat, take(observations, padded), actions[padded], own))
        return total

    def unflatten(self, vector: Floats) -> Any:
        return jax.tree.map(np.asarray, self._unravel(jax.numpy.asarray(vector, dtype=self._flat.dtype)))


def _padded(rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Indices filled up to a power of four with copies of the last one, so that few shapes are compiled."""
    size = 4 ** (((rows.size - 1).bit_length() + 1) // 2)
    return np.concatenate([rows, np.full(size - rows.size, rows[-1])])
