"""Pictures and the report page; each picture is defined once. Needs the extra ``plot``, the page ``report``.

Every function draws into ``ax``, or into new axes where none are given, and returns the axes. May import every room but
the command line and integrations; results draw themselves with its functions, which they import by name. A new picture
is one more function in :mod:`rido.plots.pictures`, of a comparison of policies in :mod:`rido.plots.comparison`; colours
and sizes are in :mod:`rido.plots.style`.
"""

from rido.plots.comparison import plot_differences, plot_exits, plot_intervals
from rido.plots.leaderboard import plot_scores
from rido.plots.pictures import plot_comparison, plot_estimates, plot_schedule, plot_schedules, plot_weights

__all__ = [
    "plot_comparison",
    "plot_differences",
    "plot_estimates",
    "plot_exits",
    "plot_intervals",
    "plot_schedule",
    "plot_schedules",
    "plot_scores",
    "plot_weights",
]
