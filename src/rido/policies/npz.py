"""Agents that are plain arrays: a small multilayer perceptron in an ``.npz``, read without torch and without pickle.

The file holds float32 arrays: weights and biases of the actor and of the critic (``actor.0.weight`` of shape (inputs,
outputs), ``actor.0.bias``, ``actor.1.weight``, ...), tanh between layers; ``log_std`` of the actions and their bounds
``low`` and ``high``, or where actions are discrete their number ``choices``, one logit each; ``mean``, ``deviation``
and ``limit`` of the observations. The critic's values are in units of the environment's rewards, for an endless horizon
at the discount ``gamma``. ``about`` is a JSON text on the agent's origin.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rido.core import checks
from rido.policies.base import Generators, Policy, ValueFunction, draw
from rido.policies.networks import Floats, Network, linear
from rido.storage.fingerprint import fingerprint

if TYPE_CHECKING:
    import gymnasium as gym


class MlpPolicy(Policy):
    """An agent that is plain arrays.

    Args:
        arrays: What the file holds, by name.
        deterministic: Whether it takes its most likely action, or samples one.
        name: What the policy is called in results.
        fingerprint: Digest of the agent's file; that of the arrays if not given.

    Attributes:
        arrays: What the file holds, by name.
        about: Where the agent comes from; for those that rido ships, the environment ("env", "env_kwargs"), the
            length of its episodes ("horizon"), the return that was measured ("mean", "standard_error"), and how the
            agent was trained ("steps", "seconds", "curve").
        gamma: Discount that the value function is for.
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
        self._mean = self._floats("mean", -1).astype(np.float64)
        self._deviation = self._floats("deviation", self._mean.size).astype(np.float64)
        self._limit = float(self._floats("limit"))
        self._choices = int(self._floats("choices")) if "choices" in self.arrays else 0
        if not self._choices:
            self._low = self._floats("low", -1)
            self._high = self._floats("high", self._low.size)
            self._spread: Floats = np.exp(self._floats("log_std", self._low.size))
        self._actor = self._network("actor", self._choices or self._low.size)
        self._critic = self._network("critic", 1)

    @property
    def fingerprint(self) -> str:
        """Digest of the agent."""
        return self._digest or fingerprint(self.arrays)

    @classmethod
    def load(cls, path: str | Path, *, deterministic: bool = True) -> MlpPolicy:
        """Reads an agent that :meth:`save` wrote. No code in the file can run."""
        path = Path(path)
        if not path.is_file():
            raise ValueError(f"policy must be the path of an existing npz, got {path}")
        content = path.read_bytes()
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as file:
                arrays = {key: file[key] for key in file.files}
            name, digest = "/".join(path.parts[-3:]), hashlib.sha256(content).hexdigest()
            return cls(arrays, deterministic=deterministic, name=name, fingerprint=digest)
        except (ValueError, KeyError, TypeError, EOFError, OSError, zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(f"policy must be an npz written by MlpPolicy.save(), got {path}: {error}") from error

    def save(self, path: str | Path) -> None:
        """Writes the agent into an npz."""
        with Path(path).open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **self.arrays)

    def __call__(self, observations: Any, generators: Generators) -> NDArray[Any]:
        """Actions for a batch."""
        actions = self._actor(self._prepare(observations))
        if self._choices:
            if self.draws:  # the largest logit after adding Gumbel noise
                actions = actions - np.log(draw("standard_exponential", generators, self._choices))
            best: NDArray[np.int64] = np.argmax(actions, axis=1)
            return best
        if self.draws:
            actions = actions + self._spread * draw("standard_normal", generators, actions.shape[1]).astype(np.float32)
        return np.minimum(np.maximum(actions, self._low), self._high)

    def value_function(self) -> ValueFunction:
        """The critic."""
        return ValueFunction(self._value, self.gamma, rowwise=True)

    def fits(self, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> MlpPolicy:
        """Returns the policy itself, or raises where an environment has other observations or actions."""
        for what, space, size, discrete in (
            ("observations", observation_space, self._mean.size, False),
            ("actions", action_space, self._choices or self._low.size, self._choices > 0),
        ):
            if _holds(space, size, discrete):
                continue
            arguments = "".join(f", {key}={value!r}" for key, value in self.about.get("env_kwargs", {}).items())
            trained = f"; it was trained in {self.about['env']}{arguments}" if "env" in self.about else ""
            found = " ".join(str(space).split())
            unit = "choices" if discrete else "numbers"
            raise ValueError(f"environment must have {what} of {size} {unit} for {self.name}, got {found}{trained}")
        return self

    def _value(self, observations: Any) -> NDArray[np.float64]:
        return self._critic(self._prepare(observations))[:, 0].astype(np.float64)

    def _prepare(self, observations: NDArray[Any]) -> Floats:
        scaled = (observations - self._mean) / self._deviation
        return np.minimum(np.maximum(scaled, -self._limit), self._limit).astype(np.float32)

    def _floats(self, key: str, *shape: int) -> Floats:
        """An array of the file, of this shape; -1 stands for any size."""
        array = self.arrays[key]
        fits = len(shape) == array.ndim and all(a in (-1, b) for a, b in zip(shape, array.shape, strict=True))
        if array.dtype != np.float32 or not fits or np.isnan(array).any():
            raise ValueError(f"{key} must be float32 numbers of shape {shape}, got {array.dtype} of {array.shape}")
        return array

    def _network(self, part: str, outputs: int) -> Network:
        layers: list[Any] = []
        last = sum(key.startswith(f"{part}.") for key in self.arrays) // 2 - 1
        size = self._mean.size
        for number in range(max(last, 0) + 1):
            weight = self._floats(f"{part}.{number}.weight", size, outputs if number == last else -1)
            size = weight.shape[1]
            layers += [linear(weight, self._floats(f"{part}.{number}.bias", size)), np.tanh]
        return Network(tuple(layers[:-1])).steady(self._mean.size)


def _holds(space: gym.Space[Any], size: int, discrete: bool) -> bool:
    """Whether a space has so many choices, counted from 0, or vectors of so many numbers."""
    from gymnasium import spaces

    if discrete:
        return isinstance(space, spaces.Discrete) and (space.start, space.n) == (0, size)
    return isinstance(space, spaces.Box) and space.shape == (size,)
