"""The base class of the paper's domains: seeds, noise and resets of a vectorised environment that never ends.

A domain says how a trajectory starts and how a batch of states moves on. A single environment is a batch of one row.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from rido.core import checks

Array = npt.NDArray[np.float64]
NoiseReading = Literal["variance", "deviation"]
"""How the second parameter of the paper's N(mean, parameter) is read.

The paper does not say. "variance" is the usual notation; "deviation" is what numpy's ``normal`` would draw.
"""

_BLOCK = 64  # steps of noise that are drawn at once for a trajectory


@checks.checked()
def deviation(parameter: float, noise: NoiseReading) -> float:
    """Returns the standard deviation that the paper's N(mean, parameter) stands for."""
    return float(np.sqrt(parameter)) if noise == "variance" else parameter


class DomainVectorEnv(VectorEnv[Array, npt.NDArray[Any], npt.NDArray[Any]]):
    """A batch of independent trajectories whose states are rows of one array.

    Sub-environments never terminate and are never truncated. They are reset as in Gymnasium's ``SyncVectorEnv`` without
    autoreset, some of them with ``options={"reset_mask": mask}``. Each draws from its own generator only, so a
    trajectory depends neither on its row nor on the number of rows.

    Args:
        num_envs: number of sub-environments.
        observation_space: of one sub-environment, a one-dimensional ``Box`` of float64: the state itself.
        action_space: of one sub-environment.
    """

    metadata: ClassVar[dict[str, Any]] = {  # type: ignore[misc]
        "autoreset_mode": AutoresetMode.DISABLED,
        "reset_generators": True,
    }
    noise_size: ClassVar[int]
    """Standard normal variates that one step of one trajectory uses."""

    @checks.checked()
    def __init__(self, num_envs: int, *, observation_space: gym.spaces.Box, action_space: gym.Space[Any]) -> None:
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = observation_space, action_space
        self.observation_space = batch_space(observation_space, num_envs)
        self.action_space = batch_space(action_space, num_envs)
        self.generators: list[np.random.Generator | None] = [None] * num_envs
        self._states: Array | None = None
        self._noise = np.empty((num_envs, _BLOCK, self.noise_size))
        self._used = np.zeros(num_envs, dtype=np.intp)  # steps of noise that each row has used
        self._rows = np.arange(num_envs)

    @abstractmethod
    def start(self, generator: np.random.Generator) -> Array:
        """Returns the first state of one trajectory."""

    @abstractmethod
    def transition(self, states: Array, actions: npt.NDArray[Any], noise: Array) -> tuple[Array, Array]:
        """Returns the next states, in a new array, and the rewards; all arguments have a row per sub-environment."""

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Starts new trajectories.

        Args:
            seed: one seed per sub-environment, or an integer for ``seed, seed + 1, ...``. Where it is None, the
                sub-environment goes on with its generator, or gets a random one if it has none.
            options: ``{"reset_mask": mask}`` to reset only where the boolean array ``mask`` is True;
                ``{"reset_generators": generators}`` for the generator of each sub-environment, in place of a seed where
                it is not None.

        Returns:
            The observations of all sub-environments and an empty dictionary.
        """
        if seed is None:
            seed = [None] * self.num_envs
        seeds = range(seed, seed + self.num_envs) if isinstance(seed, int) else seed
        if len(seeds) != self.num_envs:
            raise ValueError(f"seed must have {self.num_envs} entries, got {len(seeds)}")
        mask = self._reset_mask(options)
        if self._states is None:
            if not mask.all():
                raise RuntimeError("reset() with a reset_mask was called before a reset of all sub-environments")
            self._states = np.empty(self.observation_space.shape or ())
        given = (options or {}).get("reset_generators") or [None] * self.num_envs
        for row in np.flatnonzero(mask).tolist():
            generator = given[row] or self.generators[row]
            if generator is None or (given[row] is None and seeds[row] is not None):
                generator, _ = seeding.np_random(seeds[row])
            self.generators[row] = generator
            self._states[row] = self.start(generator)
        self._used[mask] = _BLOCK  # the first step draws noise, so that a reset draws the start alone
        return self._states.copy(), {}

    def step(
        self, actions: npt.NDArray[Any]
    ) -> tuple[Array, Array, npt.NDArray[np.bool_], npt.NDArray[np.bool_], dict[str, Any]]:
        """Takes one step in every sub-environment."""
        if self._states is None:
            raise RuntimeError("step() was called before reset()")
        actions = np.asarray(actions)
        # A wrong shape would broadcast silently: (n,) against (n, 1) gives (n, n).
        if actions.shape != self.action_space.shape:
            raise ValueError(f"actions must have shape {self.action_space.shape}, got {actions.shape}")
        for row in np.flatnonzero(self._used == _BLOCK).tolist():
            generator = self.generators[row]
            assert generator is not None
            generator.standard_normal(out=self._noise[row])
            self._used[row] = 0
        noise = self._noise[self._rows, self._used]
        self._used += 1
        self._states, rewards = self.transition(self._states, actions, noise)
        ended = np.zeros(self.num_envs, dtype=np.bool_)
        return self._states.copy(), rewards, ended, ended.copy(), {}

    def _reset_mask(self, options: dict[str, Any] | None) -> npt.NDArray[np.bool_]:
        if options is None or "reset_mask" not in options:
            return np.ones(self.num_envs, dtype=np.bool_)
        mask = options["reset_mask"]
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
            raise TypeError(f"reset_mask must be a numpy array of booleans, got {mask!r}")
        if mask.shape != (self.num_envs,):
            raise ValueError(f"reset_mask must have shape ({self.num_envs},), got {mask.shape}")
        if not mask.any():
            raise ValueError("reset_mask must be True somewhere, got only False")
        return mask


class DomainEnv(gym.Env[Array, Any]):
    """One trajectory of a domain: its vector environment with a single row, whose other arguments it takes."""

    vector_env: ClassVar[type[DomainVectorEnv]]

    def __init__(self, **kwargs: Any) -> None:
        self._batch = self.vector_env(1, **kwargs)
        self.observation_space = self._batch.single_observation_space
        self.action_space = self._batch.single_action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Starts a new trajectory."""
        super().reset(seed=seed)
        self._batch.generators[0] = self.np_random
        observations, infos = self._batch.reset()
        return observations[0], infos

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Takes one step."""
        observations, rewards, _, _, infos = self._batch.step(np.asarray(action)[np.newaxis])
        return observations[0], float(rewards[0]), False, False, infos
