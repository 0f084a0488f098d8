"""Loading of Stable-Baselines3 and sb3-contrib agents from the zip that SB3's ``save`` wrote.

A pickle may run code. Pickles in an agent's files are therefore read with an allowlist of classes, which suffices for
agents made of known classes; all others are unpickled only where the caller trusts the file.
"""

import base64
import hashlib
import json
import re
import warnings
import zipfile
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from rido.core.extras import import_extra
from rido.policies import untrusted
from rido.policies.base import Space
from rido.policies.sb3 import AgentPolicy, agent_policy, check_supported
from rido.policies.untrusted import UntrustedFileError

# In the names of files that may have statistics of observations.
_STATISTICS = re.compile(r"vec.?norm|normali[sz]|norm.?(stat|obs)|obs.?rms")

# Algorithms are recognised by the attributes that they save; the first one found decides. DDPG is saved as TD3.
_ALGORITHMS = (
    ("delta_std_schedule", "sb3_contrib", "ARS"),
    ("top_quantiles_to_drop_per_net", "sb3_contrib", "TQC"),
    ("target_policy_noise", "stable_baselines3", "TD3"),
    ("policy_delay", "sb3_contrib", "CrossQ"),
    ("target_entropy", "stable_baselines3", "SAC"),
    ("n_quantiles", "sb3_contrib", "QRDQN"),
    ("exploration_rate", "stable_baselines3", "DQN"),
    ("cg_max_steps", "sb3_contrib", "TRPO"),
    ("_last_lstm_states", "sb3_contrib", "RecurrentPPO"),
    ("clip_range", "stable_baselines3", "PPO"),
    ("gae_lambda", "stable_baselines3", "A2C"),
)


def load_agent(
    path: Path, observation_space: Space, action_space: Space, *, deterministic: bool = True, trust: bool = False
) -> AgentPolicy:
    """Loads an agent from the zip that SB3's ``save`` wrote.

    The zip tells the algorithm. A ``vecnormalize.pkl`` or ``vec_normalize.pkl`` beside it, or one in the folder of the
    zip's name (the layout of RL Baselines3 Zoo), gives the observation statistics. Files of the old ``gym`` load
    too.

    Args:
        path: The zip.
        observation_space: Observation space of one environment.
        action_space: Action space of one environment.
        deterministic: As in SB3's ``predict``.
        trust: Whether the files may run code. Agents made of the classes of SB3, torch, Gymnasium and numpy load
            without.

    Raises:
        UntrustedFileError: The files need other people's code, and are not trusted.
    """
    import_extra("this agent", "stable_baselines3", "sb3")
    digest = hashlib.sha256(path.read_bytes())
    data = _data(path)
    model = _load_model(path, data, trust)
    vars(model).update(_last_observations(path, data, trust))
    vecnormalize, file = _load_statistics(path, trust)
    digest.update(b"" if file is None else file.read_bytes())
    return agent_policy(
        model,
        observation_space,
        action_space,
        deterministic=deterministic,
        vecnormalize=vecnormalize,
        statistics="no vecnormalize.pkl beside the zip" if file is None else file.name,
        unused=next((similar.name for similar in similar_files(path)), ""),
        name="/".join(path.parts[-3:]),
        fingerprint=digest.hexdigest(),
    )


def code_needed(path: Path) -> str | None:
    """What an agent's files would run of other people's code; None if they load without trust."""
    import_extra("this agent", "stable_baselines3", "sb3")
    try:
        _attributes(path, _data(path), trust=False)
        _load_statistics(path, trust=False)
    except UntrustedFileError as error:
        return str(error)
    return None


def _data(path: Path) -> dict[str, Any]:
    """What SB3 saved beside the weights, with pickles as text."""
    try:
        with zipfile.ZipFile(path) as archive:
            untrusted.check_declared_sizes(archive, path.stat().st_size)
            for weights in (name for name in archive.namelist() if name.endswith(".pth")):
                untrusted.check_weights(archive.read(weights))
            data = json.loads(archive.read("data"))
        if not isinstance(data, dict) or not isinstance(data["policy_class"], dict):
            raise ValueError("its data is not that of an agent")
    except Exception as error:  # a damaged zip raises nearly anything
        raise _not_an_agent(path, error) from error
    return data


def _attributes(path: Path, data: Mapping[str, Any], *, trust: bool) -> dict[str, Any]:
    """What SB3's ``load`` is not to unpickle by itself, by name."""
    # What only training needs is replaced: it may not unpickle under this Python, or may be huge (loading allocates
    # the replay buffer and the rollout buffer). ARS has its weights in its network too.
    attributes: dict[str, Any] = {"learning_rate": 0.0, "buffer_size": 1, "train_freq": 1, "n_steps": 1, "n_envs": 1}
    attributes |= dict.fromkeys(
        ("lr_schedule", "clip_range", "exploration_schedule", "delta_std_schedule"), lambda _: 0.0
    )
    attributes |= dict.fromkeys(("_last_obs", "_last_original_obs", "_last_episode_starts", "_last_lstm_states"))
    attributes |= dict.fromkeys(("ep_info_buffer", "ep_success_buffer", "action_noise", "weights"))
    for key, value in data.items():
        if key not in attributes and isinstance(value, dict) and ":serialized:" in value:
            try:
                attributes[key] = untrusted.unpickle(base64.b64decode(value[":serialized:"]), path, trust=trust)
                untrusted.check_space(attributes[key])
            except UntrustedFileError:
                raise
            except Exception as error:
                raise _not_an_agent(path, error) from error
    return attributes


def _load_model(path: Path, data: Mapping[str, Any], trust: bool) -> Any:
    check_supported(str(data["policy_class"].get("__module__", "")), path.name)
    package, name = next((known for attribute, *known in _ALGORITHMS if attribute in data), ("", ""))
    if not package:
        raise ValueError(f"policy must be an agent of a known SB3 algorithm, got {path}")
    algorithm = getattr(import_extra("this agent", package, "sb3"), name)
    attributes = _attributes(path, data, trust=trust)
    with zipfile.ZipFile(path) as archive:  # networks have no more numbers than the weights that fill them
        sizes = [entry.file_size for entry in archive.infolist() if entry.filename.endswith(".pth")]
    most = max(untrusted.SMALL_BYTES, 2 * sum(sizes))
    with warnings.catch_warnings(), nullcontext() if trust else untrusted.limited_loading(most):
        warnings.filterwarnings("ignore", message=".*loading a A2C/PPO model saved with SB3 < 1.7.0.*")
        warnings.filterwarnings("ignore", message=".*loading a DQN model saved with SB3 < 2.4.0.*")
        try:
            return algorithm.load(path, device="cpu", custom_objects=attributes)
        except Exception as error:  # whatever a damaged or incomplete zip makes of SB3's and torch's loading
            raise _not_an_agent(path, error) from error


def statistics_files(path: Path) -> list[Path]:
    """The files beside a zip that may hold its observation statistics; the first one that exists is used."""
    return [
        path.with_name("vecnormalize.pkl"),
        path.with_name("vec_normalize.pkl"),
        path.with_suffix("") / "vecnormalize.pkl",
    ]


def _load_statistics(path: Path, trust: bool) -> tuple[Any, Path | None]:
    """The VecNormalize that belongs to a zip, and its file; None if there is none."""
    from stable_baselines3.common.vec_env import VecNormalize

    file = next((file for file in statistics_files(path) if file.is_file()), None)
    if file is None:
        return None, None
    try:
        found = untrusted.unpickle(file.read_bytes(), file, trust=trust)
    except UntrustedFileError:
        raise
    except Exception as error:
        raise ValueError(f"{file} must be written by VecNormalize.save(): {error!r:.300}") from error
    if not isinstance(found, VecNormalize):
        raise ValueError(f"{file} must be written by VecNormalize.save(), got a {type(found).__name__}")
    return found, file


def similar_files(path: Path) -> list[Path]:
    """The file beside a zip without statistics that may have them; of several the one with the same steps."""
    if any(file.is_file() for file in statistics_files(path)):
        return []
    folders = (path.parent, path.with_suffix(""))
    found = [file for folder in folders for file in folder.glob("*.pkl") if _STATISTICS.search(file.name.lower())]
    steps = re.findall(r"\d+", path.stem)
    return sorted(found, key=lambda file: (re.findall(r"\d+", file.stem) != steps, file))[:1]


def _last_observations(path: Path, data: Mapping[str, Any], trust: bool) -> dict[str, Any]:
    """The last observation that an agent saw, and as its environment gave it; None where it cannot be read."""
    found: dict[str, Any] = {"_last_obs": None, "_last_original_obs": None}
    for name in [name for name in found if data.get(name) is not None]:
        try:
            found[name] = untrusted.unpickle(base64.b64decode(data[name][":serialized:"]), path, trust=trust)
        except Exception:  # of another version of numpy, or not to be trusted
            found[name] = None if name == "_last_obs" else np.empty(0)
    return found


def _not_an_agent(path: Path, error: Exception) -> ValueError:
    return ValueError(f"policy must be a zip written by SB3's save(), got {path}: {error!r:.300}")
