"""Which critic carries an evaluation: what the user asked for, and what a pilot says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rido.core import checks
from rido.core.estimate import Estimate
from rido.critics.base import Critic, FunctionCritic, agent_critic
from rido.critics.fitted import Pilot, View, choose, fit
from rido.simulators.base import Simulator, describe


@dataclass(frozen=True)
class Judge:
    """Which critic to use, or how to find out.

    Attributes:
        name: what was asked for.
        critic: the critic, where it is known from the start.
        view: what a critic is to be fitted on or chosen by, where it is not.
        notes: why there is none although one was asked for.
        given: whether the critic is one that the user brought.
    """

    name: str
    critic: Critic | None = None
    view: View | None = None
    notes: tuple[str, ...] = ()
    given: bool = False

    @property
    def fingerprint(self) -> str:
        """Digest of a critic that the user brought; others follow from the policy and the data."""
        return self.critic.fingerprint if self.given and self.critic is not None else ""

    @classmethod
    def resolve(cls, critic: str | Callable[..., Any] | None, simulator: Simulator) -> Judge:
        """Makes a judge of what a user asked for, or says why it cannot be had."""
        if critic is None:
            return cls("none")
        able = describe(simulator)
        if not able.observes and critic != "auto":
            raise ValueError(
                f"critic must come with a simulator that has observe() and starts(), got {type(simulator).__name__}"
            )
        if not isinstance(critic, str):
            given = critic if isinstance(critic, Critic) else FunctionCritic(critic)
            return cls(given.name, critic=given, given=True)
        checks.choice("critic", critic, ("policy", "fit", "auto"))
        agent = agent_critic(able.load_policy())
        if critic == "policy":
            if agent is None:
                raise ValueError("critic 'policy' must come with an agent that has a value function, got none")
            return cls(critic, critic=agent)
        try:
            if not able.observes:
                raise ValueError("critic cannot see observations of this simulator")
            return cls(critic, view=View(simulator.observation_space, agent))  # type: ignore[attr-defined]
        except ValueError as error:
            if critic == "fit":
                raise
            return cls(critic, notes=(f"no critic was used: {error}",))

    def decide(self, pilot: Pilot, *, budget: int, max_resets: int) -> Critic | None:
        """Returns the critic to go on with after a pilot; one that was fitted on it must not be applied to it."""
        assert self.view is not None
        left = budget - pilot.trajectories.transitions
        affordable = left >= 2 * pilot.horizon
        if self.name == "auto":
            return choose(pilot, self.view, budget=budget, max_resets=max_resets, fits=affordable)
        if not affordable or pilot.full_length < 2:
            raise ValueError(
                "critic 'fit' needs two full-length trajectories to learn from and a budget for two more, got "
                f"{pilot.full_length} and {left} transitions left; a larger budget or strategy 'adaptive' may do"
            )
        return fit(pilot, self.view)


def with_starts(estimate: Estimate, starts: NDArray[np.float64]) -> Estimate:
    """Adds a critic's expectation over first states, which is independent of the rest."""
    return estimate if starts.size < 2 else estimate.plus(starts)
