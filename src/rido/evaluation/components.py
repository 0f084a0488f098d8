"""Components: everything that is estimated from the same trajectories, and what the schedule serves.

Rewards may have components, and there may be several discounts. All pairs of a component and a discount are columns of
the same trajectories. The strategy runs with the largest discount g. Column j with a smaller one gamma_j is multiplied
by ``(gamma_j / g)^t``, so that the strategy's discounting by ``g^t`` makes it ``gamma_j^t``.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from rido.core import checks
from rido.core.allocation import discount_factors
from rido.core.estimate import Estimate
from rido.core.joint import JointEstimate
from rido.core.trajectories import Trajectories, positions
from rido.record.header import EvaluationHeader
from rido.simulators.components import ALL, REWARD, check_names
from rido.strategies import Strategy


def check_gammas(gamma: Any) -> tuple[float, ...]:
    """Returns one or several discount factors, if they are in (0, 1] and different."""
    several = isinstance(gamma, (list, tuple)) or (isinstance(gamma, np.ndarray) and gamma.ndim > 0)
    found = tuple(checks.discount("gamma", one) for one in (gamma if several else (gamma,)))
    if not found or len(set(found)) < len(found):
        raise ValueError(f"gamma must be a discount factor or several different ones, got {checks.shown(gamma)}")
    return found


@dataclass(frozen=True)
class Components:
    """What is estimated from the same trajectories.

    Example:
        >>> found = Components(("reward", "cost"), (0.9, 1.0))
        >>> found.labels
        ('reward, gamma 0.9', 'reward, gamma 1', 'cost, gamma 0.9', 'cost, gamma 1')
        >>> found.labels[found.leading]
        'reward, gamma 1'
    """

    names: tuple[str, ...]  # of the components of rewards
    gammas: tuple[float, ...]  # discount factors
    plan_for: str = ALL  # or the label of the one whose error the schedule is to make small, which leads too

    def __post_init__(self) -> None:
        check_names(self.names)
        if self.plan_for != ALL and self.plan_for not in self.labels:
            known = ", ".join(map(repr, (ALL, *self.labels)))
            raise ValueError(f"plan_for must be one of {known}, got {checks.shown(self.plan_for)}")

    @classmethod
    def resolve(cls, names: tuple[str, ...], gammas: tuple[float, ...], plan_for: str | None) -> "Components | None":
        """Returns what is estimated; None where that is the return of plain rewards under one discount.

        Args:
            names: of the components that the simulator declares; none for plain rewards.
            gammas: discount factors.
            plan_for: as above; None for all.
        """
        if len(names) > 1 or len(gammas) > 1:
            return cls(names or (REWARD,), gammas, ALL if plan_for is None else plan_for)
        if plan_for not in (None, ALL, *(names or (REWARD,))):
            raise ValueError(f"plan_for works only with components or several gamma, got {checks.shown(plan_for)}")
        return None

    @classmethod
    def recorded(cls, header: EvaluationHeader) -> "Components | None":
        """Returns those of a recorded run."""
        if not header.components:
            return None
        return cls(tuple(header.components), tuple(header.discounts), header.plan_for)

    def configuration(self) -> dict[str, Any]:
        """Returns what a run file notes of them."""
        return {"components": list(self.names), "discounts": list(self.gammas), "plan_for": self.plan_for}

    @property
    def gamma(self) -> float:
        """The largest discount factor, with which the strategy runs."""
        return max(self.gammas)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Names of all columns."""
        if len(self.gammas) == 1:
            return self.names
        return tuple(f"{name}, gamma {gamma:.12g}" for name in self.names for gamma in self.gammas)

    @property
    def leading(self) -> int:
        """The column that ``Evaluation.value`` is about: that of ``plan_for``, or the first name's largest discount."""
        return self.gammas.index(self.gamma) if self.plan_for == ALL else self.labels.index(self.plan_for)

    def serve(self, strategy: Strategy) -> None:
        """Tells a strategy what its plans are to serve."""
        one_hot = [float(column == self.leading) for column in range(len(self.labels))]
        strategy.set_objective("scaled" if self.plan_for == ALL else one_hot, self.leading)

    def columns(self, batch: Trajectories) -> Trajectories:
        """Returns trajectories with all columns, given those with the components that were collected."""
        self.check(batch)
        if len(self.gammas) == 1:
            return batch
        longest = int(batch.lengths.max())
        factors = np.stack([discount_factors(longest, gamma / self.gamma) for gamma in self.gammas], axis=1)
        flat = batch.flat.reshape(len(batch.flat), -1, 1) * factors[positions(batch.lengths), None, :]
        return Trajectories.from_flat(flat.reshape(len(flat), -1), batch.lengths, batch.steps)

    def check(self, batch: Trajectories) -> None:
        """Raises unless trajectories have a number for each component and step."""
        wanted = (len(self.names),) if len(self.names) > 1 else ()
        if batch.flat.shape[1:] != wanted:
            raise ValueError(
                f"simulator must return rewards with the components {', '.join(self.names)}, one column for each, got "
                f"shape {batch.flat.shape}"
            )

    def joint(self, found: JointEstimate, leading: Estimate | None = None) -> JointEstimate:
        """Returns estimates of all columns, each with its own discount.

        Args:
            found: estimates of a strategy, which knows only the largest.
            leading: the strategy's estimate of the leading column, if it is another one.
        """
        estimates = list(found.estimates)
        if leading is not None:
            estimates[self.leading] = leading
        gammas = self.gammas * len(self.names)
        named = (replace(estimate, gamma=gamma) for estimate, gamma in zip(estimates, gammas, strict=True))
        return JointEstimate(tuple(named), found.covariance)
