"""Pictures of a comparison: intervals of all policies, when they were eliminated, and differences to the leader.

Each has one row for each policy, the best on top. Eliminated policies are grey.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rido.plots.style import BLUE, GREY, REFERENCE, axes, short, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from rido.comparison.comparison import Comparison

_LONGEST = 24  # characters of a name


@style()
def plot_intervals(comparison: Comparison, ax: Axes | None = None) -> Axes:
    """Draws the value of each policy with its interval; with the comparison's confidence all intervals hold at once."""
    ax = rows_of(comparison.ranking, ax)
    found = [(estimate.value, *comparison.interval(name)) for name, estimate in comparison.values.items()]
    draw_intervals(ax, found, [_colour(comparison, name) for name in comparison.ranking])
    ax.set_xlabel(f"return, {100 * comparison.confidence:g}% intervals")
    return ax


@style()
def plot_exits(comparison: Comparison, ax: Axes | None = None) -> Axes:
    """Draws how long each policy was in the race: a dot where it was eliminated, an arrow where it was not."""
    ax = rows_of(comparison.ranking, ax)
    for row, name in enumerate(comparison.ranking):
        end, colour = comparison.eliminated.get(name, comparison.transitions), _colour(comparison, name)
        ax.plot([0, end], [row, row], color=colour)
        ax.plot([end], [row], "o" if name in comparison.exits else ">", color=colour, clip_on=False, zorder=3)
    ax.set_xlabel(f"{comparison.rewards.unit} of all policies")
    ax.set_xlim(0, 1.02 * comparison.transitions)
    return ax


@style()
def plot_differences(comparison: Comparison, ax: Axes | None = None) -> Axes:
    """Draws the paired differences of the other policies to the leader, with the bounds that decide eliminations.

    The interval of a policy that was eliminated behind another leader may hold 0.
    """
    leader, *others = comparison.ranking
    ax = rows_of(others, ax)
    found = [(comparison.difference(name, leader).value, *comparison.bounds(name, leader)) for name in others]
    draw_intervals(ax, found, [_colour(comparison, name) for name in others])
    ax.axvline(0, color=ax.xaxis.label.get_color(), **REFERENCE)
    ax.set_xlabel(f"difference to the best, {100 * comparison.confidence:g}%")
    return ax


def picture_height(policies: int) -> float:
    """Returns the height of a picture with a row for each policy, in inches."""
    return 0.7 + 0.2 * max(4, policies)


def rows_of(names: Sequence[str], ax: Axes | None) -> Axes:
    """Returns axes with a row for each name, the first on top."""
    if ax is not None:
        axes("ax", ax)
    else:
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(figsize=(6.4, picture_height(len(names))), layout="constrained")
    ax.set_yticks(range(len(names)), [_shortened(name) for name in names], parse_math=False)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    ax.locator_params(axis="x", nbins=5)
    ax.xaxis.set_major_formatter(short)
    return ax


def draw_intervals(ax: Axes, found: Sequence[tuple[float, float, float]], colours: Sequence[str]) -> None:
    """Draws a value and its interval in each row. Where an interval has no end there is only the value."""
    for row, ((value, low, high), colour) in enumerate(zip(found, colours, strict=True)):
        known = math.isfinite(low) and math.isfinite(high)
        reach: Any = [[value - low], [high - value]] if known else None
        ax.errorbar([value], [row], xerr=reach, marker="o", color=colour)


def _colour(comparison: Comparison, name: str) -> str:
    return GREY if name in comparison.exits else BLUE


def _shortened(name: str) -> str:
    """Returns a name on one line, without its middle where it is long."""
    name = " ".join(name.split())
    if len(name) <= _LONGEST:
        return name
    return f"{name[: _LONGEST // 2 - 1]}…{name[-_LONGEST // 2 :]}"
