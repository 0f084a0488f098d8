"""The statistics: schedules, their optimal allocation, trajectories, moments, estimates and guarantees.

Imports no other room, and numpy and scipy only; knows nothing of environments or policies. A new estimator, a new bound
or a new way to allocate a budget belongs here, in its own module.
"""
