"""The acting and judging parts of small networks in numpy, and how those of SB3 get there.

For a few rows most of the time of SB3's ``predict`` is overhead; the arithmetic itself takes microseconds. Sampled
actions draw from the generators of their rows, which torch's global generator cannot do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rido.policies.base import Generators, draw

Floats = NDArray[np.float32]
Head = Callable[[Floats, Generators], NDArray[Any]]

_TILE = 4
_LOG_STD_RANGE = (-20.0, 2.0)  # of SAC and TQC


@dataclass(frozen=True)
class Network:
    """Layers whose rows come out with the same bits whatever stands beside them.

    A product of many rows at once may use different kernels for different rows; one of ``tile`` rows uses one. The
    batch is cut into tiles, and all tiles go through one call of ``matmul``.

    Attributes:
        layers: Functions on arrays of shape (tiles, tile, features).
        tile: Rows per matrix product.
    """

    layers: tuple[Callable[[Floats], Floats], ...]
    tile: int = _TILE

    def __call__(self, rows: Floats) -> Floats:
        """Outputs for a batch of rows."""
        count, features = rows.shape
        tiles = -(-count // self.tile)
        values = np.zeros((tiles, self.tile, features), dtype=np.float32)
        values.reshape(-1, features)[:count] = rows
        for layer in self.layers:
            values = layer(values)
        return values.reshape(tiles * self.tile, -1)[:count]

    def steady(self, features: int) -> Network:
        """This network if rows are indeed independent of their position on this machine, else with tiles of 1."""
        rows = np.random.default_rng(0).standard_normal((4 * self.tile, features), dtype=np.float32)
        alone = np.concatenate([self(row[np.newaxis]) for row in rows])
        return self if np.array_equal(self(rows), alone) else Network(self.layers, tile=1)


@dataclass(frozen=True)
class Actor:
    """A network and what turns its outputs into actions.

    Attributes:
        network: Maps observations to outputs.
        head: Maps outputs and generators to actions.
    """

    network: Network
    head: Head

    def __call__(self, observations: NDArray[Any], generators: Generators) -> NDArray[Any]:
        """Actions for a batch of normalised observations."""
        rows = observations.reshape(len(observations), -1).astype(np.float32, copy=False)
        return self.head(self.network(rows), generators)


def numpy_actor(model: Any, *, deterministic: bool) -> Actor | None:
    """The actor of an SB3 model in numpy, or None where the model is not of a known kind.

    Known are the multilayer perceptrons of PPO, A2C, TRPO, SAC, TQC, TD3, DDPG, DQN and QRDQN. The actor is compared
    with the model's own ``predict`` before it is used.

    Args:
        model: A Stable-Baselines3 or sb3-contrib model, or its policy.
        deterministic: Whether to take the most likely action, or to sample.
    """
    from gymnasium import spaces
    from stable_baselines3.common.preprocessing import is_image_space

    space = model.observation_space
    if not isinstance(space, spaces.Box) or is_image_space(space):
        return None
    actor = _build(model, deterministic=True)
    if actor is None or not _agrees(actor, model):
        return None
    return actor if deterministic else _build(model, deterministic=False)


def value_network(model: Any) -> Network | None:
    """The value function of PPO, A2C and TRPO in numpy, or None where it is not a multilayer perceptron.

    It maps normalised, flattened observations to one value per row, and is compared with the model's own
    ``predict_values`` before it is used.

    Args:
        model: A Stable-Baselines3 or sb3-contrib model, or its policy.
    """
    import torch
    from gymnasium import spaces
    from stable_baselines3.common.preprocessing import is_image_space

    policy = getattr(model, "policy", model)
    space = policy.observation_space
    if type(policy).__name__ != "ActorCriticPolicy" or not isinstance(space, spaces.Box) or is_image_space(space):
        return None
    if type(policy.vf_features_extractor).__name__ != "FlattenExtractor":
        return None
    layers = _layers([policy.mlp_extractor.value_net, policy.value_net])
    if layers is None:
        return None
    network = Network(layers).steady(int(np.prod(space.shape)))
    observations = np.random.default_rng(0).standard_normal((16, *space.shape), dtype=np.float32)
    with torch.no_grad():
        expected = policy.predict_values(policy.obs_to_tensor(observations)[0]).cpu().numpy()
    found = network(observations.reshape(16, -1))
    return network if np.allclose(found, expected, rtol=1e-4, atol=1e-4) else None


def _agrees(actor: Actor, model: Any) -> bool:
    shape = (16, *model.observation_space.shape)
    observations = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    expected, _ = model.predict(observations, deterministic=True)
    return np.allclose(actor(observations, ()), expected, rtol=1e-5, atol=1e-5)


def _build(model: Any, *, deterministic: bool) -> Actor | None:
    policy = getattr(model, "policy", model)
    kind = type(policy)
    if kind.__module__.partition(".")[0] not in ("stable_baselines3", "sb3_contrib"):
        return None
    match kind.__name__:
        case "ActorCriticPolicy":
            extractor = policy.pi_features_extractor
            modules = [policy.mlp_extractor.policy_net, policy.action_net]
            head = _distribution_head(policy, deterministic)
        case "SACPolicy" | "TQCPolicy":
            extractor = policy.actor.features_extractor
            modules = [policy.actor.latent_pi, policy.actor.mu]
            if not deterministic:
                modules[1:] = [(policy.actor.mu, policy.actor.log_std)]
            head = None if policy.actor.use_sde and not deterministic else _squashed_head(policy, deterministic)
        case "TD3Policy":
            extractor = policy.actor.features_extractor
            modules = [policy.actor.mu]
            head = _box_head(policy, lambda outputs, _: outputs)
        case "DQNPolicy":
            extractor = policy.q_net.features_extractor
            modules = [policy.q_net.q_net]
            head = _greedy_head(model, deterministic)
        case "QRDQNPolicy":
            extractor = policy.quantile_net.features_extractor
            modules = [policy.quantile_net.quantile_net]
            head = _greedy_head(model, deterministic, quantiles=policy.quantile_net.n_quantiles)
        case _:
            return None
    if head is None or type(extractor).__name__ != "FlattenExtractor":
        return None
    layers = _layers(modules)
    if layers is None:
        return None
    return Actor(Network(layers).steady(int(np.prod(policy.observation_space.shape))), head)


def _layers(modules: list[Any]) -> tuple[Callable[[Floats], Floats], ...] | None:
    """Numpy functions for torch modules, or None if one of them is not known."""
    from torch import nn

    layers: list[Callable[[Floats], Floats]] = []
    for module in modules:
        if isinstance(module, tuple):
            if not all(type(part) is nn.Linear for part in module):
                return None
            layers.append(_linear(module))
        elif type(module) is nn.Sequential:
            inner = _layers(list(module))
            if inner is None:
                return None
            layers.extend(inner)
        elif type(module) is nn.Linear:
            layers.append(_linear((module,)))
        elif type(module) is nn.Tanh:
            layers.append(np.tanh)
        elif type(module) is nn.ReLU:
            layers.append(_relu)
        elif type(module) is nn.ELU:
            layers.append(_elu(module.alpha))
        elif type(module) is nn.Hardtanh:
            layers.append(_clip(module.min_val, module.max_val))
        else:
            return None
    return tuple(layers)


def _linear(parts: tuple[Any, ...]) -> Callable[[Floats], Floats]:
    """One layer for linear modules that read the same input, their outputs side by side."""
    weight = np.concatenate([_array(part.weight) for part in parts])
    bias = np.concatenate(
        [np.zeros(part.out_features, np.float32) if part.bias is None else _array(part.bias) for part in parts]
    )
    return linear(weight.T, bias)


def linear(weight: Floats, bias: Floats) -> Callable[[Floats], Floats]:
    """A linear layer.

    Args:
        weight: Of shape (inputs, outputs).
        bias: One number per output.
    """
    weight = np.ascontiguousarray(weight)

    def apply(values: Floats) -> Floats:
        result: Floats = values @ weight
        result += bias
        return result

    return apply


def _relu(values: Floats) -> Floats:
    return np.maximum(values, np.float32(0))


def _elu(alpha: float) -> Callable[[Floats], Floats]:
    scale = np.float32(alpha)
    return lambda values: np.where(values > 0, values, scale * np.expm1(np.minimum(values, np.float32(0))))


def _clip(low: float, high: float) -> Callable[[Floats], Floats]:
    return lambda values: np.clip(values, np.float32(low), np.float32(high))


def _array(tensor: Any) -> Floats:
    return np.array(tensor.detach().cpu().numpy(), dtype=np.float32)


def _distribution_head(policy: Any, deterministic: bool) -> Head | None:
    """Head of PPO, A2C and TRPO, by the kind of their distribution."""
    match type(policy.action_dist).__name__:
        case "DiagGaussianDistribution":
            if deterministic:
                return _box_head(policy, lambda outputs, _: outputs)
            deviations: Floats = np.exp(_array(policy.log_std))
            return _box_head(policy, lambda means, generators: means + deviations * _normal(means, generators))
        case "StateDependentNoiseDistribution" if deterministic:
            squash = policy.squash_output
            return _box_head(policy, lambda outputs, _: np.tanh(outputs) if squash else outputs)
        case "CategoricalDistribution":
            return _categorical_head([int(policy.action_space.n)], (), deterministic)
        case "MultiCategoricalDistribution":
            choices = policy.action_space.nvec
            return _categorical_head(choices.ravel().tolist(), choices.shape, deterministic)
        case "BernoulliDistribution":
            return _binary_head(policy.action_space.shape, deterministic)
    return None  # sampled state-dependent noise, or a distribution of the user's


def _box_head(policy: Any, raw: Head) -> Head:
    """Actions in a Box: unscaled from [-1, 1] if the policy squashes them, else clipped."""
    space = policy.action_space
    low, high = space.low.ravel(), space.high.ravel()

    def head(outputs: Floats, generators: Generators) -> NDArray[Any]:
        actions: NDArray[Any] = raw(outputs, generators)
        if policy.squash_output:
            actions = low + np.float32(0.5) * (actions + np.float32(1)) * (high - low)
        else:
            actions = np.minimum(np.maximum(actions, low), high)
        return actions.reshape(-1, *space.shape)

    return head


def _squashed_head(policy: Any, deterministic: bool) -> Head:
    """Head of SAC and TQC: a normal distribution squashed by tanh."""

    def raw(outputs: Floats, generators: Generators) -> Floats:
        if deterministic:
            return np.tanh(outputs)
        means, log_deviations = np.split(outputs, 2, axis=1)
        deviations = np.exp(np.clip(log_deviations, *_LOG_STD_RANGE))
        return np.tanh(means + deviations * _normal(means, generators))

    return _box_head(policy, raw)


def _categorical_head(choices: list[int], shape: tuple[int, ...], deterministic: bool) -> Head:
    """One choice per group of logits; sampled by adding Gumbel noise and taking the largest."""
    ends = np.cumsum(choices)[:-1]

    def head(logits: Floats, generators: Generators) -> NDArray[np.int64]:
        scores: NDArray[Any] = logits
        if not deterministic:
            scores = logits - np.log(draw("standard_exponential", generators, logits.shape[1]))
        best = [np.argmax(group, axis=1) for group in np.split(scores, ends, axis=1)]
        return np.stack(best, axis=1).reshape(-1, *shape)

    return head


def _binary_head(shape: tuple[int, ...], deterministic: bool) -> Head:
    """One yes or no per logit; sampled as the larger of two Gumbel variates, one of them shifted by the logit."""

    def head(logits: Floats, generators: Generators) -> NDArray[np.int8]:
        thresholds = np.zeros(1)
        if not deterministic:
            yes, no = np.split(draw("standard_exponential", generators, 2 * logits.shape[1]), 2, axis=1)
            thresholds = np.log(yes) - np.log(no)
        return (logits > thresholds).astype(np.int8).reshape(-1, *shape)

    return head


def _greedy_head(model: Any, deterministic: bool, quantiles: int = 1) -> Head:
    """Head of DQN and QRDQN: the action of highest value, or any with the model's exploration rate."""
    rate = 0.0 if deterministic else float(getattr(model, "exploration_rate", 0.0))
    actions = int(model.action_space.n)

    def head(outputs: Floats, generators: Generators) -> NDArray[np.int64]:
        values = outputs.reshape(-1, quantiles, actions).mean(axis=1)
        best: NDArray[np.int64] = np.argmax(values, axis=1)
        if rate == 0.0:
            return best
        uniform = draw("random", generators, 2)
        return np.where(uniform[:, 0] < rate, np.floor(uniform[:, 1] * actions).astype(np.int64), best)

    return head


def _normal(means: Floats, generators: Generators) -> Floats:
    return draw("standard_normal", generators, means.shape[1]).astype(np.float32)
