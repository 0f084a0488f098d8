"""Agents that are plain arrays: a small multilayer perceptron in an ``.npz``, read without torch and without pickle.

The file holds float32 arrays: weights and biases of the actor and of the critic (``actor.0.weight`` of shape (inputs,
outputs), ``actor.0.bias``, ``actor.1.weight``, ...), tanh between layers; ``log_std`` of the actions and their bounds
``low`` and ``high``, or for discrete actions their number ``choices``, one logit each; ``mean``, ``deviation`` and
``limit`` of the observations. The critic's values are in units of the environment's rewards, for an infinite horizon
at the discount ``gamma``. ``about`` is a JSON text on the agent's origin.
"""

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rido.core import checks
from rido.policies import networks
from rido.policies.base import Generators, Policy, Space, ValueFunction
from rido.policies.networks import Floats, Network
from rido.policies.untrusted import check_declared_sizes
from rido.record.arrays import read_array
from rido.record.fingerprint import fingerprint


class MlpPolicy(Policy):
    """An agent that is plain arrays.

    Args:
        arrays: Content of the file, by name.
        deterministic: Whether it takes its most likely action, or samples one.
        name: Name in results.
        fingerprint: Digest of the agent's file; that of the arrays if not given.

    Attributes:
        arrays: Content of the file, by name.
        about: Origin of the agent. For those that rido ships: the environment ("env", "env_kwargs"), the length of its
            episodes ("horizon"), the measured return ("mean", "standard_error") and the training ("steps", "seconds",
            "curve").
        gamma: Discount factor of the value function.
    """

    def __init__(
        self,
        arrays: Mapping[str, NDArray[Any]],
        *,
        deterministic: bool = True,
        name: str = "mlp",
        fingerprint: str = "",
    ) -> None:
        self.arrays = dict(arrays)
        self.name, self._digest = name, fingerprint
        self.draws = not deterministic
        self.about: dict[str, Any] = dict(json.loads(str(self.arrays["about"])))
        self.gamma = checks.discount("gamma", float(self.arrays["gamma"]))
        mean = self._floats("mean", -1).astype(np.float64)
        deviation = self._floats("deviation", mean.size).astype(np.float64)
        self._normalize = networks.Normalizer(mean, deviation, float(self._floats("limit")))
        if np.any(mean) or np.any(deviation != 1):
            self.normalisation = "observations normalised by the statistics in the npz"
        self._inputs = mean.size
        self._discrete = "choices" in self.arrays
        if self._discrete:
            self._actions = int(self._floats("choices"))
            self._head = networks.categorical_head([self._actions], (), deterministic)
        else:
            low = self._floats("low", -1)
            high, log_std = (self._floats(key, low.size) for key in ("high", "log_std"))
            self._actions = low.size
            self._head = networks.box_head(low, high, networks.gaussian_head(log_std, deterministic))
        self._actor, self._critic = self._network("actor", self._actions), self._network("critic", 1)

    @property
    def fingerprint(self) -> str:
        return self._digest or fingerprint(self.arrays)

    @classmethod
    def load(cls, path: str | Path, *, deterministic: bool = True, name: str | None = None) -> "MlpPolicy":
        """Reads an agent that :meth:`save` wrote. The file cannot run code."""
        path = Path(path)
        try:
            content = path.read_bytes()
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                check_declared_sizes(archive, len(content))
                arrays = {key.removesuffix(".npy"): read_array(archive.read(key)) for key in archive.namelist()}
            name, digest = name or "/".join(path.parts[-3:]), hashlib.sha256(content).hexdigest()
            return cls(arrays, deterministic=deterministic, name=name, fingerprint=digest)
        except Exception as error:  # a damaged file raises nearly anything: zlib.error, MemoryError
            reason = str(error)[:300] or type(error).__name__
            raise ValueError(f"policy must be an npz written by MlpPolicy.save(), got {path}: {reason}") from error

    def save(self, path: str | Path) -> None:
        """Writes the agent into an npz."""
        with Path(path).open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **self.arrays)

    def __call__(self, observations: Any, generators: Generators) -> NDArray[Any]:
        return self._head(self._actor(self._normalize(observations)), generators)

    def value_function(self) -> ValueFunction:
        return ValueFunction(self._value, self.gamma, rowwise=True)

    def fits(self, observation_space: Space, action_space: Space) -> "MlpPolicy":
        """Returns the policy itself; raises an error if an environment has other observations or actions."""
        from gymnasium import spaces

        for what, space, size, discrete in (
            ("observations", observation_space, self._inputs, False),
            ("actions", action_space, self._actions, self._discrete),
        ):
            if discrete and isinstance(space, spaces.Discrete) and (space.start, space.n) == (0, size):
                continue
            if not discrete and isinstance(space, spaces.Box) and space.shape == (size,):
                continue
            arguments = "".join(f", {key}={value!r}" for key, value in self.about.get("env_kwargs", {}).items())
            trained = f"; it was trained in {self.about['env']}{arguments}" if "env" in self.about else ""
            found = " ".join(str(space).split())
            unit = "choices" if discrete else "numbers"
            raise ValueError(f"environment must have {what} of {size} {unit} for {self.name}, got {found}{trained}")
        return self

    def _value(self, observations: Any) -> NDArray[np.float64]:
        return self._critic(self._normalize(observations))[:, 0].astype(np.float64)

    def _floats(self, key: str, *shape: int) -> Floats:
        """An array of the file, checked to be of this shape; -1 stands for any size."""
        array = self.arrays[key]
        fits = len(shape) == array.ndim and all(a in (-1, b) for a, b in zip(shape, array.shape, strict=True))
        if array.dtype != np.float32 or not fits or np.isnan(array).any():
            raise ValueError(f"{key} must be float32 numbers of shape {shape}, got {array.dtype} of {array.shape}")
        return array

    def _network(self, part: str, outputs: int) -> Network:
        layers: list[networks.Layer] = []
        last = sum(key.startswith(f"{part}.") for key in self.arrays) // 2 - 1
        size = self._inputs
        for number in range(max(last, 0) + 1):
            weight = self._floats(f"{part}.{number}.weight", size, outputs if number == last else -1)
            size = weight.shape[1]
            layers += [networks.linear(weight, self._floats(f"{part}.{number}.bias", size)), np.tanh]
        return Network(layers[:-1]).steady(self._inputs)
