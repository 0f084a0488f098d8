"""Recipes: what another process or machine needs to make the same Gymnasium simulator."""

from __future__ import annotations

import io
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import gymnasium as gym

import rido.simulators.envs  # noqa: F401 - registers the ids
from rido.policies import sb3
from rido.policies.resolve import is_path
from rido.simulators.environments import find_spec
from rido.simulators.gymnasium import GymnasiumSimulator


def pack(env: Any, policy: Any, settings: Mapping[str, Any]) -> bytes:
    """Writes down what a :class:`GymnasiumSimulator` is made of.

    Functions travel as code where they cannot be imported, agents as the content of their files: a worker that
    is started later, or on another machine, gets what was there when the evaluation began.

    Args:
        env: what the simulator takes; an environment's id, or something that can be pickled.
        policy: what the simulator takes.
        settings: its other arguments.
    """
    spec = find_spec(env) if isinstance(env, str) else None
    contents = {
        "env": _dump(
            lambda: (env, spec), f"env must be an id or a function that makes the environment, got {env!r:.80}, which"
        ),
        "policy": _dump(
            lambda: _portable(policy),
            "policy must be an agent or its path, 'module:attribute' or a function of observations alone, got "
            f"{policy!r:.80}, which",
        ),
        "settings": dict(settings),
        "path": [entry or os.getcwd() for entry in sys.path],
    }
    return _dump(lambda: contents, f"env_kwargs must be plain values, got {settings['env_kwargs']!r:.80}, which")


def unpack(recipe: bytes) -> GymnasiumSimulator:
    """Makes the simulator that was written down. It runs code that the recipe brings along."""
    contents = cloudpickle.loads(recipe)
    sys.path.extend(entry for entry in contents["path"] if entry not in sys.path)  # for modules of the user's own
    try:
        env, spec = cloudpickle.loads(contents["env"])
        policy = cloudpickle.loads(contents["policy"])
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"env and policy must be there in a worker too, got {error!r}: install their module, or define them in "
            "the script itself"
        ) from error
    if spec is not None and spec.id not in gym.registry and ":" not in env:
        gym.registry[spec.id] = spec  # registered by the user's script, which no worker runs
    if isinstance(policy, _AgentFiles):
        return policy.open(env, contents["settings"])
    if isinstance(policy, _SavedModel):
        policy = policy.load()
    return GymnasiumSimulator(env, policy, **contents["settings"])


@dataclass(frozen=True)
class _AgentFiles:
    """An agent's zip and its statistics, by their paths."""

    path: str
    files: dict[str, bytes]

    @staticmethod
    def read(path: Path) -> _AgentFiles:
        beside = ("vecnormalize.pkl", f"{path.stem}/vecnormalize.pkl")
        found = [path, *(path.parent / name for name in beside if (path.parent / name).is_file())]
        files = {file.relative_to(path.parent).as_posix(): file.read_bytes() for file in found}
        return _AgentFiles("/".join(path.parts[-3:]), files)

    def open(self, env: Any, settings: dict[str, Any]) -> GymnasiumSimulator:
        with tempfile.TemporaryDirectory() as folder:
            for name, content in self.files.items():
                target = Path(folder, name)
                target.parent.mkdir(exist_ok=True)
                target.write_bytes(content)
            simulator = GymnasiumSimulator(env, Path(folder, Path(self.path).name), **settings)
        simulator.policy.name = self.path
        return simulator


@dataclass(frozen=True)
class _SavedModel:
    """An SB3 model without its environment and what only training needs, and the statistics of its VecNormalize."""

    algorithm: Any
    content: bytes
    vecnormalize: Any

    @staticmethod
    def save(model: Any) -> _SavedModel:
        buffer = io.BytesIO()
        model.save(buffer)
        return _SavedModel(type(model), buffer.getvalue(), model.get_vec_normalize_env())

    def load(self) -> Any:
        unused = {"buffer_size": 1, "n_steps": 1}  # buffers for training are allocated at loading
        model = self.algorithm.load(io.BytesIO(self.content), device="cpu", custom_objects=unused)
        model._vec_normalize_env = self.vecnormalize
        return model


def _portable(policy: Any) -> Any:
    if is_path(policy):
        path = Path(policy)
        path = path if path.is_file() else path.with_name(f"{path.name}.zip")
        return _AgentFiles.read(path) if path.is_file() else policy
    if sb3.is_model(policy):
        return _SavedModel.save(policy)
    return policy


def _dump(get: Callable[[], Any], requirement: str) -> bytes:
    try:
        content: bytes = cloudpickle.dumps(get())
        return content
    except Exception as error:
        raise ValueError(f"{requirement} cannot be sent to another process: {error!r}") from error
