"""Grid worlds of the published peers, as tables: exact values by dynamic programming, and fast samples.

In a cell an action pays its reward, and then one of four moves happens. So the tables are small: the reward and the
chance of each move for every cell and action, and the cell that each move leads to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

import rido

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

PolicyKind = Literal["one", "each", "best"]

_PATIENCE = 0.99  # discount for which the best policies are computed
_MOVES = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])


@dataclass(frozen=True, eq=False)
class World:
    """A grid world under a policy.

    Attributes:
        name: Name in tables.
        policy: Probability of each action, shape (cells, 4).
        rewards: Reward of each action, shape (cells, 4).
        chances: Probability of each move, shape (cells, 4 actions, 4 moves).
        following: Cell after each move, shape (cells, 4).
        ends: Whether an episode ends in a cell, shape (cells,). Such cells pay nothing and are never left.
        start: First cell.
        horizon: Largest number of steps.
        gamma: Discount factor.
    """

    name: str
    policy: Array
    rewards: Array
    chances: Array
    following: Integers
    ends: NDArray[np.bool_]
    start: int
    horizon: int
    gamma: float

    def action_values(self) -> Array:
        """Q(s, a) with t steps taken, shape (horizon, cells, 4)."""
        values = np.zeros((self.horizon + 1, *self.policy.shape))
        for step in reversed(range(self.horizon)):
            following = (self.policy * values[step + 1]).sum(axis=1)
            values[step] = self.rewards + self.gamma * self.expected(following)
        return values[:-1]

    def second_moments(self, values: Array) -> Array:
        """Mean square of the return from each step, cell and action on; ``values`` are the action values."""
        squares = np.zeros((self.horizon + 1, *self.policy.shape))
        for step in reversed(range(self.horizon)):
            following = self.gamma**2 * (self.policy * squares[step + 1]).sum(axis=1)
            squares[step] = 2 * self.rewards * values[step] - self.rewards**2 + self.expected(following)
        return squares[:-1]

    def expected(self, values: Array) -> Array:
        """Expectation of the following cell's value, for every cell and action."""
        return np.einsum("cam,cm->ca", self.chances, values[self.following])

    def value(self) -> float:
        """The value of the policy."""
        return float(self.policy[self.start] @ self.action_values()[0, self.start])

    def return_variance(self) -> float:
        """Variance of the return of an episode."""
        squares = self.second_moments(self.action_values())
        return float(self.policy[self.start] @ squares[0, self.start] - self.value() ** 2)

    def mean_steps(self) -> float:
        """Mean number of transitions of an episode."""
        alive = replace(self, rewards=np.repeat(~self.ends[:, None], 4, axis=1).astype(float), gamma=1.0)
        return alive.value()

    def rollout(self, policy: Array, uniforms: Array) -> tuple[Integers, Integers, Integers]:
        """Play episodes.

        Args:
            policy: Probability of each action at each step, shape (horizon, cells, 4); it may differ from the world's.
            uniforms: Random numbers that choose actions and moves, shape (episodes, steps, 2).

        Returns:
            Cells before each step and after the last one, shape (episodes, steps + 1); actions and moves, shape
            (episodes, steps).
        """
        episodes, steps, _ = uniforms.shape
        cells = np.full((steps + 1, episodes), self.start)
        actions, moves = np.empty((2, steps, episodes), np.int64)
        bounds = policy.cumsum(axis=2)[..., :-1]
        for step, cell in enumerate(cells[:-1]):
            if self.ends[cell].all():
                cells[step + 1 :], actions[step:], moves[step:] = cell, 0, 0
                break
            actions[step] = (uniforms[:, step, :1] >= bounds[step, cell]).sum(axis=1)
            moves[step] = self.move(cell, actions[step], uniforms[:, step, 1])
            cells[step + 1] = self.following[cell, moves[step]]
        return cells.T, actions.T, moves.T

    def move(self, cells: Integers, actions: Integers, uniforms: Array) -> Integers:
        """The moves that happen, chosen by uniform random numbers."""
        found: Integers = (uniforms[:, None] >= self._move_bounds[cells, actions]).sum(axis=1)
        return found

    @cached_property
    def _move_bounds(self) -> Array:
        return self.chances.cumsum(axis=2)[..., :-1]


class WorldSimulator:
    """What rido evaluates: the world and its policy, by rewards alone."""

    num_envs = 4096

    def __init__(self, world: World) -> None:
        self.world = world

    def rollout(self, lengths: Integers, seeds: list[int]) -> rido.Trajectories:
        """See :class:`rido.simulators.base.Simulator`."""
        world = self.world
        uniforms = np.zeros((lengths.size, lengths.max(), 2))
        for row, length, seed in zip(uniforms, lengths, seeds, strict=True):
            np.random.Generator(np.random.PCG64(seed)).random(out=row[:length])
        cells, actions, _ = world.rollout(stationary(world), uniforms)
        steps = np.minimum((~world.ends[cells[:, :-1]]).sum(axis=1), lengths)
        return rido.Trajectories(world.rewards[cells[:, :-1], actions], lengths, steps)


def stationary(world: World) -> Array:
    """The world's policy at each step."""
    return np.broadcast_to(world.policy, (world.horizon, *world.policy.shape))


def slippery(width: int, horizon: int, *, seed: int, policy: PolicyKind = "one", gamma: float = 1.0) -> World:
    """The grid world of Liu and Zhang: random rewards, larger far from the origin, and one move in ten is random.

    Args:
        width: Cells along a side.
        horizon: Number of steps; no episode ends before.
        seed: Seed of rewards and policy.
        policy: "one": a random distribution of actions, the same in all cells; "each": one for each cell; "best": the
            best action.
        gamma: Discount factor.
    """
    rng = np.random.default_rng([seed, width])
    x, y = np.divmod(np.arange(width**2), width)
    rewards = rng.random((width**2, 4)) * (10 * x + 20 * y + 1)[:, None]
    weights = rng.random((width**2 if policy == "each" else 1, 4))
    world = World(
        name=f"{width}x{width}, T = {horizon}",
        policy=np.broadcast_to(weights / weights.sum(axis=1, keepdims=True), (width**2, 4)),
        rewards=rewards / rewards.max(),
        chances=np.broadcast_to(0.9 * np.eye(4) + 0.1 / 4, (width**2, 4, 4)),
        following=_following(width),
        ends=np.zeros(width**2, np.bool_),
        start=(width // 2) * (width + 1),
        horizon=horizon,
        gamma=gamma,
    )
    return replace(world, policy=_best_actions(world)) if policy == "best" else world


def maze(exploration: float, *, gamma: float = 1.0) -> World:
    """The grid world of Zhong et al.: 4x4, moves as chosen, a trap, a bonus, and an end in the far corner.

    Args:
        exploration: Probability of a random action; else the policy takes the best one.
        gamma: Discount factor.
    """
    following, start, trap, bonus, end = _following(4), 0, 5, 7, 15
    entered = np.full(16, -1.0)
    entered[[trap, bonus, end]] = -10, 1, 10
    stays = following == np.arange(16)[:, None]
    rewards = np.where(stays, -1.0, entered[following])
    following[end], rewards[end] = end, 0
    world = World(
        name="4x4 maze, T = 100",
        policy=np.full((16, 4), 0.25),
        rewards=rewards,
        chances=np.broadcast_to(np.eye(4), (16, 4, 4)),
        following=following,
        ends=np.arange(16) == end,
        start=start,
        horizon=100,
        gamma=gamma,
    )
    return replace(world, policy=(1 - exploration) * _best_actions(world) + exploration / 4)


def _best_actions(world: World) -> Array:
    """The deterministic policy that is best for an endless horizon."""
    values = np.zeros(len(world.policy))
    for _ in range(1000):
        judged = world.rewards + _PATIENCE * world.expected(values)
        values = judged.max(axis=1)
    return np.eye(4)[judged.argmax(axis=1)]


def _following(width: int) -> Integers:
    cells = np.stack(np.divmod(np.arange(width**2), width), axis=1)
    moved = cells[:, None] + _MOVES
    inside = ((moved >= 0) & (moved < width)).all(axis=2, keepdims=True)
    found: Integers = np.where(inside, moved, cells[:, None]) @ np.array([width, 1])
    return found
