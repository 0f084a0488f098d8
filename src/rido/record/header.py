"""What a run file holds: a header, written once, with which alone a run resumes; pieces, decisions and notes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from rido.core.trajectories import Trajectories

FINGERPRINT = "_fingerprint"
"""Suffix of the names of fields that hold fingerprints."""


@dataclass(frozen=True, kw_only=True)
class Header:
    """What every run file says. A digest or a setting is empty where the run has none.

    Attributes:
        environment: name of the environment.
        horizon: number of time steps.
        seed: what all randomness comes from; None to draw one, or to take that of the file.
        env_kwargs: arguments of the environment.
        deterministic: whether policies take their most likely action.
        end_on_truncation: whether the environment's own truncation ends an episode.
        reseed: whether each trajectory's reset gets its own seed.
        simulator: what simulates.
        simulator_fingerprint: digest of a user's own simulator.
        environment_fingerprint: digest of the environment.
    """

    kind: ClassVar[str]
    environment: str
    horizon: int
    seed: int | None
    env_kwargs: str | None = None
    deterministic: bool | None = None
    end_on_truncation: bool | None = None
    reseed: bool | None = None
    simulator: str | None = None
    simulator_fingerprint: str | None = None
    environment_fingerprint: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as JSON has them."""
        found: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return found

    def settings(self) -> dict[str, Any]:
        """Returns the fields that say something, for people."""
        return {name: value for name, value in asdict(self).items() if value not in (None, "", [], {})}

    def difference(self, other: Header) -> str | None:
        """Returns how the header of a file differs from that of a run; None where the run may resume."""
        if self.kind != other.kind:
            return f"it is of {_ARTICLES[self.kind]}, not of {_ARTICLES[other.kind]}"
        found, wanted = self.to_json(), other.to_json()
        for name, value in wanted.items():
            if found[name] != value and not (value is None and name in _LEFT_OPEN):
                if name.endswith(FINGERPRINT):
                    return f"its {name.removesuffix(FINGERPRINT)} had other code or numbers"
                return f"its {name} is {found[name]!r}, not {value!r}"
        return None


@dataclass(frozen=True, kw_only=True)
class EvaluationHeader(Header):
    """What the file of an evaluation says.

    Attributes:
        policy: name of the policy.
        gamma: discount factor, the largest where there are several.
        time_budget: seconds to spend.
        budget: transitions of the first goal; None where only time is limited.
        first_budget: transitions that the first plan was for, where time is limited.
        costs: what was measured for a time budget, the fields of :class:`rido.evaluation.budgets.Costs`.
        strategy: name of the strategy.
        options: the strategy's settings.
        critic: name of the control variate that was asked for.
        starts: where starts come from, "random" or "sobol".
        max_resets: resets at most, where there is a critic.
        reset_cost: transitions that a reset costs.
        components: names of the components of rewards; none where rewards are numbers.
        discounts: discount factors, where there are components.
        plan_for: what the schedule serves, where there are components.
        policy_fingerprint: digest of the policy; the others are of the critic that the user gave and of a function
            that makes components.
    """

    kind = "evaluation"
    policy: str
    gamma: float
    time_budget: float | None = None
    budget: int | None
    first_budget: int | None = None
    costs: dict[str, Any] = field(default_factory=dict)
    strategy: str
    options: Mapping[str, Any]
    critic: str
    starts: str
    max_resets: int | None = None
    reset_cost: float = 0.0
    components: list[str] = field(default_factory=list)
    discounts: list[float] = field(default_factory=list)
    plan_for: str = ""
    policy_fingerprint: str | None = None
    critic_fingerprint: str = ""
    components_fingerprint: str | None = None


@dataclass(frozen=True, kw_only=True)
class ComparisonHeader(Header):
    """What the file of a comparison says: the settings of :class:`rido.Race` and the policies."""

    kind = "comparison"
    names: list[str]
    policies_fingerprint: list[str]
    gamma: float
    budget: int
    confidence: float
    tolerance: float
    starts: str = "random"
    lockstep: int | None = None


@dataclass(frozen=True, kw_only=True)
class SuiteHeader(Header):
    """What the file of one policy in one task of a suite says."""

    kind = "suite"
    task: str
    policy: str
    policy_fingerprint: str


HEADERS = {header.kind: header for header in (EvaluationHeader, ComparisonHeader, SuiteHeader)}
_ARTICLES = {"evaluation": "an evaluation", "comparison": "a comparison", "suite": "a suite"}
_LEFT_OPEN = ("seed", "budget", "first_budget", "lockstep")  # where None stands for what the file has


def header_from(found: dict[str, Any]) -> Header:
    """Returns the header with these fields, which are all of them.

    Raises:
        KeyError: some are missing.
    """
    header = HEADERS[found["kind"]]
    return header(**{one.name: found[one.name] for one in fields(header)})


WHOLE = -1
"""The round of decisions that hold for the whole run."""

NOTES = "notes"
"""Reasons why the same seed may not give the same result."""

DOUBTS = "doubts"
"""Why policies may not be the agents that were trained, or critics not those that were asked for."""

REMARKS = "remarks"
"""What else a reader of the result may want to know."""

WORKERS = "workers"
"""The workers alive, those that there should be, and the time, in seconds since 1970."""


@dataclass(frozen=True)
class Piece:
    """A batch of trajectories of one round.

    Attributes:
        round: Index of the round that they belong to.
        trajectories: The rewards.
        seconds: Time that collecting them took.
        signal: Trajectories with residuals in the place of the rewards, if there are any.
        starts: With a signal: one value for the first observation of each trajectory.
        features: Rows of numbers for each step that was taken and after the last one, if there are any.
        terminated: With features: whether the environment ended each trajectory.
    """

    round: int
    trajectories: Trajectories
    seconds: float
    signal: Trajectories | None = None
    starts: NDArray[np.float64] | None = None
    features: NDArray[np.float64] | None = None
    terminated: NDArray[np.bool_] | None = None
