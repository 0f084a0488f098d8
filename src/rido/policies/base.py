"""Turning what a user has into the one thing a simulator calls: actions for a batch of observations.

A matrix product may round a row differently for another batch size, and a chaotic simulator makes that last bit
visible. So policies are called in blocks of one fixed size, filled up where rows are missing, and all the
randomness of a row comes from that row's own generator: then a trajectory does not depend on which others happen to
run beside it.
"""

from __future__ import annotations

import importlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rido.storage.fingerprint import content_of, identify

if TYPE_CHECKING:
    import gymnasium as gym

BLOCK = 8
"""Rows in one call of a policy. OpenBLAS rounds float64 products of 16 rows by position, of 8 rows it does not."""

Generators = Sequence[np.random.Generator]


@dataclass(frozen=True)
class ValueFunction:
    """What an agent learned to expect.

    Attributes:
        endless: Maps a batch of observations to the discounted sum of all rewards to come, in the environment's units.
        discount: What it was learned for.
        rowwise: Whether a row's value has the same bits whatever stands beside it.
    """

    endless: Callable[[Any], NDArray[np.float64]]
    discount: float
    rowwise: bool = False


class Policy(ABC):
    """Something that acts.

    Attributes:
        name: What the policy is called in results.
        reproducible: Whether a row's action depends on its observation and its generator only. False where it may
            depend on global random state.
        draws: Whether it draws from the generators. If not, None may stand in for each of them.
        fingerprint: Digest of the files behind the policy or of its content, which tells policies of one name apart.
    """

    name: str
    reproducible: bool = True
    draws: bool = True

    @property
    def fingerprint(self) -> str:
        """Digest of the policy."""
        return content_of("policy", self)

    @abstractmethod
    def __call__(self, observations: Any, generators: Generators) -> NDArray[Any]:
        """Actions for a batch.

        Args:
            observations: Batch of observations, rows first (a dictionary or tuple of such arrays where the space is).
            generators: One generator per row, belonging to that row's trajectory.

        Returns:
            One action per row.
        """

    def value_function(self) -> ValueFunction | None:
        """The value function that came out of the policy's training, None if there is none."""
        return None


def resolve_policy(
    policy: Any,
    *,
    observation_space: gym.Space[Any],
    action_space: gym.Space[Any],
    deterministic: bool = True,
) -> Policy:
    """Make a :class:`Policy` of what a user has.

    Loading an agent's zip unpickles files, and a pickle runs code: name only files that you trust.

    Args:
        policy: One of

            * a callable on batches of observations, called as ``policy(observations)``, or as
              ``policy(observations, generators=...)`` if it has a parameter of that name; it gets blocks of
              ``BLOCK`` rows, or the whole batch if it has an attribute ``rowwise`` that is True, which says that
              it computes each row by itself (no matrix products);
            * "random", which samples the action space;
            * "module:attribute", any of the others found in a module;
            * a Stable-Baselines3 or sb3-contrib model;
            * the path of such a model's zip; a ``vecnormalize.pkl`` beside it is used too;
            * the path of an ``.npz`` that :class:`rido.policies.npz.MlpPolicy` wrote; no code in it can run.
        observation_space: Of one environment.
        action_space: Of one environment.
        deterministic: Whether an agent takes its most likely action or samples one, as in SB3's ``predict``.

    Returns:
        The policy.
    """
    if isinstance(policy, Policy):
        return policy
    if isinstance(policy, str) and policy == "random":
        return RandomPolicy(action_space)
    if isinstance(policy, Path) or (isinstance(policy, str) and _is_path(policy)):
        if str(policy).endswith(".npz"):
            from rido.policies.npz import MlpPolicy

            return MlpPolicy.load(policy, deterministic=deterministic).fits(observation_space, action_space)
        from rido.policies import sb3

        return sb3.load_agent(policy, observation_space, action_space, deterministic=deterministic)
    if isinstance(policy, str) and ":" in policy:
        return resolve_policy(
            import_attribute("policy", policy),
            observation_space=observation_space,
            action_space=action_space,
            deterministic=deterministic,
        )
    if _is_sb3_model(policy):
        from rido.policies import sb3

        return sb3.AgentPolicy(policy, observation_space, action_space, deterministic=deterministic)
    if callable(policy) and not inspect.isclass(policy):
        return FunctionPolicy(policy, action_space)
    raise ValueError(
        "policy must be a callable, 'random', 'module:attribute', an SB3 model or the path of its zip or of an npz, "
        f"got {policy!r}"
    )


class FunctionPolicy(Policy):
    """A callable on batches of observations.

    Args:
        function: Called with blocks of ``BLOCK`` observations, or with all of them if its ``rowwise`` is True.
        action_space: Of one environment; says what shape an action has.
    """

    def __init__(self, function: Callable[..., Any], action_space: gym.Space[Any]) -> None:
        self.name = function_name(function)
        self._function = function
        self._action_shape = action_space.shape or ()
        self._rowwise = getattr(function, "rowwise", False) is True
        self._spare = np.random.default_rng(0)
        self.draws = _has_parameter(function, "generators")

    @property
    def fingerprint(self) -> str:
        """Digest of the function."""
        return identify("policy", self._function)

    def __call__(self, observations: Any, generators: Generators) -> NDArray[Any]:
        """Actions for a batch."""
        rows = len(generators)
        if self._rowwise:
            return self._call(observations, generators)
        # Filled rows draw from a spare generator, so that nobody's sequence moves on because of them.
        filled = [*generators, *[self._spare] * (-rows % BLOCK)]
        return call_in_blocks(lambda block, start: self._call(block, filled[start : start + BLOCK]), observations, rows)

    def _call(self, observations: Any, generators: Generators) -> NDArray[Any]:
        options = {"generators": generators} if self.draws else {}
        actions = self._function(observations, **options)
        if isinstance(actions, tuple):
            raise ValueError("policy must return an array of actions, got a tuple (pass a model, not its predict)")
        array: NDArray[Any] = np.asarray(actions)
        expected = (len(generators), *self._action_shape)
        if array.shape != expected:
            raise ValueError(
                f"policy must return actions of shape {expected} for {expected[0]} observations, got {array.shape}"
            )
        return array


class RandomPolicy(Policy):
    """Samples the action space as Gymnasium does: uniform where bounded, normal or exponential where not.

    Args:
        action_space: A Discrete, Box, MultiDiscrete or MultiBinary space of one environment.
    """

    name = "random"

    def __init__(self, action_space: gym.Space[Any]) -> None:
        from gymnasium import spaces

        self._shape = action_space.shape or ()
        self._integer = True
        if isinstance(action_space, spaces.Discrete):
            low: Any = action_space.start
            high: Any = low + action_space.n
        elif isinstance(action_space, spaces.MultiDiscrete):
            low = action_space.start
            high = low + action_space.nvec
        elif isinstance(action_space, spaces.MultiBinary):
            low, high = np.zeros(self._shape), np.full(self._shape, 2)
        elif isinstance(action_space, spaces.Box):
            self._integer = np.issubdtype(action_space.dtype, np.integer)
            low, high = action_space.low.astype(np.float64), action_space.high.astype(np.float64)
            high = high + 1 if self._integer else high
        else:
            raise ValueError(
                f"policy 'random' must have a Discrete, Box, MultiDiscrete or MultiBinary space, got {action_space}"
            )
        self._dtype = action_space.dtype
        self._low = np.asarray(low, dtype=np.float64).ravel()
        self._high = np.asarray(high, dtype=np.float64).ravel()
        self._bounded = bool(np.isfinite(self._low).all() and np.isfinite(self._high).all())

    def __call__(self, observations: Any, generators: Generators) -> NDArray[Any]:
        """Actions for a batch."""
        rows, size = len(generators), self._low.size
        if self._bounded:
            actions = self._low + (self._high - self._low) * draw("random", generators, size)
        else:
            actions = self._unbounded(generators)
        if self._integer:
            actions = np.floor(actions)
        return actions.astype(self._dtype).reshape(rows, *self._shape)

    def _unbounded(self, generators: Generators) -> NDArray[np.float64]:
        below, above = np.isfinite(self._low), np.isfinite(self._high)
        size = self._low.size
        normal = draw("standard_normal", generators, size)
        exponential = draw("standard_exponential", generators, size)
        low, high = np.where(below, self._low, 0.0), np.where(above, self._high, 0.0)
        uniform = low + (high - low) * draw("random", generators, size)
        return np.select(
            [below & above, below, above], [uniform, low + exponential, high - exponential], default=normal
        )


def draw(distribution: str, generators: Generators, size: int) -> NDArray[np.float64]:
    """Variates for each row from that row's generator.

    Args:
        distribution: Name of a ``numpy.random.Generator`` method that fills an array: "random",
            "standard_normal" or "standard_exponential".
        generators: One generator per row.
        size: Variates per row.
    """
    if size == 1:  # scalars are several times faster to draw than arrays of one
        return np.array([[getattr(generator, distribution)()] for generator in generators])
    variates = np.empty((len(generators), size))
    for row, generator in zip(variates, generators, strict=True):
        getattr(generator, distribution)(out=row)
    return variates


def call_in_blocks(
    function: Callable[[Any, int], NDArray[Any]], observations: Any, rows: int, block: int = BLOCK
) -> NDArray[Any]:
    """Call a function on blocks of exactly ``block`` rows, repeating the last row where rows are missing.

    Args:
        function: Maps a block of observations, and the index of its first row, to one action per row.
        observations: Batch of observations.
        rows: Number of observations, at least 1.
        block: Rows per call.
    """
    actions = []
    for start in range(0, rows, block):
        index = np.minimum(np.arange(start, start + block), rows - 1)
        actions.append(function(take(observations, index), start))
    return actions[0][:rows] if len(actions) == 1 else np.concatenate(actions)[:rows]


def take(observations: Any, index: NDArray[np.intp]) -> Any:
    """Some rows of a batch of observations, in a new batch."""
    if isinstance(observations, dict):
        return {key: take(part, index) for key, part in observations.items()}
    if isinstance(observations, tuple):
        return tuple(take(part, index) for part in observations)
    return observations[index]


def stack(batches: Sequence[Any]) -> Any:
    """Batches of observations as one, in their order."""
    first = batches[0]
    if isinstance(first, dict):
        return {key: stack([batch[key] for batch in batches]) for key in first}
    if isinstance(first, tuple):
        return tuple(stack(parts) for parts in zip(*batches, strict=True))
    return np.concatenate(batches)


def _is_path(policy: str) -> bool:
    return policy.endswith((".zip", ".npz")) or Path(policy).is_file() or Path(f"{policy}.zip").is_file()


def _is_sb3_model(policy: Any) -> bool:
    packages = {base.__module__.partition(".")[0] for base in type(policy).__mro__}
    return bool(packages & {"stable_baselines3", "sb3_contrib"}) and hasattr(policy, "predict")


def import_attribute(name: str, reference: str) -> Any:
    """What a "module:attribute" names; errors speak of the argument with this name."""
    module, _, attribute = reference.partition(":")
    try:
        found = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{name} must be an importable 'module:attribute', got {reference!r}: {error}") from error
    if isinstance(found, str):
        raise ValueError(f"{name} {reference!r} must not be a string, got {found!r}")
    return found


def function_name(function: Callable[..., Any]) -> str:
    """What a function is called in results: its ``name`` if it has one, else where it is defined."""
    name = getattr(function, "name", None)
    if isinstance(name, str):
        return name
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def _has_parameter(function: Callable[..., Any], name: str) -> bool:
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):  # some builtins have no signature
        return False
