"""AdaptiveSettings: the constants of the default strategy, for studies and tests."""

from dataclasses import dataclass


@dataclass(frozen=True)
class AdaptiveSettings:
    """Constants of :class:`rido.Adaptive`. The defaults were measured, see ``results/zoo.md``.

    Attributes:
        so_far: residuals of rewards so far are used where their plan leaves at most this share of the variance that the
            rewards' own plan leaves; 0 for never.
        relearn: predictions are learned again when this many times as many transitions are known.
        caution: standard errors that are added to the variance of what is still to come at each step.
        unseen: unseen events that plans allow for, each like those that make up the variance of the return.
        doubt: the same that the interval allows for, over those of plans.
        folds: of the trajectories, whose differences tell the standard error that caution takes.
        least_gain: share of the variance that truncation must save by the cautious weights.
        plain_below: budget below which nothing is truncated, in full-length trajectories; twice as large where the
            discount leaves something of the later half.
        teams_from: the same, from which on there are several teams; a third of fewer is too little to plan from.
        teams_until: the same, above which there is one team again: it has no noticeable bias there.
        least_pilot: trajectories of the pilot, where the budget is large enough.
        least_full: full-length trajectories of the pilot; fitting a critic needs as many.
        pilot_share: smallest share of the budget for the pilot; it matters where the budget is very large.
        large_pilot: size of the pilot where critics learn from it or late rewards matter, over one without; see
            results/variance.md and results/zoo.md.
        late: late rewards matter where gamma^horizon is above this.
        reach: short trajectories of the pilot end where gamma^t falls to this.
        growth: transitions of a phase, as a share of those spent before it. Small phases follow the noise of those
            before: with 0.3 errors were 10% larger than they seemed.
        least_phase: smallest phase, as a share of the budget.
        plenty: full-length trajectories from which on the weights are known well and phases grow longer.
        longer: a phase spends (n - plenty) / longer times what was spent, for n full-length trajectories.
        lockstep_gain: least gain of truncation on a device in lockstep, where it takes 1.1 to 1.5 times as long.
        lockstep_unspent: share of the budget below which such a device stops: another phase would be all latency.
        least_freedom: degrees of freedom before ``until`` may stop a run.
        least_stop: trajectories before it may: an outcome of one in 17 is then unseen with less than 5%.
        miss_share: share of the 5% by which the interval may miss at each look with ``until``.
    """

    so_far: float = 0.9
    relearn: float = 1.5
    caution: float = 0.75
    unseen: float = 0.5
    doubt: float = 1.0
    folds: int = 20
    least_gain: float = 0.01
    plain_below: float = 5.0
    teams_from: float = 15.0
    teams_until: float = 1000.0
    least_pilot: int = 5
    least_full: int = 4
    pilot_share: float = 0.01
    large_pilot: float = 2.0
    late: float = 0.5
    reach: float = 0.02
    growth: float = 1.0
    least_phase: float = 0.03
    plenty: int = 200
    longer: float = 80.0
    lockstep_gain: float = 1.3
    lockstep_unspent: float = 0.05
    least_freedom: float = 8.0
    least_stop: int = 50
    miss_share: float = 0.9
