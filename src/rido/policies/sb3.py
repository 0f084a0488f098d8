"""Stable-Baselines3 and sb3-contrib agents: loading them and acting with them.

Loading unpickles the agent's files, and a pickle runs code: only files that the user named are ever loaded.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import importlib
import io
import json
import pickle
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rido.policies.base import Generators, Policy, ValueFunction, call_in_blocks, take
from rido.storage.fingerprint import fingerprint

if TYPE_CHECKING:
    import gymnasium as gym

# What gives an algorithm away among the attributes it saves; the first one found decides. DDPG is saved as what it
# is, a TD3 with other settings.
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

# Policies with a value function.
_VALUED = ("ActorCriticPolicy", "SACPolicy", "TQCPolicy", "TD3Policy", "DQNPolicy")

# Rows in one call of predict(), tried in this order; larger blocks have less overhead.
_PREDICT_BLOCKS = (16, 8, 4)

# Ant-v3 had 84 contact forces behind its 27 state values, and they were always zero.
_ANT_STATE, _ANT_WITH_ZEROS, _ANT_WITH_FORCES = (27,), (111,), (105,)


class AgentPolicy(Policy):
    """A trained agent.

    Small networks act through numpy where that gives what SB3's ``predict`` gives; everything else goes through
    ``predict``.

    Args:
        model: A Stable-Baselines3 or sb3-contrib model, or its policy.
        observation_space: Of one environment.
        action_space: Of one environment.
        deterministic: As in SB3's ``predict``.
        vecnormalize: Observation statistics the agent was trained with; the model's own if None.
        name: What the policy is called in results.
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
        _refuse(type(getattr(model, "policy", model)).__module__, type(model).__name__)
        self.model = model
        if vecnormalize is None and hasattr(model, "get_vec_normalize_env"):
            vecnormalize = model.get_vec_normalize_env()
        self.vecnormalize = vecnormalize
        self._statistics = _array_statistics(vecnormalize)
        self.name = type(model).__name__ if name is None else name
        self._digest = fingerprint
        self._deterministic = deterministic
        self._missing = _missing_zeros(self.name, model.observation_space, observation_space)
        _check_actions(self.name, model.action_space, action_space)

        from rido.policies.networks import numpy_actor

        self._actor = numpy_actor(model, deterministic=deterministic)
        # Without an actor of ours, sampling means torch's global generator.
        self.reproducible = deterministic or self._actor is not None
        self.draws = not deterministic and self._actor is not None
        self._block = self._steady_block() if self._actor is None and deterministic else 1

    def __call__(self, observations: Any, generators: Generators) -> NDArray[Any]:
        """Actions for a batch."""
        prepared = self.prepare(observations)
        if self._actor is not None:
            return self._actor(prepared, generators)
        if not self.reproducible:
            return self._predict(prepared)
        return call_in_blocks(self._predict, prepared, len(generators), self._block)

    @property
    def fingerprint(self) -> str:
        """Digest of the agent."""
        return self._digest or _fingerprint(self.model, self.vecnormalize)

    def prepare(self, observations: Any) -> Any:
        """Observations as the agent's networks expect them: filled up with zeros, normalised."""
        if self._missing:
            zeros = np.zeros((len(observations), self._missing))
            observations = np.concatenate([observations, zeros], axis=1)
        if self._statistics is not None:
            mean, deviation, limit = self._statistics
            scaled = np.minimum(np.maximum((observations - mean) / deviation, -limit), limit)
            return scaled.astype(np.float32)
        if self.vecnormalize is not None:
            return self.vecnormalize.normalize_obs(observations)
        return observations

    def value_function(self) -> ValueFunction | None:
        """The value function that the agent learned in training.

        V(s) of PPO, A2C and TRPO; Q(s, a) of the action that the agent takes for SAC, TD3, DDPG (the least of its
        critics) and TQC (the mean of its quantiles); the largest Q(s, a) of DQN. Values are brought back to the
        environment's rewards where training normalised them.
        """
        from rido.policies.networks import value_network

        if not any(base.__name__ in _VALUED for base in type(getattr(self.model, "policy", self.model)).__mro__):
            return None
        network, scale = value_network(self.model), 1.0
        value = _torch_value(self.model) if network is None else lambda rows: network(rows)[:, 0]
        if self.vecnormalize is not None and self.vecnormalize.norm_reward:
            scale = float(np.sqrt(self.vecnormalize.ret_rms.var + self.vecnormalize.epsilon))

        def endless(observations: Any) -> NDArray[np.float64]:
            prepared = self.prepare(observations)
            if network is not None:
                prepared = prepared.reshape(len(prepared), -1).astype(np.float32, copy=False)
            return value(prepared).astype(np.float64) * scale

        return ValueFunction(endless, float(getattr(self.model, "gamma", 1.0)), rowwise=network is not None)

    def _predict(self, prepared: Any, start: int = 0) -> NDArray[Any]:
        actions, _ = self.model.predict(prepared, deterministic=self._deterministic)
        return np.asarray(actions)

    def _steady_block(self) -> int:
        """Largest block in which predict() gives a row the same bits at every position; 1 always does."""
        space = copy.deepcopy(self.model.observation_space)
        space.seed(0)
        rows = _PREDICT_BLOCKS[0]
        samples = [space.sample() for _ in range(rows)]
        if isinstance(samples[0], dict):
            batch: Any = {key: np.stack([sample[key] for sample in samples]) for key in samples[0]}
        else:
            batch = np.stack(samples)
        for block in _PREDICT_BLOCKS:
            together = call_in_blocks(self._predict, batch, rows, block)
            alone = [call_in_blocks(self._predict, take(batch, np.array([row])), 1, block) for row in range(rows)]
            if np.array_equal(together, np.concatenate(alone)):
                return block
        return 1


def _fingerprint(model: Any, vecnormalize: Any) -> str:
    """Digest of what an agent acts and values by: networks, exploration, discount, statistics."""
    policy = getattr(model, "policy", model)
    numbers = [getattr(model, name, None) for name in ("gamma", "exploration_rate")]
    settings = ("obs_rms", "ret_rms", "epsilon", "clip_obs", "norm_obs", "norm_reward", "norm_obs_keys")
    statistics = [getattr(vecnormalize, name, None) for name in settings]
    kinds = [type(model), *(type(part) for part in policy.modules())]
    return fingerprint(kinds, str(policy), policy.state_dict(), numbers, statistics)


def load_agent(
    path: str | Path,
    observation_space: gym.Space[Any],
    action_space: gym.Space[Any],
    *,
    deterministic: bool = True,
) -> AgentPolicy:
    """Load an agent from the zip that SB3's ``save`` wrote.

    The algorithm is found out from the zip. A ``vecnormalize.pkl`` beside it, or in the folder of the zip's name (the
    layout of RL Baselines3 Zoo), gives the observation statistics. Files saved with the old ``gym`` load too.

    Unpickling runs code that the file contains: load only what you trust.

    Args:
        path: The zip, with or without its suffix.
        observation_space: Of one environment.
        action_space: Of one environment.
        deterministic: As in SB3's ``predict``.
    """
    _require("stable_baselines3")
    path = Path(path)
    if not path.is_file():
        path = path.with_name(f"{path.name}.zip")
    if not path.is_file():
        raise ValueError(f"policy must be the path of an existing zip, got {path}")
    digest = hashlib.sha256(path.read_bytes())
    model = _load_model(path)
    vecnormalize = None
    for statistics in (path.with_name("vecnormalize.pkl"), path.with_suffix("") / "vecnormalize.pkl"):
        if statistics.is_file():
            content = statistics.read_bytes()
            vecnormalize = _Unpickler(io.BytesIO(content)).load()
            digest.update(content)
            break
    return AgentPolicy(
        model,
        observation_space,
        action_space,
        deterministic=deterministic,
        vecnormalize=vecnormalize,
        name="/".join(path.parts[-3:]),
        fingerprint=digest.hexdigest(),
    )


def _load_model(path: Path) -> Any:
    try:
        with zipfile.ZipFile(path) as archive:
            data = json.loads(archive.read("data"))
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        raise ValueError(f"policy must be a zip written by SB3's save(), got {path}: {error}") from error
    _refuse(data["policy_class"].get("__module__", ""), path.name)
    known = [(package, name) for attribute, package, name in _ALGORITHMS if attribute in data]
    if not known:
        raise ValueError(f"policy must be an agent of a known SB3 algorithm, got {path}")
    package, name = known[0]
    _require(package)
    algorithm = getattr(importlib.import_module(package), name)
    # The spaces may be gym's. What only training needs may not unpickle under this Python, or be huge (the replay
    # buffer that is allocated at loading).
    replaced: dict[str, Any] = {
        key: _Unpickler(io.BytesIO(base64.b64decode(data[key][":serialized:"]))).load()
        for key in ("observation_space", "action_space")
    }
    replaced |= {"learning_rate": 0.0, "lr_schedule": _zero, "clip_range": _zero, "buffer_size": 1}
    replaced |= {"exploration_schedule": _zero, "delta_std_schedule": _zero, "train_freq": 1}
    replaced |= {"_last_obs": None, "_last_original_obs": None, "_last_episode_starts": None}
    replaced |= {"ep_info_buffer": None, "ep_success_buffer": None, "action_noise": None}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*loading a A2C/PPO model saved with SB3 < 1.7.0.*")
        warnings.filterwarnings("ignore", message=".*loading a DQN model saved with SB3 < 2.4.0.*")
        return algorithm.load(path, device="cpu", custom_objects=replaced)


class _Unpickler(pickle.Unpickler):
    """Reads what was saved with gym as if it had been saved with gymnasium."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "gym" or module.startswith("gym."):
            module = f"gymnasium{module[3:]}"
        return super().find_class(module, name)


def _zero(_: float) -> float:
    return 0.0


def _require(package: str) -> None:
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise ImportError(f'This agent needs {package}: pip install "rido[sb3]"') from error


def _refuse(policy_module: str, name: str) -> None:
    if ".recurrent." in policy_module:
        raise ValueError(f"policy must not be recurrent (its memory is not kept), got {name}")
    if ".maskable." in policy_module:
        raise ValueError(f"policy must not need action masks (they are not passed on), got {name}")


def _torch_value(model: Any) -> Callable[[Any], NDArray[Any]]:
    """The value function of a model through torch, on prepared observations."""
    import torch

    policy = getattr(model, "policy", model)
    kinds = {base.__name__ for base in type(policy).__mro__}

    def value(observations: Any) -> NDArray[Any]:
        with torch.no_grad():
            tensor, _ = policy.obs_to_tensor(observations)
            if "ActorCriticPolicy" in kinds:
                values = policy.predict_values(tensor)[:, 0]
            elif "DQNPolicy" in kinds:
                values = policy.q_net(tensor).amax(dim=1)
            elif "TQCPolicy" in kinds:
                values = policy.critic(tensor, policy.actor(tensor, deterministic=True)).mean(dim=(1, 2))
            else:  # critics see actions as networks give them, in [-1, 1]
                options = {"deterministic": True} if "SACPolicy" in kinds else {}
                values = torch.cat(policy.critic(tensor, policy.actor(tensor, **options)), dim=1).amin(dim=1)
            array: NDArray[Any] = values.cpu().numpy()
            return array

    return value


def _array_statistics(vecnormalize: Any) -> tuple[NDArray[np.float64], NDArray[np.float64], float] | None:
    """Mean, deviation and limit of VecNormalize for observations that are arrays; SB3 itself spends more time on it."""
    if vecnormalize is None or not vecnormalize.norm_obs or isinstance(vecnormalize.obs_rms, dict):
        return None
    moments = vecnormalize.obs_rms
    return moments.mean, np.sqrt(moments.var + vecnormalize.epsilon), float(vecnormalize.clip_obs)


def _missing_zeros(name: str, trained: gym.Space[Any], given: gym.Space[Any]) -> int:
    """Zeros to append to the environment's observations; an error where the agent cannot read them at all."""
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


def _check_actions(name: str, trained: gym.Space[Any], given: gym.Space[Any]) -> None:
    if _layout(trained) != _layout(given):
        raise ValueError(f"environment must have actions like {name}'s, {trained}, got {given}")


def _layout(space: Any) -> Any:
    """What two spaces must share: their kind, and shape or numbers of choices."""
    if hasattr(space, "spaces"):
        parts = space.spaces.items() if hasattr(space.spaces, "items") else enumerate(space.spaces)
        return {key: _layout(part) for key, part in parts}
    choices = getattr(space, "nvec", getattr(space, "n", None))
    return type(space).__name__, space.shape, np.asarray(choices).tolist()
