"""Export of Stable-Baselines3 agents as plain arrays, in files that need neither torch nor trust."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rido.policies.networks import Normalizer
from rido.policies.npz import MlpPolicy
from rido.policies.sb3 import normalizer, reward_scale


def export(model: Any, about: Mapping[str, Any] | None = None) -> MlpPolicy:
    """Makes plain arrays of a PPO, A2C or TRPO agent.

    Args:
        model: A Stable-Baselines3 or sb3-contrib model, with its VecNormalize if it was trained with one. Observations
            are vectors, layers are linear with tanh between them, and actions are discrete, or vectors that are normal
            and not squashed.
        about: Origin of the agent, stored in the file; anything that JSON can hold.

    Returns:
        The agent; its ``save`` writes the file.
    """
    policy, vecnormalize = model.policy, model.get_vec_normalize_env()
    match type(getattr(policy, "action_dist", None)).__name__:
        case "CategoricalDistribution":
            actions = {"choices": policy.action_space.n}
        case "DiagGaussianDistribution":
            actions = {"low": policy.action_space.low, "high": policy.action_space.high}
            actions["log_std"] = policy.log_std.detach().cpu().numpy()
        case _:
            raise ValueError(
                f"model must be a PPO, A2C or TRPO agent with discrete or normal actions, got {type(model).__name__}"
            )
    shape = policy.observation_space.shape
    normalize = normalizer(vecnormalize) or Normalizer(np.zeros(shape), np.ones(shape), np.inf)
    arrays = {
        **_layers("actor", [*policy.mlp_extractor.policy_net, policy.action_net]),
        **_layers("critic", [*policy.mlp_extractor.value_net, policy.value_net], reward_scale(vecnormalize)),
        **actions,
        "mean": normalize.mean,
        "deviation": normalize.deviation,
        "limit": normalize.limit,
    }
    plain: dict[str, NDArray[Any]] = {key: np.array(array, np.float32) for key, array in arrays.items()}
    return MlpPolicy({**plain, "gamma": np.array(model.gamma), "about": np.array(json.dumps(dict(about or {})))})


def _layers(part: str, modules: list[Any], scale: float = 1.0) -> dict[str, NDArray[Any]]:
    """Arrays of torch modules; those of the last layer are multiplied by ``scale``."""
    kinds = [type(module).__name__ for module in modules]
    if set(kinds[::2]) != {"Linear"} or set(kinds[1::2]) - {"Tanh"}:
        raise ValueError(f"model must have linear layers with tanh between them, got {', '.join(kinds)}")
    arrays: dict[str, NDArray[Any]] = {}
    for number, module in enumerate(modules[::2]):
        factor = scale if module is modules[-1] else 1.0
        arrays[f"{part}.{number}.weight"] = module.weight.detach().cpu().numpy().T * factor
        arrays[f"{part}.{number}.bias"] = module.bias.detach().cpu().numpy() * factor
    return arrays
