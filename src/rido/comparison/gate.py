"""Gate: does a candidate pass against a baseline? A decision that continuous integration can act on."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from rido.comparison.comparison import Comparison
from rido.core import checks

GateName = Literal["better", "not-worse"]
Outcome = Literal["pass", "fail", "undecided"]


@dataclass(frozen=True)
class Verdict:
    """What a gate decided, and the reason in one line."""

    outcome: Outcome
    why: str


@dataclass(frozen=True)
class Gate:
    """A decision about the other policies of a comparison, the candidates, against a baseline.

    "better" passes when some candidate is better than the baseline. It fails when none is better by more than the
    tolerance. "not-worse" passes when some candidate is not worse by more than the tolerance. It fails when all are
    worse than the baseline. Otherwise both are undecided.

    All of that is by the bounds of :class:`rido.Race`, which hold at every look. With K policies each bound fails with
    a probability of ``(1 - confidence) / K``, and that of pairs that are all equal with as much. So of two policies a
    gate passes wrongly with at most ``1 - confidence``, and fails wrongly with at most that too.

    Attributes:
        kind: "better" or "not-worse".
        baseline: name of the policy to compare with.
        tolerance: difference that does not matter; positive for "not-worse".
    """

    kind: GateName
    baseline: str
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        checks.choice("gate", self.kind, get_args(GateName))
        checks.not_negative("tolerance", self.tolerance)
        if self.kind == "not-worse" and self.tolerance == 0:
            raise ValueError("tolerance must be positive for gate not-worse: how much worse may a candidate be? got 0")

    def judge(self, comparison: Comparison) -> Verdict:
        """Decides by what a comparison knows so far."""
        if self.baseline not in comparison.ranking:
            names = ", ".join(comparison.ranking)
            raise ValueError(f"baseline must be one of the policies, {names}, got {self.baseline!r}")
        if (exit := comparison.exits.get(self.baseline)) is not None:
            return Verdict("pass", f"{exit.leader} is better, {self._told(comparison, exit.leader)}")
        candidates = [name for name in comparison.ranking if name != self.baseline]
        left = [name for name in candidates if name not in comparison.exits]
        if self.kind == "not-worse":  # one eliminated just now is worse than another, but perhaps not by much
            last = comparison.rewards.rounds
            left += [name for name, exit in comparison.exits.items() if exit.round == last]
        bounds = {name: comparison.bounds(name, self.baseline) for name in left}
        least, most = (max((bound[side] for bound in bounds.values()), default=-math.inf) for side in (0, 1))
        first = max(left, key=lambda name: bounds[name][0]) if left else candidates[0]
        told = self._told(comparison, first)
        margin = f" by more than {self.tolerance:g}" if self.tolerance else ""
        if self.kind == "better" and least > 0:
            return Verdict("pass", f"{first} is better, {told}, at least {least:.4g}")
        if self.kind == "better" and most <= self.tolerance:
            return Verdict("fail", f"nothing is better than {self.baseline}{margin}; {told}")
        if self.kind == "not-worse" and least >= -self.tolerance:
            return Verdict("pass", f"{first} is not worse{margin}, {told}, at least {least:.4g}")
        if self.kind == "not-worse" and most < 0:
            return Verdict("fail", f"{first} is worse, {told}")
        known = f", from {least:.4g} to {bounds[first][1]:.4g}" if math.isfinite(least) else ""
        return Verdict("undecided", f"{told}{known}; a larger budget may decide")

    def _told(self, comparison: Comparison, name: str) -> str:
        if comparison.same(name, self.baseline):
            return f"its rewards are those of {self.baseline} {comparison.share(name, self.baseline)}"
        return f"{name} - {self.baseline} is {comparison.difference(name, self.baseline).value:.4g}"
