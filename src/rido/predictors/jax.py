"""Critics as JAX functions, which run on the device of the simulator; needs the extra ``jax``."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from rido.core import checks
from rido.policies.base import call_in_blocks
from rido.policies.functions import function_name
from rido.predictors.base import Critic, FunctionCritic
from rido.record.fingerprint import identify
from rido.simulators.jax.functions import split

_ROWS = 1024  # observations in one call


class JaxCritic(Critic):
    """A value function as a JAX function.

    Args:
        function: V of one observation and the steps to go, a scalar; or a pair ``(apply, params)``, called as
            ``apply(params, observation, steps_to_go)``, whose parameters are arguments of compiled programs.
    """

    rowwise = True

    def __init__(self, function: Callable[[Any, Any], Any] | tuple[Callable[..., Any], Any]) -> None:
        checks.function("function", function[0] if isinstance(function, tuple) and len(function) == 2 else function)
        self.name = function_name(function[0] if isinstance(function, tuple) else function)
        self.function = function
        structure, arrays = split(function)
        self._batch = FunctionCritic(jax.jit(jax.vmap(structure.bind(arrays))))

    @property
    def fingerprint(self) -> str:
        return identify("critic", self.function)

    def __call__(self, observations: Any, steps_to_go: NDArray[np.int64]) -> NDArray[np.float64]:
        rows = observations, steps_to_go.astype(np.int32)
        # Blocks of one size, so that the function is compiled once.
        return call_in_blocks(lambda block, _: self._batch(*block), rows, steps_to_go.size, _ROWS)
