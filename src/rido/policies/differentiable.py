"""Policies whose log probabilities can be differentiated, for policy gradients.

The gradient of log pi(a | s) with respect to the parameters is called the score. A network has too many parameters to
keep the score of every step. Plans need projections of the scores onto a few directions, and the gradient needs one
weighted sum of all scores.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rido.core import checks
from rido.policies import sb3
from rido.policies.base import Policy, Space
from rido.policies.tensors import is_module

Floats = NDArray[np.float64]

_ROWS = 1024  # steps that are differentiated at once, so that hidden layers of all directions stay in the cache


class DifferentiablePolicy(Policy):
    """A stochastic policy with scores.

    Actions are sampled from the generators of their rows. Where a sample lies outside a Box, the environment gets
    the nearest action inside; the log probability is that of the sample. Clipping is then part of the environment.

    Args:
        action_space: Action space of one environment.

    Attributes:
        size: Number of parameters.
    """

    size: int

    def __init__(self, action_space: Space) -> None:
        self._space = action_space

    @abstractmethod
    def scores(self, observations: Any, actions: NDArray[Any], directions: Floats) -> Floats:
        """Derivatives of log pi(a | s) along directions in the space of parameters, one row for each observation."""

    @abstractmethod
    def weighted_scores(self, observations: Any, actions: NDArray[Any], weights: Floats) -> Floats:
        """Computes the sum of all scores, each times its weight, with one backward pass."""

    @abstractmethod
    def unflatten(self, vector: Floats) -> Any:
        """Gives a vector the structure of the policy's parameters."""

    def executed(self, actions: NDArray[Any]) -> NDArray[Any]:
        from gymnasium import spaces

        match self._space:
            case spaces.Box(low=low, high=high):
                actions = np.clip(actions, low, high)
            case spaces.Discrete(start=start) | spaces.MultiDiscrete(start=start):
                actions = actions + start
        return actions


@dataclass(frozen=True)
class StochasticPolicy:
    """A stochastic policy in JAX, as pure functions of one observation.

    Attributes:
        params: The parameters, any pytree of floating arrays.
        sample: ``sample(params, key, observation)`` draws an action.
        log_prob: ``log_prob(params, observation, action)`` is the logarithm of its probability, or of its density.
    """

    params: Any
    sample: Callable[[Any, Any, Any], Any]
    log_prob: Callable[[Any, Any, Any], Any]


def differentiable_policy(policy: Any, observation_space: Space, action_space: Space) -> DifferentiablePolicy:
    """Makes a :class:`DifferentiablePolicy` of what a user gave.

    Args:
        policy: A ``torch.nn.Module`` that maps a batch of observations to a ``torch.distributions`` distribution, an
            on-policy model of Stable-Baselines3 or its policy, a :class:`StochasticPolicy` in JAX, or a
            :class:`DifferentiablePolicy`.
        observation_space: Observation space of one environment.
        action_space: Action space of one environment.
    """
    if isinstance(policy, DifferentiablePolicy):
        return policy
    if isinstance(policy, StochasticPolicy):
        from rido.policies.jax_scores import JaxScores

        return JaxScores(policy, observation_space, action_space)
    if sb3.is_model(policy) or sb3.is_network(policy) or is_module(policy):
        from rido.policies.torch_scores import AgentScores, TorchPolicy

        if is_module(policy) and not sb3.is_network(policy):
            return TorchPolicy(policy, observation_space, action_space)
        return AgentScores(policy, observation_space, action_space)
    raise ValueError(
        "policy must be a torch module that returns a torch.distributions.Distribution, an on-policy SB3 model or a "
        f"rido.jax.StochasticPolicy, got {checks.shown(policy)}"
    )


def parts(rows: int) -> Iterator[NDArray[np.intp]]:
    """The indices of rows in parts of a fixed size, so that results do not depend on what collected them."""
    for start in range(0, rows, _ROWS):
        yield np.arange(start, min(start + _ROWS, rows))
