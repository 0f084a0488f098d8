"""Simulators in JAX: a whole evaluation on a GPU. See :mod:`rido.simulators.jax` and :mod:`rido.predictors.jax`."""

from rido.simulators.jax import *  # noqa: F403  # isort: skip - says what is missing where JAX is not installed
from rido.policies.differentiable import StochasticPolicy as StochasticPolicy
from rido.predictors.jax import JaxCritic as JaxCritic
