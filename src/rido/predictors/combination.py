"""The combination of several value functions that leaves the least variance, chosen by cross-validation.

The residual of ``sum_j c_j V_j`` is ``R + sum_j c_j D_j`` with ``D_j = gamma V_j(s') - V_j(s)``. Its weights f_t are
quadratic in c, and so is the variance ``sum_t f_t / n_t`` of any schedule: the best c for a schedule solves a
least-squares problem. Schedule and c are improved in turn; a schedule is what was collected and the best use of the
remaining budget. Subsets of the value functions compete on trajectories that were not used, as plans do in
:mod:`rido.strategies.planning`; no value function at all is one of them.

An agent's own value function was learned from far more data than an evaluation has. So it is used from the start, as it
is, until the data show that it does harm or that others are better.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from rido.core.allocation import pool, unit_of
from rido.core.moments import Moments, union
from rido.core.reward_moments import RewardMoments
from rido.core.trajectories import Trajectories, concatenate
from rido.predictors.base import Floats

_FOLDS = 5
_MARGIN = 1.25  # standard errors by which value functions must beat none, as in planning
_LEAST_GAIN = 0.1  # share of the variance that a change must significantly take away: plans made before do not suit it
_DISCOUNT = 0.3  # share of gamma^2t in the weights of a schedule: those of few trajectories alone are mostly noise
_ROUNDS = 4  # of improving schedule and coefficients in turn
_LEAST_SHARE = 1e-6  # of the mean weight that a step has at least, so that no count is zero
_RIDGE = 1e-3  # of the largest eigenvalue: directions that vary less are left alone
_LARGEST = 2.0  # coefficient


@dataclass(frozen=True, eq=False)
class Applied:
    """Value functions on trajectories."""

    rewards: Trajectories  # of the trajectories
    differences: Floats  # D_j of each planned step, zero where none was taken; one row for each value function
    starts: Floats  # values of the first observations; one row for each value function

    def residuals(self, coefficients: Floats) -> Trajectories:
        """The residuals of a combination."""
        flat = self.rewards.flat + sum(c * row for c, row in zip(coefficients, self.differences, strict=True))
        return Trajectories.of_checked(flat, self.rewards.lengths, self.rewards.steps)


class Signals:
    """Moments of the rewards, the differences D_j and their pairwise sums, from which all f_t follow."""

    def __init__(self, parts: Sequence[Applied], *, horizon: int, gamma: float) -> None:
        self.starts = np.concatenate([part.starts for part in parts], axis=1)
        self.size = 1 + len(self.starts)
        self.moments: dict[tuple[int, int], RewardMoments] = {}
        rewards = concatenate([part.rewards for part in parts])
        terms = [rewards.flat, *np.concatenate([part.differences for part in parts], axis=1)]
        for i, j in itertools.combinations_with_replacement(range(self.size), 2):
            flat = terms[i] if i == j else terms[i] + terms[j]
            self.moments[i, j] = RewardMoments(horizon, gamma=gamma)
            self.moments[i, j].update(Trajectories.of_checked(flat, rewards.lengths, rewards.steps))


@dataclass(frozen=True)
class Combination:
    """Finds coefficients of value functions."""

    budget: float  # transitions to spend in all
    resets: float  # independent starts that the critic's expectation will come from
    required: bool = False  # whether to choose among them also where none seems to gain. Coefficients may be 0
    agent: bool = False  # whether the first one is the agent's own, which has the coefficient 1 where it is used alone

    def first(self, functions: int) -> Floats:
        """The coefficients before anything is known: the agent's value alone, if there is one and it may be none."""
        coefficients = np.zeros(functions)
        coefficients[:1] = self.agent and not self.required
        return coefficients

    def choose(
        self, teams: Sequence[Signals], counts: Sequence[NDArray[np.int64]], present: Floats | None = None
    ) -> Floats:
        """Coefficients with the best lower bound of their gain over those used at present.

        Others take their place only if they gain significantly, because a plan for one signal may suit another badly.
        But what was taken up by chance is given up as soon as the agent's value, or none, looks better: little is
        planned for it yet.

        Args:
            teams: Signals of teams whose value functions were fitted on others.
            counts: Samples of each step, an array for every team, also for the one that the critic is for.
            present: Coefficients that what was collected was planned for; all 0 if not given.
        """
        size = teams[0].size
        together = {key: union([team.moments[key] for team in teams], same_means=False) for key in teams[0].moments}
        full = int(together[0, 0].counts[-1])
        weights = _quadratic(together, size, max(2, min(_FOLDS, full)))
        costs = np.maximum(together[0, 0].survival, 1 / (together[0, 0].counts + 1))
        spreads = [np.atleast_2d(np.cov(team.starts)) for team in teams if team.starts.shape[1] > 1]
        starts = np.mean(spreads or [np.zeros((size - 1, size - 1))], axis=0) / self.resets
        # The estimate is the mean of K teams: its variance is the sum of f_t / n_t with these n_t.
        effective = len(counts) ** 2 / np.sum([1 / one for one in counts], axis=0)
        left = max(self.budget - float(costs @ np.sum(counts, axis=0)), 0.0)
        plan = partial(_schedule, together[0, 0].discounts ** 2, costs, effective, left)
        everything = tuple(range(1, size))
        subsets = [(), *((j,) for j in everything), *([everything] if size > 2 else [])]
        used = () if present is None else tuple((1 + np.flatnonzero(present)).tolist())
        base = subsets.index(used) if used in subsets else len(subsets) - 1
        rounds = [0 if self.agent and subset == (1,) else _ROUNDS for subset in subsets]
        number, total = len(weights), weights.sum(axis=0)
        scores = np.empty((number, len(subsets)))
        for fold in range(number):
            others = (total - weights[fold]) * number / (number - 1)
            for place, subset in enumerate(subsets):
                coefficients, planned = _improve(others, plan, starts, subset, rounds[place])
                steps = np.einsum("i,ijt,j->t", coefficients, weights[fold] * number, coefficients)
                scores[fold, place] = steps @ (1 / planned) + coefficients[1:] @ starts @ coefficients[1:]
        best = self._best(scores / unit_of(float(np.abs(scores).max())), base)
        return _improve(total, plan, starts, subsets[best], rounds[best])[0][1:]

    def _best(self, scores: Floats, base: int) -> int:
        """The place of the subset to use, given the variance of each by fold and the place of that used at present."""
        gains = scores - scores[:, [base]]
        bounds = gains.mean(axis=0) + _MARGIN * gains.std(axis=0, ddof=1) / np.sqrt(len(gains))
        if self.required and base == 0:
            return 1 + int(bounds[1:].argmin())
        if bounds.min() <= -_LEAST_GAIN * scores[:, base].mean():
            return int(bounds.argmin())
        home = int(self.agent)  # what is used from the start
        simplest = min({0, home}, key=lambda place: float(gains[:, place].mean()))
        given_up = base > home and gains[:, simplest].mean() < 0 and not self.required
        return simplest if given_up else base


def _quadratic(moments: dict[tuple[int, int], Moments], size: int, folds: int) -> Floats:
    """Weights f_t by fold as quadratic forms, shape (folds, size, size, horizon)."""
    found = {key: part.weights_by_fold(folds) for key, part in moments.items()}
    forms = np.empty((folds, size, size, moments[0, 0].horizon))
    for (i, j), weights in found.items():
        forms[:, i, j] = forms[:, j, i] = weights if i == j else (weights - found[i, i] - found[j, j]) / 2
    return forms


def _improve(
    form: Floats, plan: Callable[[Floats, Floats], Floats], starts: Floats, subset: tuple[int, ...], rounds: int
) -> tuple[Floats, Floats]:
    """Coefficients, with 1 for the rewards in front, and the counts of their schedule."""
    from scipy.optimize import nnls  # slow to import

    coefficients = np.zeros(len(form))
    coefficients[0] = 1.0
    used = list(subset)
    coefficients[used] = 1 / max(len(used), 1)
    for _ in range(rounds if used else 0):
        inverse = 1 / plan(form, coefficients)
        matrix = form @ inverse
        matrix[1:, 1:] += starts
        values, vectors = np.linalg.eigh(matrix[np.ix_(used, used)])
        kept = values > _RIDGE * max(values[-1], 0.0)
        if not kept.any():  # none of them varies; nnls() of an empty matrix is undefined
            coefficients[used] = 0.0
            break
        root, vectors = np.sqrt(values[kept]), vectors[:, kept]
        # Coefficients of at least 0, as in stacked regressions (Breiman, 1996): others fit the noise.
        solved, _ = nnls(root[:, None] * vectors.T, -(vectors.T @ matrix[used, 0]) / root)
        coefficients[used] = np.minimum(solved, _LARGEST)
    return coefficients, plan(form, coefficients)


def _schedule(prior: Floats, costs: Floats, counts: Floats, left: float, form: Floats, coefficients: Floats) -> Floats:
    """Total samples of each step after the remaining budget is spent."""
    weights = np.einsum("i,ijt,j->t", coefficients, form, coefficients)
    pooled = pool((1 - _DISCOUNT) * weights + _DISCOUNT * max(weights.sum(), 0.0) * prior / prior.sum(), costs)
    root = np.sqrt(np.maximum(pooled, _LEAST_SHARE * pooled.mean()))
    if not root.any():
        root = np.ones_like(root)
    missing = np.maximum((left + costs @ counts) * root / (costs @ root) - counts, 0.0)
    planned: Floats = counts + (missing * left / (costs @ missing) if left > 0 else 0.0)
    return planned
