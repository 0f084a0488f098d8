"""Environments as pure JAX functions: the paper's domains, Pendulum, and adapters for gymnax, Brax and MJX."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp

from rido.core import checks
from rido.policies.resolve import import_attribute
from rido.simulators.factory import environment_kind

Key = Any
Tree = Any
Step = tuple[Tree, Tree, jax.Array, jax.Array]


@dataclass(frozen=True)
class JaxEnv:
    """One environment as pure functions; the simulator runs many side by side.

    Compiled programs are reused as long as the environment and the policy are the same objects.

    Attributes:
        name: of the environment in results.
        reset: from a key to the first state and observation.
        step: from a key, a state and an action to the next state, its observation, the reward, and whether it
            terminated. Results after the termination are ignored.
        time_limit: the longest trajectory that it allows; None if any.
        policy: from a discount factor to the default policy; None if there is none.
        reset_from: as ``reset``, from an array of at least 64 uniform numbers in [0, 1) instead of a key, so that
            points can decide where trajectories start; None if they cannot.
    """

    name: str
    reset: Callable[[Key], tuple[Tree, Tree]]
    step: Callable[[Key, Tree, Tree], Step]
    time_limit: int | None = None
    policy: Callable[[float], Callable[..., Any]] | None = None
    reset_from: Callable[[jax.Array], tuple[Tree, Tree]] | None = None

    def __post_init__(self) -> None:
        checks.instance("name", self.name, str)
        for name in ("reset", "step", "policy", "reset_from"):
            if (given := getattr(self, name)) is not None or name in ("reset", "step"):
                checks.function(name, given)
        if self.time_limit is not None:
            checks.integer("time_limit", self.time_limit, least=1)


@checks.checked()
@functools.cache
def lqg(noise: Literal["variance", "deviation"] = "variance") -> JaxEnv:
    """Returns the paper's LQG, as ``rido/LQG-v0``; ``noise`` says how to read its N(0, 0.1)."""
    deviation = _deviation(0.1, noise)

    def reset_from(uniforms: jax.Array) -> tuple[jax.Array, jax.Array]:
        state = 160.0 * uniforms[:1] - 80.0
        return state, state

    def step(key: Key, state: jax.Array, action: jax.Array) -> Step:
        controller, system = deviation * jax.random.normal(key, (2, 1))
        control = action + controller
        moved = state + control + system
        return moved, moved, (state**2 + control**2)[0], jnp.bool_(False)

    @functools.cache
    def policy(gamma: float) -> Callable[[jax.Array], jax.Array]:
        from rido.simulators.envs.lqg import LinearPolicy, riccati_gain

        linear: Any = LinearPolicy(riccati_gain(gamma))  # works on JAX arrays too
        return linear  # type: ignore[no-any-return]

    return JaxEnv("LQG in JAX", _drawn(reset_from, 1), step, policy=policy, reset_from=reset_from)


@checks.checked()
@functools.cache
def navigation(noise: Literal["variance", "deviation"] = "variance") -> JaxEnv:
    """Returns the paper's navigation, as ``rido/Navigation-v0``; ``noise`` says how to read its N(a, 0.1)."""
    deviation = _deviation(0.1, noise)

    def reset_from(uniforms: jax.Array) -> tuple[jax.Array, jax.Array]:
        state = 5.0 * uniforms[:2]
        return state, state

    def step(key: Key, state: jax.Array, action: jax.Array) -> Step:
        draws = jax.random.normal(key, (3,))
        moved = jnp.clip(state + jnp.clip(action, -1.0, 1.0) + deviation * draws[:2], 0.0, 92.0)
        at_goal = jnp.sum((moved - 91.0) ** 2) <= 1.0
        return moved, moved, jnp.where(at_goal, 1.0 + draws[2], 0.0), jnp.bool_(False)

    reset = _drawn(reset_from, 2)
    return JaxEnv("Navigation in JAX", reset, step, policy=lambda gamma: navigation_expert, reset_from=reset_from)


def navigation_expert(observation: jax.Array) -> jax.Array:
    """Returns the action of the paper's hand-coded policy: towards the goal's centre."""
    observation = observation if isinstance(observation, jax.Array) else checks.numbers("observation", observation)
    return jnp.clip(91.0 - observation, -1.0, 1.0)


@functools.cache
def pendulum() -> JaxEnv:
    """Returns Gymnasium's Pendulum-v1, without its time limit."""

    def observe(state: tuple[jax.Array, jax.Array]) -> jax.Array:
        angle, speed = state
        return jnp.stack([jnp.cos(angle), jnp.sin(angle), speed])

    def reset_from(uniforms: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        draws = 2.0 * uniforms - 1.0
        state = (jnp.pi * draws[0], draws[1])
        return state, observe(state)

    def step(key: Key, state: tuple[jax.Array, jax.Array], action: jax.Array) -> Step:
        angle, speed = state
        torque = jnp.clip(action[0], -2.0, 2.0)
        upright = (angle + jnp.pi) % (2 * jnp.pi) - jnp.pi
        reward = -(upright**2 + 0.1 * speed**2 + 0.001 * torque**2)
        speed = jnp.clip(speed + (15.0 * jnp.sin(angle) + 3.0 * torque) * 0.05, -8.0, 8.0)
        moved = (angle + 0.05 * speed, speed)
        return moved, observe(moved), reward, jnp.bool_(False)

    return JaxEnv("Pendulum in JAX", _drawn(reset_from, 2), step, reset_from=reset_from)


def from_gymnax(env: Any, params: Any = None) -> JaxEnv:
    """Adapts a gymnax environment.

    Args:
        env: the environment that ``gymnax.make`` returned.
        params: its parameters; its defaults if not given. ``max_steps_in_episode`` (Craftax: ``max_timesteps``) is
            the time limit: raise it for longer trajectories.
    """
    if isinstance(env, tuple) or environment_kind(env) != "gymnax":
        raise ValueError(f"env must be what gymnax.make() returned, got {checks.shown(env)}")
    params = env.default_params if params is None else params
    if not hasattr(params, "replace"):
        raise ValueError(f"params must be parameters of {type(env).__name__}, got {checks.shown(params)}")
    limit = None
    for name in ("max_steps_in_episode", "max_timesteps"):
        if hasattr(params, name):
            limit = int(getattr(params, name))
            # gymnax reports its time limit as a termination, so move it out of reach.
            params = params.replace(**{name: 2 * limit + 2})

    def reset(key: Key) -> tuple[Tree, Tree]:
        observation, state = env.reset_env(key, params)
        return state, observation

    def step(key: Key, state: Tree, action: Tree) -> Step:
        # The raw step: gymnax's own would reset the environment when it ends.
        observation, state, reward, terminated, _ = env.step_env(key, state, action, params)
        return state, observation, reward, terminated

    return JaxEnv(env.name, reset, step, limit)


def from_brax(env: Any) -> JaxEnv:
    """Adapts a Brax environment of any backend, or one of MJX with the same interface.

    Args:
        env: from ``brax.envs.get_environment`` or ``mujoco_playground.registry.load``, not wrapped for training.
    """

    def reset(key: Key) -> tuple[Tree, Tree]:
        state = env.reset(key)
        return state, state.obs

    def step(key: Key, state: Tree, action: Tree) -> Step:
        state = env.step(state, action)
        return state, state.obs, state.reward, state.done > 0

    return JaxEnv(type(env).__name__, reset, step)


_BUILT_IN: dict[str, Callable[..., JaxEnv]] = {
    "rido/LQG-v0": lqg,
    "rido/Navigation-v0": navigation,
    "Pendulum-v1": pendulum,
}


@checks.checked()
def adapt(env: Any, env_kwargs: Mapping[str, Any] | None = None) -> JaxEnv:
    """Returns any environment in JAX as a :class:`JaxEnv`.

    Args:
        env: a :class:`JaxEnv`, a gymnax environment, an unwrapped Brax or MJX environment, the id of a built-in one
            ("rido/LQG-v0", "rido/Navigation-v0", "Pendulum-v1"), or "module:attribute" for any of the others.
        env_kwargs: arguments, with the id of a built-in environment.
    """
    if isinstance(env, str) and env in _BUILT_IN:
        try:
            return _BUILT_IN[env](**(env_kwargs or {}))
        except TypeError as error:
            raise ValueError(
                f"env_kwargs must be arguments of {env}, got {dict(env_kwargs or {})!r}: {error}"
            ) from error
    if env_kwargs:
        raise ValueError(f"env_kwargs works only with the id of a built-in environment, not {checks.shown(env)}")
    if isinstance(env, str) and ":" in env:
        return adapt(import_attribute("env", env))
    if isinstance(env, JaxEnv):
        return env
    if isinstance(env, tuple) and len(env) == 2 and environment_kind(env[0]) == "gymnax":  # what gymnax.make() returns
        return from_gymnax(*env)
    if (kind := environment_kind(env)) in ("gymnax", "brax"):
        return _adapted(from_gymnax if kind == "gymnax" else from_brax, env)
    raise ValueError(
        f"env must be a JaxEnv, a gymnax or Brax environment, or one of {', '.join(_BUILT_IN)}, got {checks.shown(env)}"
    )


@functools.lru_cache(maxsize=16)
def _adapted(how: Callable[[Any], JaxEnv], env: Any) -> JaxEnv:
    return how(env)


def _drawn(reset_from: Callable[[jax.Array], tuple[Tree, Tree]], size: int) -> Callable[[Key], tuple[Tree, Tree]]:
    """Returns a reset that draws the uniform numbers of another one from a key."""
    return lambda key: reset_from(jax.random.uniform(key, (size,)))


def _deviation(parameter: float, noise: str) -> float:
    return float(parameter**0.5) if noise == "variance" else parameter
