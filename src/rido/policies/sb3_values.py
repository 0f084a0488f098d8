"""Value functions of Stable-Baselines3 and sb3-contrib agents, in numpy where their networks are small, else in torch.

V(s) of PPO, A2C and TRPO. Off-policy agents have Q(s, a), which gives V(s) at the action that the agent takes without
exploration: the mean over the critics of SAC, TD3 and DDPG, and over critics and quantiles of TQC; the largest Q of
DQN. The critics' minimum, which training uses against overestimation, would be too low.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rido.policies.networks import Floats, convert, numpy_actor, probe

_KINDS = ("ActorCriticPolicy", "DQNPolicy", "SACPolicy", "TD3Policy", "TQCPolicy")  # base classes with a value function


def value_kind(policy: Any) -> str:
    """The class of SB3 or sb3-contrib that tells where a policy has its value function; empty if it has none."""
    return next((base.__name__ for base in type(policy).__mro__ if base.__name__ in _KINDS), "")


def torch_values(policy: Any, observations: Any) -> NDArray[Any]:
    """Compute values in torch.

    Args:
        policy: A policy that has a value function.
        observations: Observations as the policy's networks expect them.
    """
    import torch

    kind = value_kind(policy)
    with torch.no_grad():
        tensor, _ = policy.obs_to_tensor(observations)
        if kind == "ActorCriticPolicy":
            values = policy.predict_values(tensor)[:, 0]
        elif kind == "DQNPolicy":
            values = policy.q_net(tensor).amax(dim=1)
        else:  # critics take actions as the actor gives them, in [-1, 1]
            options = {} if kind == "TD3Policy" else {"deterministic": True}
            judged = policy.critic(tensor, policy.actor(tensor, **options))
            values = judged.mean(dim=(1, 2)) if kind == "TQCPolicy" else torch.cat(judged, dim=1).mean(dim=1)
        array: NDArray[Any] = values.cpu().numpy()
        return array


def numpy_values(policy: Any) -> Callable[[NDArray[Any]], Floats] | None:
    """The value function in numpy, or None where a network of it is not a multilayer perceptron.

    It maps observations as the networks expect them to one value per row, whose bits do not depend on the other rows.
    It is compared with :func:`torch_values` before it is used.

    Args:
        policy: A policy that has a value function.
    """
    if type(policy).__name__ != value_kind(policy):  # a class of the user may do anything
        return None
    try:
        values = _convert(policy)
    except NotImplementedError:
        return None
    observations = probe(policy.observation_space)
    expected = torch_values(policy, observations)
    return values if np.allclose(values(observations), expected, rtol=1e-4, atol=1e-4) else None


def _convert(policy: Any) -> Callable[[NDArray[Any]], Floats]:
    """Convert the networks; a NotImplementedError says that one is not of a known kind."""
    match type(policy).__name__:
        case "ActorCriticPolicy":
            parts = [policy.vf_features_extractor, policy.mlp_extractor.value_net, policy.value_net]
        case "DQNPolicy":
            parts = [policy.q_net.features_extractor, policy.q_net.q_net]
        case _:
            return _judged_actions(policy)
    network = convert(policy.observation_space, *parts)
    return lambda observations: network(_rows(observations)).max(axis=1)


def _judged_actions(policy: Any) -> Callable[[NDArray[Any]], Floats]:
    """Q(s, a) at the actor's own action."""
    actor, critic = numpy_actor(policy, deterministic=True), policy.critic
    if actor is None:
        raise NotImplementedError
    actions = int(np.prod(policy.action_space.shape))
    critics = [
        convert(policy.observation_space, critic.features_extractor, network, further_inputs=actions)
        for network in critic.q_networks
    ]

    def values(observations: NDArray[Any]) -> Floats:
        scaled = policy.scale_action(actor(observations, ()))
        rows = np.concatenate([_rows(observations), _rows(scaled)], axis=1)
        judged: Floats = np.concatenate([critic(rows) for critic in critics], axis=1).mean(axis=1)
        return judged

    return values


def _rows(batch: NDArray[Any]) -> Floats:
    return batch.reshape(len(batch), -1).astype(np.float32, copy=False)
