"""Which simulator runs an environment, and over which horizon, where the user leaves it open."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, Literal, get_args

from rido.core import checks
from rido.simulators.base import Simulator, as_simulator
from rido.simulators.options import SimulatorName

EnvironmentKind = Literal["id", "jax", "gymnax", "brax", "gymnasium", "other"]
"""An id, an environment in JAX or Gymnasium (a VectorEnv included), or something else, such as a function."""

Named = str | Callable[..., Simulator] | None
"""A simulator as the user names it: by its name, or by a function that makes it; None where that is left open."""

_CLASSES = {
    "gymnasium": "rido.simulators.gymnasium:GymnasiumSimulator",
    "workers": "rido.simulators.parallel.processes:WorkerSimulator",
    "envpool": "rido.simulators.envpool:EnvPoolSimulator",
    "ray": "rido.simulators.parallel.ray:RaySimulator",
    "jax": "rido.simulators.jax:JaxSimulator",
}
_INSTEAD_OF_WORKERS = {
    "gymnasium": "give simulator 'workers' or leave it out",
    "envpool": "it has its own threads",
    "ray": "simulator=partial(RaySimulator, num_actors=...) says how many actors there are",
    "jax": "it uses the whole device",
}


def horizon_for(gamma: float, tolerance: float = 1e-3) -> int:
    """Returns the least T with gamma^T <= tolerance, after which rewards hardly count (paper, Section 2).

    Example:
        >>> horizon_for(0.99)
        688
    """
    gamma = checks.discount("gamma", gamma)
    if gamma == 1:
        raise ValueError(
            "horizon must be given where gamma is 1 and the environment has no time limit: the most steps of an episode"
        )
    return max(1, math.ceil(math.log(checks.probability("tolerance", tolerance)) / math.log(gamma)))


def resolve_horizon(
    env: Any, horizon: int | None, gamma: float, *, env_kwargs: Mapping[str, Any] | None = None, simulator: Named = None
) -> int:
    """Returns the horizon if given, else the environment's time limit or the horizon for gamma, whichever is less.

    A function is called for one environment, which says its time limit and is closed.
    """
    if horizon is not None:
        return checks.integer("horizon", horizon, least=1, most=checks.MOST_STEPS)
    limit = _time_limit(env, env_kwargs or {}, simulator)
    if limit is not None and (gamma == 1 or limit < horizon_for(gamma)):
        return limit
    return checks.integer("horizon", horizon_for(gamma), least=1, most=checks.MOST_STEPS)


def _time_limit(env: Any, env_kwargs: Mapping[str, Any], simulator: Any) -> int | None:
    if simulator == "jax" and (not isinstance(env, str) or ":" in env):
        from rido.simulators.jax import adapt

        return adapt(env).time_limit
    if is_simulator(env):
        return getattr(getattr(env, "spec", None), "max_episode_steps", None)
    kind = simulator.func if isinstance(simulator, partial) else simulator
    if kind == "envpool" or f"{getattr(kind, '__module__', '')}:{getattr(kind, '__name__', '')}" == _CLASSES["envpool"]:
        from rido.simulators import envpool

        return envpool.time_limit(env, env_kwargs)
    from rido.simulators.opening import find_spec, make_environment, refuse_others
    from rido.simulators.wrappers import time_limit

    if isinstance(env, str):
        limit = env_kwargs.get("max_episode_steps", find_spec(env).max_episode_steps)
        return limit if isinstance(limit, int) and limit > 0 else None
    refuse_others(env)
    if environment_kind(env) == "gymnasium" or not callable(env):
        return time_limit(env)
    made = make_environment(env)
    limit = time_limit(made)
    made.close()
    return limit


def check_simulator(simulator: Named, workers: int, step_timeout: float | None) -> str | Callable[..., Simulator]:
    """Returns what is to collect if these go together; if none is named, the one for this number of workers."""
    if simulator is None:
        return "gymnasium" if workers == 1 and step_timeout is None else "workers"
    if callable(simulator):
        named = "a function that makes a simulator"
        instead = "give the function the number, as in partial(RaySimulator, num_actors=...)"
    else:
        checks.choice("simulator", simulator, get_args(SimulatorName))
        named, instead = f"simulator {simulator!r}", _INSTEAD_OF_WORKERS.get(simulator, "")
        if step_timeout is not None and simulator not in ("workers", "ray"):
            raise ValueError(f"step_timeout must be None with {named}, which nothing can interrupt, got {step_timeout}")
    if workers != 1 and simulator != "workers":
        raise ValueError(f"workers must be 1 with {named}, got {workers}: {instead}")
    return simulator


def simulator_kind(simulator: Named, workers: int, step_timeout: float | None = None) -> Callable[..., Simulator]:
    """Returns what makes a simulator of an environment and a policy; see :func:`check_simulator`."""
    simulator = check_simulator(simulator, workers, step_timeout)
    settings: dict[str, Any] = {} if step_timeout is None else {"timeout": step_timeout}
    if not isinstance(simulator, str):
        return partial(_make, simulator, **settings)
    if simulator == "workers":
        settings["workers"] = workers
    module, _, name = _CLASSES[simulator].partition(":")
    return partial(getattr(import_module(module), name), **settings)


def _make(simulator: Callable[..., Simulator], env: Any, policy: Any, **settings: Any) -> Simulator:
    """Returns what a function of the user makes."""
    made = checks.called("simulator", simulator, env, policy, **settings)
    if not is_simulator(made):
        raise ValueError(f"simulator must make an object with a method rollout(), got {checks.shown(made)}")
    return as_simulator(made)


def runs_gymnasium(simulator: Named) -> bool:
    """Returns whether the named simulator, or what a function makes, runs Gymnasium's environments by itself."""
    if simulator is None or isinstance(simulator, str):
        return simulator in (None, "gymnasium", "workers", "ray")
    from rido.simulators.gymnasium import GymnasiumSimulator
    from rido.simulators.parallel.pool import PoolSimulator

    kind = simulator.func if isinstance(simulator, partial) else simulator
    return isinstance(kind, type) and issubclass(kind, (GymnasiumSimulator, PoolSimulator))


def import_environment(env: Any) -> Any:
    """Returns what "module:attribute" names, gymnax's (env, params) as one, and anything else as it is."""
    if isinstance(env, tuple) and is_in_jax(env):
        from rido.simulators.jax import adapt

        return adapt(env)
    module, _, name = env.rpartition(":") if isinstance(env, str) else ("", "", "")
    if not module or not name.isidentifier():
        return env
    try:
        return getattr(import_module(module), name, env)
    except ImportError:  # where the environment is opened, an error says so
        return env


def is_simulator(env: Any) -> bool:
    """Returns whether the user passed a simulator instead of an environment."""
    return callable(getattr(env, "rollout", None))


def environment_kind(env: Any) -> EnvironmentKind:
    """Returns the kind of environment that the user passed, found out without importing JAX."""
    if isinstance(env, str):
        return "id"
    if isinstance(env, type):  # a function that makes an environment, and not one with these methods
        return "other"
    if type(env).__module__ == "rido.simulators.jax.envs":
        return "jax"
    if hasattr(env, "step_env") or (isinstance(env, tuple) and len(env) == 2 and hasattr(env[0], "step_env")):
        return "gymnax"
    if hasattr(env, "observation_size") and not hasattr(env, "spec"):
        return "brax"
    return "gymnasium" if hasattr(env, "step") and hasattr(env, "spec") else "other"


def is_in_jax(env: Any) -> bool:
    """Returns whether the user passed an environment in JAX."""
    return environment_kind(env) in ("jax", "gymnax", "brax")
