"""Scores of torch networks that return a distribution over actions, and of on-policy SB3 agents."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.distributions import Categorical, Distribution, Independent, Normal

from rido.policies import sb3
from rido.policies.actions import ActionError, check_actions
from rido.policies.base import Generators, Space, ValueFunction, call_in_blocks, steady_block
from rido.policies.differentiable import DifferentiablePolicy, Floats, parts
from rido.policies.functions import function_name
from rido.policies.networks import sample_choices, sample_normal
from rido.policies.observations import take
from rido.policies.tensors import as_array, as_tensors, call_module, evaluation_mode, sampling_from


class TorchPolicy(DifferentiablePolicy):
    """A ``torch.nn.Module`` whose ``forward`` maps a batch of observations to a distribution over actions.

    A categorical or normal distribution is sampled in numpy, from the generators of the rows. Others are sampled by
    torch, row by row. The network is in evaluation mode throughout. Parameters that require no gradient are constants.
    ``prepare`` is what happens to observations before the network sees them.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        observation_space: Space,
        action_space: Space,
        *,
        prepare: Callable[[Any], Any] = lambda observations: observations,
        values: ValueFunction | None = None,
    ) -> None:
        super().__init__(action_space)
        self.name = function_name(module)
        self._module, self._prepare, self._values = module, prepare, values
        self._parameters = {name: part for name, part in module.named_parameters() if part.requires_grad}
        self._sizes = [part.numel() for part in self._parameters.values()]
        self.size = sum(self._sizes)
        if not self.size:
            raise ValueError("policy must have parameters that require gradients, got none")
        self._check(observation_space)

    def _check(self, observation_space: Space) -> None:
        """Refuses a network that does not return a distribution over the actions of the space."""
        from gymnasium import spaces
        from gymnasium.vector.utils import batch_space

        space = batch_space(observation_space, 2)
        space.seed(0)
        found = call_module(self._module, self._prepare(space.sample()))
        if not isinstance(found, Distribution):
            raise ActionError(
                f"policy must return a torch.distributions.Distribution, got a {type(found).__name__}: a deterministic "
                "policy has no policy gradient; let it return Categorical(logits=...) or Normal(mean, deviation)"
            )
        shape, expected = (*found.batch_shape, *found.event_shape), (2, *(self._space.shape or ()))
        base, discrete = _base(found), not isinstance(self._space, spaces.Box)
        choices = base.logits.shape[-1] if isinstance(base, Categorical) else None
        too_many = isinstance(self._space, spaces.Discrete) and choices not in (None, self._space.n)
        if shape != expected or getattr(found.support, "is_discrete", discrete) != discrete or too_many:
            raise ActionError(
                f"policy must return a distribution over {self._space}, of shape {expected} for 2 observations, got a "
                f"{type(found).__name__} of shape {shape}" + (f" over {choices} choices" if choices else "")
            )
        self._in_numpy = _numbers(found) is not None
        if self._in_numpy:
            self._normal = isinstance(_base(found), Normal)
            self._block = steady_block(self._outputs, observation_space)

    def _outputs(self, block: Any, start: int) -> NDArray[Any]:
        numbers = _numbers(call_module(self._module, self._prepare(block)))
        assert numbers is not None
        return numbers

    def __call__(self, observations: Any, generators: Generators) -> NDArray[Any]:
        rows = len(generators)
        if not self._in_numpy:
            single = (take(observations, np.array([row])) for row in range(rows))
            return np.concatenate([self._sample(one, own) for one, own in zip(single, generators, strict=True)])
        numbers = call_in_blocks(self._outputs, observations, rows, self._block)
        if not self._normal:
            return sample_choices(numbers, generators)
        means, deviations = np.split(numbers, 2, axis=1)
        actions = sample_normal(means, deviations, generators)
        return check_actions(actions.reshape(rows, *(self._space.shape or ())), self._space, rows)

    def _sample(self, observation: Any, generator: np.random.Generator) -> NDArray[Any]:
        with sampling_from([generator]):
            return check_actions(call_module(self._module, self._prepare(observation)).sample(), self._space, 1)

    def scores(self, observations: Any, actions: NDArray[Any], directions: Floats) -> Floats:
        primal = {name: part.detach() for name, part in self._parameters.items()}
        named = self._by_name(directions).items()
        tangents = {name: torch.as_tensor(part).to(self._parameters[name]) for name, part in named}
        found = []
        with _prepared(self._module):
            for rows in parts(len(actions)):
                log_probs = self._log_probs(take(observations, rows), actions[rows])
                along = torch.vmap(lambda tangent, f=log_probs: torch.func.jvp(f, (primal,), (tangent,))[1], out_dims=1)
                found.append(as_array(along(tangents)).astype(np.float64))
        return np.concatenate(found)

    def weighted_scores(self, observations: Any, actions: NDArray[Any], weights: Floats) -> Floats:
        total = np.zeros(self.size)
        with _prepared(self._module), torch.enable_grad():
            for rows in parts(len(actions)):
                log_probs = self._log_probs(take(observations, rows), actions[rows])(self._parameters)
                value = log_probs @ as_tensors(self._module, weights[rows])
                found = torch.autograd.grad(value, list(self._parameters.values()), materialize_grads=True)
                total += np.concatenate([as_array(part).ravel() for part in found])
        return total

    def _log_probs(self, observations: Any, actions: NDArray[Any]) -> Callable[[dict[str, Any]], torch.Tensor]:
        """The log probabilities of some steps as a function of the parameters."""
        inputs = as_tensors(self._module, self._prepare(observations)), as_tensors(self._module, actions)

        def log_probs(parameters: dict[str, Any]) -> torch.Tensor:
            found: torch.Tensor = torch.func.functional_call(self._module, parameters, (inputs[0],)).log_prob(inputs[1])
            return found.reshape(len(actions), -1).sum(dim=1)  # numbers of one action that are independent

        return log_probs

    def unflatten(self, vector: Floats) -> dict[str, Floats]:
        return {name: part[0] for name, part in self._by_name(vector[np.newaxis]).items()}

    def _by_name(self, vectors: Floats) -> dict[str, Floats]:
        """Vectors in the space of parameters, one in each row, by the names of the parameters."""
        columns = np.split(vectors, np.cumsum(self._sizes)[:-1], axis=1)
        pairs = zip(self._parameters.items(), columns, strict=True)
        return {name: part.reshape(len(vectors), *like.shape) for (name, like), part in pairs}

    def value_function(self) -> ValueFunction | None:
        return self._values


class _ActorNetwork(torch.nn.Module):
    """The actor of an on-policy SB3 agent as a network that returns a distribution."""

    def __init__(self, policy: Any) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, observations: Any) -> Any:
        return self.policy.get_distribution(observations).distribution


class AgentScores(TorchPolicy):
    """A model of PPO, A2C or TRPO, or its policy; parameters have the names that SB3 gives them."""

    def __init__(self, model: Any, observation_space: Space, action_space: Space) -> None:
        from stable_baselines3.common.policies import ActorCriticPolicy

        network = model.policy if sb3.is_model(model) else model
        if not isinstance(network, ActorCriticPolicy) or network.use_sde:
            raise ValueError(
                f"policy must be an agent of PPO, A2C or TRPO without use_sde, got {type(model).__name__}: others have "
                "no distribution over actions that can be differentiated"
            )
        agent = sb3.AgentPolicy(model, observation_space, action_space, deterministic=False)
        actor, values = _ActorNetwork(network), agent.value_function()
        super().__init__(actor, observation_space, action_space, prepare=agent.prepare, values=values)
        self.name, self.normalisation, self.warnings = agent.name, agent.normalisation, agent.warnings

    def unflatten(self, vector: Floats) -> dict[str, Floats]:
        return {name.removeprefix("policy."): part for name, part in super().unflatten(vector).items()}


def _base(distribution: Distribution) -> Distribution:
    return distribution.base_dist if isinstance(distribution, Independent) else distribution


def _numbers(distribution: Distribution) -> NDArray[Any] | None:
    """The numbers that numpy needs to sample, one row for each distribution; None for other distributions."""
    base = _base(distribution)
    if isinstance(base, Categorical) and base.logits.ndim == 2:
        return as_array(base.logits)
    if isinstance(base, Normal):
        return np.concatenate([as_array(part).reshape(len(part), -1) for part in (base.loc, base.scale)], axis=1)
    return None


@contextmanager
def _prepared(module: torch.nn.Module) -> Iterator[None]:
    """Puts a network into evaluation mode and lets distributions skip their checks, which actions have passed."""
    checked = Distribution._validate_args
    Distribution.set_default_validate_args(False)
    try:
        with evaluation_mode(module):
            yield
    finally:
        Distribution.set_default_validate_args(checked)
