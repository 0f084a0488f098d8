"""Opens what the user passed: an id, a function that makes an environment, an environment or a VectorEnv."""

import difflib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from traceback import extract_tb
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import find_highest_version
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from rido.core import checks
from rido.core.extras import import_package_of, missing_package, packages_that_register
from rido.simulators.environments import Environments, SingleEnvironments
from rido.simulators.options import SimulatorOptions
from rido.simulators.vector_environments import VectorEnvironments
from rido.simulators.wrappers import Wrappers

_MOST_SINGLE = 16  # default number of environments: with more, the policy's time per row hardly falls
_MOST_VECTORISED = 256  # default number of rows of a vectorised environment
_WRAPPERS = {  # by the module of other kinds of environments
    "jumanji.": "jumanji.wrappers.JumanjiToGymWrapper",
    "dm_env.": "shimmy.DmControlCompatibilityV0",
    "gym.": "shimmy.GymV26CompatibilityV0",
}


def open_environments(env: Any, horizon: int, options: SimulatorOptions | Mapping[str, Any]) -> Environments:
    """Returns the sub-environments, their wrappers prepared, with the arguments of a ``GymnasiumSimulator``."""
    wrappers = Wrappers(horizon, ends=options["end_on_truncation"])
    try:
        envs = _open(env, wrappers, dict(options["env_kwargs"] or {}), options["num_envs"])
    except BaseException:
        wrappers.restore()
        raise
    envs.ends, envs.reseeds = wrappers.ends, options["reseed"]
    return envs


def _open(env: Any, wrappers: Wrappers, env_kwargs: Mapping[str, Any], num_envs: int | None) -> Environments:
    if isinstance(env, str):
        return _open_id(env, env_kwargs, num_envs, wrappers)
    if env_kwargs:
        raise ValueError(f"env_kwargs works only with an environment's id, got {checks.shown(env)}")
    refuse_others(env)
    if isinstance(env, VectorEnv):
        if (mode := env.metadata.get("autoreset_mode")) != AutoresetMode.DISABLED:
            raise ValueError(
                f"env must be a VectorEnv without autoreset, got autoreset_mode={mode!r}: make it with "
                "autoreset_mode=AutoresetMode.DISABLED, or give a function that makes one environment"
            )
        if isinstance(env, SyncVectorEnv):
            return SingleEnvironments(list(env.envs), None, env.num_envs, wrappers)
        return VectorEnvironments(env, None, env.num_envs, wrappers)
    if isinstance(env, gym.Env):
        return SingleEnvironments([env], None, 1, wrappers)
    if not callable(env):
        raise ValueError(
            f"env must be an id, a function that makes an environment, or an environment, got {checks.shown(env)}"
        )
    make = partial(make_environment, env)
    return SingleEnvironments([make()], make, num_envs or _MOST_SINGLE, wrappers)


def _open_id(env_id: str, env_kwargs: Mapping[str, Any], num_envs: int | None, wrappers: Wrappers) -> Environments:
    spec = find_spec(env_id)
    try:
        if spec.vector_entry_point is not None and not spec.max_episode_steps:
            most = num_envs or _MOST_VECTORISED

            def make_rows(rows: int) -> VectorEnv[Any, Any, Any]:
                return gym.make_vec(spec.id, rows, vectorization_mode="vector_entry_point", **env_kwargs)

            with suppress(TypeError):  # of arguments that only the single environment takes
                env = make_rows(min(most, 2))
                if env.metadata.get("autoreset_mode") == AutoresetMode.DISABLED:
                    return VectorEnvironments(env, make_rows, most, wrappers)
                env.close()
        options = {"disable_env_checker": True, **env_kwargs}  # each layer is a call more in every step
        if "max_episode_steps" not in env_kwargs and wrappers.lifts(spec.max_episode_steps):
            options["max_episode_steps"] = -1
        make = partial(gym.make, replace(spec, order_enforce=False), **options)
        return SingleEnvironments([make()], partial(make_environment, make), num_envs or _MOST_SINGLE, wrappers)
    except gym.error.DependencyNotInstalled as error:
        if "mujoco_py" in str(error):
            newest = env_id.removesuffix(str(spec.version)) + str(find_highest_version(spec.namespace, spec.name))
            raise ImportError(f"{env_id} needs mujoco-py, which is no longer maintained: use {newest}") from error
        line = 'pip install "rido[mujoco]"' if "mujoco" in str(error).lower() else error  # says what to install
        raise ImportError(f"{env_id} needs a package that is not installed: {line}") from error
    except TypeError as error:
        raise ValueError(f"env_kwargs must be arguments of {env_id}, got {dict(env_kwargs)!r}: {error}") from error
    except (ValueError, ImportError, OSError):
        raise
    except (Exception, SystemExit) as error:
        # An assertion may say nothing but its line.
        reason = f"{error!r:.300}" if str(error) else f"{error!r} at {extract_tb(error.__traceback__)[-1].line!r}"
        raise ValueError(f"env must be an environment that can be made, got {env_id!r}: {reason}") from error


def make_environment(make: Callable[[], Any]) -> gym.Env[Any, Any]:
    """Returns what a user's function makes, or raises if that is no environment."""
    try:
        env = make()
    except (ValueError, ImportError, OSError):
        raise
    except gym.error.UnregisteredEnv as error:
        raise ValueError(
            f"env must make a registered environment, got {error}: import the module that registers it inside the "
            "function, because workers do not run your script"
        ) from error
    except (Exception, SystemExit) as error:
        raise ValueError(f"env must make a gymnasium.Env when it is called, but it raised {error!r}") from error
    refuse_others(env)
    if not isinstance(env, gym.Env):
        raise ValueError(f"env must make a gymnasium.Env when it is called, got {checks.shown(env)}")
    return env


def refuse_others(env: Any) -> None:
    """Raises for kinds of environments that are known not to work, with what to do instead."""
    if isinstance(env, type):  # a function that makes one
        return
    name, modules = type(env).__name__, [base.__module__ for base in type(env).__mro__]
    for beginning, wrapper in _WRAPPERS.items():
        if any(module.startswith(beginning) for module in modules) and not isinstance(env, gym.Env):
            made = f"give a function that makes {wrapper}(env)"
            raise ValueError(f"env must be a Gymnasium environment, got {name} of {beginning.rstrip('.')}: {made}")
    if hasattr(env, "possible_agents") or any(module.startswith("pettingzoo.") for module in modules):
        raise ValueError(
            f"env must have one agent, got the multi-agent environment {name}, which is out of scope: wrap it as a "
            "gymnasium.Env of one agent that steps the others"
        )
    if any(module.startswith("stable_baselines3.common.vec_env.") for module in modules):
        raise ValueError(
            f"env must be a Gymnasium environment, got SB3's {name}: give a function that makes one environment; an "
            "agent brings the statistics of its VecNormalize along"
        )


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns the end of an error message: the known names that come close, if any."""
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def find_spec(env_id: str) -> gym.envs.registration.EnvSpec:
    """Returns Gymnasium's entry for an id, or raises with the ids that come close."""
    module, _, name = env_id.rpartition(":")
    if module:
        try:
            __import__(module)
        except ImportError as error:
            reason = missing_package(error)
            raise ValueError(f"env must name a module that can be imported, got {env_id!r}: {reason}") from error
    elif name not in gym.registry:
        import_package_of(name)
    try:
        spec = gym.spec(name)
    except gym.error.Error:
        versions = [one for one in gym.registry if one.rpartition("-v")[0] == name.rpartition("-v")[0] != ""]
        found = [*versions[-1:], *(f"{one}:{name}" for one in ([] if module else packages_that_register(name)))]
        hint = f"; did you mean {' or '.join(found)}?" if found else did_you_mean(name, gym.registry)
        if not module and not found and ("/" in name or not hint):
            hint += f"; where another package registers it, name that first, as in {'package:' + name!r}"
        raise ValueError(f"env must be a registered environment, got {env_id!r}{hint}") from None
    assert spec is not None
    return spec
