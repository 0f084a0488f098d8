"""What a user may give as a policy, and how it becomes a :class:`~rido.policies.base.Policy`."""

import importlib
import inspect
from pathlib import Path
from typing import Any

from rido.core import checks
from rido.core.extras import missing_package
from rido.policies import hub, sb3
from rido.policies.base import Policy, Space
from rido.policies.functions import FunctionPolicy, PredictPolicy, RandomPolicy, takes_batches
from rido.policies.loaders import LOADERS, is_agent_file, load
from rido.policies.modules import ModulePolicy
from rido.policies.npz import MlpPolicy
from rido.policies.recurrent import RecurrentFunctionPolicy, is_recurrent
from rido.policies.tensors import is_module
from rido.policies.untrusted import UntrustedFileError

_SHIPPED = Path(__file__).parent / "shipped"
_PREFIX = "rido:"  # of the names of shipped agents
_PREFIXES = (_PREFIX, hub.PREFIX)


def resolve_policy(
    policy: Any, *, observation_space: Space, action_space: Space, deterministic: bool = True, trust: bool = False
) -> Policy:
    """Makes a :class:`Policy` of what a user gave.

    Args:
        policy: One of

            * a callable on one observation, with a parameter ``generator`` if it draws. If it has a method ``reset``,
              that is called where a trajectory begins;
            * a callable on batches of observations, which fails on one observation, or says that it takes batches: by
              :func:`rido.batched`, a parameter ``generators``, or an attribute ``rowwise``. It is called as
              ``policy(observations)`` or ``policy(observations, generators=...)``, on blocks of ``BLOCK`` rows, or on
              the whole batch if ``rowwise`` is True, which says that it computes each row by itself (no matrix
              products);
            * a callable with parameters ``state`` and ``episode_start``, which is recurrent
              (see :class:`rido.policies.recurrent.RecurrentFunction`);
            * a ``torch.nn.Module`` (see :class:`rido.policies.modules.ModulePolicy`), recurrent if its ``forward`` is;
            * an object with ``predict(observation)``, or SB3's ``predict(observation, state, episode_start,
              deterministic)``, which returns an action and a state; it is called as a callable on one observation is;
            * "random", which samples the action space;
            * "rido:pendulum" and so on, an agent that comes with rido (see :func:`shipped_agents`);
            * "module:attribute", any of the others found in a module;
            * a Stable-Baselines3 or sb3-contrib model;
            * the path of an agent's file: such a model's ``.zip``, with the ``vecnormalize.pkl`` beside it; an ``.npz``
              that :class:`rido.policies.npz.MlpPolicy` wrote; an ``.onnx`` file, see
              :class:`rido.policies.onnx.OnnxPolicy`. Only a zip can run code;
            * "hf:org/name", such a file on the Hugging Face hub (see :func:`rido.policies.hub.pinned`), which may not
              run code.
        observation_space: Observation space of one environment.
        action_space: Action space of one environment.
        deterministic: Whether an agent takes its most likely action or samples one, as in SB3's ``predict``.
        trust: Whether the files of a zip may run code. See :func:`rido.policies.sb3_zip.load_agent`.

    Returns:
        The policy.
    """
    if isinstance(policy, str) and ":" in policy and not (policy.startswith(_PREFIXES) or is_path(policy)):
        policy = import_attribute("policy", policy)
    if isinstance(policy, Policy):
        return policy
    if getattr(action_space, "shape", ()) is None:
        raise ValueError(
            f"env must have actions that are one array or number, got {action_space}: flatten them with "
            "gymnasium.wrappers.TransformAction and gymnasium.spaces.unflatten"
        )
    spaces = observation_space, action_space
    if isinstance(policy, str) and policy == "random":
        return RandomPolicy(action_space)
    if isinstance(policy, str) and policy.startswith(_PREFIX):
        return MlpPolicy.load(shipped_agent(policy), deterministic=deterministic, name=policy).fits(*spaces)
    if isinstance(policy := hub.pinned(policy), hub.HubAgent):
        return _from_hub(policy, *spaces, deterministic)
    if is_path(policy):
        return load(policy, *spaces, deterministic=deterministic, trust=trust)
    if inspect.ismethod(policy) and policy.__name__ == "predict":
        policy = policy.__self__
    if sb3.is_model(policy) or sb3.is_network(policy):
        return sb3.agent_policy(policy, *spaces, deterministic=deterministic)
    if not inspect.isclass(policy):
        if callable(policy) and is_recurrent(policy):
            return RecurrentFunctionPolicy(policy, *spaces, deterministic=deterministic)
        if is_module(policy):
            return ModulePolicy(policy, *spaces, deterministic=deterministic)
        if callable(policy):
            return FunctionPolicy(policy, action_space)
        if callable(getattr(policy, "predict", None)):
            if is_recurrent(policy.predict) and takes_batches(policy.predict):
                return RecurrentFunctionPolicy(policy.predict, *spaces)
            return PredictPolicy(policy, action_space, deterministic=deterministic)
    raise ValueError(
        "policy must be a callable, 'random', 'module:attribute', a torch module, an object with predict(), an SB3 "
        f"model, the path of an agent's file ({', '.join(LOADERS)}), 'hf:org/name', or one of "
        f"{', '.join(shipped_agents())}, got {checks.shown(policy)}"
    )


def _from_hub(agent: hub.HubAgent, observation_space: Space, action_space: Space, deterministic: bool) -> Policy:
    """The policy of an agent on the hub, which may not run code: anybody may have put it there."""
    try:
        policy = load(agent.path, observation_space, action_space, deterministic=deterministic, trust=False)
    except UntrustedFileError as error:
        raise UntrustedFileError(f"{error}, and give the path instead of {agent.name}") from error
    except (ValueError, OSError) as error:
        raise ValueError(f"{agent.name} must be an agent: {error}") from error
    policy.name, policy.remarks = agent.name, agent.remarks
    return policy


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
    """Whether a policy is given by the path of its file."""
    if not isinstance(policy, str):
        return isinstance(policy, Path)
    if policy == "random" or policy.startswith(_PREFIXES):
        return False
    return is_agent_file(policy)


def import_attribute(name: str, reference: str) -> Any:
    """Imports what "module:attribute" refers to; errors name the argument ``name``."""
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
