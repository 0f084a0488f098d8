"""Published ways to choose the behaviour policy, in their tabular form, and plain Monte Carlo.

Each takes a world, a number of transitions, a number of repetitions and a generator, and returns one estimate for each
repetition. Episodes that do not finish within the transitions are left out, as in the code of Zhong et al.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from gridworlds import Array, Integers, World, WorldSimulator, stationary

import rido

ROS_STEP = 1000.0  # ROS's step size, the one that its authors marked for tabular tasks
OFFLINE = 333  # offline transitions per cell: Liu and Zhang's code has 3,000 for 9 cells
PILOT = 0.2  # share of the budget that is spent on data for the design, where that is counted


def monte_carlo(world: World, budget: int, repetitions: int, rng: np.random.Generator) -> Array:
    """The mean return of episodes under the policy itself."""
    plan = Plan(stationary(world), np.zeros((world.horizon, *world.policy.shape)))
    return np.array([plan.estimate(world, budget, rng) for _ in range(repetitions)])


def adaptive(world: World, budget: int, repetitions: int, rng: np.random.Generator) -> Array:
    """What rido does unless it is told otherwise."""
    simulator = WorldSimulator(world)
    settings = dict(budget=budget, gamma=world.gamma, horizon=world.horizon, strategy="adaptive")
    seeds = rng.integers(2**31, size=repetitions).tolist()
    return np.array([rido.evaluate(simulator, seed=seed, **settings).value for seed in seeds])


def robust_sampling(
    world: World, budget: int, repetitions: int, rng: np.random.Generator, step_size: float = ROS_STEP
) -> Array:
    """Robust on-policy sampling (Zhong et al. 2022): actions that were taken too rarely become likelier.

    The behaviour policy is one step from the policy's parameters, here the logits of its table, against the gradient of
    the mean log-likelihood of all actions so far. For a table this gradient is the difference between counts of
    actions and their expectations, over the number of transitions. The estimate is the plain mean of returns.
    All repetitions go side by side.
    """
    rows = np.arange(repetitions)
    surplus = np.zeros((repetitions, *world.policy.shape))  # counts of actions minus their expectations
    cell, step = np.full(repetitions, world.start), np.zeros(repetitions, np.int64)
    returns, total, finished = np.zeros((3, repetitions))
    discounts = world.gamma ** np.arange(world.horizon)
    with np.errstate(divide="ignore"):
        log_policy = np.log(world.policy)
    for taken in range(budget):
        logits = log_policy[cell] - step_size / max(taken, 1) * surplus[rows, cell]
        weights = np.exp(logits - logits.max(axis=1, keepdims=True)).cumsum(axis=1)
        action = (rng.random((repetitions, 1)) * weights[:, -1:] >= weights[:, :-1]).sum(axis=1)
        surplus[rows, cell] -= world.policy[cell]
        surplus[rows, cell, action] += 1
        returns += discounts[step] * world.rewards[cell, action]
        cell, step = world.following[cell, world.move(cell, action, rng.random(repetitions))], step + 1
        over = (step == world.horizon) | world.ends[cell]
        total, finished = total + returns * over, finished + over
        returns, step, cell = returns * ~over, step * ~over, np.where(over, world.start, cell)
    return total / np.maximum(finished, 1)


@dataclass(frozen=True)
class Designed:
    """A way to make a plan from data, and to estimate with it.

    Attributes:
        plan: Makes the plan from what is known of the world.
        counted: Whether the data are episodes under the policy, a share of the budget. If not, they are free: random
            actions in random cells.
    """

    plan: Callable[[World], Plan]
    counted: bool

    def __call__(self, world: World, budget: int, repetitions: int, rng: np.random.Generator) -> Array:
        pilot = int(PILOT * budget) if self.counted else 0
        estimates = np.empty(repetitions)
        for number in range(repetitions):
            counts = _counts_of_pilot(world, pilot, rng) if self.counted else _counts_of_offline_data(world, rng)
            estimates[number] = self.plan(known(world, counts)).estimate(world, budget - pilot, rng)
        return estimates


def model_alone(world: World, budget: int, repetitions: int, rng: np.random.Generator) -> Array:
    """The value in the world as the free offline data show it; the budget is not spent."""
    return np.array([known(world, _counts_of_offline_data(world, rng)).value() for _ in range(repetitions)])


@dataclass(frozen=True, eq=False)
class Plan:
    """A behaviour policy and a baseline.

    Attributes:
        behaviour: Probability of each action, shape (horizon, cells, 4).
        baseline: Baseline b(s, a) of the same shape.
    """

    behaviour: Array
    baseline: Array

    def estimate(self, world: World, budget: int, rng: np.random.Generator) -> float:
        """The mean of unbiased estimates from all episodes that finish within the budget."""
        cells, actions, _ = episodes(world, self.behaviour, budget, rng)
        return float(self.weigh(world, cells, actions).mean())

    def weigh(self, world: World, cells: Integers, actions: Integers) -> Array:
        """Unbiased estimates of the value, one for each episode.

        They are G_0 of G_t = rho (R_t + gamma G_{t+1} - b(s, a)) + E_pi[b(s, .)] with rho = pi / mu: per-decision
        importance sampling, with a baseline where there is one.
        """
        estimates = np.zeros(len(cells))
        means = (world.policy * self.baseline).sum(axis=2)
        for step in reversed(range(world.horizon)):
            cell, action = cells[:, step], actions[:, step]
            ratios = world.policy[cell, action] / self.behaviour[step, cell, action]
            residuals = world.rewards[cell, action] + world.gamma * estimates - self.baseline[step, cell, action]
            estimates = ratios * residuals + means[step, cell]
        return estimates


def episodes(world: World, policy: Array, budget: int, rng: np.random.Generator) -> tuple[Integers, Integers, Integers]:
    """Play all episodes that finish within the budget; returns what :meth:`World.rollout` returns."""
    played = []
    while True:
        found = world.rollout(policy, rng.random((budget // world.horizon + 1, world.horizon, 2)))
        spent = np.cumsum((~world.ends[found[0][:, :-1]]).sum(axis=1))
        finished = int((spent <= budget).sum())
        played.append([part[:finished] for part in found])
        if finished < spent.size:
            cells, actions, moves = (np.concatenate(parts) for parts in zip(*played, strict=True))
            return cells, actions, moves
        budget -= int(spent[-1])


def doubly_robust_plan(world: World) -> Plan:
    """The policy itself with b = Q: the doubly robust estimator (Jiang and Li 2016), on-policy."""
    return Plan(stationary(world), world.action_values())


def informed_plan(world: World) -> Plan:
    """Offline data informed design (Liu and Zhang 2024): no baseline, and the policy of least second moments.

    mu(a | s) is proportional to pi(a | s) sqrt(E[G_t^2 | s, a]), G_t the return from there on under pi.
    """
    squares = world.second_moments(world.action_values())
    return Plan(_behaviour(world, squares), np.zeros_like(squares))


def doubly_optimal_plan(world: World) -> Plan:
    """Doubly optimal design (Liu, Chen and Zhang 2025): behaviour policy and baseline chosen together.

    b = Q, and mu(a | s) is proportional to pi(a | s) sqrt(u(s, a)), u the variance that is left after the action. Then
    the variance at step t is E_pi[sqrt(u_t(s, .))]^2 under the best mu from t on, and u_t(s, a) is the variance of
    V(s_{t+1}) plus the mean of that variance in s_{t+1}.
    """
    values = world.action_values()
    left = np.zeros((world.horizon + 1, *world.policy.shape))
    for step in reversed(range(world.horizon - 1)):
        following = (world.policy * values[step + 1]).sum(axis=1)
        spread = world.expected(following**2) - world.expected(following) ** 2
        least = (world.policy * np.sqrt(left[step + 1])).sum(axis=1) ** 2
        left[step] = world.gamma**2 * np.maximum(spread + world.expected(least), 0)
    return Plan(_behaviour(world, left[:-1]), values)


def _behaviour(world: World, squares: Array) -> Array:
    """pi sqrt(squares), normalised; pi itself in cells where that would exclude an action of pi."""
    usable = ((squares > 1e-12 * squares.max()) | (world.policy == 0)).all(axis=2, keepdims=True)
    weights = world.policy * np.where(usable, np.sqrt(np.maximum(squares, 0)), 1)
    return weights / weights.sum(axis=2, keepdims=True)


def known(world: World, counts: Array) -> World:
    """The world as counts of moves show it. Untried actions pay nothing; each has one more move, of any direction."""
    tried = counts.sum(axis=2)
    return replace(world, rewards=world.rewards * (tried > 0), chances=(counts + 1 / 4) / (tried + 1)[..., None])


def _counts_of_pilot(world: World, budget: int, rng: np.random.Generator) -> Array:
    """Moves in episodes under the policy."""
    cells, actions, moves = episodes(world, stationary(world), budget, rng)
    going_on = ~world.ends[cells[:, :-1]]
    index = np.ravel_multi_index((cells[:, :-1], actions, moves), world.chances.shape)[going_on]
    return np.bincount(index, minlength=world.chances.size).reshape(world.chances.shape).astype(float)


def _counts_of_offline_data(world: World, rng: np.random.Generator) -> Array:
    """Moves after random actions in random cells."""
    pairs = world.policy.size
    tried = rng.multinomial(OFFLINE * len(world.policy), np.full(pairs, 1 / pairs))
    return rng.multinomial(tried.reshape(world.policy.shape), world.chances).astype(float)
