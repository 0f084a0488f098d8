"""Pictures; they need the extra ``plot``.

Every function draws into ``ax``, or into new axes where none are given, and returns the axes. Lines are labelled where
they end, right of the axes: a figure with ``layout="constrained"`` makes room for that. Where there are several
repetitions of something, the line is their mean and the band around it is the 95% confidence interval of the mean.
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
from rido.plots.style import BAND, GREY, REFERENCE, axes, colours, label_ends, line_with_band, logarithmic, short, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from rido.study import StrategyComparison


@style()
def plot_schedule(
    schedule: Schedule | Sequence[Schedule], *, label: str = "collected", uniform: bool = True, ax: Axes | None = None
) -> Axes:
    """Draws the samples of each time step; the axis is logarithmic where the first has 30 times those of the last.

    Args:
        schedule: a schedule, or those of several repetitions with the same horizon.
        label: written where its line ends; "" for none.
        uniform: whether to draw the uniform schedule of as many transitions beside it.
        ax: where to draw; new axes if not given.
    """
    ax = _axes(ax)
    schedules = [schedule] if isinstance(schedule, Schedule) else list(schedule)
    if not schedules or len({each.horizon for each in schedules}) != 1:
        raise ValueError(f"schedule must be one or more schedules of the same horizon, got {checks.shown(schedule)}")
    counts = np.array([each.counts for each in schedules], dtype=np.float64)
    horizon = counts.shape[1]
    mean = counts.mean(axis=0)
    if len(counts) == 1:
        edges = np.concatenate([[0], np.flatnonzero(np.diff(mean)) + 1, [horizon]])  # far fewer than the steps
        ax.stairs(mean[edges[:-1]], edges, fill=True, alpha=0.8, label=label)
    else:
        edges = np.arange(horizon + 1)
        _stairs_with_band(ax, edges, mean, *_band(counts), label=label)
    if uniform:
        level = mean.sum() / horizon
        ax.plot([0, horizon], [level, level], color=GREY, label="uniform", **REFERENCE)
    ax.set(xlabel="time step", ylabel="samples", xlim=(0, horizon))
    if mean[0] >= 30 * mean[-1] > 0:
        logarithmic(ax, "y")
    elif ax.get_yscale() == "linear":
        ax.set_ylim(bottom=0)
        ax.yaxis.set_major_formatter(short)
    label_ends(ax)
    return ax


@style()
def plot_weights(weights: ArrayLike, *, label: str = "weight", pooled: bool = True, ax: Axes | None = None) -> Axes:
    """Draws the weights f_t: what one sample of each time step adds to the variance of the estimate.

    Args:
        weights: f_t of every step, or one row for each repetition.
        label: written where their line ends; "" for none.
        pooled: whether to draw their non-increasing regression too, whose square root the best schedule follows.
        ax: where to draw; new axes if not given.
    """
    ax = _axes(ax)
    rows = np.atleast_2d(np.asarray(weights, dtype=np.float64))
    steps = np.arange(rows.shape[1])
    mean = checks.finite_vector("weights", rows.mean(axis=0))
    if len(rows) > 1:
        line_with_band(ax, steps, mean, *_band(rows), label=label)
    else:
        ax.plot(steps, mean, label=label)
    if pooled:
        ax.plot(steps, pool(mean, np.ones(mean.size)), color=GREY, label="pooled", **REFERENCE)
    ax.set(xlabel="time step", ylabel="weight", xlim=(0, max(1, steps[-1])))
    ax.yaxis.set_major_formatter(short)
    label_ends(ax)
    return ax


@style()
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
        label: written where their line ends; "" for none.
        ax: where to draw; new axes if not given.
    """
    ax = _axes(ax)
    known = [
        (taken, estimate.value, *estimate.interval(confidence))
        for taken, estimate in zip(np.asarray(transitions).tolist(), estimates, strict=True)
        if math.isfinite(estimate.standard_error)
    ]
    line_with_band(ax, *np.array(known, dtype=np.float64).reshape(-1, 4).T, marker=".", label=label)
    if truth is not None:
        ax.axhline(truth, color=_ink(ax), label="truth", **REFERENCE)
    ax.set(xlabel="transitions", ylabel=f"return, {confidence:.0%} interval")
    ax.margins(x=0.02)
    logarithmic(ax, "x")
    label_ends(ax)
    return ax


@style()
def plot_comparison(comparisons: StrategyComparison | Sequence[StrategyComparison], *, ax: Axes | None = None) -> Axes:
    """Draws the mean squared errors of strategies with their 95% intervals, against the budget where there are several.

    Args:
        comparisons: what :func:`rido.study.compare_strategies` returned, or that for several budgets and the same
            strategies.
        ax: where to draw; new axes if not given.
    """
    ax = _axes(ax)
    several = list(comparisons) if isinstance(comparisons, Sequence) else [comparisons]
    budgets = np.array([comparison.budget for comparison in several])
    names = [result.name for result in several[0].results]
    for place, (name, colour) in enumerate(zip(names, colours(names), strict=True)):
        errors = np.array([comparison[name].mse for comparison in several])
        low, high = np.array([comparison[name].mse_interval for comparison in several]).T
        low = np.maximum(low, errors / 100)  # a logarithmic axis has no place for zero
        if len(several) == 1:
            ax.errorbar([place], errors, [errors - low, high - errors], marker="o", color=colour)
        else:
            line_with_band(ax, budgets, errors, low, high, marker=".", color=colour, label=name)
    best = [comparison.oracle_variance for comparison in several]
    if len(several) == 1:
        ax.axhline(best[0], color=_ink(ax), label="best possible", **REFERENCE)
        ax.set_xticks(range(len(names)), names)
        ax.set_xlim(-0.5, len(names) - 0.5)
    else:
        ax.plot(budgets, best, color=_ink(ax), label="best possible", **REFERENCE)
        logarithmic(ax, "x")
        ax.set_xticks(budgets, [short(budget) for budget in budgets])
        ax.set_xlabel("transitions")
        ax.margins(x=0.02)
    ax.set_ylabel("mean squared error")
    logarithmic(ax, "y")
    label_ends(ax)
    return ax


@style()
def plot_schedules(comparison: StrategyComparison, *, ax: Axes | None = None) -> Axes:
    """Draws where each strategy's samples went: the mean over the repetitions, and a band with 95% of them."""
    ax = _axes(ax)
    horizon = comparison.oracle.horizon
    edges = np.arange(horizon + 1)
    names = [result.name for result in comparison.results]
    for result, colour in zip(comparison.results, colours(names), strict=True):
        counts = (result.counts, result.counts_low, result.counts_high)
        _stairs_with_band(ax, edges, *counts, color=colour, label=result.name)
    ax.set(xlabel="time step", ylabel="samples", xlim=(0, horizon))
    logarithmic(ax, "y")
    label_ends(ax)
    return ax


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return axes("ax", ax)
    import matplotlib.pyplot as plt

    _, ax = plt.subplots(layout="constrained")
    return ax


def _ink(ax: Axes) -> Any:
    """Returns the colour of the axes' text, which has contrast on any background."""
    return ax.xaxis.label.get_color()


def _stairs_with_band(ax: Axes, edges: Any, middle: Any, low: Any, high: Any, **settings: Any) -> None:
    stairs = ax.stairs(middle, edges, baseline=None, linewidth=1.5, **settings)
    ax.stairs(high, edges, baseline=low, fill=True, color=stairs.get_edgecolor(), **BAND)


def _band(rows: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Returns the 95% interval of the mean of each column, from the t distribution."""
    mean = rows.mean(axis=0)
    half_width = stdtrit(len(rows) - 1, 0.975) * rows.std(axis=0, ddof=1) / math.sqrt(len(rows))
    return mean - half_width, mean + half_width
