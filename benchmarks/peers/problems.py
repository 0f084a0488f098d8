"""What is measured: methods, worlds with their policies, budgets, and the errors of each method."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import samplers
from gridworlds import PolicyKind, World, maze, slippery
from page import Cell

METHODS = {
    "Monte Carlo": samplers.monte_carlo,
    "rido": samplers.adaptive,
    "ROS": samplers.robust_sampling,
    "DR": samplers.Designed(samplers.doubly_robust_plan, counted=True),
    "ODI": samplers.Designed(samplers.informed_plan, counted=True),
    "DOpt": samplers.Designed(samplers.doubly_optimal_plan, counted=True),
    "DR, free data": samplers.Designed(samplers.doubly_robust_plan, counted=False),
    "ODI, free data": samplers.Designed(samplers.informed_plan, counted=False),
    "DOpt, free data": samplers.Designed(samplers.doubly_optimal_plan, counted=False),
    "free data alone": samplers.model_alone,
}
_RANDOM: tuple[PolicyKind, ...] = ("one", "each", "each")


@dataclass(frozen=True, eq=False)
class Problem:
    """What one cell measures.

    Attributes:
        number: Seed of the cell.
        section: Table that it belongs to.
        world: The world and the policy.
        episodes: Budget, in mean lengths of an episode.
        repetitions: Estimates by each method.
        folder: Where the result is kept.
    """

    number: int
    section: str
    world: World
    episodes: int
    repetitions: int
    folder: Path

    def measure(self) -> Cell:
        """Run every method, unless the result was kept."""
        world = self.world
        kept = self.folder / f"{self.number}.json"
        if kept.exists():
            return Cell(**json.loads(kept.read_text(encoding="utf-8")))
        truth, variance = world.value(), world.return_variance() / self.episodes
        budget = round(self.episodes * world.mean_steps())
        errors = {
            name: sample(world, budget, self.repetitions, np.random.default_rng([self.number, method])) - truth
            for method, (name, sample) in enumerate(METHODS.items())
        }
        cell = Cell(
            section=self.section,
            group=f"{world.name}, gamma {world.gamma:g}",
            episodes=self.episodes,
            ratios={name: float(np.mean(error**2)) / variance for name, error in errors.items()},
            biases={name: float(np.mean(error)) / variance**0.5 for name, error in errors.items()},
        )
        kept.write_text(json.dumps(asdict(cell)), encoding="utf-8")
        return cell


def choices(quick: bool) -> Iterator[tuple[str, World, int]]:
    """Each table's worlds with their policies and budgets."""
    if quick:
        yield "The papers' worlds", slippery(3, 5, seed=0), 20
        return
    for episodes in (100, 1000):
        for exploration in (0.1, 0.3, 0.5):
            yield "The papers' worlds", maze(exploration), episodes
        for width, horizon in ((3, 5), (10, 10), (30, 30)):
            for seed, policy in enumerate(_RANDOM):
                yield "The papers' worlds", slippery(width, horizon, seed=seed, policy=policy), episodes
    for gamma in (1.0, 0.9):
        for seed, policy in enumerate(_RANDOM):
            yield "Longer episodes", slippery(10, 100, seed=seed, policy=policy, gamma=gamma), 100
    for gamma in (1.0, 0.9):
        for seed in range(3):
            yield "A deterministic policy", slippery(10, 100, seed=seed, policy="best", gamma=gamma), 100
