"""The paper's domains, their policies, and banks of trajectories recorded in them.

A truncated trajectory is the beginning of a full one, so a bank of full-length trajectories that is recorded once makes
thousands of repetitions affordable. Runs draw from the bank, whose mean return is the exact truth.
"""

import hashlib
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rido.core.allocation import Array
from rido.paper.storage import write_whole
from rido.simulators.bank import BankSimulator
from rido.simulators.base import trajectory_seeds

GAMMAS = (0.999, 0.99)  # the higher and the lower discount factor of every domain; the paper names them for Ant
PARTS = 100  # files of a full bank, which is a folder to which more can be added

TABLES: dict[str, Any] = tomllib.loads((Path(__file__).parent / "tables.toml").read_text(encoding="utf-8"))
_SEED = 2026


@dataclass(frozen=True)
class Domain:
    """One of the paper's domains, with the settings of its Table 1 and those that the paper leaves open."""

    name: str  # in files and on the command line
    title: str  # in pictures
    env: str  # gymnasium id
    horizon: int  # steps T. The paper gives 500 for Ant and HalfCheetah; b must be a multiple of T, at least 2 T
    batch: int  # b of the paper's Table 1
    budgets: tuple[int, ...]  # transitions of the runs
    schedule_budget: int  # the budget whose schedules are drawn
    rows: int  # trajectories of a full bank
    trained: bool = False  # whether the policy is a trained agent; if not, the domain has its own policy
    zoo: tuple[str, str] | None = None  # algorithm and environment of the agent in the RL Baselines3 Zoo
    own_policy_of_gamma: bool = False  # whether the domain's own policy depends on the discount factor
    env_kwargs: Mapping[str, Any] = field(default_factory=dict, hash=False)  # arguments of the environment

    @property
    def part(self) -> int:
        """Trajectories in one file of the bank."""
        return self.rows // PARTS


def _domain(table: dict[str, Any]) -> Domain:
    fields: Any = {name: tuple(value) if isinstance(value, list) else value for name, value in table.items()}
    return Domain(**fields)


MAIN, ADDITIONAL, EXAMPLES = (
    tuple(map(_domain, TABLES["domains"][section])) for section in ("main", "additional", "examples")
)


@dataclass(frozen=True)
class BankSource:
    """A domain with its policy and the place of its bank: all that a process needs to record or read the bank."""

    domain: Domain  # the domain
    gamma: float | None  # discount factor that the policy was made for; None where the policy does not depend on it
    policy: Path | None  # file of a trained agent; None for the domain's own policy
    rows: int  # trajectories of the bank
    folder: Path  # folder of all banks

    @property
    def name(self) -> str:
        """Name of the bank, which depends on the policy and its discount factor."""
        parts = [self.domain.name]
        if self.gamma is not None:
            parts.append(f"{self.gamma:g}")
        if self.policy is not None:
            parts.append(hashlib.sha256(self.policy.read_bytes()).hexdigest()[:8])
        return "-".join(parts)

    def parts(self) -> list[Path]:
        """Returns the files of the bank, whether they exist or not. Each is named after its first row."""
        return [self.folder / self.name / f"{row:06d}.npz" for row in range(0, self.rows, self.domain.part)]

    def simulator(self, num_envs: int | None = None) -> Any:
        """Returns a simulator that takes real steps."""
        from rido.simulators.gymnasium import GymnasiumSimulator

        return GymnasiumSimulator(
            self.domain.env,
            self.policy,
            horizon=self.domain.horizon,
            gamma=GAMMAS[0] if self.gamma is None else self.gamma,
            env_kwargs=self.domain.env_kwargs,
            num_envs=num_envs,
            trust=False,  # the paper's agents run no code
        )


def record(source: BankSource, path: Path) -> None:
    """Records one part of a bank. Its trajectories depend only on the number of its first row."""
    horizon, rows = source.domain.horizon, source.domain.part
    simulator = source.simulator()
    try:
        observed = simulator.observe(np.full(rows, horizon), trajectory_seeds(_SEED, int(path.stem), rows))
    finally:
        simulator.close()
    steps = observed.trajectories.steps
    observations = np.zeros((rows, horizon + 1, *observed.observations.shape[1:]), np.float32)
    observations[np.arange(horizon + 1) <= steps[:, None]] = observed.observations
    with write_whole(path) as file:
        np.savez(file, rewards=observed.trajectories.rewards, steps=steps, observations=observations)


@cache
def rewards_of(source: BankSource) -> tuple[Array, NDArray[np.int64]]:
    """Returns the rewards of a recorded bank, shape (rows, horizon), and the steps until each row ended."""
    parts = [np.load(path) for path in source.parts()]
    return tuple(np.concatenate([part[name] for part in parts]) for name in ("rewards", "steps"))  # type: ignore[return-value]


@cache
def world_of(source: BankSource) -> BankSimulator:
    """Returns a recorded bank as a simulator with observations and the policy."""
    observations = np.concatenate([np.load(path)["observations"] for path in source.parts()])
    world = BankSimulator(*rewards_of(source), observations)
    simulator = source.simulator(num_envs=1)
    world.policy = simulator.policy
    simulator.close()
    return world


def precision(source: BankSource, gamma: float) -> dict[str, float | None]:
    """Returns how precisely a bank represents its domain at a discount factor.

    Returns:
        The mean return of the bank and its standard error; the relative standard error of the variance of the returns,
        and so of every mean squared error that is measured on the bank; the expected return, where a formula is known;
        and the share of trajectories that the environment ended early.
    """
    from rido.simulators.envs import lqg

    rewards, steps = rewards_of(source)
    horizon = source.domain.horizon
    returns = rewards @ gamma ** np.arange(horizon)
    centred = (returns - returns.mean()) ** 2
    return {
        "truth": float(returns.mean()),
        "truth_error": float(returns.std(ddof=1)) / math.sqrt(returns.size),
        "variance_error": float(centred.std(ddof=1) / centred.mean()) / math.sqrt(returns.size),
        "closed_form": float(lqg.expected_return(horizon, gamma)) if source.domain.name == "lqg" else None,
        "ended": float(np.mean(steps < horizon)),
    }
