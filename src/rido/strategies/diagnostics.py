"""Diagnostics: warnings about confidence intervals that the data makes doubtful."""

from rido.core.estimate import Estimate

# Below these numbers intervals cover less than promised; results/trust.md counts missed and false alarms.
_FEWEST_DEGREES = 3.0  # degrees of freedom; four full-length trajectories have three
_FEWEST_EFFECTIVE = 1.5  # effective trajectories
_PAGE = "docs/warnings.md"


def interval_warnings(estimate: Estimate) -> tuple[str, ...]:
    """Returns one sentence for each reason to doubt the interval of an estimate, with what to do about it."""
    warnings = []
    full = int(estimate.schedule.counts[-1])
    if estimate.nothing_varied:
        warnings.append(
            f"all {full} full-length trajectories gave the same rewards: the interval says what {full} equal "
            f"trajectories exclude; give a larger budget or a reward_range, see {_PAGE}#nothing-varied"
        )
    elif estimate.degrees_of_freedom < _FEWEST_DEGREES:
        warnings.append(
            f"too few trajectories: the error bar rests on about {estimate.degrees_of_freedom + 1:.0f}; "
            f"give a larger budget or a shorter horizon, see {_PAGE}#too-few-trajectories"
        )
    elif estimate.effective_trajectories < _FEWEST_EFFECTIVE:
        warnings.append(
            f"1 of {estimate.schedule.trajectories} trajectories makes up most of the error: how often that happens is "
            f"hardly known; give a larger budget, see {_PAGE}#one-large-contribution"
        )
    return tuple(warnings)


def width_warnings(until: float | None, estimate: Estimate) -> tuple[str, ...]:
    """Returns a warning where the 95% interval is wider than was asked for."""
    if until is None or estimate.half_width() <= until:
        return ()
    return (
        f"the interval reaches {estimate.half_width():.3g} from the value, farther than until={until:g}: the budget or "
        f"the number of resets was spent; give more of it, see {_PAGE}#wider-than-until",
    )
