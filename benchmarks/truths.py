"""True returns of agents, from many trajectories that start from Sobol points."""

import numpy as np

from rido.simulators.base import trajectory_seeds
from rido.simulators.gymnasium import GymnasiumSimulator
from rido.simulators.sobol import SobolPoints

REPLICATES = 16  # of the sequences
SEED = 10**9  # far from those of the runs that are judged


def sobol_truth(env, agent, *, horizon, gamma, size, **settings):
    """The true return from ``size`` trajectories, the variance of a single one, and the variance of this truth."""
    simulator = GymnasiumSimulator(env, agent, horizon=horizon, num_envs=64, **settings)
    turn = np.arange(size) % REPLICATES
    points = SobolPoints(SEED, stream=0, replicates=REPLICATES).take(turn)
    batch = simulator.rollout(np.full(size, horizon), trajectory_seeds(SEED, 0, size), points)
    simulator.close()
    returns = batch.rewards @ gamma ** np.arange(horizon)
    means = np.array([returns[turn == replicate].mean() for replicate in range(REPLICATES)])
    return float(returns.mean()), float(returns.var(ddof=1)), float(means.var(ddof=1) / REPLICATES)
