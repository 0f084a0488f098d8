"""What evaluate() takes where the user leaves it open: the simulator, the horizon, the name of the environment."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from rido import _checks
from rido.simulators.base import Simulator


def horizon_for(gamma: float, tolerance: float = 1e-3) -> int:
    """Returns the steps after which a share of at most ``tolerance`` of the return of constant rewards is left.

    The least T with gamma^T <= tolerance, the footnote of Section 2 of the paper with its constant.

    Example:
        >>> horizon_for(0.99)
        688
    """
    gamma = _checks.discount("gamma", gamma)
    if gamma == 1:
        raise ValueError("horizon must be given where gamma is 1 and the environment has no time limit")
    return max(1, math.ceil(math.log(_checks.probability("tolerance", tolerance)) / math.log(gamma)))


def resolve_horizon(env: Any, horizon: int | None, gamma: float, *, in_jax: bool = False) -> int:
    """Returns the horizon that was asked for, or else the one that gamma and the environment's time limit suggest."""
    if horizon is not None:
        return _checks.integer("horizon", horizon, least=1)
    if in_jax and not (isinstance(env, str) and ":" not in env):
        from rido.jax import adapt

        limit = adapt(env).time_limit
    elif isinstance(env, str):
        from rido.simulators.environments import find_spec

        limit = find_spec(env).max_episode_steps
    else:
        limit = getattr(getattr(env, "spec", None), "max_episode_steps", None)
    return limit if limit is not None and (gamma == 1 or limit < horizon_for(gamma)) else horizon_for(gamma)


def simulator_kind(simulator: str | Callable[..., Simulator] | None, workers: int) -> Callable[..., Simulator]:
    """Returns what makes the simulator that was asked for by name, or else the one that suits so many workers."""
    workers = _checks.integer("workers", workers, least=1)
    if simulator is None:
        simulator = "gymnasium" if workers == 1 else "workers"
    if callable(simulator):
        return simulator
    match _checks.choice("simulator", simulator, ("gymnasium", "workers", "envpool", "ray", "jax")):
        case "workers":
            from rido.simulators.workers import WorkerSimulator

            return partial(WorkerSimulator, workers=workers)
        case "envpool":
            from rido.simulators.envpool import EnvPoolSimulator

            return EnvPoolSimulator
        case "ray":
            from rido.simulators.ray import RaySimulator

            return RaySimulator
        case "jax":
            if workers != 1:
                raise ValueError(f"workers must be 1 with JAX, which uses the whole device, got {workers}")
            from rido.jax import JaxSimulator

            return JaxSimulator
        case _:
            from rido.simulators.gymnasium import GymnasiumSimulator

            return GymnasiumSimulator


def is_in_jax(env: Any) -> bool:
    """Whether this is an environment in JAX, found out without importing it."""
    own = type(env).__module__ == "rido.jax.envs"
    return own or hasattr(env, "step_env") or (hasattr(env, "observation_size") and not hasattr(env, "spec"))


def environment_name(env: Any) -> str:
    """Returns what an environment is called in results."""
    if isinstance(env, str):
        return env
    own = getattr(env, "__qualname__", type(env).__name__)
    return str(getattr(getattr(env, "spec", None), "id", own))
