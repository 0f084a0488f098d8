"""Critics: value functions as control variates, so that only their residuals are sampled.

For any function V of the observation and the steps to go, with V = 0 after a termination and with no step to go,

    X_t = R_t + gamma V(s_{t+1}, T - t - 1) - V(s_t, T - t)        J = E[V(s_0, T)] + sum_t gamma^t E[X_t]

because the sum telescopes. The temporal-difference residual X, here called the signal, takes the place of the rewards
in moments, schedules and estimates. Resets estimate the mean of V over first states; they take no transitions. A bad V
costs precision, not correctness. But V must not be fitted on the trajectories that it is applied to, and one mean must
not mix the residuals of two different V, because their sum does not telescope.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rido.core import checks
from rido.core.trajectories import Trajectories, positions
from rido.policies.base import Policy, ValueFunction
from rido.policies.functions import function_name
from rido.policies.observations import take
from rido.record.fingerprint import content_of, identify
from rido.simulators.base import Batch

Floats = NDArray[np.float64]
Steps = NDArray[np.int64]

_ROWS = 4096  # observations in one call, so that hidden layers stay in the cache


class Critic(ABC):
    """A value function, used as a control variate.

    Attributes:
        name: Name in results.
        rowwise: Whether a row's value has the same bits in every batch. If not, each trajectory is valued in its own
            call, so that its values do not depend on which others were collected with it.
    """

    name: str
    rowwise: bool = False

    @property
    def fingerprint(self) -> str:
        """Digest of the critic's content, which distinguishes critics of the same name."""
        return content_of("critic", self)

    @abstractmethod
    def __call__(self, observations: Any, steps_to_go: Steps) -> Floats:
        """Compute values of a batch.

        Args:
            observations: Batch of observations (see :mod:`rido.policies.observations`).
            steps_to_go: Number of rewards still to come for each row, at least 1.

        Returns:
            Estimates of the expected discounted sum of these rewards, one per row.
        """


class FunctionCritic(Critic):
    """A function ``V(observations, steps_to_go)`` on batches.

    Args:
        function: Called on one trajectory's observations at a time, or on many if its attribute ``rowwise`` is True.
    """

    def __init__(self, function: Callable[[Any, Steps], Any]) -> None:
        self.name = function_name(function)
        self.rowwise = getattr(function, "rowwise", False) is True
        self._function = function

    @property
    def fingerprint(self) -> str:
        return identify("critic", self._function)

    def __call__(self, observations: Any, steps_to_go: Steps) -> Floats:
        try:
            values = np.asarray(self._function(observations, steps_to_go), dtype=np.float64)
        except (Exception, SystemExit) as error:
            raise ValueError(f"critic must return values of observations, but it raised {error!r}") from error
        if values.shape not in ((steps_to_go.size,), (steps_to_go.size, 1)):
            raise ValueError(f"critic must return {steps_to_go.size} values, one per observation, got {values.shape}")
        return values.reshape(-1)


class AgentCritic(Critic):
    """The value function that an agent learned in training.

    It holds for an infinite horizon at the agent's own discount g, so with k steps to go it is multiplied by 1 - g^k.

    Attributes:
        discount: The agent's own discount g.
        advantages: Of drawn actions, if they are known; see :class:`rido.policies.base.ValueFunction`.
    """

    name = "policy"

    def __init__(self, value: ValueFunction) -> None:
        self.discount = value.discount
        self.advantages = value.advantages
        self.infinite_horizon = value.infinite_horizon
        self.rowwise = value.rowwise

    def __call__(self, observations: Any, steps_to_go: Steps) -> Floats:
        return self.shorten(self.infinite_horizon(observations), steps_to_go)

    def shorten(self, values: Floats, steps_to_go: Steps) -> Floats:
        """Scale values for an infinite horizon down to the steps to go."""
        return values * (1 - self.discount**steps_to_go) if self.discount < 1 else values


def agent_critic(policy: Any) -> AgentCritic | None:
    """The value function of a policy as a critic, or None if it has none."""
    value = policy.value_function() if isinstance(policy, Policy) else None
    return None if value is None else AgentCritic(value)


@dataclass(frozen=True, eq=False)
class Signal:
    """Residuals of trajectories under a critic."""

    trajectories: Trajectories  # residuals X in the place of the rewards
    starts: Floats  # V(s_0, T) of each trajectory


def signal(critic: Critic, observed: Batch, *, horizon: int, gamma: float) -> Signal:
    """Compute the residuals of trajectories under a critic."""
    ends = np.cumsum(observed.trajectories.steps + 1)
    to_go = steps_to_go(observed.trajectories, observed.terminated, horizon)
    values = np.zeros(to_go.size)
    edges = np.arange(0, to_go.size + _ROWS, _ROWS) if critic.rowwise else np.concatenate([[0], ends])
    for start, end in itertools.pairwise(edges.tolist()):
        part = start + np.flatnonzero(to_go[start:end])
        if part.size:
            values[part] = value(critic, take(observed.observations, part), to_go[part])
    return signal_of_values(values, observed.trajectories, gamma=gamma)


def signal_of_values(values: Floats, trajectories: Trajectories, *, gamma: float) -> Signal:
    """Compute residuals from the values of all observations.

    Args:
        values: V before each step that a trajectory took and after its last one, one trajectory after the other; zero
            where no reward is to come.
        trajectories: The rewards.
        gamma: Discount factor.
    """
    ends = np.cumsum(trajectories.steps + 1)
    before_step = np.ones(values.size, dtype=np.bool_)
    before_step[ends - 1] = False
    taken = positions(trajectories.lengths) < np.repeat(trajectories.steps, trajectories.lengths)
    flat = np.zeros(trajectories.flat.size)
    flat[taken] = trajectories.flat[taken] + gamma * values[1:][before_step[:-1]] - values[before_step]
    residuals = Trajectories.of_checked(flat, trajectories.lengths, trajectories.steps)
    return Signal(residuals, values[ends - trajectories.steps - 1])


def steps_to_go(trajectories: Trajectories, terminated: NDArray[np.bool_], horizon: int) -> Steps:
    """Rewards still to come before each step that a trajectory took and after its last one; 0 after a termination."""
    rows = trajectories.steps + 1
    to_go = horizon - positions(rows)
    to_go[np.cumsum(rows)[terminated] - 1] = 0
    return to_go


def value(critic: Critic, observations: Any, steps_to_go: Steps) -> Floats:
    """Compute a critic's values, checked to be finite and not extreme."""
    values = critic(observations, steps_to_go)
    if (place := checks.first_beyond(values, checks.LARGEST_RETURN)) is not None:
        raise checks.beyond("values of the critic", float(values[place]), limit=checks.LARGEST_RETURN)
    return values
