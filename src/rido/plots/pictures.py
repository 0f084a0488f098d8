"""Pictures; they need the extra ``plot``.

Every function draws into ``ax``, or into new axes where none are given, and returns the axes. Where there are several
repetitions of something, the line is their mean and the band around it holds the mean with 95% confidence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from rido.core import checks
from rido.core.allocation import pool
from rido.core.estimate import Estimate
from rido.core.schedule import Schedule

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.ticker import LogFormatter

    from rido.study import Comparison


def plot_schedule(
    schedule: Schedule | Sequence[Schedule], *, label: str = "collected", uniform: bool = True, ax: Axes | None = None
) -> Axes:
    """Draws the samples of each time step.

    Args:
        schedule: a schedule, or those of several repetitions with the same horizon.
        label: what the legend calls it.
        uniform: whether to draw the uniform schedule of as many transitions beside it.
        ax: where to draw; new axes if not given.

    Returns:
        The axes.
    """
    ax = _axes(ax)
    schedules = [schedule] if isinstance(schedule, Schedule) else list(schedule)
    if not schedules or len({each.horizon for each in schedules}) != 1:
        raise ValueError(f"schedule must be one or more schedules of the same horizon, got {schedule!r}")
    counts = np.array([each.counts for each in schedules], dtype=np.float64)
    horizon = counts.shape[1]
    edges = np.arange(horizon + 1)
    mean = counts.mean(axis=0)
    if len(counts) == 1:
        ax.stairs(mean, edges, fill=True, alpha=0.8, label=label)
    else:
        stairs = ax.stairs(mean, edges, baseline=None, linewidth=1.5, label=label)
        low, high = _band(counts)
        ax.stairs(high, edges, baseline=low, fill=True, alpha=0.25, color=stairs.get_edgecolor())
    if uniform:
        ax.axhline(mean.sum() / horizon, color="black", linestyle="--", linewidth=1, label="uniform")
    ax.set(xlabel="time step", ylabel="samples", xlim=(0, horizon), ylim=(0, None))
    ax.legend()
    return ax


def plot_weights(weights: ArrayLike, *, label: str = "weight", pooled: bool = True, ax: Axes | None = None) -> Axes:
    """Draws the weights f_t: what one sample of each time step adds to the variance of the estimate.

    Args:
        weights: f_t of every step, or one row for each repetition.
        label: what the legend calls them.
        pooled: whether to draw their non-increasing regression too, whose square root the best schedule follows.
        ax: where to draw; new axes if not given.

    Returns:
        The axes.
    """
    ax = _axes(ax)
    rows = np.atleast_2d(np.asarray(weights, dtype=np.float64))
    steps = np.arange(rows.shape[1])
    mean = checks.finite_vector("weights", rows.mean(axis=0))
    (line,) = ax.plot(steps, mean, label=label)
    if len(rows) > 1:
        ax.fill_between(steps, *_band(rows), alpha=0.25, color=line.get_color(), linewidth=0)
    if pooled:
        ax.plot(steps, pool(mean, np.ones(mean.size)), color="black", linestyle="--", linewidth=1, label="pooled")
    ax.set(xlabel="time step", ylabel="weight", xlim=(0, max(1, steps[-1])))
    ax.legend()
    return ax


def plot_estimates(
    transitions: ArrayLike,
    estimates: Sequence[Estimate],
    *,
    confidence: float = 0.95,
    truth: float | None = None,
    label: str = "estimate",
    ax: Axes | None = None,
) -> Axes:
    """Draws estimates and their intervals against the transitions they took; a recorded run has both.

    Args:
        transitions: transitions taken before each estimate.
        estimates: the estimates; those without a finite standard error are left out.
        confidence: of the intervals.
        truth: the expected return, where it is known.
        label: what the legend calls them.
        ax: where to draw; new axes if not given.

    Returns:
        The axes.
    """
    ax = _axes(ax)
    known = [
        (taken, estimate.value, *estimate.interval(confidence))
        for taken, estimate in zip(np.asarray(transitions).tolist(), estimates, strict=True)
        if math.isfinite(estimate.standard_error)
    ]
    taken, values, lows, highs = np.array(known, dtype=np.float64).reshape(-1, 4).T
    (line,) = ax.plot(taken, values, marker=".", label=label)
    ax.fill_between(
        taken, lows, highs, alpha=0.25, color=line.get_color(), linewidth=0, label=f"{confidence:.0%} interval"
    )
    if truth is not None:
        ax.axhline(truth, color="black", linestyle="--", linewidth=1, label="truth")
    ax.set(xlabel="transitions", ylabel="return")
    ax.legend()
    return ax


def plot_comparison(comparisons: Comparison | Sequence[Comparison], *, ax: Axes | None = None) -> Axes:
    """Draws the mean squared errors of strategies with their 95% intervals, against the budget where there are several.

    Args:
        comparisons: what :func:`rido.study.compare` returned, or that for several budgets and the same strategies.
        ax: where to draw; new axes if not given.

    Returns:
        The axes.
    """
    ax = _axes(ax)
    several = list(comparisons) if isinstance(comparisons, Sequence) else [comparisons]
    budgets = np.array([comparison.budget for comparison in several])
    names = [result.name for result in several[0].results]
    for place, name in enumerate(names):
        errors = np.array([comparison[name].mse for comparison in several])
        low, high = np.array([comparison[name].mse_interval for comparison in several]).T
        low = np.maximum(low, errors / 100)  # a logarithmic axis has no place for zero
        if len(several) == 1:
            ax.errorbar([place], errors, [errors - low, high - errors], marker="o", capsize=4)
        else:
            (line,) = ax.plot(budgets, errors, marker=".", label=name)
            ax.fill_between(budgets, low, high, alpha=0.25, color=line.get_color(), linewidth=0)
    best = [comparison.oracle_variance for comparison in several]
    ax.set(ylabel="mean squared error", yscale="log")
    ax.yaxis.set(major_formatter=_plain_numbers(), minor_formatter=_plain_numbers())
    if len(several) == 1:
        ax.axhline(best[0], color="black", linestyle="--", linewidth=1, label="best possible")
        ax.set_xticks(range(len(names)), names)
        ax.margins(x=0.2)
    else:
        ax.plot(budgets, best, color="black", linestyle="--", linewidth=1, label="best possible")
        ax.set(xlabel="transitions", xscale="log")
        ax.set_xticks(budgets, [f"{budget:,}" for budget in budgets])
        ax.set_xticks([], minor=True)
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)  # bands leave no room inside
    return ax


def plot_schedules(comparison: Comparison, *, ax: Axes | None = None) -> Axes:
    """Draws where each strategy's samples went: the mean over the repetitions, and a band with 95% of them.

    Args:
        comparison: what :func:`rido.study.compare` returned.
        ax: where to draw; new axes if not given.

    Returns:
        The axes.
    """
    ax = _axes(ax)
    horizon = comparison.oracle.horizon
    edges = np.arange(horizon + 1)
    for result in comparison.results:
        stairs = ax.stairs(result.counts, edges, baseline=None, linewidth=1.5, label=result.name)
        colour = stairs.get_edgecolor()
        ax.stairs(result.counts_high, edges, baseline=result.counts_low, fill=True, alpha=0.25, color=colour)
    ax.set(xlabel="time step", ylabel="samples", xlim=(0, horizon), yscale="log")
    ax.legend()
    return ax


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError('plots need matplotlib: pip install "rido[plot]"') from error
    _, ax = plt.subplots(layout="constrained")
    return ax


def _plain_numbers() -> LogFormatter:
    """Returns what writes 60 and not 6 x 10^1, at all ticks where an axis spans less than two decades."""
    from matplotlib.ticker import LogFormatter

    return LogFormatter(minor_thresholds=(2, 0.5))


def _band(rows: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Returns the 95% interval of the mean of each column, from the t distribution."""
    mean = rows.mean(axis=0)
    half_width = stdtrit(len(rows) - 1, 0.975) * rows.std(axis=0, ddof=1) / math.sqrt(len(rows))
    return mean - half_width, mean + half_width
