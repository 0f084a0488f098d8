"""Agents in ONNX files, run by onnxruntime on the processor."""

import hashlib
from pathlib import Path
from typing import Any

from rido.core.extras import import_extra
from rido.policies.actions import ActionError, best_choice
from rido.policies.base import Space, steady_block
from rido.policies.functions import FunctionPolicy

_DTYPES = {"float": "float32", "double": "float64"}  # ONNX's names and numpy's; those of integers are the same
_ACTIONS = ("action", "actions")  # names by which the output is chosen where there are several


class OnnxPolicy(FunctionPolicy):
    """An agent in an ONNX file, which cannot run code.

    Its inputs are observations: one input, or one for each key of a dictionary. It returns actions, or scores of
    discrete actions, of which the highest is taken. Of several outputs it takes the one called "action" or "actions".

    Args:
        path: The file. Weights that torch wrote into a separate file are beside it, ``agent.onnx.data``.
        observation_space: Observation space of one environment.
        action_space: Action space of one environment.
        deterministic: False is an error where the file returns scores, which cannot be sampled.
    """

    def __init__(self, path: Path, observation_space: Space, action_space: Space, *, deterministic: bool) -> None:
        from gymnasium import spaces

        onnxruntime = import_extra("an ONNX file", "onnxruntime", "onnx")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        try:
            session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime raises many classes for damaged files
            raise ValueError(f"policy must be an ONNX file, got {path}: {error!r:.300}") from error
        self._session = session
        self._inputs = {put.name: _DTYPES.get(name := put.type[7:-1], name) for put in session.get_inputs()}
        outputs = [put.name for put in session.get_outputs()]
        chosen = outputs if len(outputs) == 1 else [name for name in outputs if name in _ACTIONS]
        if len(chosen) != 1:
            raise ActionError(f"{path} must have one output, or one called 'action', got {', '.join(outputs)}")
        self._output = chosen[0]
        self._deterministic = deterministic
        super().__init__(self._run, action_space)
        self.in_sequence = False
        self.name = "/".join(path.parts[-3:])
        contents = [file.read_bytes() for file in (path, weights_file(path)) if file.is_file()]
        self._digest = hashlib.sha256(b"".join(contents)).hexdigest()
        first = session.get_inputs()[0]
        parts = (
            dict(observation_space) if isinstance(observation_space, spaces.Dict) else {first.name: observation_space}
        )
        if set(parts) != set(self._inputs):
            names = ", ".join(self._inputs)
            raise ValueError(f"environment must have observations {names} for {self.name}, got {', '.join(parts)}")
        if len(first.shape) > len(parts[first.name].shape or ()) and isinstance(first.shape[0], int):
            self._block = first.shape[0]  # it was exported for batches of this size
            return
        try:
            self._block = steady_block(lambda block, start: self._run(block), observation_space)
        except Exception:  # it may take one observation; the first call finds out
            self._block, self.in_sequence = 1, True

    @property
    def fingerprint(self) -> str:
        return self._digest

    def _run(self, observations: Any) -> Any:
        given = observations if isinstance(observations, dict) else dict.fromkeys(self._inputs, observations)
        feed = {name: given[name].astype(dtype) for name, dtype in self._inputs.items()}
        (output,) = self._session.run([self._output], feed)
        return best_choice(output, self._space, deterministic=self._deterministic)


def weights_file(path: Path) -> Path:
    """The file beside an ONNX file that holds its weights, if it exists."""
    return path.with_name(f"{path.name}.data")
