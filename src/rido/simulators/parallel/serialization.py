"""A :class:`GymnasiumSimulator` as bytes, from which another process or machine makes the same one."""

from __future__ import annotations

import io
import os
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import gymnasium as gym

import rido.simulators.envs  # noqa: F401 - registers the ids
from rido.core import checks
from rido.policies import hub, sb3
from rido.policies.base import Policies
from rido.policies.loaders import agent_files
from rido.policies.resolve import is_path
from rido.simulators.gymnasium import GymnasiumSimulator
from rido.simulators.opening import find_spec
from rido.simulators.parallel.sources import SameVersion, packages_of


def serialize(env: Any, policy: Any, settings: Mapping[str, Any]) -> bytes:
    """Returns the arguments of a :class:`GymnasiumSimulator` as bytes.

    Functions are sent as code where they cannot be imported, agents as the content of their files: a worker that
    starts later, or on another machine, gets the same ones as when the evaluation began.

    Args:
        env: an environment's id, or something that can be pickled.
        policy: the policy.
        settings: the other arguments.
    """
    spec = find_spec(env) if isinstance(env, str) else None
    contents: dict[str, Any] = {
        "version": SameVersion(),
        "env": _dump(
            lambda: (env, spec),
            f"env must be an id or a function that makes the environment, got {checks.shown(env)}, which",
        ),
        "policy": _dump(
            lambda: _portable(policy),
            "policy must be an agent or its path, 'module:attribute' or a function of observations alone, got "
            f"{checks.shown(policy)}, which",
        ),
        "components": _dump(
            lambda: settings.get("components"), "components must be names or a function of the transition, got one that"
        ),
        "settings": {name: value for name, value in settings.items() if name != "components"},
        "path": [entry or os.getcwd() for entry in sys.path],
    }
    contents["packages"] = packages_of(contents[name] for name in ("env", "policy", "components"))
    return _dump(
        lambda: contents, f"env_kwargs must be plain values, got {checks.shown(settings.get('env_kwargs'))}, which"
    )


def packages_in(content: bytes) -> frozenset[str]:
    """Returns the packages that a serialised simulator names."""
    packages: frozenset[str] = cloudpickle.loads(content)["packages"]
    return packages


def deserialize(content: bytes) -> GymnasiumSimulator:
    """Returns the simulator that was serialised. It runs code that comes with it."""
    contents = cloudpickle.loads(content)
    sys.path.extend(entry for entry in contents["path"] if entry not in sys.path)  # for modules of the user's own
    try:
        env, spec = cloudpickle.loads(contents["env"])
        policy = cloudpickle.loads(contents["policy"])
        components = cloudpickle.loads(contents["components"])
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"env, policy and components must be importable in a worker too, got {error!r}: install their module, or "
            "define them in the script itself"
        ) from error
    if spec is not None and spec.id not in gym.registry and ":" not in env:
        gym.registry[spec.id] = spec  # registered by the user's script, which no worker runs
    with ExitStack() as files:
        several = isinstance(policy, Policies)
        given = policy if several else Policies({"": policy})
        loaded = Policies({name: one.load(files) if isinstance(one, _Packed) else one for name, one in given.items()})
        acting = loaded if several else loaded[""]
        simulator = GymnasiumSimulator(env, acting, components=components, **contents["settings"])
    for name, one in given.items():
        if isinstance(one, _AgentFiles):
            simulator.policies[name].name = one.name
        if isinstance(one, _SavedModel):
            simulator.policies[name].normalisation = one.normalisation
            simulator.policies[name].warnings = one.warnings
    return simulator


class _Packed(ABC):
    """A policy in a form that can be sent."""

    @abstractmethod
    def load(self, files: ExitStack) -> Any:
        """Returns the policy; its files are there until the stack is closed."""


@dataclass(frozen=True)
class _AgentFiles(_Packed):
    """Contents of an agent's files, by their paths relative to the folder of the first, which is the agent's own."""

    name: str
    file: str
    files: dict[str, bytes]
    agent: hub.HubAgent | None = None  # that it was on the hub

    @staticmethod
    def read(found: Sequence[Path], agent: hub.HubAgent | None = None) -> _AgentFiles:
        path = found[0]
        files = {file.relative_to(path.parent).as_posix(): file.read_bytes() for file in found}
        name = "/".join(path.parts[-3:]) if agent is None else agent.name
        return _AgentFiles(name, path.name, files, agent)

    def load(self, files: ExitStack) -> Path | hub.HubAgent:
        folder = files.enter_context(tempfile.TemporaryDirectory())
        for name, content in self.files.items():
            target = Path(folder, name)
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(content)
        path = Path(folder, self.file)
        return path if self.agent is None else replace(self.agent, path=path)


@dataclass(frozen=True)
class _SavedModel(_Packed):
    """An SB3 model without its environment, and the statistics of its VecNormalize."""

    algorithm: Any
    content: bytes
    vecnormalize: Any
    normalisation: str  # of its policy, which a model without its environment does not know
    warnings: tuple[str, ...]

    def load(self, files: ExitStack) -> Any:
        buffers = {"buffer_size": 1, "n_steps": 1}  # only training needs them, and loading allocates them
        model = self.algorithm.load(io.BytesIO(self.content), device="cpu", custom_objects=buffers)
        model._vec_normalize_env = self.vecnormalize
        return model


def _portable(policy: Any) -> Any:
    if isinstance(policy, Policies):
        return Policies({name: _portable(one) for name, one in policy.items()})
    if isinstance(policy := hub.pinned(policy), hub.HubAgent):
        return _AgentFiles.read(agent_files(policy.path), policy)
    if is_path(policy):
        return _AgentFiles.read(files) if (files := agent_files(policy)) else policy
    if sb3.is_model(policy):
        buffer = io.BytesIO()
        policy.save(buffer)
        vecnormalize, told = policy.get_vec_normalize_env(), sb3.describe_normalisation(policy)
        return _SavedModel(type(policy), buffer.getvalue(), vecnormalize, told, sb3.missing_normalisation(policy))
    return policy


def _dump(get: Callable[[], Any], requirement: str) -> bytes:
    try:
        content: bytes = cloudpickle.dumps(get())
        return content
    except Exception as error:
        raise ValueError(f"{requirement} cannot be sent to another process: {error!r}") from error
