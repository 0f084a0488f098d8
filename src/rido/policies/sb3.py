"""Stable-Baselines3 and sb3-contrib agents: loading them and acting with them.

A pickle may run code. Pickles in an agent's files are therefore read with an allowlist of classes, which suffices for
agents without classes of the user's own; all others are unpickled only where the caller trusts the file.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import io
import json
import sys
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rido.policies.base import Generators, Policy, ValueFunction, call_in_blocks
from rido.policies.networks import Normalizer, numpy_actor, value_network
from rido.policies.observations import take
from rido.policies.untrusted import UntrustedFileError, check_declared_sizes, plain_weights_only, unpickle
from rido.storage.fingerprint import fingerprint

if TYPE_CHECKING:
    import gymnasium as gym

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
    ("clip_range", "stable_baselines3", "PPO"),
    ("gae_lambda", "stable_baselines3", "A2C"),
)

_VALUE_POLICIES = ("ActorCriticPolicy", "SACPolicy", "TQCPolicy", "TD3Policy", "DQNPolicy")  # have a value function
_PREDICT_BLOCKS = (16, 8, 4)  # rows in one call of predict(), tried in this order; larger blocks have less overhead

# Ant-v3 had 84 contact forces behind its 27 state values, and they were always zero.
_ANT_STATE, _ANT_WITH_ZEROS, _ANT_WITH_FORCES = (27,), (111,), (105,)


def is_model(thing: Any) -> bool:
    """Whether something is a Stable-Baselines3 or sb3-contrib model."""
    if sys.modules.get("stable_baselines3") is None:  # whoever has a model has imported it
        return False
    from stable_baselines3.common.base_class import BaseAlgorithm

    return isinstance(thing, BaseAlgorithm)


def is_network(thing: Any) -> bool:
    """Whether something is the policy of a Stable-Baselines3 or sb3-contrib model."""
    if sys.modules.get("stable_baselines3") is None:
        return False
    from stable_baselines3.common.policies import BasePolicy

    return isinstance(thing, BasePolicy)


class AgentPolicy(Policy):
    """A trained agent.

    Small networks act in numpy where that gives what SB3's ``predict`` gives; all others go through ``predict``.

    Args:
        model: A Stable-Baselines3 or sb3-contrib model, or its policy.
        observation_space: Observation space of one environment.
        action_space: Action space of one environment.
        deterministic: As in SB3's ``predict``.
        vecnormalize: Observation statistics the agent was trained with; the model's own if None.
        name: Name in results; the class of the model if None.
        fingerprint: Digest of the agent's files; that of its networks and statistics if not given.

    Attributes:
        model: The model.
        vecnormalize: SB3's ``VecNormalize`` with the statistics, or None.
    """

    def __init__(
        self,
        model: Any,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        deterministic: bool = True,
        vecnormalize: Any = None,
        name: str | None = None,
        fingerprint: str = "",
    ) -> None:
        self.model = model
        self._network = model.policy if is_model(model) else model
        _check_supported(type(self._network).__module__, type(model).__name__)
        if vecnormalize is None and is_model(model):
            vecnormalize = model.get_vec_normalize_env()
        self.vecnormalize = vecnormalize
        self._normalize = normalizer(vecnormalize)
        self.name = type(model).__name__ if name is None else name
        self._digest = fingerprint
        self._deterministic = deterministic
        self._missing = _missing_zeros(self.name, model.observation_space, observation_space)
        if _layout(model.action_space) != _layout(action_space):
            raise ValueError(
                f"environment must have actions like {self.name}'s, {model.action_space}, got {action_space}"
            )
        exploration_rate = float(getattr(model, "exploration_rate", 0.0))  # of DQN and QRDQN
        self._actor = numpy_actor(self._network, deterministic=deterministic, exploration_rate=exploration_rate)
        # Without a numpy actor, sampling uses torch's global generator.
        self.reproducible = deterministic or self._actor is not None
        self.draws = not deterministic and self._actor is not None
        self._block = self._steady_block() if self._actor is None and deterministic else 1

    def __call__(self, observations: Any, generators: Generators) -> NDArray[Any]:
        prepared = self.prepare(observations)
        if self._actor is not None:
            return self._actor(prepared, generators)
        if not self.reproducible:
            return self._predict(prepared)
        return call_in_blocks(self._predict, prepared, len(generators), self._block)

    @property
    def fingerprint(self) -> str:
        if self._digest:
            return self._digest
        # What the agent acts and values by: networks, exploration, discount, statistics.
        kinds = [type(self.model), *(type(part) for part in self._network.modules())]
        numbers = [getattr(self.model, name, None) for name in ("gamma", "exploration_rate")]
        settings = ("obs_rms", "ret_rms", "epsilon", "clip_obs", "norm_obs", "norm_reward", "norm_obs_keys")
        statistics = [getattr(self.vecnormalize, name, None) for name in settings]
        return fingerprint(kinds, str(self._network), self._network.state_dict(), numbers, statistics)

    def prepare(self, observations: Any) -> Any:
        """Observations as the agent's networks expect them: with zeros appended where they lack some, normalised."""
        if self._missing:
            zeros = np.zeros((len(observations), self._missing))
            observations = np.concatenate([observations, zeros], axis=1)
        if self._normalize is not None:
            return self._normalize(observations)
        if self.vecnormalize is not None:
            return self.vecnormalize.normalize_obs(observations)
        return observations

    def value_function(self) -> ValueFunction | None:
        """The value function that the agent learned in training.

        V(s) of PPO, A2C and TRPO; Q(s, a) of the agent's action for SAC, TD3, DDPG (the least of its critics) and TQC
        (the mean of its quantiles); the largest Q(s, a) of DQN. Values are in units of the environment's rewards, also
        where training normalised these.
        """
        if not any(base.__name__ in _VALUE_POLICIES for base in type(self._network).__mro__):
            return None
        network, scale = value_network(self._network), reward_scale(self.vecnormalize)

        def endless(observations: Any) -> NDArray[np.float64]:
            prepared = self.prepare(observations)
            if network is None:
                return _torch_values(self._network, prepared).astype(np.float64) * scale
            rows = prepared.reshape(len(prepared), -1).astype(np.float32, copy=False)
            return network(rows)[:, 0].astype(np.float64) * scale

        return ValueFunction(endless, float(getattr(self.model, "gamma", 1.0)), rowwise=network is not None)

    def _predict(self, prepared: Any, start: int = 0) -> NDArray[Any]:
        actions, _ = self.model.predict(prepared, deterministic=self._deterministic)
        return np.asarray(actions)

    def _steady_block(self) -> int:
        """Largest block in which predict() gives a row the same bits at every position; 1 always does."""
        from gymnasium.vector.utils import batch_space

        rows = _PREDICT_BLOCKS[0]
        space = batch_space(self.model.observation_space, rows)
        space.seed(0)
        batch = space.sample()
        for block in _PREDICT_BLOCKS:
            together = call_in_blocks(self._predict, batch, rows, block)
            alone = [call_in_blocks(self._predict, take(batch, np.array([row])), 1, block) for row in range(rows)]
            if np.array_equal(together, np.concatenate(alone)):
                return block
        return 1


def normalizer(vecnormalize: Any) -> Normalizer | None:
    """The observation statistics of a VecNormalize; None if there are none, or if observations are dictionaries."""
    if vecnormalize is None or not vecnormalize.norm_obs or isinstance(vecnormalize.obs_rms, dict):
        return None
    moments = vecnormalize.obs_rms
    deviation = np.sqrt(moments.var + vecnormalize.epsilon)
    return Normalizer(moments.mean, deviation, float(vecnormalize.clip_obs))


def reward_scale(vecnormalize: Any) -> float:
    """What a VecNormalize divided rewards by in training; 1 if there is none."""
    if vecnormalize is None or not vecnormalize.norm_reward:
        return 1.0
    return float(np.sqrt(vecnormalize.ret_rms.var + vecnormalize.epsilon))


def load_agent(
    path: str | Path,
    observation_space: gym.Space[Any],
    action_space: gym.Space[Any],
    *,
    deterministic: bool = True,
    trust: bool = True,
) -> AgentPolicy:
    """Load an agent from the zip that SB3's ``save`` wrote.

    The zip tells the algorithm. A ``vecnormalize.pkl`` beside it, or in the folder of the zip's name (the layout of RL
    Baselines3 Zoo), gives the observation statistics. Files saved with the old ``gym`` load too.

    Args:
        path: The zip, with or without its suffix.
        observation_space: Observation space of one environment.
        action_space: Action space of one environment.
        deterministic: As in SB3's ``predict``.
        trust: Whether the files may run code. Agents made of the classes of SB3, torch, Gymnasium and numpy load
            without.

    Raises:
        UntrustedFileError: The files need code of somebody else, and are not trusted.
    """
    _require("stable_baselines3")
    path = _existing(path)
    digest = hashlib.sha256(path.read_bytes())
    model = _load_model(path, trust)
    vecnormalize, statistics = _load_statistics(path, trust)
    if vecnormalize is None and _trained_under_vecnormalize(_data(path)):
        warnings.warn(
            f"{path.name} was trained under VecNormalize, and its observations are not normalised now: put "
            "vecnormalize.pkl beside it",
            stacklevel=2,
        )
    digest.update(statistics)
    return AgentPolicy(
        model,
        observation_space,
        action_space,
        deterministic=deterministic,
        vecnormalize=vecnormalize,
        name="/".join(path.parts[-3:]),
        fingerprint=digest.hexdigest(),
    )


def code_needed(path: str | Path) -> str | None:
    """Return what an agent's files would run of somebody else's code; None if they load without trust."""
    _require("stable_baselines3")
    try:
        path = _existing(path)
        _attributes(path, _data(path), trust=False)
        _load_statistics(path, trust=False)
    except UntrustedFileError as error:
        return str(error)
    return None


def _existing(path: str | Path) -> Path:
    path = Path(path)
    if not path.is_file() and path.suffix != ".zip":
        path = path.with_name(f"{path.name}.zip")
    if not path.is_file():
        raise ValueError(f"policy must be the path of an existing zip, got {path}")
    return path


def _data(path: Path) -> dict[str, Any]:
    """What SB3 saved beside the weights, with pickles as text."""
    try:
        with zipfile.ZipFile(path) as archive:
            check_declared_sizes(archive, path.stat().st_size)
            for weights in (name for name in archive.namelist() if name.endswith(".pth")):
                content = archive.read(weights)
                if zipfile.is_zipfile(io.BytesIO(content)):  # torch's own format
                    check_declared_sizes(zipfile.ZipFile(io.BytesIO(content)), len(content))
            data = json.loads(archive.read("data"))
        if not isinstance(data, dict) or not isinstance(data["policy_class"], dict):
            raise ValueError("its data is not that of an agent")
    except Exception as error:  # a damaged zip raises nearly anything, NotImplementedError included
        raise _not_an_agent(path, error) from error
    return data


def _attributes(path: Path, data: Mapping[str, Any], *, trust: bool) -> dict[str, Any]:
    """What SB3's ``load`` is not to unpickle by itself, by name."""
    # What only training needs is replaced: it may not unpickle under this Python, or may be huge (loading allocates
    # the replay buffer and the rollout buffer).
    attributes: dict[str, Any] = {"learning_rate": 0.0, "lr_schedule": _zero, "clip_range": _zero, "buffer_size": 1}
    attributes |= {"exploration_schedule": _zero, "delta_std_schedule": _zero, "train_freq": 1}
    attributes |= {"_last_obs": None, "_last_original_obs": None, "_last_episode_starts": None}
    attributes |= {"ep_info_buffer": None, "ep_success_buffer": None, "action_noise": None, "n_steps": 1, "n_envs": 1}
    attributes |= {"weights": None}  # of ARS, whose network has them too
    for key, value in data.items():
        if key not in attributes and isinstance(value, dict) and ":serialized:" in value:
            try:
                attributes[key] = unpickle(base64.b64decode(value[":serialized:"]), path, trust=trust)
            except UntrustedFileError:
                raise
            except Exception as error:
                raise _not_an_agent(path, error) from error
    return attributes


def _load_model(path: Path, trust: bool) -> Any:
    data = _data(path)
    _check_supported(str(data["policy_class"].get("__module__", "")), path.name)
    known = [(package, name) for attribute, package, name in _ALGORITHMS if attribute in data]
    if not known:
        raise ValueError(f"policy must be an agent of a known SB3 algorithm, got {path}")
    package, name = known[0]
    _require(package)
    algorithm = getattr(importlib.import_module(package), name)
    attributes = _attributes(path, data, trust=trust)
    with warnings.catch_warnings(), plain_weights_only(not trust):
        warnings.filterwarnings("ignore", message=".*loading a A2C/PPO model saved with SB3 < 1.7.0.*")
        warnings.filterwarnings("ignore", message=".*loading a DQN model saved with SB3 < 2.4.0.*")
        try:
            return algorithm.load(path, device="cpu", custom_objects=attributes)
        except Exception as error:  # whatever a damaged or incomplete zip makes of SB3's and torch's loading
            raise _not_an_agent(path, error) from error


def _load_statistics(path: Path, trust: bool) -> tuple[Any, bytes]:
    """The VecNormalize that belongs to a zip, and the content of its file; None and nothing if there is none."""
    from stable_baselines3.common.vec_env import VecNormalize

    for file in (path.with_name("vecnormalize.pkl"), path.with_suffix("") / "vecnormalize.pkl"):
        if not file.is_file():
            continue
        content = file.read_bytes()
        try:
            found = unpickle(content, file, trust=trust)
        except UntrustedFileError:
            raise
        except Exception as error:
            raise ValueError(f"{file} must be written by VecNormalize.save(): {error!r:.300}") from error
        if not isinstance(found, VecNormalize):
            raise ValueError(f"{file} must be written by VecNormalize.save(), got a {type(found).__name__}")
        return found, content
    return None, b""


def _trained_under_vecnormalize(data: Mapping[str, Any]) -> bool:
    """Whether a zip tells so. On-policy agents keep original observations only then; others keep them always."""
    return "gae_lambda" in data and data.get("_last_original_obs") is not None


def _not_an_agent(path: Path, error: Exception) -> ValueError:
    return ValueError(f"policy must be a zip written by SB3's save(), got {path}: {error!r:.300}")


def _zero(_: float) -> float:
    return 0.0


def _require(package: str) -> None:
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise ImportError(f'This agent needs {package}: pip install "rido[sb3]"') from error


def _check_supported(policy_module: str, name: str) -> None:
    if ".recurrent." in policy_module:
        raise ValueError(f"policy must not be recurrent (its memory is not kept), got {name}")
    if ".maskable." in policy_module:
        raise ValueError(f"policy must not need action masks (they are not passed on), got {name}")


def _torch_values(policy: Any, observations: Any) -> NDArray[Any]:
    """Values of prepared observations by a policy of SB3, computed in torch."""
    import torch

    kinds = {base.__name__ for base in type(policy).__mro__}
    with torch.no_grad():
        tensor, _ = policy.obs_to_tensor(observations)
        if "ActorCriticPolicy" in kinds:
            values = policy.predict_values(tensor)[:, 0]
        elif "DQNPolicy" in kinds:
            values = policy.q_net(tensor).amax(dim=1)
        elif "TQCPolicy" in kinds:
            values = policy.critic(tensor, policy.actor(tensor, deterministic=True)).mean(dim=(1, 2))
        else:  # critics take actions as the networks give them, in [-1, 1]
            options = {"deterministic": True} if "SACPolicy" in kinds else {}
            values = torch.cat(policy.critic(tensor, policy.actor(tensor, **options)), dim=1).amin(dim=1)
        array: NDArray[Any] = values.cpu().numpy()
        return array


def _missing_zeros(name: str, trained: gym.Space[Any], given: gym.Space[Any]) -> int:
    """Number of zeros to append to the environment's observations; an error where they do not fit the agent."""
    if (trained.shape, given.shape) == (_ANT_WITH_ZEROS, _ANT_STATE):
        return _ANT_WITH_ZEROS[0] - _ANT_STATE[0]
    if (trained.shape, given.shape) == (_ANT_WITH_ZEROS, _ANT_WITH_FORCES):
        raise ValueError(
            f"environment must give the 27 state values of Ant-v3 for {name}, got 105: make it with "
            "include_cfrc_ext_in_observation=False"
        )
    if _layout(trained) != _layout(given):
        raise ValueError(f"environment must have observations like {name}'s, {trained}, got {given}")
    return 0


def _layout(space: gym.Space[Any]) -> Any:
    """What two spaces must have in common: their kind, and shape or numbers of choices."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        return {key: _layout(part) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return [_layout(part) for part in space.spaces]
    choices = getattr(space, "nvec", getattr(space, "n", None))
    return type(space).__name__, space.shape, np.asarray(choices).tolist()
