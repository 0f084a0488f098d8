"""gradient(): the policy gradient (GPOMDP) from trajectories of the best lengths.

May import evaluation and everything below it.
"""
