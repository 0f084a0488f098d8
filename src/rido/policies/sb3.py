"""Stable-Baselines3 and sb3-contrib agents: acting with them. :mod:`rido.policies.sb3_zip` loads them."""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rido.policies.actions import one_by_one
from rido.policies.base import Actor, Generators, Policy, Space, ValueFunction, call_in_blocks, steady_block
from rido.policies.functions import PredictPolicy
from rido.policies.networks import Normalizer, numpy_actor
from rido.policies.observations import stack_alike, take
from rido.policies.recurrent import RecurrentPolicy
from rido.policies.sb3_values import numpy_advantages, numpy_values, torch_values, value_kind
from rido.policies.tensors import sampling_from
from rido.record.fingerprint import fingerprint

# Ant-v3 had 84 contact forces behind its 27 state values, and they were always zero.
_ANT_STATE, _ANT_WITH_ZEROS, _ANT_WITH_FORCES = (27,), (111,), (105,)


def is_model(thing: Any) -> bool:
    """Whether something is a Stable-Baselines3 or sb3-contrib model."""
    return _is_a("base_class", "BaseAlgorithm", thing)


def is_network(thing: Any) -> bool:
    """Whether something is the policy of a Stable-Baselines3 or sb3-contrib model."""
    return _is_a("policies", "BasePolicy", thing)


def _is_a(module: str, name: str, thing: Any) -> bool:
    found = sys.modules.get(f"stable_baselines3.common.{module}")  # whoever has a model has imported it
    return isinstance(thing, getattr(found, name, ()))


class AgentPolicy(Policy):
    """A trained agent: a Stable-Baselines3 or sb3-contrib model, or its policy.

    Small networks act in numpy where that gives what SB3's ``predict`` gives; all others go through ``predict``.

    Args:
        model: The model.
        observation_space: Observation space of one environment.
        action_space: Action space of one environment.
        deterministic: As in SB3's ``predict``.
        vecnormalize: ``VecNormalize`` with the statistics of training; the model's own if None.
        statistics: Where they come from, or why there are none; the model tells if not given.
        unused: A file beside the agent that may have the statistics, and is not used.
        name: Name in results; the class of the model if None.
        fingerprint: Digest of the agent's files; that of its networks and statistics if not given.
    """

    def __init__(
        self,
        model: Any,
        observation_space: Space,
        action_space: Space,
        *,
        deterministic: bool = True,
        vecnormalize: Any = None,
        statistics: str = "",
        unused: str = "",
        name: str | None = None,
        fingerprint: str = "",
    ) -> None:
        self.model = model
        self._network = model.policy if is_model(model) else model
        check_supported(type(self._network).__module__, type(model).__name__)
        if vecnormalize is None and is_model(model):
            vecnormalize = model.get_vec_normalize_env()
        self.vecnormalize = vecnormalize
        self._normalize = normalizer(vecnormalize)
        self.normalisation = describe_normalisation(model, vecnormalize, statistics)
        self.name = type(model).__name__ if name is None else name
        if vecnormalize is None:
            self.warnings = missing_normalisation(model, self.name, statistics, unused)
        self._digest = fingerprint
        self._deterministic = deterministic
        self._exploration_rate = float(getattr(model, "exploration_rate", 0.0))  # of DQN and QRDQN
        self._missing = _missing_zeros(self.name, model.observation_space, observation_space)
        if _layout(model.action_space) != _layout(action_space):
            raise ValueError(
                f"environment must have actions like {self.name}'s, {model.action_space}, got {action_space}"
            )
        self._choose_network()

    def _choose_network(self) -> None:
        """Decides between numpy and SB3's ``predict``."""
        deterministic, rate = self._deterministic, self._exploration_rate
        self._actor = numpy_actor(self._network, deterministic=deterministic, exploration_rate=rate)
        # Without a numpy actor, sampling uses torch's global generator.
        self.reproducible = deterministic or self._actor is not None
        self.draws = not deterministic and self._actor is not None
        needed = self._actor is None and deterministic
        self._block = steady_block(self._predict, self.model.observation_space) if needed else 1

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
        """The value function that the agent learned in training; see :mod:`rido.policies.sb3_values`.

        Values are in units of the environment's rewards, also where training normalised these.
        """
        if not value_kind(self._network):
            return None
        in_numpy, scale = numpy_values(self._network), reward_scale(self.vecnormalize)
        values, advantages = in_numpy or partial(torch_values, self._network), None
        if in_numpy is not None and self.draws:
            advantages = numpy_advantages(self._network, self._exploration_rate)

        def rescaled(function: Callable[..., NDArray[Any]]) -> Callable[..., NDArray[np.float64]]:
            return lambda seen, *others: function(self.prepare(seen), *others).astype(np.float64) * scale

        discount = float(getattr(self.model, "gamma", 1.0))
        told = None if advantages is None else rescaled(advantages)
        return ValueFunction(rescaled(values), discount, in_numpy is not None, told)

    def _predict(self, prepared: Any, start: int = 0) -> NDArray[Any]:
        actions, _ = self.model.predict(prepared, deterministic=self._deterministic)
        return np.asarray(actions)


class RecurrentAgentPolicy(RecurrentPolicy, AgentPolicy):
    """A RecurrentPPO agent, acting by its ``predict``. Its LSTM's state belongs to the trajectory.

    It takes what :class:`AgentPolicy` takes. Its values need the state, so it has no value function.
    """

    def _choose_network(self) -> None:
        self.draws = not self._deterministic
        self._block = 1 if self.draws else self._steady_block(self.model.observation_space)

    def value_function(self) -> None:
        return None

    def step(self, observations: Any, states: Sequence[Any], generators: Generators) -> tuple[NDArray[Any], list[Any]]:
        return super().step(self.prepare(observations), states, generators)

    def _advance(
        self, observations: Any, state: Any, episode_start: NDArray[np.bool_], generators: Generators
    ) -> tuple[NDArray[Any], Any]:
        if state is not None:  # SB3 has layers first, then rows
            state = tuple(np.moveaxis(part, 0, 1) for part in state)
        options = dict(episode_start=episode_start, deterministic=self._deterministic)
        with sampling_from(generators if self.draws else []):
            actions, state = self.model.predict(observations, state, **options)
        return np.asarray(actions), tuple(np.moveaxis(part, 1, 0) for part in state)


class OwnPredictPolicy(AgentPolicy):
    """An agent whose ``predict`` is not SB3's: it is called with one observation at a time, as any user's function."""

    in_sequence = True

    def _choose_network(self) -> None:
        self.draws, self.reproducible = False, self._deterministic
        self._predicting = PredictPolicy(self.model, self.model.action_space, deterministic=self._deterministic)
        self.remembers = self._predicting.remembers

    def begin(self, generator: Any) -> Actor:
        act = self._predicting.begin(generator)
        if not self._missing and self.vecnormalize is None:
            return act
        return lambda observation: act(take(self.prepare(stack_alike([observation])), 0))

    def take_batches(self, error: Exception) -> None:
        self._predicting.take_batches(error)
        self.in_sequence = False

    def __call__(self, observations: Any, generators: Generators) -> NDArray[Any]:
        if not self.in_sequence:
            return self._predicting(self.prepare(observations), generators)
        return one_by_one([self.begin(None) for _ in generators], observations, self.model.action_space)

    @property
    def fingerprint(self) -> str:
        patches = [vars(part).get("predict") for part in (self.model, self._network)]
        return fingerprint(super().fingerprint, [getattr(patch, "__func__", patch) for patch in patches])


def predicts_by_itself(agent: Any) -> bool:
    """Whether a model, or its policy, has another ``predict`` than SB3's: of its class, or put into the object."""
    parts = [agent, agent.policy] if is_model(agent) else [agent]
    own = [next(kind for kind in type(part).__mro__ if "predict" in vars(kind)) for part in parts]
    packages = {kind.__module__.partition(".")[0] for kind in own}
    return any("predict" in vars(part) for part in parts) or not packages <= {"stable_baselines3", "sb3_contrib"}


def agent_policy(model: Any, *spaces: Space, **settings: Any) -> AgentPolicy:
    """Makes the policy of a model; the arguments are those of :class:`AgentPolicy`."""
    network = model.policy if is_model(model) else model
    kind = RecurrentAgentPolicy if ".recurrent." in type(network).__module__ else AgentPolicy
    return (OwnPredictPolicy if predicts_by_itself(model) else kind)(model, *spaces, **settings)


def check_supported(policy_module: str, name: str) -> None:
    """Refuses an agent that needs more than observations and a state."""
    if ".maskable." in policy_module:
        raise ValueError(f"policy must not need action masks (they are not passed on), got {name}")


def normalizer(vecnormalize: Any) -> Normalizer | None:
    """The observation statistics of a VecNormalize; None if there are none, or if observations are dictionaries."""
    if vecnormalize is None or not vecnormalize.norm_obs or isinstance(vecnormalize.obs_rms, dict):
        return None
    moments = vecnormalize.obs_rms
    deviation = np.sqrt(moments.var + vecnormalize.epsilon)
    return Normalizer(moments.mean, deviation, float(vecnormalize.clip_obs))


def describe_normalisation(model: Any, vecnormalize: Any = None, statistics: str = "") -> str:
    """What a summary says of the observations of an agent; empty where there is nothing to say. See AgentPolicy."""
    if is_model(model) and not statistics:
        vecnormalize = vecnormalize or model.get_vec_normalize_env()
        if vecnormalize is not None:
            statistics = "the model's VecNormalize"
        elif model.env is None:
            statistics = "the model came without the environment that it was trained in"
    if statistics and vecnormalize is not None and vecnormalize.norm_obs:
        return f"observations normalised by {statistics}"
    return f"observations not normalised ({statistics})" if statistics and _has_floats(model.observation_space) else ""


def missing_normalisation(model: Any, name: str = "", statistics: str = "", unused: str = "") -> tuple[str, ...]:
    """A warning where a model was, or may have been, trained under VecNormalize and comes without; see AgentPolicy."""
    if not is_model(model) or model.get_vec_normalize_env() is not None:
        return ()
    file, trained = PurePath(name or type(model).__name__), saw_normalised(model)
    remedy = "put vecnormalize.pkl beside it" if statistics else "load it with env=VecNormalize.load(...)"
    remedy = f"copy {unused} to {file.stem}/vecnormalize.pkl beside it" if unused else remedy
    if trained:
        return (f"{file.name} was trained under VecNormalize, and its observations are not normalised now: {remedy}",)
    may = trained is None and unused
    return (f"{file.name} may have been trained under VecNormalize: if so, {remedy}",) if may else ()


def saw_normalised(model: Any) -> bool | None:
    """Whether a model was trained on normalised observations, by the last one that it saw; None if that does not tell.

    SB3 keeps an earlier observation as the environment gave it, on-policy algorithms only where training had a
    VecNormalize. This one gives float32, and numbers outside of the bounds of the observation space.
    """
    seen, original = getattr(model, "_last_obs", None), getattr(model, "_last_original_obs", None)
    off_policy = hasattr(model, "replay_buffer")
    if original is None or (seen is None and off_policy):
        return None if off_policy or seen is None else False
    if seen is None:
        return True
    spaces = getattr(model.observation_space, "spaces", {"": model.observation_space})
    for key, space in spaces.items():
        one, other = (np.asarray(given if key == "" else given[key]) for given in (seen, original))
        low, high = getattr(space, "low", -np.inf), getattr(space, "high", np.inf)
        outside = [bool(((numbers < low) | (numbers > high)).any()) for numbers in (one, other)]
        if (one.dtype != other.dtype or outside == [True, False]) if off_policy else one.dtype == np.float32:
            return True
    return None if off_policy else False


def reward_scale(vecnormalize: Any) -> float:
    """What a VecNormalize divided rewards by in training; 1 if there is none."""
    if vecnormalize is None or not vecnormalize.norm_reward:
        return 1.0
    return float(np.sqrt(vecnormalize.ret_rms.var + vecnormalize.epsilon))


def _missing_zeros(name: str, trained: Space, given: Space) -> int:
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


def _has_floats(space: Space) -> bool:
    """Whether observations have floating numbers, which VecNormalize may have rescaled in training."""
    from gymnasium import spaces

    parts = space.spaces.values() if isinstance(space, spaces.Dict) else [space]
    return any(np.issubdtype(part.dtype, np.floating) for part in parts if isinstance(part, spaces.Box))


def _layout(space: Space) -> Any:
    """What two spaces must have in common: their kind, and shape or numbers of choices."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        return {key: _layout(part) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return [_layout(part) for part in space.spaces]
    choices = getattr(space, "nvec", getattr(space, "n", None))
    return type(space).__name__, space.shape, np.asarray(choices).tolist()
