"""Simulators in JAX: a whole evaluation on a GPU. Needs the extra ``jax``, and nothing else.

>>> import rido, rido.simulators.jax
>>> result = rido.evaluate(rido.simulators.jax.lqg(), budget=2000, gamma=0.9, horizon=20, seed=0)
>>> result.transitions
2000
"""

try:
    import jax as _jax  # noqa: F401
except ImportError as error:
    raise ImportError('simulators in JAX need it: pip install "rido[jax]"') from error

from rido.simulators.jax.envs import JaxEnv, adapt, from_brax, from_gymnax, lqg, navigation, navigation_expert, pendulum
from rido.simulators.jax.simulator import JaxSimulator

__all__ = [
    "JaxEnv",
    "JaxSimulator",
    "adapt",
    "from_brax",
    "from_gymnax",
    "lqg",
    "navigation",
    "navigation_expert",
    "pendulum",
]
