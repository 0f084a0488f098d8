"""What a run file holds: a header, written once, with which alone a run resumes; pieces, decisions and notes."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from rido.core.trajectories import Trajectories

FINGERPRINT = "_fingerprint"  # suffix of the names of fields that hold fingerprints


@dataclass(frozen=True, kw_only=True)
class Header:
    """What every run file says. A digest or a setting is empty where the run has none."""

    kind: ClassVar[str]
    environment: str  # name of the environment
    horizon: int  # number of time steps
    seed: int | None  # what all randomness comes from; None to draw one, or to take that of the file
    env_kwargs: str | None = None  # arguments of the environment
    deterministic: bool | None = None  # whether policies take their most likely action
    end_on_truncation: bool | None = None  # whether the environment's own truncation ends an episode
    reseed: bool | None = None  # whether each trajectory's reset gets its own seed
    simulator: str | None = None  # what simulates
    simulator_fingerprint: str | None = None  # digest of a user's own simulator
    environment_fingerprint: str | None = None  # digest of the environment

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as JSON has them."""
        found: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return found

    def settings(self) -> dict[str, Any]:
        """Returns the fields that say something, for people."""
        return {name: value for name, value in asdict(self).items() if value not in (None, "", [], {})}

    def difference(self, other: "Header") -> str | None:
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
    """What the file of an evaluation says."""

    kind = "evaluation"
    policy: str  # name of the policy
    gamma: float  # discount factor, the largest where there are several
    time_budget: float | None = None  # seconds to spend
    budget: int | None  # transitions of the first goal; None where only time is limited
    first_budget: int | None = None  # transitions that the first plan was for, where time is limited
    costs: dict[str, Any] = field(default_factory=dict)  # what was measured for a time budget
    strategy: str  # name of the strategy
    options: Mapping[str, Any]  # the strategy's settings
    critic: str  # name of the control variate that was asked for
    starts: str  # where starts come from, "random" or "sobol"
    max_resets: int | None = None  # resets at most, where there is a critic
    reset_cost: float = 0.0  # transitions that a reset costs
    components: list[str] = field(default_factory=list)  # of rewards; none where rewards are numbers
    discounts: list[float] = field(default_factory=list)  # discount factors, where there are components
    plan_for: str = ""  # what the schedule serves, where there are components
    policy_fingerprint: str | None = None  # digests of the policy,
    critic_fingerprint: str = ""  # of a critic that the user gave,
    components_fingerprint: str | None = None  # and of a function that makes components


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


WHOLE = -1  # the round of decisions that hold for the whole run
NOTES = "notes"  # reasons why the same seed may not give the same result
DOUBTS = "doubts"  # why policies may not be the agents that were trained, or critics not those that were asked for
REMARKS = "remarks"  # what else a reader of the result may want to know
WORKERS = "workers"  # the workers alive, those that there should be, and the time, in seconds since 1970


@dataclass(frozen=True)
class Piece:
    """A batch of trajectories of one round."""

    round: int  # index of the round that they belong to
    trajectories: Trajectories  # the rewards
    seconds: float  # time that collecting them took
    signal: Trajectories | None = None  # trajectories with residuals in the place of the rewards, if there are any
    starts: NDArray[np.float64] | None = None  # with a signal: one value for the first observation of each trajectory
    features: NDArray[np.float64] | None = None  # rows of numbers for each step taken and after the last one
    terminated: NDArray[np.bool_] | None = None  # with features: whether the environment ended each trajectory
