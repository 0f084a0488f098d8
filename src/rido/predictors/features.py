"""Features of observations, and the trajectories with their features that critics are fitted on."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rido.core.trajectories import Trajectories
from rido.policies.observations import take
from rido.predictors.base import AgentCritic, Floats, Steps, steps_to_go

_OTHER_ACTIONS = 2  # second entry of the seeds with which other actions are drawn
_LARGEST = 2000  # numbers in an observation beyond which it is taken for an image


class FeatureExtractor:
    """Turns observations into features: their numbers and, in the last column, the agent's value.

    Args:
        space: Observation space of one environment; None where observations are plain arrays.
        agent: The agent's value function, if it has one; also an attribute.
        with_advantages: Whether to append the advantage A(s, a) of each action as a last column, 0 after the last
            action. Also an attribute.
    """

    def __init__(self, space: Any, agent: AgentCritic | None, *, with_advantages: bool = False) -> None:
        reason = None if space is None else _unsuited(space)
        if reason is not None:
            raise ValueError(f"critic cannot be fitted on {reason}")
        self._space = space
        self.agent, self.with_advantages = agent, with_advantages

    def __call__(self, observations: Any) -> Floats:
        columns = _flatten(self._space, observations)
        if self.agent is not None:
            columns.append(self.agent.infinite_horizon(observations)[:, None])
        return np.concatenate(columns, axis=1)

    def of_trajectory(self, observations: Any, actions: NDArray[Any] | None, seed: int) -> Floats:
        """The features of one trajectory: observations before each step and after the last, the actions, its seed."""
        features = self(observations)
        if not self.with_advantages:
            return features
        assert self.agent is not None and self.agent.advantages is not None and actions is not None
        # The policy's own draws come from [seed, 1].
        generator = np.random.default_rng([seed, _OTHER_ACTIONS])
        advantages = self.agent.advantages(take(observations, np.arange(len(actions))), actions, generator)
        return np.column_stack([features, np.append(advantages, 0.0)])


def _unsuited(space: Any) -> str | None:
    """What of a space cannot be flattened into a moderate number of numbers, or None."""
    from gymnasium import spaces

    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return next((reason for part in parts if (reason := _unsuited(part)) is not None), None)
    if not isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        return f"observations in a {type(space).__name__} space"
    if spaces.flatdim(space) > _LARGEST or (len(space.shape or ()) > 1 and space.dtype == np.uint8):
        return f"images or other observations of {spaces.flatdim(space)} numbers"
    return None


def _flatten(space: Any, observations: Any) -> list[Floats]:
    """A batch of observations as columns of numbers, choices one-hot, as Gymnasium flattens single ones."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        return [part for key, inner in space.spaces.items() for part in _flatten(inner, observations[key])]
    if isinstance(space, spaces.Tuple):
        return [part for i, inner in enumerate(space.spaces) for part in _flatten(inner, observations[i])]
    array = np.asarray(observations)
    if isinstance(space, spaces.Discrete):
        return [(array[:, None] - space.start == np.arange(space.n)).astype(np.float64)]
    if isinstance(space, spaces.MultiDiscrete):
        choices = (array - space.start).reshape(len(array), -1).T
        pairs = zip(choices, space.nvec.ravel(), strict=True)
        return [(choice[:, None] == np.arange(count)).astype(np.float64) for choice, count in pairs]
    return [array.reshape(len(array), -1).astype(np.float64)]


@dataclass(frozen=True, eq=False)
class Sample:
    """Trajectories with their features."""

    trajectories: Trajectories  # the rewards
    terminated: NDArray[np.bool_]  # whether the environment terminated each trajectory, also if at its planned length
    features: Floats  # what the extractor made of observations, before each step taken and after the last
    advantages: Floats | None = None  # A(s, a) of the action at each row, 0 after the last action; None if not known

    def select(self, rows: NDArray[np.bool_]) -> "Sample":
        """Select the trajectories for which ``rows`` is true."""
        own = np.repeat(rows, self.trajectories.steps + 1)
        advantages = None if self.advantages is None else self.advantages[own]
        return Sample(self.trajectories.select(rows), self.terminated[rows], self.features[own], advantages)

    def to_go(self, horizon: int) -> Steps:
        """Rewards still to come at each row of the features."""
        return steps_to_go(self.trajectories, self.terminated, horizon)
