"""Critics: value functions that carry the estimate, so that transitions pay only for their errors.

For any function V of the observation and the steps to go, with V = 0 after a termination and with no step to go,

    X_t = R_t + gamma V(s_{t+1}, T - t - 1) - V(s_t, T - t)        J = E[V(s_0, T)] + sum_t gamma^t E[X_t]

because the sum telescopes. So the signal X takes the place of the rewards in moments, schedules and estimates, and
the expectation of V over first states comes from resets, which take no transitions. A bad V costs precision, never
correctness; but V must not have been fitted on the trajectories that it is applied to, and one mean must not
contain signals of two different V: then the sum does not telescope.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rido.core.trajectories import Trajectories
from rido.policies.base import Policy, ValueFunction, take
from rido.simulators.base import Observed
from rido.storage.fingerprint import content_of, identify

Floats = NDArray[np.float64]

_ROWS = 4096  # observations in one call, so that hidden layers stay in the cache


class Critic(ABC):
    """A value function.

    Attributes:
        name: what the critic is called in results.
        rowwise: whether a row's value has the same bits whatever stands beside it. If not, a trajectory is valued
            in a call of its own, so that its values do not depend on which others were collected with it.
    """

    name: str
    rowwise: bool = False

    @property
    def fingerprint(self) -> str:
        """Digest of the critic, which tells critics of one name apart."""
        return content_of("critic", self)

    @abstractmethod
    def __call__(self, observations: Any, steps_to_go: NDArray[np.int64]) -> Floats:
        """Values of a batch.

        Args:
            observations: batch of observations, rows first (a dictionary or tuple of such arrays where the space is).
            steps_to_go: for each row the number of rewards that are still to come, at least 1.

        Returns:
            The expected discounted sum of these rewards, as far as the critic knows, one number per row.
        """


class FunctionCritic(Critic):
    """A function ``V(observations, steps_to_go)`` on batches.

    Args:
        function: gets the observations of one trajectory at a time, or many of them together if it has an attribute
            ``rowwise`` that is True.
    """

    def __init__(self, function: Callable[[Any, NDArray[np.int64]], Any]) -> None:
        named = function if hasattr(function, "__qualname__") else type(function)
        self.name = str(getattr(function, "name", f"{named.__module__}.{named.__qualname__}"))
        self.rowwise = getattr(function, "rowwise", False) is True
        self._function = function

    @property
    def fingerprint(self) -> str:
        """Digest of the function."""
        return identify("critic", self._function)

    def __call__(self, observations: Any, steps_to_go: NDArray[np.int64]) -> Floats:
        """Values of a batch."""
        values = np.asarray(self._function(observations, steps_to_go), dtype=np.float64)
        if values.shape not in ((steps_to_go.size,), (steps_to_go.size, 1)):
            raise ValueError(f"critic must return {steps_to_go.size} values, one per observation, got {values.shape}")
        return values.reshape(-1)


class AgentCritic(Critic):
    """The value function that an agent learned in training.

    Values are for an endless horizon at the agent's own discount g, so with k steps to go they are multiplied
    by 1 - g^k.

    Args:
        value: the value function.
    """

    name = "policy"

    def __init__(self, value: ValueFunction) -> None:
        self._discount = value.discount
        self.endless = value.endless
        self.rowwise = value.rowwise

    def __call__(self, observations: Any, steps_to_go: NDArray[np.int64]) -> Floats:
        """Values of a batch."""
        return self.shorten(self.endless(observations), steps_to_go)

    def shorten(self, values: Floats, steps_to_go: NDArray[np.int64]) -> Floats:
        """The part of values for an endless horizon that comes within so many steps."""
        return values * (1 - self._discount**steps_to_go) if self._discount < 1 else values


def agent_critic(policy: Any) -> AgentCritic | None:
    """The value function of a policy, or None if it has none."""
    value = policy.value_function() if isinstance(policy, Policy) else None
    return None if value is None else AgentCritic(value)


@dataclass(frozen=True, eq=False)
class Signal:
    """What a critic makes of trajectories.

    Attributes:
        trajectories: X in the place of the rewards.
        starts: V(s_0, T) of each trajectory.
    """

    trajectories: Trajectories
    starts: Floats


def signal(critic: Critic, observed: Observed, *, horizon: int, gamma: float) -> Signal:
    """Returns the signal X of trajectories.

    Args:
        critic: the value function V.
        observed: trajectories and their observations.
        horizon: number of time steps T, which says how many steps are to go.
        gamma: discount factor.
    """
    batch = observed.trajectories
    rows = batch.steps + 1
    ends = np.cumsum(rows)
    taken = np.arange(ends[-1]) - np.repeat(ends - rows, rows)
    valued = taken < horizon
    valued[ends[observed.terminated] - 1] = False
    values = np.zeros(taken.size)
    edges = np.arange(0, taken.size + _ROWS, _ROWS) if critic.rowwise else np.concatenate([[0], ends])
    for start, end in itertools.pairwise(edges.tolist()):
        part = start + np.flatnonzero(valued[start:end])
        if part.size:
            values[part] = value(critic, take(observed.observations, part), horizon - taken[part])
    return signal_of_values(values, batch, gamma=gamma)


def signal_of_values(values: Floats, trajectories: Trajectories, *, gamma: float) -> Signal:
    """Returns the signal X for values of all observations, zero where nothing is to come.

    Args:
        values: V before each step that a trajectory took and after its last one, one trajectory after the other.
        trajectories: their rewards.
        gamma: discount factor.
    """
    rows = trajectories.steps + 1
    ends = np.cumsum(rows)
    last = np.zeros(values.size, dtype=np.bool_)
    last[ends - 1] = True
    taken = np.arange(trajectories.flat.size) - np.repeat(
        np.cumsum(trajectories.lengths) - trajectories.lengths, trajectories.lengths
    ) < np.repeat(trajectories.steps, trajectories.lengths)
    flat = np.zeros(trajectories.flat.size)
    flat[taken] = trajectories.flat[taken] + gamma * values[1:][~last[:-1]] - values[~last]
    return Signal(Trajectories(flat, trajectories.lengths, trajectories.steps), values[ends - rows])


def value(critic: Critic, observations: Any, steps_to_go: NDArray[np.int64]) -> Floats:
    """Returns a critic's values, and makes sure that they are numbers."""
    values = critic(observations, steps_to_go)
    if not np.isfinite(values).all():
        raise ValueError(f"critic must return finite values, got {values[~np.isfinite(values)][0]}")
    return values
