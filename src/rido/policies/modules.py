"""Networks of torch as policies: any ``torch.nn.Module`` that maps observations to actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rido.policies.base import steady_block
from rido.policies.functions import ActionError, FunctionPolicy, check_actions
from rido.policies.observations import count
from rido.policies.tensors import as_array, call_module, evaluation_mode, sampling_from

if TYPE_CHECKING:
    import gymnasium as gym


class ModulePolicy(FunctionPolicy):
    """A ``torch.nn.Module`` whose ``forward`` takes a batch of observations, or one.

    It is called in evaluation mode and without gradients, on its own device and in its own dtype. It returns actions;
    scores of discrete actions (logits or Q-values), of which the highest is taken; or a ``torch.distributions``
    distribution over actions. Random numbers that it draws come from the trajectory's generator if it samples.

    Args:
        module: The network.
        observation_space: Observation space of one environment.
        action_space: Action space of one environment.
        deterministic: Whether a distribution gives its mode, or a sample. Scores cannot be sampled.
    """

    def __init__(
        self, module: Any, observation_space: gym.Space[Any], action_space: gym.Space[Any], *, deterministic: bool
    ) -> None:
        super().__init__(module, action_space)
        self._deterministic = deterministic
        self.draws = not deterministic
        self.in_sequence, self._tried = self.remembers, False
        if self.draws:  # torch draws for one row at a time
            self._block = 1
            return
        try:
            self._block = steady_block(self._outputs, observation_space)
        except Exception:  # it may take one observation; the first call finds out
            self._block, self.in_sequence = 1, True

    @property
    def _function_of_one(self) -> Callable[..., Any]:
        return self._evaluate

    @property
    def fingerprint(self) -> str:
        with evaluation_mode(self._function):
            return super().fingerprint

    def _outputs(self, block: Any, start: int) -> NDArray[Any]:
        output = call_module(self._function, block)
        check_actions(choose_actions(output, self._space, deterministic=True), self._space, count(block))
        return as_array(getattr(output, "mode", output))

    def _evaluate(self, observations: Any, **options: Any) -> Any:
        with sampling_from(options.get("generators", [options["generator"]] if "generator" in options else [])):
            output = call_module(self._function, observations)
            return choose_actions(output, self._space, deterministic=self._deterministic)


def choose_actions(output: Any, action_space: gym.Space[Any], *, deterministic: bool) -> NDArray[Any]:
    """Actions of what a network returned.

    Args:
        output: A tensor of actions or of scores of discrete actions, or a distribution.
        action_space: Action space of one environment.
        deterministic: Whether a distribution gives its mode, or a sample.
    """
    import torch

    if isinstance(output, torch.distributions.Distribution):
        if not deterministic:
            return as_array(output.sample())
        try:
            output = output.mode
        except NotImplementedError:
            raise ActionError(
                f"policy returned a {type(output).__name__}, which has no mode: let it return the action to take, or "
                "sample with deterministic=False"
            ) from None
        return as_array(output)
    if not isinstance(output, torch.Tensor):
        raise ActionError(
            f"policy network must return a tensor of actions or a distribution, got a {type(output).__name__}: wrap it "
            "in a module or function that returns the actions alone"
        )
    return best_choice(as_array(output), action_space, deterministic=deterministic)


def best_choice(output: NDArray[Any], action_space: gym.Space[Any], *, deterministic: bool) -> NDArray[Any]:
    """Actions themselves, or the best of discrete actions where floating numbers score all of them."""
    from gymnasium import spaces

    if not isinstance(action_space, spaces.Discrete) or not np.issubdtype(output.dtype, np.floating):
        return output
    if output.ndim == 0 or output.shape[-1] != action_space.n:
        raise ActionError(
            f"policy must return integers or scores of all actions for {action_space}, got {output.dtype} of shape "
            f"{output.shape}"
        )
    if not deterministic:
        raise ActionError(
            "policy returned scores, which may be logits or Q-values: to sample, let it return "
            "torch.distributions.Categorical(logits=...)"
        )
    best: NDArray[Any] = output.argmax(axis=-1) + action_space.start
    return best
