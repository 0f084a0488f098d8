"""Tabular tasks of Gymnasium under a fixed policy, as Markov chains: exact expectations and fast samples.

A policy turns a task with a transition table into a chain whose every step draws one of a few outcomes. Expected
rewards follow by dynamic programming over the steps, and thousands of episodes are sampled at once in numpy.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Chain", "blackjack", "cliff_walking", "frozen_lake", "taxi"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

_DISCOUNT = 0.999  # for which the optimal policies are computed: the fastest of all ways to succeed
_DECIMALS = 9  # to which action values are rounded, so that ties are not broken by rounding errors
_CARDS = {card: 4 / 13 if card == 10 else 1 / 13 for card in range(1, 11)}  # an infinite deck; 1 is the ace
_DEALER_STICKS = 17


@dataclass(frozen=True, eq=False)
class Chain:
    """A Markov chain whose steps pay rewards and may end the episode.

    Attributes:
        start: Distribution of the first state, shape (states,).
        chances: Probability of each outcome of a step, shape (states, outcomes); rows sum to 1.
        following: State after each outcome.
        rewards: Reward of each outcome.
        ends: Whether each outcome ends the episode.
    """

    start: Array
    chances: Array
    following: Integers
    rewards: Array
    ends: NDArray[np.bool_]

    @classmethod
    def of(cls, start: Array, outcomes: list[dict[tuple[int, float, bool], float]]) -> Chain:
        """Makes a chain of the probability of each (next state, reward, end) in every state."""
        width = max(map(len, outcomes))
        shape = len(outcomes), width
        chances, following, rewards = np.zeros(shape), np.zeros(shape, np.int64), np.zeros(shape)
        ends = np.ones(shape, np.bool_)
        for state, possible in enumerate(outcomes):
            for number, ((after, reward, end), chance) in enumerate(possible.items()):
                chances[state, number], rewards[state, number] = chance, reward
                following[state, number], ends[state, number] = after, end
        return cls(start, chances, following, rewards, ends)

    def expected_rewards(self, horizon: int) -> Array:
        """Returns the expected reward of each step; steps after the end pay 0."""
        paid = (self.chances * self.rewards).sum(axis=1)
        going_on = self.chances * ~self.ends
        expected = np.empty(horizon)
        reached: NDArray[Any] = self.start
        for step in range(horizon):
            expected[step] = reached @ paid
            moved = reached[:, None] * going_on
            reached = np.bincount(self.following.ravel(), moved.ravel(), minlength=self.start.size)
        return expected

    def sample(self, rng: np.random.Generator, n: int, horizon: int) -> tuple[Array, Integers]:
        """Draws n episodes: rewards (n, horizon), zero after the end, and the steps (n,) until the end."""
        bounds = np.cumsum(self.chances, axis=1)[:, :-1]
        rewards, steps = np.zeros((n, horizon)), np.full(n, horizon)
        rows, states = np.arange(n), rng.choice(self.start.size, size=n, p=self.start)
        for step in range(horizon):
            outcomes = (rng.random(rows.size)[:, None] >= bounds[states]).sum(axis=1)
            rewards[rows, step] = self.rewards[states, outcomes]
            ended = self.ends[states, outcomes]
            steps[rows[ended]] = step + 1
            rows, states = rows[~ended], self.following[states, outcomes][~ended]
            if not rows.size:
                break
        return rewards, steps


def optimal_policy(table: dict[int, dict[int, list[Any]]]) -> Integers:
    """Returns the optimal action of every state of a Gymnasium transition table, by value iteration."""
    values = np.zeros(len(table))
    while True:
        action_values = np.array(
            [
                [
                    sum(p * (r + (not end) * _DISCOUNT * values[after]) for p, after, r, end in table[s][a])
                    for a in table[s]
                ]
                for s in table
            ]
        )
        improved = action_values.max(axis=1)
        if np.abs(improved - values).max() < 10.0 ** -(_DECIMALS + 2):
            best: Integers = np.argmax(action_values.round(_DECIMALS), axis=1)
            return best
        values = improved


def follow(env: Any, epsilon: float) -> Chain:
    """Returns the chain of a tabular environment under its optimal policy, mixed with random actions.

    Args:
        env: An unwrapped environment with a transition table ``P`` and an ``initial_state_distrib``.
        epsilon: Probability of an action that is drawn from all actions alike.
    """
    best = optimal_policy(env.P)
    outcomes: list[dict[tuple[int, float, bool], float]] = []
    for state, actions in env.P.items():
        possible: dict[tuple[int, float, bool], float] = {}
        for action, results in actions.items():
            share = epsilon / len(actions) + (1 - epsilon) * (action == best[state])
            for chance, after, reward, end in results:
                key = int(after), float(reward), bool(end)
                if share * chance > 0:
                    possible[key] = possible.get(key, 0.0) + share * chance
        outcomes.append(possible)
    return Chain.of(np.asarray(env.initial_state_distrib, np.float64), outcomes)


def frozen_lake(size: str, epsilon: float = 0.0) -> Chain:
    """FrozenLake on slippery ice, map "4x4" or "8x8"."""
    from gymnasium.envs.toy_text import FrozenLakeEnv

    return follow(FrozenLakeEnv(map_name=size, is_slippery=True), epsilon)


def cliff_walking(epsilon: float) -> Chain:
    """CliffWalking: the shortest way runs along the cliff, and random actions fall from it."""
    from gymnasium.envs.toy_text import CliffWalkingEnv

    return follow(CliffWalkingEnv(), epsilon)


def taxi(epsilon: float) -> Chain:
    """Taxi: random actions lose time, and 10 where a passenger is picked up or put down at the wrong place."""
    from gymnasium.envs.toy_text import TaxiEnv

    return follow(TaxiEnv(), epsilon)


def blackjack(stick_at: int) -> Chain:
    """Blackjack-v1, by the rules of Sutton and Barto, of a player who draws cards up to a threshold.

    States are the player's sum, whether an ace counts as 11, and the dealer's open card; one more for each card of the
    dealer stands for a natural, which only a dealer's natural does not lose to.

    Args:
        stick_at: The player sticks at this sum or more.
    """
    states = {state: number for number, state in enumerate(product(range(4, 22), (False, True), _CARDS))}
    naturals = {card: len(states) + card - 1 for card in _CARDS}
    outcomes: list[dict[tuple[int, float, bool], float]] = [{} for _ in range(len(states) + len(_CARDS))]
    for (total, soft, dealer), number in states.items():
        possible = outcomes[number]
        if total >= stick_at:
            for score, chance in _dealer_scores(*_add(0, False, dealer)).items():
                reward = float(np.sign(total - score))
                possible[number, reward, True] = possible.get((number, reward, True), 0.0) + chance
            continue
        for card, chance in _CARDS.items():
            drawn, now_soft = _add(total, soft, card)
            key = (number, -1.0, True) if drawn > 21 else (states[drawn, now_soft, dealer], 0.0, False)
            possible[key] = possible.get(key, 0.0) + chance
    for dealer, number in naturals.items():
        both = {1: _CARDS[10], 10: _CARDS[1]}.get(dealer, 0.0)
        outcomes[number] = {(number, 1.0, True): 1 - both, (number, 0.0, True): both}
    start = np.zeros(len(outcomes))
    for first, second, dealer in product(_CARDS, repeat=3):
        total, soft = _add(*_add(0, False, first), second)
        number = naturals[dealer] if total == 21 else states[total, soft, dealer]
        start[number] += _CARDS[first] * _CARDS[second] * _CARDS[dealer]
    return Chain.of(start, outcomes)


def _add(total: int, soft: bool, card: int) -> tuple[int, bool]:
    """Returns a hand's sum and whether an ace counts as 11, after one more card."""
    total, soft = (total + 11, True) if card == 1 and total + 11 <= 21 else (total + card, soft)
    return (total - 10, False) if soft and total > 21 else (total, soft)


def _dealer_scores(total: int, soft: bool) -> dict[int, float]:
    """Returns the distribution of the dealer's score; 0 where the dealer goes bust."""
    if total > 21:
        return {0: 1.0}
    if total >= _DEALER_STICKS:
        return {total: 1.0}
    scores: dict[int, float] = {}
    for card, chance in _CARDS.items():
        for score, share in _dealer_scores(*_add(total, soft, card)).items():
            scores[score] = scores.get(score, 0.0) + chance * share
    return scores
