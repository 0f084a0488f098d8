"""Pictures; they need the extra ``plot``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rido.schedule import Schedule

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_schedule(schedule: Schedule, *, ax: Axes | None = None) -> Axes:
    """Draws the samples of each time step, and beside them those of a uniform schedule of as many transitions.

    Args:
        schedule: what to draw.
        ax: where to draw it; new axes if not given.

    Returns:
        The axes.
    """
    if ax is None:
        try:
            import matplotlib.pyplot as plt
        except ImportError as error:
            raise ImportError('plots need matplotlib: pip install "rido[plot]"') from error
        _, ax = plt.subplots()
    edges = np.arange(schedule.horizon + 1)
    ax.stairs(schedule.counts, edges, fill=True, alpha=0.8, label="collected")
    ax.axhline(schedule.transitions / schedule.horizon, color="black", linestyle="--", label="uniform")
    ax.set(xlabel="time step", ylabel="samples", xlim=(0, schedule.horizon), ylim=(0, None))
    ax.legend()
    return ax
