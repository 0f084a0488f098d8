"""Value functions of Stable-Baselines3 and sb3-contrib agents, in numpy where their networks are small, else in torch.

V(s) of PPO, A2C and TRPO. Off-policy agents have Q(s, a), which gives V(s) at the action that the agent takes without
exploration: the mean over the critics of SAC, TD3 and DDPG, and over critics and quantiles of TQC; the largest Q of
DQN. The critics' minimum, which training uses against overestimation, would be too low.

Where SAC, TQC and DQN draw their actions, Q also gives the advantage of an action over the others that could have been
drawn.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rido.policies.networks import Floats, Network, convert, numpy_actor, probe

_DRAWN = 8  # actions whose mean Q an action of SAC or TQC is compared with: they leave 1/8 of the variance of Q
_KINDS = ("ActorCriticPolicy", "DQNPolicy", "SACPolicy", "TD3Policy", "TQCPolicy")  # base classes with a value function


def value_kind(policy: Any) -> str:
    """The class of SB3 or sb3-contrib that tells where a policy has its value function; empty if it has none."""
    return next((base.__name__ for base in type(policy).__mro__ if base.__name__ in _KINDS), "")


def torch_values(policy: Any, observations: Any) -> NDArray[Any]:
    """Computes values in torch, of observations as the policy's networks expect them."""
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
            q = policy.critic(tensor, policy.actor(tensor, **options))
            values = q.mean(dim=(1, 2)) if kind == "TQCPolicy" else torch.cat(q, dim=1).mean(dim=1)
        array: NDArray[Any] = values.cpu().numpy()
        return array


def numpy_values(policy: Any) -> Callable[[NDArray[Any]], Floats] | None:
    """The value function in numpy, or None where a network of it is not a multilayer perceptron.

    It maps observations as the networks expect them to one value per row, whose bits do not depend on the other rows.
    It is compared with :func:`torch_values` before it is used.
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
    """Converts the networks; a NotImplementedError says that one is not of a known kind."""
    if type(policy).__name__ == "ActorCriticPolicy":
        parts = [policy.vf_features_extractor, policy.mlp_extractor.value_net, policy.value_net]
        value = convert(policy.observation_space, *parts)
        return lambda observations: value(observations)[:, 0]
    if type(policy).__name__ == "DQNPolicy":
        q_values = _q_values(policy)
        return lambda observations: q_values(observations).max(axis=1)
    actor, q_value = numpy_actor(policy, deterministic=True), _q_value(policy)
    if actor is None:
        raise NotImplementedError
    return lambda observations: q_value(observations, actor(observations, ()))


def numpy_advantages(policy: Any, exploration_rate: float) -> Callable[..., Floats] | None:
    """Q(s, a) less its mean over the actions that the policy draws, in numpy; None where it draws none or has no Q.

    The mean is exact for DQN. For SAC and TQC it comes from other actions, drawn with the generator that is given.
    The function takes observations as the networks expect them, actions as the environment gets them and a generator.
    """
    kind = type(policy).__name__
    if kind == "DQNPolicy" and exploration_rate > 0:
        q_values = _q_values(policy)

        def of_choices(observations: NDArray[Any], actions: NDArray[Any], generator: Any) -> Floats:
            q = q_values(observations)
            mean = (1 - exploration_rate) * q.max(axis=1) + exploration_rate * q.mean(axis=1)
            advantages: Floats = q[np.arange(len(q)), actions.astype(np.int64)] - mean
            return advantages

        return of_choices
    actor = numpy_actor(policy, deterministic=False) if kind in ("SACPolicy", "TQCPolicy") else None
    if actor is None:
        return None
    q_value = _q_value(policy)

    def of_samples(observations: NDArray[Any], actions: NDArray[Any], generator: Any) -> Floats:
        drawn = (actor(observations, [generator] * len(observations)) for _ in range(_DRAWN))
        mean: Floats = np.mean([q_value(observations, other) for other in drawn], axis=0)
        return q_value(observations, actions) - mean

    return of_samples


def _q_values(policy: Any) -> Network:
    """Q(s, a) of all choices, by DQN's network."""
    return convert(policy.observation_space, policy.q_net.features_extractor, policy.q_net.q_net)


def _q_value(policy: Any) -> Callable[[NDArray[Any], NDArray[Any]], Floats]:
    """Q(s, a) by the mean of an actor's critics, for actions as the environment gets them."""
    inputs = int(np.prod(policy.action_space.shape))
    critics = [
        convert(policy.observation_space, policy.critic.features_extractor, network, further_inputs=inputs)
        for network in policy.critic.q_networks
    ]

    def q_value(observations: NDArray[Any], actions: NDArray[Any]) -> Floats:
        flat = (batch.reshape(len(batch), -1) for batch in (observations, policy.scale_action(actions)))
        rows = np.concatenate([*flat], axis=1)
        mean: Floats = np.concatenate([critic(rows) for critic in critics], axis=1).mean(axis=1)
        return mean

    return q_value
