"""compare_results(): which of several policies is better, from episodes that were recorded before."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from rido.comparison.comparison import Comparison, Exit
from rido.comparison.tables import RecordedReturns, read_returns
from rido.core import checks
from rido.core.allocation import Array
from rido.core.estimate import Estimate, sum_of
from rido.core.proportions import Rate, RateDifference, TwoValuedEstimate
from rido.core.reward_moments import RewardMoments
from rido.core.trajectories import Trajectories
from rido.policies.files import named_policies
from rido.strategies.diagnostics import interval_warnings

_LEAST_SHARED = 0.5  # share of the seeds of the shorter file that both must have for a paired comparison


@checks.checked()
def compare_results(
    files: Sequence[str | Path] | Mapping[str, Any], *, confidence: float = 0.95, tolerance: float = 0.0
) -> Comparison:
    """Finds the best of several policies from recorded returns of their episodes.

    Episodes with the same seed are compared as pairs, where two files share at least half of the seeds of the shorter
    one. Other files are compared by the means of all their episodes, as in Welch's test. Episodes of one file with the
    same seed are not independent, so their mean is one outcome.

    Each policy is compared with the one of the highest mean, once. Each bound fails on one side with a probability of
    ``(1 - confidence) / K`` for K policies, for the reasons that :class:`rido.Race` gives. Returns that take only two
    values, such as success and failure, get exact intervals (see :class:`rido.core.proportions.RateDifference`).

    Args:
        files: 2 to 100 files, named by what tells their paths apart; or a dictionary by name of files or arrays of
            returns. :func:`rido.comparison.tables.read_returns` says which formats can be read.
        confidence: probability that no policy is wrongly called the best.
        tolerance: difference that does not matter: the leader is called the best when it is significantly not
            worse than any other by more.

    Returns:
        The same as of :func:`rido.compare`; an episode is one transition.

    Example:
        >>> found = compare_results({"old": [0, 1] * 25, "new": [0, 1, 1, 1, 1] * 10})
        >>> found.best, [round(end, 2) for end in found.difference("new", "old").interval()]
        ('new', [0.11, 0.47])
    """
    if isinstance(files, (str, Path)):
        raise ValueError(f"files must be a list of at least 2 files, got {str(files)!r}")
    if isinstance(files, Mapping):
        named: Mapping[str, Any] = {checks.text("files", name): given for name, given in files.items()}
    else:
        listed = checks.instance("files", files, list, tuple)
        named = named_policies([Path(checks.path("files", file)) for file in listed])
    if not 2 <= len(named) <= 100:
        raise ValueError(f"files must be 2 to 100, got {len(named)}: {', '.join(named) or 'none'}")
    recorded = {
        name: read_returns(given) if isinstance(given, (str, Path)) else _from_array(name, given)
        for name, given in named.items()
    }
    rewards = RecordedRewards(recorded)
    leader, *others = sorted(named, key=lambda name: -rewards.estimate(name).value)
    undecided = Comparison(
        best=None,
        ranking=(leader, *others),
        rewards=rewards,
        exits={},
        level=(1 - confidence) / len(named),
        confidence=confidence,
        tolerance=tolerance,
        budget=rewards.transitions,
        environment="the recorded episodes",
        notes=rewards.notes,
    )
    bounds = {name: undecided.bounds(name, leader)[1] for name in others}
    exits = {name: Exit(rewards.transitions, rewards.rounds, leader) for name in others if bounds[name] < 0}
    left = [name for name in others if name not in exits]
    best = leader if all(bounds[name] <= tolerance for name in left) else None
    return replace(undecided, best=best, ranking=(leader, *left, *exits), exits=exits)


class RecordedRewards:
    """Recorded returns of several policies, with the interface of :class:`rido.comparison.paired.PairedRewards`.

    The return of an episode is a reward process of one step.

    Attributes:
        notes: what was done to the episodes before they were compared.
    """

    horizon, gamma, rounds = 1, 1.0, 1
    unit = "episodes"

    def __init__(self, recorded: Mapping[str, RecordedReturns]) -> None:
        successes = [name for name, one in recorded.items() if one.success]
        for name, one in recorded.items():
            if successes and not np.isin(one.returns, (0, 1)).all():
                raise ValueError(f"files must all have successes, as {successes[0]} has, got other returns in {name}")
        self._episodes = {name: one.returns.size for name, one in recorded.items()}
        grouped = {name: _means_by_seed(one) for name, one in recorded.items()}
        self._returns = {name: returns for name, (returns, _) in grouped.items()}
        self._rows = {name: rows for name, (_, rows) in grouped.items()}
        self.notes = tuple(
            f"{name} has {self._episodes[name]:,} episodes of {returns.size:,} seeds: the mean of each seed counts once"
            for name, returns in self._returns.items()
            if returns.size < self._episodes[name]
        )
        self._outcomes = None if self.notes else _two_values(list(self._returns.values()), bool(successes))
        self._differences: dict[tuple[str, str], Estimate] = {}

    @property
    def transitions(self) -> int:
        return sum(self._episodes.values())

    trajectories = transitions

    def transitions_of(self, name: str) -> int:
        return self._episodes[name]

    def estimate(self, name: str) -> Estimate:
        returns = self._returns[name]
        found = _estimate(returns)
        if self._outcomes is None:
            return found
        low, high = self._outcomes
        return _two_valued(found, Rate(int((returns == high).sum()), returns.size), low, high - low)

    def difference(self, name: str, other: str) -> Estimate:
        """Estimates J(name) - J(other): from pairs where seeds match, else from all episodes."""
        if (name, other) not in self._differences:
            self._differences[name, other] = self._difference(name, other)
        return self._differences[name, other]

    def gain(self, name: str, other: str) -> float:
        """Returns how many times larger the variance of a difference would be without pairs; NaN if there are none."""
        pairs = self._pairs(name, other)
        paired = self.difference(name, other).standard_error
        if pairs is None or paired == 0:
            return math.nan
        return (math.hypot(*(_estimate(returns).standard_error for returns in pairs)) / paired) ** 2

    def describe(self, name: str, other: str) -> str:
        pairs = self._pairs(name, other)
        if pairs is not None:
            told = f"{pairs[0].size:,} pairs with the same seed"
        else:
            seeds = [self._rows[one] is not None for one in (name, other)]
            why = "too few of the same seed" if all(seeds) else "no seeds to pair them by"
            told = f"unpaired, {why}"
        rates = "" if self._outcomes is None else "; intervals of success rates"
        return f"{self.transitions:,} episodes; {name} and {other}: {told}{rates}"

    def doubts(self, name: str, other: str) -> tuple[str, ...]:
        """Returns reasons to doubt the interval of a difference. That of two-valued outcomes is exact."""
        return interval_warnings(self.difference(name, other)) if self._outcomes is None else ()

    def _difference(self, name: str, other: str) -> Estimate:
        pairs = self._pairs(name, other)
        first, second = (self._returns[name], self._returns[other]) if pairs is None else pairs
        if pairs is None:
            found = sum_of([_estimate(first), _estimate(second)], [1.0, -1.0])  # Welch's degrees of freedom
        else:
            found = _estimate(first - second)
        if self._outcomes is None:
            return found
        low, high = self._outcomes
        won, lost = (first == high, second == high) if pairs is None else (first > second, second > first)
        rate = RateDifference(int(won.sum()), first.size, int(lost.sum()), second.size, paired=pairs is not None)
        return _two_valued(found, rate, 0.0, high - low)

    def _pairs(self, name: str, other: str) -> tuple[Array, Array] | None:
        """Returns the returns of both policies with the same seeds; None if these are too few for a comparison."""
        one, two = self._rows[name], self._rows[other]
        if one is None or two is None:
            return None
        shared = [seed for seed in one if seed in two]
        if len(shared) < max(2, _LEAST_SHARED * min(len(one), len(two))):
            return None
        return self._returns[name][[one[seed] for seed in shared]], self._returns[other][[two[seed] for seed in shared]]


def _from_array(name: str, returns: Any) -> RecordedReturns:
    array = checks.finite_vector(f"returns of {name}", returns)
    if array.size < 2:
        raise ValueError(f"returns of {name} must be at least 2, got {array.size}")
    return RecordedReturns(array, success=np.asarray(returns).dtype == np.bool_)


def _means_by_seed(recorded: RecordedReturns) -> tuple[Array, dict[str, int] | None]:
    """Returns the mean return of each seed, and where each seed is; all returns where seeds are not known."""
    if recorded.seeds is None:
        return recorded.returns, None
    rows: dict[str, int] = {}
    at = np.array([rows.setdefault(seed, len(rows)) for seed in recorded.seeds])
    return np.bincount(at, recorded.returns) / np.bincount(at), rows


def _two_values(returns: Sequence[Array], success: bool) -> tuple[float, float] | None:
    """Returns the two values that all returns have, the smaller first; None if there are more.

    Policies that each gave one value again and again are deterministic rather than two-valued, unless the values are
    0 and 1, or known to be successes.
    """
    values = np.unique(np.concatenate(returns))
    if success or np.array_equal(values, (0, 1)):
        return 0.0, 1.0
    both = values.size == 2 and any(np.unique(one).size == 2 for one in returns)
    return (float(values[0]), float(values[1])) if both else None


def _estimate(returns: Array) -> Estimate:
    moments = RewardMoments(1, gamma=1.0)
    moments.update(Trajectories(returns[:, None], np.ones(returns.size, dtype=np.int64)))
    return Estimate.from_moments(moments)


def _two_valued(found: Estimate, rate: Rate | RateDifference, origin: float, unit: float) -> TwoValuedEstimate:
    plain = {field.name: getattr(found, field.name) for field in fields(Estimate)}
    return TwoValuedEstimate(**plain, rate=rate, origin=origin, unit=unit)
