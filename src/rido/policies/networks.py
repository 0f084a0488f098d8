"""Small networks in numpy: layers, heads that turn outputs into actions, and the conversion of SB3's networks.

For a few rows, most of the time of SB3's ``predict`` is overhead; the arithmetic itself takes microseconds. Actions are
sampled from the generators of their rows, which torch's global generator cannot do.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rido.policies.base import Generators, draw

Floats = NDArray[np.float32]
Layer = Callable[[Floats], Floats]
Head = Callable[[Floats, Generators], NDArray[Any]]

_TILE = 4
_PROBE_ROWS = 16  # random observations on which a conversion is compared with the original
_LOG_STD_RANGE = (-20.0, 2.0)  # of SAC and TQC


@dataclass(frozen=True)
class Normalizer:
    """Standardises observations and clips them to ``[-limit, limit]``."""

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    limit: float

    def __call__(self, observations: NDArray[Any]) -> Floats:
        scaled = (observations - self.mean) / self.deviation
        return np.minimum(np.maximum(scaled, -self.limit), self.limit).astype(np.float32)


@dataclass(frozen=True)
class Network:
    """Layers, functions on arrays of shape (tiles, tile, features), that give a row the same bits in every batch.

    A product of many rows may use different kernels for different rows; a product of ``tile`` rows uses one. The batch
    is cut into tiles, and all tiles go through one call of ``matmul``.
    """

    layers: Sequence[Layer]
    tile: int = _TILE

    def __call__(self, batch: NDArray[Any]) -> Floats:
        rows = batch.reshape(len(batch), -1)
        count, features = rows.shape
        tiles = -(-count // self.tile)
        values = np.zeros((tiles, self.tile, features), dtype=np.float32)
        values.reshape(-1, features)[:count] = rows
        for layer in self.layers:
            values = layer(values)
        return values.reshape(tiles * self.tile, -1)[:count]

    def steady(self, features: int) -> "Network":
        """This network if rows do not depend on their position on this machine, else one with tiles of 1."""
        rows = np.random.default_rng(0).standard_normal((4 * self.tile, features), dtype=np.float32)
        alone = np.concatenate([self(row[np.newaxis]) for row in rows])
        return self if np.array_equal(self(rows), alone) else Network(self.layers, tile=1)


def linear(weight: Floats, bias: Floats) -> Layer:
    """A linear layer with a weight of shape (inputs, outputs) and one bias per output."""
    weight = np.ascontiguousarray(weight)

    def apply(values: Floats) -> Floats:
        result: Floats = values @ weight
        result += bias
        return result

    return apply


def box_head(low: Floats, high: Floats, raw: Head | None, *, squashed: bool = False) -> Head:
    """Actions of a Box: outputs, or those of ``raw``, rescaled from [-1, 1] to the bounds if squashed, else clipped."""
    lows, highs = low.ravel(), high.ravel()

    def head(outputs: Floats, generators: Generators) -> NDArray[Any]:
        actions: NDArray[Any] = outputs if raw is None else raw(outputs, generators)
        if squashed:
            actions = lows + np.float32(0.5) * (actions + np.float32(1)) * (highs - lows)
        else:
            actions = np.minimum(np.maximum(actions, lows), highs)
        return actions.reshape(-1, *low.shape)

    return head


def sample_normal(means: NDArray[Any], deviations: NDArray[Any], generators: Generators) -> NDArray[Any]:
    """Normal numbers, each row from its generator."""
    drawn: NDArray[Any] = means + deviations * draw("standard_normal", generators, means.shape[1]).astype(means.dtype)
    return drawn


def sample_choices(logits: NDArray[Any], generators: Generators) -> NDArray[np.int64]:
    """One choice for each row, by adding Gumbel noise to the logits and taking the largest."""
    scores = logits - np.log(draw("standard_exponential", generators, logits.shape[1]))
    chosen: NDArray[np.int64] = np.argmax(scores, axis=1)
    return chosen


def gaussian_head(log_std: Floats, deterministic: bool) -> Head | None:
    """A sample of a normal distribution; None for its mean, the output itself."""
    if deterministic:
        return None
    deviations: Floats = np.exp(log_std)
    return lambda means, generators: sample_normal(means, deviations, generators)


def categorical_head(choices: list[int], shape: tuple[int, ...], deterministic: bool) -> Head:
    """One choice per group of logits: the most likely one, or a sample."""
    ends = np.cumsum(choices)[:-1]

    def head(logits: Floats, generators: Generators) -> NDArray[np.int64]:
        groups = np.split(logits, ends, axis=1)
        chosen = [np.argmax(one, axis=1) if deterministic else sample_choices(one, generators) for one in groups]
        return np.stack(chosen, axis=1).reshape(-1, *shape)

    return head


def numpy_actor(policy: Any, *, deterministic: bool, exploration_rate: float = 0.0) -> Head | None:
    """The actor of an SB3 policy in numpy, or None where the policy is of another kind.

    Supports the multilayer perceptrons of PPO, A2C, TRPO, SAC, TQC, TD3, DDPG, DQN and QRDQN. The actor is compared
    with the policy's own ``predict`` before it is used. DQN and QRDQN explore at the given rate unless deterministic.
    """
    try:
        actor = _actor(policy, True, 0.0)
        observations = probe(policy.observation_space)
        expected, _ = policy.predict(observations, deterministic=True)
        if not np.allclose(actor(observations, ()), expected, rtol=1e-5, atol=1e-5):
            return None
        return actor if deterministic else _actor(policy, False, exploration_rate)
    except NotImplementedError:
        return None


def probe(space: Any) -> Floats:
    """Random observations on which a conversion is compared with the original."""
    return np.random.default_rng(0).standard_normal((_PROBE_ROWS, *space.shape), dtype=np.float32)


def _actor(policy: Any, deterministic: bool, exploration_rate: float) -> Head:
    """Converts an actor; a NotImplementedError says that it is not of a known kind."""
    package, kind = type(policy).__module__.partition(".")[0], type(policy).__name__
    match kind if package in ("stable_baselines3", "sb3_contrib") else "":
        case "ActorCriticPolicy":
            parts = [policy.pi_features_extractor, policy.mlp_extractor.policy_net, policy.action_net]
            head = _distribution_head(policy, deterministic)
        case "SACPolicy" | "TQCPolicy":
            actor = policy.actor
            if actor.use_sde and not deterministic:
                raise NotImplementedError
            outputs = actor.mu if deterministic else (actor.mu, actor.log_std)
            parts = [actor.features_extractor, actor.latent_pi, outputs]
            head = _box_head(policy, _tanh if deterministic else _sampled_tanh)
        case "TD3Policy":
            parts = [policy.actor.features_extractor, policy.actor.mu]
            head = _box_head(policy, None)
        case "DQNPolicy":
            parts = [policy.q_net.features_extractor, policy.q_net.q_net]
            head = _greedy_head(policy, exploration_rate)
        case "QRDQNPolicy":
            parts = [policy.quantile_net.features_extractor, policy.quantile_net.quantile_net]
            head = _greedy_head(policy, exploration_rate, quantiles=policy.quantile_net.n_quantiles)
        case _:
            raise NotImplementedError
    network = convert(policy.observation_space, *parts)
    return lambda observations, generators: head(network(observations), generators)


def convert(space: Any, extractor: Any, *modules: Any, further_inputs: int = 0) -> Network:
    """Converts torch modules behind an extractor of features that only flattens observations.

    The first module gets ``further_inputs`` numbers beside the observation. A NotImplementedError says that extractor
    or modules are not of a known kind.
    """
    from gymnasium import spaces
    from stable_baselines3.common.preprocessing import is_image_space

    if not isinstance(space, spaces.Box) or is_image_space(space) or type(extractor).__name__ != "FlattenExtractor":
        raise NotImplementedError
    return Network(_layers(modules)).steady(int(np.prod(space.shape)) + further_inputs)


def _layers(modules: Sequence[Any]) -> list[Layer]:
    """Converts torch modules; a tuple of linear ones reads one input and has its outputs side by side."""
    from torch import nn

    layers: list[Layer] = []
    for module in modules:
        kind = type(module)
        if kind is nn.Sequential:
            layers += _layers(module)
        elif kind is nn.Linear or (kind is tuple and all(type(part) is nn.Linear for part in module)):
            parts = module if kind is tuple else (module,)
            weight = np.concatenate([_array(part.weight) for part in parts])
            biases = [np.zeros(part.out_features) if part.bias is None else _array(part.bias) for part in parts]
            layers.append(linear(weight.T, np.concatenate(biases, dtype=np.float32)))
        elif kind is nn.Tanh:
            layers.append(np.tanh)
        elif kind is nn.ReLU:
            layers.append(lambda values: np.maximum(values, np.float32(0)))
        elif kind is nn.ELU:
            layers.append(partial(_elu, np.float32(module.alpha)))
        elif kind is nn.Hardtanh:
            layers.append(partial(np.clip, a_min=np.float32(module.min_val), a_max=np.float32(module.max_val)))
        else:
            raise NotImplementedError
    return layers


def _elu(alpha: np.float32, values: Floats) -> Floats:
    return np.where(values > 0, values, alpha * np.expm1(np.minimum(values, np.float32(0))))


def _array(tensor: Any) -> Floats:
    return np.array(tensor.detach().cpu().numpy(), dtype=np.float32)


def _distribution_head(policy: Any, deterministic: bool) -> Head:
    """Head of PPO, A2C and TRPO, by the kind of their distribution."""
    match type(policy.action_dist).__name__:
        case "DiagGaussianDistribution":
            return _box_head(policy, gaussian_head(_array(policy.log_std), deterministic))
        case "StateDependentNoiseDistribution" if deterministic:
            return _box_head(policy, _tanh if policy.squash_output else None)
        case "CategoricalDistribution":
            return categorical_head([int(policy.action_space.n)], (), deterministic)
        case "MultiCategoricalDistribution":
            choices = policy.action_space.nvec
            return categorical_head(choices.ravel().tolist(), choices.shape, deterministic)
        case "BernoulliDistribution":
            return _binary_head(policy.action_space.shape, deterministic)
    raise NotImplementedError  # sampled state-dependent noise, or a distribution of the user


def _box_head(policy: Any, raw: Head | None) -> Head:
    return box_head(policy.action_space.low, policy.action_space.high, raw, squashed=policy.squash_output)


def _tanh(outputs: Floats, generators: Generators) -> Floats:
    return np.tanh(outputs)


def _sampled_tanh(outputs: Floats, generators: Generators) -> Floats:
    """A sample of SAC's and TQC's normal distribution, squashed by tanh."""
    means, log_deviations = np.split(outputs, 2, axis=1)
    deviations = np.exp(np.clip(log_deviations, *_LOG_STD_RANGE))
    drawn: Floats = np.tanh(sample_normal(means, deviations, generators))
    return drawn


def _binary_head(shape: tuple[int, ...], deterministic: bool) -> Head:
    """One yes or no per logit; sampled as the larger of two Gumbel variates, one of them shifted by the logit."""

    def head(logits: Floats, generators: Generators) -> NDArray[np.int8]:
        thresholds = np.zeros(1)
        if not deterministic:
            yes, no = np.split(draw("standard_exponential", generators, 2 * logits.shape[1]), 2, axis=1)
            thresholds = np.log(yes) - np.log(no)
        return (logits > thresholds).astype(np.int8).reshape(-1, *shape)

    return head


def _greedy_head(policy: Any, exploration_rate: float, quantiles: int = 1) -> Head:
    """Head of DQN and QRDQN: the action of highest value, or with the exploration rate a random one."""
    actions = int(policy.action_space.n)

    def head(outputs: Floats, generators: Generators) -> NDArray[np.int64]:
        values = outputs.reshape(-1, quantiles, actions).mean(axis=1)
        best: NDArray[np.int64] = np.argmax(values, axis=1)
        if exploration_rate == 0.0:
            return best
        uniform = draw("random", generators, 2)
        return np.where(uniform[:, 0] < exploration_rate, np.floor(uniform[:, 1] * actions).astype(np.int64), best)

    return head
