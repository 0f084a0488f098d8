"""Networks of torch as policies: any ``torch.nn.Module`` that maps observations to actions."""

from typing import Any

from numpy.typing import NDArray

from rido.policies.actions import check_actions, choose_actions
from rido.policies.base import Space, steady_block
from rido.policies.functions import FunctionPolicy
from rido.policies.observations import count
from rido.policies.tensors import as_array, call_module, sampling_from


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

    _as_it_is = False

    def __init__(self, module: Any, observation_space: Space, action_space: Space, *, deterministic: bool) -> None:
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

    def _outputs(self, block: Any, start: int) -> NDArray[Any]:
        output = call_module(self._function, block)
        check_actions(choose_actions(output, self._space, deterministic=True), self._space, count(block))
        return as_array(getattr(output, "mode", output))

    def _evaluate(self, observations: Any, **options: Any) -> Any:
        with sampling_from(options.get("generators", [options["generator"]] if "generator" in options else [])):
            output = call_module(self._function, observations)
            return choose_actions(output, self._space, deterministic=self._deterministic)
