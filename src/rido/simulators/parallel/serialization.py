"""A :class:`GymnasiumSimulator` as bytes, from which another process or machine makes the same one."""

import io
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
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
        if isinstance(one, _Packed):
            vars(simulator.policies[name]).update(one.says)
    return simulator


@dataclass(frozen=True)
class _Packed:
    """A policy that can be sent: what loads it, with files that stay until a stack is closed, and what it says."""

    load: Callable[[ExitStack], Any]
    says: Mapping[str, Any]


def _portable(policy: Any) -> Any:
    if isinstance(policy, Policies):
        return Policies({name: _portable(one) for name, one in policy.items()})
    agent = hub.pinned(policy)
    path = agent.path if isinstance(agent, hub.HubAgent) else policy
    if is_path(path):
        if not (found := agent_files(path)):
            return policy
        files = {file.relative_to(found[0].parent).as_posix(): file.read_bytes() for file in found}
        on_hub = isinstance(agent, hub.HubAgent)
        name = agent.name if on_hub else "/".join(found[0].parts[-3:])
        load = partial(_written, files=files, name=found[0].name, agent=agent if on_hub else None)
        return _Packed(load, {"name": name})
    if sb3.is_model(policy):
        policy.save(buffer := io.BytesIO())
        load = partial(_loaded, kind=type(policy), content=buffer.getvalue(), statistics=policy.get_vec_normalize_env())
        warnings = sb3.missing_normalisation(policy)  # a model without its environment does not know
        return _Packed(load, {"normalisation": sb3.describe_normalisation(policy), "warnings": warnings})
    return policy


def _written(stack: ExitStack, files: Mapping[str, bytes], name: str, agent: hub.HubAgent | None) -> Any:
    """Writes an agent's files, by their paths relative to the folder of its own, and returns the agent."""
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    for file, content in files.items():
        target = Path(folder, file)
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(content)
    path = Path(folder, name)
    return path if agent is None else replace(agent, path=path)


def _loaded(stack: ExitStack, kind: Any, content: bytes, statistics: Any) -> Any:
    """Loads an SB3 model, which was sent without its environment, and the statistics of its VecNormalize."""
    buffers = {"buffer_size": 1, "n_steps": 1}  # only training needs them, and loading allocates them
    model = kind.load(io.BytesIO(content), device="cpu", custom_objects=buffers)
    model._vec_normalize_env = statistics
    return model


def _dump(get: Callable[[], Any], requirement: str) -> bytes:
    try:
        content: bytes = cloudpickle.dumps(get())
        return content
    except Exception as error:
        raise ValueError(f"{requirement} cannot be sent to another process: {error!r}") from error
