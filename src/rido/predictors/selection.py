"""Which critic an evaluation uses: what the user asked for, and what the data show."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rido.core import checks
from rido.predictors.base import Critic, FunctionCritic, agent_critic
from rido.predictors.features import FeatureExtractor
from rido.simulators.base import Simulator

RESET_SHARE = 0.05  # share of the variance that resets may have


@dataclass(frozen=True)
class CriticChoice:
    """The critic to use, or how to choose it."""

    name: str  # what the user asked for
    critic: Critic | None = None  # the critic, where it is known from the start
    extractor: FeatureExtractor | None = None  # where it is not: makes the features that critics learn from
    notes: tuple[str, ...] = ()  # why no critic is used although one was asked for
    given: bool = False  # whether the user gave the critic

    @property
    def learns(self) -> bool:
        """Whether critics learn from what is collected."""
        return self.extractor is not None

    @property
    def fingerprint(self) -> str:
        """Digest of a critic that the user gave; others follow from the policy and the data."""
        return self.critic.fingerprint if self.given and self.critic is not None else ""

    @classmethod
    def resolve(cls, critic: str | Callable[..., Any] | None, simulator: Simulator) -> "CriticChoice":
        """Make a choice of what a user asked for; raise an error if it is impossible with this simulator."""
        if critic is None:
            return cls("none")
        able = simulator.capabilities
        if not able.observes and critic != "auto":
            name = able.engine or type(simulator).__name__
            raise ValueError(f"critic works only with a simulator that returns observations, not {name}")
        if not isinstance(critic, str):
            given = critic if isinstance(critic, Critic) else FunctionCritic(critic)
            return cls(given.name, critic=given, given=True)
        checks.choice("critic", critic, ("policy", "fit", "auto"))
        agent = agent_critic(able.load_policy())
        if critic == "policy":
            if agent is None:
                raise ValueError("critic 'policy' works only with an agent that has a value function")
            return cls(critic, critic=agent)
        try:
            if not able.observes:
                raise ValueError("critic cannot see observations of this simulator")
            known = able.tells_actions and agent is not None and agent.advantages is not None
            return cls(critic, extractor=FeatureExtractor(simulator.observation_space, agent, with_advantages=known))
        except ValueError as error:
            if critic == "fit":
                raise
            return cls(critic, notes=(f"no critic was used: {error}",))
