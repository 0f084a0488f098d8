"""What a user may give as a policy, and how it becomes a :class:`~rido.policies.base.Policy`."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rido.core.extras import missing_package
from rido.policies import sb3
from rido.policies.base import Policy
from rido.policies.functions import FunctionPolicy, RandomPolicy
from rido.policies.npz import MlpPolicy

if TYPE_CHECKING:
    import gymnasium as gym

_SHIPPED = Path(__file__).parent / "shipped"
_PREFIX = "rido:"  # of the names of shipped agents


def resolve_policy(
    policy: Any,
    *,
    observation_space: gym.Space[Any],
    action_space: gym.Space[Any],
    deterministic: bool = True,
    trust: bool = True,
) -> Policy:
    """Make a :class:`Policy` of what a user gave.

    Args:
        policy: One of

            * a callable on batches of observations, called as ``policy(observations)``, or as
              ``policy(observations, generators=...)`` if it has a parameter of that name. It gets blocks of ``BLOCK``
              rows, or the whole batch if its attribute ``rowwise`` is True, which says that it computes each row by
              itself (no matrix products);
            * "random", which samples the action space;
            * "rido:pendulum" and so on, an agent that comes with rido (see :func:`shipped_agents`);
            * "module:attribute", any of the others found in a module;
            * a Stable-Baselines3 or sb3-contrib model;
            * the path of such a model's zip; a ``vecnormalize.pkl`` beside it is used too;
            * the path of an ``.npz`` that :class:`rido.policies.npz.MlpPolicy` wrote; it cannot run code.
        observation_space: Observation space of one environment.
        action_space: Action space of one environment.
        deterministic: Whether an agent takes its most likely action or samples one, as in SB3's ``predict``.
        trust: Whether the files of a zip may run code. See :func:`rido.policies.sb3.load_agent`.

    Returns:
        The policy.
    """
    if isinstance(policy, Policy):
        return policy
    if isinstance(policy, str) and policy == "random":
        return RandomPolicy(action_space)
    if isinstance(policy, str) and policy.startswith(_PREFIX):
        agent = MlpPolicy.load(shipped_agent(policy), deterministic=deterministic, name=policy)
        return agent.fits(observation_space, action_space)
    if is_path(policy):
        if str(policy).endswith(".npz"):
            return MlpPolicy.load(policy, deterministic=deterministic).fits(observation_space, action_space)
        return sb3.load_agent(policy, observation_space, action_space, deterministic=deterministic, trust=trust)
    if isinstance(policy, str) and ":" in policy:
        return resolve_policy(
            import_attribute("policy", policy),
            observation_space=observation_space,
            action_space=action_space,
            deterministic=deterministic,
            trust=trust,
        )
    if sb3.is_model(policy) or sb3.is_network(policy):
        return sb3.AgentPolicy(policy, observation_space, action_space, deterministic=deterministic)
    if callable(policy) and not inspect.isclass(policy):
        return FunctionPolicy(policy, action_space)
    raise ValueError(
        "policy must be a callable, 'random', 'module:attribute', an SB3 model or the path of its zip or of an npz, "
        f"or one of {', '.join(shipped_agents())}, got {policy!r}"
    )


def shipped_agents() -> tuple[str, ...]:
    """The names of the agents that come with rido, which are policies wherever a policy is taken."""
    return tuple(f"{_PREFIX}{path.stem}" for path in sorted(_SHIPPED.glob("*.npz")))


def shipped_agent(name: str) -> Path:
    """The file of an agent that comes with rido.

    Example:
        >>> shipped_agent("rido:pendulum").name
        'pendulum.npz'
    """
    if name not in shipped_agents():
        raise ValueError(f"policy must be one of {', '.join(shipped_agents())}, got {name!r}")
    return _SHIPPED / f"{name.removeprefix(_PREFIX)}.npz"


def is_path(policy: Any) -> bool:
    """Whether a policy is given by the path of its file, with or without the suffix ``.zip``."""
    if not isinstance(policy, str):
        return isinstance(policy, Path)
    if policy == "random" or policy.startswith(_PREFIX):
        return False
    return policy.endswith((".zip", ".npz")) or Path(policy).is_file() or Path(f"{policy}.zip").is_file()


def import_attribute(name: str, reference: str) -> Any:
    """Import what "module:attribute" refers to; errors name the argument ``name``."""
    module, _, attribute = reference.partition(":")
    try:
        found = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"{name} must be an importable 'module:attribute', got {reference!r}: {missing_package(error)}"
        ) from error
    if isinstance(found, str):
        raise ValueError(f"{name} {reference!r} must not be a string, got {found!r}")
    return found
