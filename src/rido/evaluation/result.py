"""Evaluation: what evaluate() returns, and what it says of other ways to get there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from rido.core import checks
from rido.core.allocation import pool, unit_of
from rido.core.digits import entries, to_digits
from rido.core.estimate import Estimate
from rido.core.joint import JointEstimate
from rido.core.moments import Moments
from rido.core.schedule import Schedule
from rido.evaluation.returns import Returns
from rido.simulators.components import REWARD

_SMALLEST = 1e-150  # number whose square is within float64
_FOLDS = 10  # of trajectories, whose differences tell how uncertain a variance is

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Evaluation:
    """How good a policy is.

    Attributes:
        estimate: the estimated return with its error bars.
        schedule: planned samples of each time step that the estimate rests on.
        transitions: transitions taken in all, with what resets cost where they do.
        trajectories: trajectories collected.
        uniform_transitions: transitions that full-length trajectories alone would need for the same standard
            error, an estimate; NaN where the data does not tell.
        uniform_transitions_interval: its 95% interval.
        normalisation: what was done to the agent's observations, such as "observations normalised by vecnormalize.pkl";
            empty where there is nothing to say.
        starts: where starts came from, "random" or "sobol".
        strategy: name of the strategy.
        environment: name of the environment.
        policy: name of the policy.
        seed: what all randomness came from. The same seed gives the same result where it is reproducible.
        reproducible: whether the same seed gives the same result for any number of environments.
        seconds: time that collecting took, planning not counted.
        planning_seconds: time that planning and statistics took.
        warnings: what the reader should know before trusting the numbers.
        remarks: what else the reader may want to know: a time limit that was lifted, statistics that were frozen.
        critic: name of the critic that carried the estimate: "policy", "fit", a function's name, or "none".
        critic_gain: how many times the variance would have been larger without the critic, at equal transitions and
            under the best schedule for plain rewards; NaN where there is no critic or the data does not tell.
        resets: resets taken for the critic's expectation over first states.
        reset_seconds: time that they took.
        reward_range: lowest and highest possible reward, if they were given.
        guaranteed_interval: holds the expected return with at least 95% for any rewards in that range; None where no
            range was given.
        labels: names of what was estimated, each component under each discount.
        plan_for: what the schedule served, "all" or one of the labels; empty where there is one alone.
        joint: estimates of all of them with their covariance; None where there is one alone.
        full_length: returns of the trajectories that were planned to full length, see :attr:`returns`.
    """

    estimate: Estimate
    transitions: int
    trajectories: int
    uniform_transitions: float
    strategy: str
    environment: str
    policy: str
    seed: int
    reproducible: bool
    seconds: float
    planning_seconds: float
    warnings: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    critic: str = "none"
    critic_gain: float = math.nan
    resets: int = 0
    reset_seconds: float = 0.0
    reward_range: tuple[float, float] | None = None
    guaranteed_interval: tuple[float, float] | None = None
    uniform_transitions_interval: tuple[float, float] = (math.nan, math.nan)
    normalisation: str = ""
    starts: str = "random"
    labels: tuple[str, ...] = (REWARD,)
    plan_for: str = ""
    joint: JointEstimate | None = field(default=None, compare=False, repr=False)
    full_length: Returns | None = field(default=None, compare=False, repr=False)

    @property
    def value(self) -> float:
        """The estimated expected return."""
        return self.estimate.value

    @property
    def standard_error(self) -> float:
        """The standard error of the value."""
        return self.estimate.standard_error

    @property
    def schedule(self) -> Schedule:
        """Planned samples of each time step."""
        return self.estimate.schedule

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Returns the interval that holds the expected return with about this confidence."""
        return self.estimate.interval(confidence)

    @property
    def components(self) -> dict[str, Estimate]:
        """The estimate of each component under each discount; only that of the reward if no other was asked for."""
        return dict(zip(self.labels, self._together.estimates, strict=True))

    @checks.checked()
    def intervals(self, confidence: float = 0.95, *, simultaneous: bool = False) -> dict[str, tuple[float, float]]:
        """Returns an interval for each component.

        Args:
            confidence: with which each interval holds its component.
            simultaneous: whether all of them together hold theirs with this confidence.
        """
        found = self._together.intervals(confidence, simultaneous=simultaneous)
        return dict(zip(self.labels, found, strict=True))

    def confidence_that(
        self, *, below: Mapping[str, float] | None = None, above: Mapping[str, float] | None = None
    ) -> float:
        """Returns with what confidence components are below and above limits, all of them at the same time.

        It is the largest confidence with which simultaneous one-sided bounds put each of them on the right side.

        Args:
            below: limits of the components that are to be below, such as ``{"cost": 25}``.
            above: limits of the components that are to be above, such as ``{"reward": 300}``.
        """
        claims = []
        for argument, limits in (("below", below), ("above", above)):
            limits = checks.keywords(argument, {} if limits is None else limits)
            if unknown := [name for name in limits if name not in self.labels]:
                known = ", ".join(map(repr, self.labels))
                raise ValueError(f"{argument} must name components, of {known}, got {unknown[0]!r}")
            claims.append({self.labels.index(name): checks.finite(argument, limit) for name, limit in limits.items()})
        return self._together.confidence(below=claims[0], above=claims[1])

    @property
    def returns(self) -> Returns:
        """How returns are distributed, from the trajectories that were planned to full length."""
        if self.full_length is not None:
            return self.full_length
        if self.starts == "sobol":
            reason = "trajectories from Sobol points depend on each other: use starts='random'"
        elif self.critic != "none":
            reason = "a run with a critic keeps its residuals alone: use critic=None"
        else:
            reason = "this run kept sums over its rewards alone: use a smaller budget or a run file"
        raise ValueError(f"returns need independent trajectories with their rewards, but {reason}")

    @property
    def _together(self) -> JointEstimate:
        if self.joint is not None:
            return self.joint
        return JointEstimate((self.estimate,), np.array([[self.standard_error]]) ** 2)

    def summary(self) -> str:
        """Returns what was found, in a few lines."""
        value, low, high = to_digits(self.value, *self.interval())
        others = {name: estimate for name, estimate in self.components.items() if estimate is not self.estimate}
        leading = "".join(f", {name}" for name in self.labels if others and name not in others)
        lines = [
            f"{self.policy} in {self.environment}{leading}: {value}, 95% interval [{low}, {high}]",
            *(
                "{}: {}, 95% interval [{}, {}]".format(name, *to_digits(estimate.value, *estimate.interval()))
                for name, estimate in others.items()
            ),
            f"{self.transitions:,} transitions in {self.trajectories:,} trajectories of up to {self.schedule.horizon} "
            f"steps, gamma {self.estimate.gamma:g}, strategy {self.strategy}"
            + (f", planned for {self.plan_for}" if self.plan_for else "")
            + (", Sobol starts" if self.starts == "sobol" else ""),
        ]
        if self.reward_range is not None and self.guaranteed_interval is not None:
            (lowest, highest), (_, low, high) = self.reward_range, to_digits(self.value, *self.guaranteed_interval)
            lines.insert(1, f"guaranteed for rewards in [{lowest:.6g}, {highest:.6g}]: [{low}, {high}]")
        if self.normalisation:
            lines.append(self.normalisation)
        if math.isfinite(self.uniform_transitions) and self.strategy != "uniform":
            least, most = self.uniform_transitions_interval
            about = f"about {_rounded(self.uniform_transitions)} transitions"
            needed = f"{about} for this ({_rounded(least)} to {_rounded(most)})"
            lines.append(f"uniform evaluation would have needed {needed}")
        if self.critic != "none":
            gain = f": {self.critic_gain:.3g} times less variance" if math.isfinite(self.critic_gain) else ""
            lines.append(f"critic {self.critic}{gain}, {self.resets:,} resets in {self.reset_seconds:.2g} s")
        full = int(self.schedule.counts[-1])
        lines.append(
            f"{full:,} trajectories of full length: outcomes rarer than 1 in {max(1, full // 3)} may be unseen"
        )
        lines += self.remarks
        return "\n".join([*lines, *(f"warning: {warning}" for warning in self.warnings)])

    def to_dict(self) -> dict[str, Any]:
        """Returns everything as plain numbers, strings and lists, with None where a number is not finite."""
        (low, high), (least, most) = self.interval(), self.uniform_transitions_interval
        return entries(
            self,
            without=("estimate", "uniform_transitions_interval", "labels", "plan_for"),
            value=self.value,
            standard_error=self.standard_error,
            **{"interval_low": low, "interval_high": high, "confidence": 0.95},
            **{"uniform_transitions_low": least, "uniform_transitions_high": most},
            gamma=self.estimate.gamma,
            horizon=self.schedule.horizon,
            counts=self.schedule.counts.tolist(),
            **self._components_to_dict(),
        )

    def _components_to_dict(self) -> dict[str, Any]:
        if self.joint is None:
            return {}
        together = self.intervals(simultaneous=True)
        return {
            "plan_for": self.plan_for,
            "components": [
                {
                    "name": name,
                    "gamma": estimate.gamma,
                    "value": estimate.value,
                    "standard_error": estimate.standard_error,
                    "interval": estimate.interval(),
                    "simultaneous_interval": together[name],
                }
                for name, estimate in self.components.items()
            ],
            "covariance": self.joint.covariance.tolist(),
        }

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws how many samples each time step got; needs the extra ``plot``."""
        axes: Axes = import_module("rido.plots").plot_schedule(self.schedule, ax=ax)  # a room above this one
        return axes

    def _repr_html_(self) -> str:
        return str(import_module("rido.plots.report").evaluation_html(self))


def _rounded(number: float) -> str:
    """Returns a number with two digits, which is as much as an estimate of a variance can tell."""
    return f"{float(f'{number:.2g}'):,.0f}"


def uniform_transitions(moments: Moments, estimate: Estimate) -> dict[str, Any]:
    """Returns what full-length trajectories would cost for the standard error of an estimate, and its 95% interval.

    Both are estimates: the variance of a return, whose error is that of its mean over folds of the trajectories, and
    the squared standard error, as uncertain as its effective trajectories and degrees of freedom make it. What widens
    the interval for events that the rewards do not show is left out of it.

    Args:
        moments: of the rewards themselves.
        estimate: what was reached, with a critic or without.

    Returns:
        The fields of an :class:`Evaluation`; NaN where the data does not tell.
    """
    value, low, high = math.nan, math.nan, math.nan
    full = int(moments.counts[-1])
    if 0 < estimate.standard_error < math.inf and full > 1:
        folds = moments.weights_by_fold(min(_FOLDS, full)).sum(axis=1)
        variance = float(folds.sum())  # of the return of one trajectory
        error = estimate.standard_error / estimate.widening
        if variance > _SMALLEST and _SMALLEST < error < 1 / _SMALLEST:
            value = variance / error**2 * float(moments.survival.sum())
            unit = unit_of(variance)
            noise = float((folds / unit).var(ddof=1)) * folds.size / (variance / unit) ** 2
            noise += max(1 / estimate.effective_trajectories, 2 / estimate.degrees_of_freedom)
            factor = math.exp(1.96 * math.sqrt(noise))
            low, high = value / factor, value * factor
    return {"uniform_transitions": value, "uniform_transitions_interval": (low, high)}


def critic_gain(moments: Moments, error: float) -> float:
    """Returns the variance that plain rewards would leave under their best schedule, over that which was reached."""
    if not _SMALLEST < error < 1 / _SMALLEST or moments.counts[-1] < 2:
        return math.nan
    # The best schedule of one transition has the variance (sum_t sqrt(c_t g_t))^2, with pooled weights g and costs c.
    costs = np.maximum(moments.survival, 1 / (1 + moments.counts))
    best = float(costs @ np.sqrt(pool(moments.weights(), costs)))
    return best**2 / moments.transitions / error**2
