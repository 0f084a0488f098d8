"""Diagnostics: what in the data speaks against the interval of an estimate."""

import math

from rido.estimate import Estimate

# Where intervals stop holding what they promise; results/trust.md counts missed and false alarms.
_FEWEST_DEGREES = 8.0
_FEWEST_EFFECTIVE = 4.0
_PAGE = "https://rido.readthedocs.io/trust.html"


def interval_warnings(estimate: Estimate) -> tuple[str, ...]:
    """Returns why the interval of an estimate may not be trusted, and what to do, one sentence for each cause."""
    warnings = []
    full = int(estimate.schedule.counts[-1])
    if estimate.nothing_varied:
        warnings.append(
            f"all {full} full-length trajectories gave the same rewards: the interval says what {full} equal "
            "trajectories exclude; a larger budget narrows it, a reward_range makes it certain"
        )
    elif estimate.degrees_of_freedom < _FEWEST_DEGREES:
        warnings.append(
            f"too few trajectories: the error bar rests on about {estimate.degrees_of_freedom + 1:.0f}; "
            "give a larger budget or a shorter horizon"
        )
    elif estimate.effective_trajectories < _FEWEST_EFFECTIVE:
        warnings.append(
            f"{max(1, math.floor(estimate.effective_trajectories))} of {estimate.schedule.trajectories} trajectories "
            "make up most of the error: rarer outcomes may not have been seen at all; give a larger budget"
        )
    return tuple(warnings)
