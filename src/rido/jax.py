"""Simulators in JAX: a whole evaluation on a GPU. See :mod:`rido.simulators.jax` and :mod:`rido.critics.jax`."""

from rido.simulators.jax import *  # noqa: F403  # isort: skip - says what is missing where JAX is not installed
from rido.critics.jax import JaxCritic as JaxCritic
from rido.policies.differentiable import StochasticPolicy as StochasticPolicy
