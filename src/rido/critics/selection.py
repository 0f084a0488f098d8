"""Which critic an evaluation uses: what the user asked for, and what a pilot shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rido.core import checks
from rido.core.scaling import scaled
from rido.critics.base import Critic, Floats, FunctionCritic, agent_critic
from rido.critics.fitted import (
    FeatureExtractor,
    Pilot,
    agent_value,
    cross_validate,
    fit,
    residual_variance,
    reward_unit,
)
from rido.simulators.base import Simulator, describe

RESET_SHARE = 0.05
"""Share of the variance that resets may have."""

_REQUIRED = 0.5  # a critic is used only if its predicted variance is below this share of that without a critic


@dataclass(frozen=True)
class CriticChoice:
    """The critic to use, or how to choose it.

    Attributes:
        name: What the user asked for.
        critic: The critic, where it is known from the start.
        extractor: Where it is not: makes the features that a critic is fitted on or chosen by.
        notes: Why no critic is used although one was asked for.
        given: Whether the user gave the critic.
    """

    name: str
    critic: Critic | None = None
    extractor: FeatureExtractor | None = None
    notes: tuple[str, ...] = ()
    given: bool = False

    @property
    def fingerprint(self) -> str:
        """Digest of a critic that the user gave; others follow from the policy and the data."""
        return self.critic.fingerprint if self.given and self.critic is not None else ""

    @classmethod
    def resolve(cls, critic: str | Callable[..., Any] | None, simulator: Simulator) -> CriticChoice:
        """Make a choice of what a user asked for; raise an error if it is impossible with this simulator."""
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
            return cls(critic, extractor=FeatureExtractor(simulator.observation_space, agent))  # type: ignore[attr-defined]
        except ValueError as error:
            if critic == "fit":
                raise
            return cls(critic, notes=(f"no critic was used: {error}",))

    def decide(self, pilot: Pilot, *, budget: int, max_resets: int) -> Critic | None:
        """Decide after a pilot which critic to use; one that was fitted on the pilot must not be applied to it.

        Args:
            pilot: The first trajectories.
            budget: Transitions to spend in all.
            max_resets: Largest number of resets.
        """
        assert self.extractor is not None
        left = budget - pilot.trajectories.transitions
        affordable = left >= 2 * pilot.horizon
        if self.name == "auto":
            return _choose(pilot, self.extractor, budget=budget, max_resets=max_resets, fits=affordable)
        if not affordable or pilot.full_length < 2:
            raise ValueError(
                "critic 'fit' needs two full-length trajectories to learn from and a budget for two more, got "
                f"{pilot.full_length} and {left} transitions left; a larger budget or strategy 'adaptive' may do"
            )
        return fit(pilot, self.extractor)


def _choose(pilot: Pilot, extractor: FeatureExtractor, *, budget: int, max_resets: int, fits: bool) -> Critic | None:
    """The critic of least predicted variance, or None for plain rewards.

    The prediction is the variance of the residuals under their best schedule, from trajectories that the critic was not
    fitted on. A fitted critic has only the budget after the pilot. A critic must promise a clear gain, because the
    pilot is small and the least of several predictions is too low on average.
    """
    if not pilot.divisible:
        return None
    halves, unit = pilot.halves(), reward_unit([pilot])

    def with_resets(variance: float, values: list[Floats]) -> float:
        """Add the variance from resets: their share, or more where ``max_resets`` allows too few for that."""
        starts = [part[half.to_go == pilot.horizon] for half, part in zip(halves, values, strict=True)]
        with np.errstate(over="ignore", invalid="ignore"):
            among_starts = float(np.mean([scaled(part, -unit).var(ddof=1) for part in starts]))
        return variance + max(RESET_SHARE / (1 - RESET_SHARE) * variance, among_starts / max_resets)

    least = _REQUIRED * residual_variance(halves, [None, None]) / budget
    critic: Critic | None = None
    if extractor.agent is not None:
        values = [half.values(agent_value(extractor.agent)) for half in halves]
        variance = with_resets(residual_variance(halves, values) / budget, values)
        if variance < least:
            least, critic = variance, extractor.agent
    if fits:
        settings, variance, values = cross_validate(pilot)
        if with_resets(variance / (budget - pilot.trajectories.transitions), values) < least:
            critic = fit(pilot, extractor, settings)
    return critic
