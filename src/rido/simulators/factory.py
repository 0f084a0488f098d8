"""Which simulator runs an environment, and over which horizon, where the user leaves it open."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from rido.core import checks
from rido.simulators.base import Simulator


def horizon_for(gamma: float, tolerance: float = 1e-3) -> int:
    """Returns the steps after which a share of at most ``tolerance`` of the return of constant rewards is left.

    The least T with gamma^T <= tolerance, the footnote of Section 2 of the paper with its constant.

    Example:
        >>> horizon_for(0.99)
        688
    """
    gamma = checks.discount("gamma", gamma)
    if gamma == 1:
        raise ValueError("horizon must be given where gamma is 1 and the environment has no time limit")
    return max(1, math.ceil(math.log(checks.probability("tolerance", tolerance)) / math.log(gamma)))


def resolve_horizon(env: Any, horizon: int | None, gamma: float, *, in_jax: bool = False) -> int:
    """Returns the horizon that was asked for, or else the one that gamma and the environment's time limit suggest."""
    if horizon is not None:
        return checks.integer("horizon", horizon, least=1)
    if in_jax and not (isinstance(env, str) and ":" not in env):
        from rido.simulators.jax import adapt

        limit = adapt(env).time_limit
    elif isinstance(env, str):
        from rido.simulators.environments import find_spec

        limit = find_spec(env).max_episode_steps
    else:
        limit = getattr(getattr(env, "spec", None), "max_episode_steps", None)
    return limit if limit is not None and (gamma == 1 or limit < horizon_for(gamma)) else horizon_for(gamma)


_OWN = {  # what an argument must be with a simulator of the user's own, and what to do instead
    "policy": (None, "it acts by itself"),
    "env_kwargs": (None, "make the simulator with them"),
    "num_envs": (None, "set the simulator's attribute num_envs"),
    "workers": (1, "let its rollout() use several processes"),
    "simulator": (None, "leave it out"),
    "deterministic": (True, "make the simulator act as it should"),
}


def refuse_ignored(**settings: Any) -> None:
    """Raises where an argument of evaluate() would be ignored because the simulator is the user's own."""
    for name, value in settings.items():
        default, advice = _OWN[name]
        same = value is default or (isinstance(value, (int, np.integer)) and value == default)
        if not same and not (isinstance(value, Mapping) and not value):
            raise ValueError(f"{name} must be {default} with a simulator of your own, got {value!r:.80}: {advice}")


def simulator_kind(simulator: str | Callable[..., Simulator] | None, workers: int) -> Callable[..., Simulator]:
    """Returns what makes the simulator that was asked for by name, or else the one that suits so many workers."""
    workers = checks.integer("workers", workers, least=1)
    if simulator is None:
        simulator = "gymnasium" if workers == 1 else "workers"
    if not callable(simulator):
        checks.choice("simulator", simulator, ("gymnasium", "workers", "envpool", "ray", "jax"))
    if workers != 1 and simulator != "workers":
        raise ValueError(f"workers must be 1 with {_named(simulator)}, got {workers}: {_advice(simulator)}")
    if callable(simulator):
        return simulator
    match simulator:
        case "workers":
            from rido.simulators.parallel.processes import WorkerSimulator

            return partial(WorkerSimulator, workers=workers)
        case "envpool":
            from rido.simulators.envpool import EnvPoolSimulator

            return EnvPoolSimulator
        case "ray":
            from rido.simulators.parallel.ray import RaySimulator

            return RaySimulator
        case "jax":
            from rido.simulators.jax import JaxSimulator

            return JaxSimulator
        case _:
            from rido.simulators.gymnasium import GymnasiumSimulator

            return GymnasiumSimulator


def _named(simulator: Any) -> str:
    return "a function that makes a simulator" if callable(simulator) else f"simulator {simulator!r}"


def _advice(simulator: Any) -> str:
    """Returns what to do instead of giving this simulator workers."""
    own = {
        "envpool": "it has threads of its own",
        "ray": "simulator=partial(RaySimulator, num_actors=...) says how many actors there are",
        "jax": "it uses the whole device",
    }
    if callable(simulator):
        return "give the function the number, as in partial(RaySimulator, num_actors=...)"
    return own.get(simulator, "give simulator 'workers' or leave it out")


def is_simulator(env: Any) -> bool:
    """Whether this is a simulator of the user's own."""
    return callable(getattr(env, "rollout", None))


def is_in_jax(env: Any) -> bool:
    """Whether this is an environment in JAX, found out without importing it."""
    own = type(env).__module__ == "rido.simulators.jax.envs"
    return own or hasattr(env, "step_env") or (hasattr(env, "observation_size") and not hasattr(env, "spec"))
