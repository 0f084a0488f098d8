"""The look of every picture: palette, sizes, lines with bands, labels where lines end, logarithmic axes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rido.core import checks
from rido.core.allocation import pool
from rido.core.extras import import_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours with a contrast of at least 3 on white and on dark grey; the purple is a shade darker.
BLUE, VERMILLION, GREEN, PURPLE, GREY = "#0072b2", "#d55e00", "#009e73", "#c0689b", "#808080"
PALETTE = [BLUE, VERMILLION, GREEN, PURPLE, GREY]
STRATEGIES = {"uniform": GREY, "robust": PURPLE, "rido": GREEN, "adaptive": BLUE, "adaptive + critic": VERMILLION}
BAND: dict[str, Any] = {"alpha": 0.2, "linewidth": 0}
REFERENCE: dict[str, Any] = {"linestyle": "--", "linewidth": 1}
_SETTINGS: Any = {  # of matplotlib
    "axes.prop_cycle": f"cycler(color={PALETTE})",
    **dict.fromkeys(("font.size", "axes.labelsize"), 9),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), 8),
    **dict.fromkeys(("axes.linewidth", "xtick.major.width", "ytick.major.width"), 0.6),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    **{"axes.titlesize": 10, "lines.linewidth": 1.5, "lines.markersize": 5, "errorbar.capsize": 2.5},
    **{"axes.grid": True, "axes.axisbelow": True, "grid.alpha": 0.3, "grid.linewidth": 0.5},
    **{"savefig.dpi": 200, "svg.fonttype": "none", "svg.hashsalt": "rido"},
}
_LABEL = "_end of a line"


def colours(names: Sequence[str]) -> list[str]:
    """Returns a colour for each name: that of the strategy, or the next one that no strategy among them has."""
    taken = {STRATEGIES.get(name) for name in names}
    free = cycle([colour for colour in PALETTE if colour not in taken] or PALETTE)
    return [STRATEGIES.get(name) or next(free) for name in names]


@contextmanager
def style(changes: Any = None, *, extra: str = "plot") -> Iterator[None]:
    """Draws in our style inside a ``with`` block or a decorated function, and in the user's again after it.

    Args:
        changes: further settings of matplotlib, a dictionary.
        extra: the extra of rido that the error names where matplotlib is missing.
    """
    with import_extra("a picture", "matplotlib", extra).rc_context(_SETTINGS | (changes or {})):
        yield


def axes(name: str, value: Any) -> Axes:
    """Returns ``value`` if one can draw into it."""
    from matplotlib.axes import Axes

    found: Axes = checks.instance(name, value, Axes)
    return found


def line_with_band(ax: Axes, x: Any, middle: Any, low: Any, high: Any, **settings: Any) -> None:
    """Draws a line and the band from ``low`` to ``high`` around it."""
    (line,) = ax.plot(x, middle, **settings)
    ax.fill_between(x, low, high, color=line.get_color(), **BAND)


def label_ends(ax: Axes) -> None:
    """Writes labels right of the axes, at the heights where the lines end, as close to them as overlap allows.

    Labels that an earlier call wrote are replaced. A figure with ``layout="constrained"`` makes room for them.
    """
    from matplotlib.colors import to_hex
    from matplotlib.patches import StepPatch

    for text in [text for text in ax.texts if text.get_label() == _LABEL]:
        text.remove()
    found: list[tuple[Any, Any, Any]] = [(line.get_label(), line.get_color(), line.get_ydata()) for line in ax.lines]
    for step in (patch for patch in ax.patches if isinstance(patch, StepPatch)):
        colour = step.get_facecolor() if step.get_fill() else step.get_edgecolor()
        found.append((step.get_label(), to_hex(colour), step.get_data()[0]))
    right, (bottom, top) = ax.get_xlim()[1], sorted(ax.get_ylim())
    ends = [
        (name, colour, min(max(float(values[-1]), bottom), top))
        for name, colour, values in found
        if name[:1] not in ("", "_") and len(values) and np.isfinite(values[-1])
    ]
    if not ends:
        return
    heights = np.array([ax.transData.transform((right, end))[1] for _, _, end in ends]) * 72 / ax.figure.dpi
    order = np.argsort(-heights)
    # Heights at least 10 points apart, with the least squared shifts: monotone regression of what remains without them.
    gaps = 10.0 * np.arange(order.size)
    shifts = pool(heights[order] + gaps, np.ones(order.size)) - gaps - heights[order]
    for index, shift in zip(order, shifts, strict=True):
        name, colour, end = ends[index]
        place: Any = {"xycoords": ax.get_yaxis_transform(), "textcoords": "offset points"}
        text = ax.annotate(name, (1, end), (4, shift), **place, color=colour, fontsize=8, va="center_baseline")
        text.set_label(_LABEL)


def logarithmic(ax: Axes, name: Literal["x", "y"]) -> None:
    """Makes an axis logarithmic if it has positive data, with ticks at 1, 2 and 5 where there are few decades."""
    from matplotlib.ticker import LogLocator, NullLocator

    axis = ax.xaxis if name == "x" else ax.yaxis
    if np.isfinite(axis.get_minpos()):
        ax.set(**{f"{name}scale": "log"})
        low, high = axis.get_view_interval()
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 300 * low else (1,)))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(short)


def short(value: float, _: object = None) -> str:
    """Writes a number for an axis: 0.2, 500, 2k, 1.5M."""
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:g}{letter}"
    return f"{value + 0.0:g}"  # no -0
