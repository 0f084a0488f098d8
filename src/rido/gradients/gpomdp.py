"""GPOMDP from trajectories of mixed lengths: the signal that plans serve, and the gradient itself.

With the scores z_k = grad log pi(a_k | s_k) and their sums S_t = z_0 + ... + z_t, the gradient of the expected return
is ``sum_t gamma^t E[R_t S_t]``: a sum over time steps as the return itself, of a signal with as many components as the
policy has parameters. The mean of n_t samples of each step gives the estimate

    sum_i sum_t c_t R_it S_it  =  sum_i sum_k z_ik sum_{t>=k} c_t R_it        c_t = gamma^t / n_t

whose right side is one weighted sum of scores. The expected squared error is ``sum_t f_t / n_t``, where the weights f_t
are sums over the components. A table of S_t is never made: for plans it is projected onto a few random directions,
which keep squared lengths in expectation.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rido.core.allocation import discount_factors
from rido.core.reward_moments import RewardMoments
from rido.core.trajectories import Trajectories, count_reached, positions, starts_of
from rido.policies.differentiable import DifferentiablePolicy
from rido.policies.observations import take
from rido.predictors.base import Critic, signal
from rido.simulators.base import Batch
from rido.strategies.division import Division

Floats = NDArray[np.float64]


def random_directions(size: int, count: int, generator: np.random.Generator) -> Floats:
    """Returns directions in which ``|P x|^2`` has the expectation ``|x|^2``; the axes where these are no more."""
    if size <= count:
        return np.eye(size)
    directions: Floats = generator.standard_normal((count, size)) / np.sqrt(count)
    return directions


@dataclass(frozen=True, eq=False)
class _Batch:
    """Trajectories of one round; arrays have a row for each planned step, or for each step taken."""

    rewards: Trajectories  # as the environment gave them
    residuals: Floats  # what takes their place in the gradient, planned steps
    terminated: NDArray[np.bool_]  # whether the environment terminated each trajectory
    teams: NDArray[np.int64]  # team of each trajectory
    observations: Any  # before each step taken
    actions: NDArray[Any]  # of each step taken
    sums: Floats  # projected sums of scores S_t, planned steps

    @property
    def steps(self) -> NDArray[np.int64]:
        """Time step of each planned step."""
        return positions(self.rewards.lengths)

    @property
    def alive(self) -> NDArray[np.bool_]:
        """Whether each planned step was taken."""
        return self.steps < np.repeat(self.rewards.steps, self.rewards.lengths)

    def under(self, baselines: Floats | None, gamma: float) -> Floats:
        """Returns the residuals ``X_t + gamma v_{t+1} - v_t`` under the baseline v of each trajectory's team."""
        if baselines is None:
            return self.residuals
        lengths, steps = self.rewards.lengths, self.steps
        teams, last = np.repeat(self.teams, lengths), steps + 1 == np.repeat(self.rewards.steps, lengths)
        goes_on = self.alive & ~(last & np.repeat(self.terminated, lengths))
        following = np.where(goes_on, gamma * baselines[teams, steps + 1], 0.0)
        return self.residuals + following - np.where(self.alive, baselines[teams, steps], 0.0)


@dataclass(eq=False)
class Gpomdp:
    """The policy gradient from trajectories of mixed lengths."""

    policy: DifferentiablePolicy  # that acted
    horizon: int
    gamma: float
    directions: Floats  # onto which scores are projected, one row each
    critic: Critic | None = None  # whose residuals take the place of the rewards; the expectation stays as it is
    batches: list[_Batch] = field(default_factory=list)

    @property
    def metric(self) -> list[float]:
        """What plans serve: all projections of the gradient. The first component of signals is the plain reward."""
        return [0.0] + [1.0] * len(self.directions)

    def add(self, observed: Batch, teams: NDArray[np.int64]) -> Trajectories:
        """Takes in trajectories and returns their signals: the reward, then the projections of X_t S_t."""
        assert observed.actions is not None
        rewards = observed.trajectories
        residuals = rewards.flat
        if self.critic is not None:
            residuals = signal(self.critic, observed, horizon=self.horizon, gamma=self.gamma).trajectories.flat
        last = np.cumsum(rewards.steps + 1) - 1  # observations after the last step of each trajectory
        observations = take(observed.observations, np.delete(np.arange(last[-1] + 1), last))
        scores = np.zeros((rewards.flat.size, len(self.directions)))
        taken = positions(rewards.lengths) < np.repeat(rewards.steps, rewards.lengths)
        scores[taken] = self.policy.scores(observations, observed.actions, self.directions)
        if not np.isfinite(scores).all():
            raise ValueError("policy has non-finite scores: the gradient of log pi is NaN or infinite")
        sums = _sums(scores, rewards.lengths)
        batch = _Batch(rewards, residuals, observed.terminated, teams, observations, observed.actions, sums)
        self.batches.append(batch)
        return _signals(batch, residuals)

    def baselines(self, division: Division) -> Floats:
        """Returns a baseline for each team, from the other teams' trajectories.

        The least variance of ``(R_t - b) S_t`` is at ``b_t = E[|S_t|^2 R_t] / E[|S_t|^2]``. To subtract b_t from every
        reward is to subtract ``sum_{u>=t} gamma^(u-t) b_u`` from the reward to go at step t. Where trajectories end
        early, that is divided by the share that is alive: v_t is the reward to go of those that are.

        Returns:
            v_t for each team and step, and 0 for the horizon.
        """
        totals = np.zeros((3, division.teams, self.horizon))
        for batch in self.batches:
            place = np.repeat(batch.teams, batch.rewards.lengths) * self.horizon + batch.steps
            sizes = np.einsum("tm,tm->t", batch.sums, batch.sums)
            for total, part in zip(totals, (sizes, sizes * batch.residuals, sizes * batch.alive), strict=True):
                total += np.bincount(place, part, total.size).reshape(total.shape)
        sizes, rewards, living = totals.sum(axis=1, keepdims=True) - totals  # of the other teams
        means, alive = (_quotient(total, sizes) for total in (rewards, living))
        to_go = np.zeros((division.teams, self.horizon + 1))
        for step in range(self.horizon - 1, -1, -1):
            to_go[:, step] = means[:, step] + self.gamma * to_go[:, step + 1]
        to_go[:, :-1] = _quotient(to_go[:, :-1], alive)
        return to_go

    def groups(self, division: Division, baselines: Floats) -> list[RewardMoments]:
        """Returns moments of each team's signals under its baseline."""
        moments = [RewardMoments(self.horizon, gamma=self.gamma, metric=self.metric) for _ in range(division.teams)]
        for batch in self.batches:
            signals = _signals(batch, batch.under(baselines, self.gamma))
            for team in np.unique(batch.teams).tolist():
                moments[team].update(signals.select(batch.teams == team))
        return moments

    def vector(self, division: Division, baselines: Floats | None = None) -> Floats:
        """Returns the gradient: the plain mean of those of the teams that have a full-length trajectory."""
        counts = np.zeros((division.teams, self.horizon), dtype=np.int64)
        for batch in self.batches:
            for team in np.unique(batch.teams).tolist():
                counts[team] += count_reached(batch.rewards.lengths[batch.teams == team], self.horizon)
        known = counts[:, -1:] > 0
        shares = np.where(known, discount_factors(self.horizon, self.gamma) / np.maximum(counts, 1), 0) / known.sum()
        total = np.zeros(self.policy.size)
        for batch in self.batches:
            lengths = batch.rewards.lengths
            weights = batch.under(baselines, self.gamma) * shares[np.repeat(batch.teams, lengths), batch.steps]
            to_go = _sums(weights[::-1, None], lengths[::-1])[::-1, 0]
            total += self.policy.weighted_scores(batch.observations, batch.actions, to_go[batch.alive])
        return total


def _quotient(above: Floats, below: Floats) -> Floats:
    """Returns a quotient that is 0 where nothing was seen."""
    quotient: Floats = np.divide(above, below, out=np.zeros_like(above), where=below > 0)
    return quotient


def _sums(values: Floats, lengths: NDArray[np.int64]) -> Floats:
    sums = np.cumsum(values, axis=0)
    before = sums[starts_of(lengths)] - values[starts_of(lengths)]
    return sums - np.repeat(before, lengths, axis=0)


def _signals(batch: _Batch, residuals: Floats) -> Trajectories:
    values = np.concatenate([batch.rewards.flat[:, None], residuals[:, None] * batch.sums], axis=1)
    return Trajectories.from_flat(values, batch.rewards.lengths, batch.rewards.steps)
