"""Critics as JAX functions, which run on the device of the simulator; needs the extra ``jax``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from rido.critics.base import Critic, FunctionCritic
from rido.policies.base import function_name, take
from rido.storage.fingerprint import identify


class JaxCritic(Critic):
    """A value function as a JAX function.

    Args:
        function: V of one observation and the steps to go, a scalar.
    """

    rowwise = True

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self.name = function_name(function)
        self.function = function
        self._rows = 1024
        self._batch = FunctionCritic(jax.jit(jax.vmap(function)))

    @property
    def fingerprint(self) -> str:
        """Digest of the function."""
        return identify("critic", self.function)

    def __call__(self, observations: Any, steps_to_go: NDArray[np.int64]) -> NDArray[np.float64]:
        """Values of a batch, in blocks of one size, so that there is one program."""
        values = []
        for first in range(0, steps_to_go.size, self._rows):
            index = np.minimum(np.arange(first, first + self._rows), steps_to_go.size - 1)
            values.append(self._batch(take(observations, index), steps_to_go[index].astype(np.int32)))
        return np.concatenate(values)[: steps_to_go.size]
