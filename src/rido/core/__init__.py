"""The statistics: schedules, their optimal allocation, trajectories, moments, estimates and guarantees.

Needs numpy and scipy only, and knows nothing of environments or policies. It imports no other room. A new estimator, a
new bound or a new way to allocate a budget belongs here.
"""
