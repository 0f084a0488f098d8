"""Comparison: which of several policies is best, how significant that is, and which were eliminated when."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rido.comparison.paired import Rewards
from rido.core import checks
from rido.core.digits import entries, with_interval
from rido.core.estimate import Estimate, unseen_share
from rido.core.proportions import TwoValuedEstimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEAST_PAIRS = 8  # pairs, or degrees of freedom and one, before a difference may decide anything
_FEW = 60  # pairs from which on bounds no longer allow for unseen starts: they have shown what happens on 1 in 20
_NO_GAIN = 1.1  # pairing gains nothing where the variance of a difference falls by less than this factor


@dataclass(frozen=True)
class Exit:
    """When a policy was eliminated from a race."""

    transitions: int  # of all policies by then
    round: int  # the round after which it was eliminated, from 1
    leader: str  # the policy that it was found to be worse than


@dataclass(frozen=True)
class Comparison:
    """Which of several policies is best.

    Attributes:
        best: name of the best policy; None while undecided.
        ranking: all names, the best first; those that were eliminated come last.
        rewards: what everything is computed from.
        exits: when the policies that are not among the best were eliminated.
        level: error probability of the last look at a difference, on one side.
        confidence: probability that no policy is wrongly called the best.
        tolerance: difference that does not matter.
        budget: transitions that were allowed.
        environment: name of the environment.
        seed: what all randomness came from.
        reproducible: whether the same seed gives the same result for any number of environments.
        seconds: time that collecting took.
        notes: what the reader should know before trusting the numbers, found by the simulator.
        remarks: what else a reader may want to know, such as a time limit that was lifted.
    """

    best: str | None
    ranking: tuple[str, ...]
    rewards: Rewards = field(repr=False)
    exits: Mapping[str, Exit]
    level: float
    confidence: float
    tolerance: float
    budget: int
    environment: str = "a simulator"
    seed: int | None = None
    reproducible: bool = True
    seconds: float = math.nan
    notes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def decided(self) -> bool:
        """Whether one policy is the best, or as good as any other within the tolerance."""
        return self.best is not None

    @property
    def values(self) -> dict[str, Estimate]:
        """The estimated return of each policy, the best first."""
        return {name: self.rewards.estimate(name) for name in self.ranking}

    @property
    def eliminated(self) -> dict[str, int]:
        """The policies that were eliminated, with the transitions of all policies by then."""
        return {name: exit.transitions for name, exit in self.exits.items()}

    @property
    def transitions(self) -> int:
        """Transitions of all policies together."""
        return self.rewards.transitions

    @property
    def trajectories(self) -> int:
        """Trajectories of all policies together."""
        return self.rewards.trajectories

    def difference(self, name: str, other: str) -> Estimate:
        """Returns the estimated difference J(name) - J(other), from the trajectories that both have in common."""
        self._known(name=name, other=other)
        return self.rewards.difference(name, other)

    def _known(self, **names: str) -> None:
        for argument, name in names.items():
            checks.choice(argument, name, self.ranking)

    def bounds(self, name: str, other: str) -> tuple[float, float]:
        """Returns the bounds on J(name) - J(other) that decide eliminations; infinite before the first look.

        They hold at every look, and with the confidence of the comparison for the differences of all policies to one.
        """
        difference = self.difference(name, other)
        if isinstance(difference, TwoValuedEstimate):
            return difference.interval(1 - 2 * self.level)
        values = self.rewards.estimate(name), self.rewards.estimate(other)
        reach = reach_at(self.level, (1 - self.confidence) / len(self.ranking), difference, values)
        return difference.value - max(reach), difference.value + max(reach)

    def interval(self, name: str) -> tuple[float, float]:
        """Returns an interval of a policy's return that also holds for the policy that was chosen because it is best.

        With the confidence of the comparison the intervals of all policies hold at once (Bonferroni).
        """
        self._known(name=name)
        return self.rewards.estimate(name).interval(1 - (1 - self.confidence) / len(self.ranking))

    def pairing_gain(self, name: str, other: str) -> float:
        """Returns how many times larger the variance of a difference would be without common seeds; NaN if unknown."""
        self._known(name=name, other=other)
        return self.rewards.gain(name, other)

    @property
    def needed(self) -> float:
        """Transitions that would decide between the best two, about; infinite where only a tolerance can."""
        leader, rival = self.ranking[:2]
        if self.decided:
            return float(self.transitions)
        difference = self.difference(leader, rival)
        reach = difference.value - self.bounds(leader, rival)[0]
        distance = difference.value + self.tolerance
        if math.isinf(reach) and self.level == 0:
            return self.transitions * LEAST_PAIRS / _pairs(difference)
        power = 1 if self.same(leader, rival) else 2
        return self.transitions * (reach / distance) ** power if distance > 0 else math.inf

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the reader should know before trusting the result."""
        leader, rival = self.ranking[:2]
        warnings = [*self.notes]
        alike = [name for name in self.ranking[1:] if name not in self.exits and self.same(leader, name)]
        if alike:
            warnings.append(f"{', '.join(alike)} gave the same rewards as {leader} {self.share(leader, alike[0])}")
        elif self.decided:
            warnings += self.rewards.doubts(leader, rival)
        return tuple(warnings)

    def same(self, name: str, other: str) -> bool:
        """Returns whether two policies gave the same rewards in all pairs."""
        difference = self.difference(name, other)
        return difference.nothing_varied and difference.value == 0

    def share(self, name: str, other: str) -> str:
        """Returns in words what pairs with the same rewards tell of all starts."""
        pairs = _pairs(self.difference(name, other))
        share = 100 * unseen_share(1 - self.confidence, pairs)
        confident = f"with {100 * self.confidence:g}% confidence"
        return f"in all {pairs:,} pairs: {confident} at most {share:.2g}% of the starts tell them apart"

    def _undecided(self) -> str:
        leader, rival = self.ranking[:2]
        pairs, known = _pairs(self.difference(leader, rival)), math.isfinite(self.needed)
        needed = f"deciding takes about {self.needed:,.3g} {self.rewards.unit}"
        if self.same(leader, rival):
            missing = needed if known else "no reward tells what may be lost" if self.tolerance else "give a tolerance"
            return f"{leader} and {rival} are the same in all {pairs:,} pairs; {missing}"
        if self.level == 0:
            return f"{pairs:,} pairs are too few to decide by; {needed}"
        left = f"{len(self.ranking) - len(self.exits)} of {len(self.ranking)} are left"
        return f"{left}; {needed}" if known else f"{left}, the best two with the same mean so far"

    def summary(self) -> str:
        """Returns what was found, in a few lines."""
        leader, rival = self.ranking[:2]
        difference, (low, high) = self.difference(leader, rival), self.interval(leader)
        least, most = self.bounds(leader, rival)
        percent = f"{100 * self.confidence:g}%"
        if self.decided and len(self.exits) == len(self.ranking) - 1:
            head = f"{leader} is the best of {len(self.ranking)} in {self.environment}, at {percent} confidence"
        elif self.decided:
            ties = ", ".join(name for name in self.ranking[1:] if name not in self.exits)
            head = f"{leader} is not worse than any other by more than {self.tolerance:g}; still close: {ties}"
        else:
            head = f"undecided: {self._undecided()}"
        lines = [
            head,
            f"{leader}: {with_interval(self.values[leader].value, low, high)} (valid although chosen as the best)",
            f"{leader} - {rival}: {with_interval(difference.value, least, most)}",
            self.rewards.describe(leader, rival),
        ]
        if math.isfinite(gain := self.pairing_gain(leader, rival)):
            told = f"{gain:.3g}-fold" if gain >= _NO_GAIN else f"next to nothing: {gain:.2f}-fold"
            lines.append(f"common seeds reduced the variance of this difference {told}")
        return "\n".join([*lines, *self.remarks, *(f"warning: {warning}" for warning in self.warnings)])

    def to_dict(self) -> dict[str, Any]:
        """Returns everything as plain numbers, strings and lists, with None where a number is not finite."""
        leader = self.ranking[0]
        policies = []
        for name, estimate in self.values.items():
            low, high = self.interval(name)
            row: dict[str, Any] = {
                "name": name,
                "value": estimate.value,
                "standard_error": estimate.standard_error,
                "interval_low": low,
                "interval_high": high,
                "transitions": self.rewards.transitions_of(name),
                "eliminated_at": self.eliminated.get(name),
            }
            if name != leader:
                difference = self.difference(leader, name)
                row["behind"] = difference.value
                row["behind_low"], row["behind_high"] = self.bounds(leader, name)
                row["pairing_gain"] = self.pairing_gain(leader, name)
            policies.append(row)
        return entries(
            self,
            without=("exits", "level", "notes"),
            decided=self.decided,
            policies=policies,
            transitions=self.transitions,
            trajectories=self.trajectories,
            needed=self.needed,
            horizon=self.rewards.horizon,
            gamma=self.rewards.gamma,
            warnings=self.warnings,
        )

    def table(self) -> list[tuple[str, ...]]:
        """Returns the names of columns, and a row of texts for each policy, the best first."""
        rows: list[tuple[str, ...]] = [("policy", "value", "behind the best", self.rewards.unit, "eliminated at")]
        for row in self.to_dict()["policies"]:
            rows.append(
                (
                    " ".join(row["name"].split()),
                    with_interval(row["value"], row["interval_low"], row["interval_high"]),
                    with_interval(row["behind"], row["behind_low"], row["behind_high"]) if "behind" in row else "",
                    f"{row['transitions']:,}",
                    "" if row["eliminated_at"] is None else f"{row['eliminated_at']:,}",
                )
            )
        return rows

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws the interval of each policy; needs matplotlib."""
        axes: Axes = import_module("rido.plots.comparison").plot_intervals(self, ax)  # a room above this one
        return axes


def reach_at(level: float, alpha: float, difference: Estimate, values: Sequence[Estimate]) -> tuple[float, float]:
    """Returns how far the bounds are from the difference of two returns: by starts seen and by those unseen.

    The bounds are the larger of both. The starts seen give a t interval.

    With probability alpha n pairs miss what happens on a share ``-log(alpha) / n`` of all starts, at all looks together
    as at one. Policies that are alike on the others may part there. Then their returns may differ by as much as returns
    of different starts do, a standard deviation. Fewer than 60 pairs allow for that, which binds where common seeds
    have made a difference much smaller. Where all pairs gave the same rewards, a whole return may be lost.

    Args:
        level: probability with which the t interval may fail on one side at this look; it is infinite where it is 0.
        alpha: the same over all looks.
        difference: the estimated difference.
        values: the estimates of both returns.
    """
    pairs = _pairs(difference)
    share = unseen_share(alpha, pairs)
    sizes = [value.standard_error * math.sqrt(_pairs(value)) for value in values]
    if difference.nothing_varied and difference.value == 0:
        return 0.0, share * max(map(math.hypot, sizes, [value.value for value in values])) or math.inf
    plain = replace(difference, skewness=0.0, largest_contribution=0.0)
    return plain.half_width(1 - 2 * level) if level else math.inf, share * max(sizes) if pairs < _FEW else 0.0


def enough(difference: Estimate) -> bool:
    """Returns whether a difference rests on enough pairs to decide."""
    return difference.degrees_of_freedom > LEAST_PAIRS - 1.5 and math.isfinite(difference.standard_error)


def _pairs(estimate: Estimate) -> int:
    return int(estimate.schedule.counts[-1])
