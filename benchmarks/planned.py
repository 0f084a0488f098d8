"""The variance of an evaluation by the true weights: its squared error on average, without the luck of the draws.

Rare failures decide the errors of single runs, so that hundreds of runs do not tell two methods apart. But given the
schedule and the critic that a run ended with, its variance is ``sum_t f_t / n_t``, and a population of recorded
trajectories tells the weights f_t of the residual. The mean over few runs is then known to a few percent.
"""

import functools
from unittest.mock import patch

import numpy as np

import rido
from rido.evaluation import loop
from rido.predictors.base import agent_critic, signal_of_values
from rido.predictors.features import FeatureExtractor, Sample
from rido.predictors.learning import Learner
from rido.simulators.base import trajectory_seeds
from rido.simulators.gymnasium import GymnasiumSimulator


@functools.cache
def population(env, agent, horizon, arguments, size):
    """Recorded trajectories with the features that critics see."""
    simulator = GymnasiumSimulator(env, agent, horizon=horizon, env_kwargs=dict(arguments), num_envs=50)
    extractor = FeatureExtractor(simulator.observation_space, agent_critic(simulator.capabilities.load_policy()))
    observed = simulator.observe(np.full(size, horizon), trajectory_seeds(10**9, 1, size))
    simulator.close()
    return Sample(observed.trajectories, observed.terminated, extractor(observed.observations))


def true_weights(trajectories, gamma):
    """f_t = v_t - v_{t+1} with the variance v_h of the discounted rewards from step h on."""
    discounted = trajectories.rewards * gamma ** np.arange(trajectories.lengths.max())
    tails = np.cumsum(discounted[:, ::-1], axis=1)[:, ::-1].var(axis=0, ddof=1)
    return tails - np.append(tails[1:], 0.0)


def planned_variance(env, agent, arguments, *, horizon, gamma, size, **settings):
    """The variance by the true weights of a run with random starts, over that of full-length trajectories.

    Weights come from a population of ``size`` trajectories. A critic's expectation over starts adds at most 5% of its
    own error, which is left out.
    """
    learners, strategies = [], []

    def keep_learner(*given, **settings):
        learners.append(Learner(*given, **settings))
        return learners[-1]

    def keep_strategy(**given):
        strategies.append(rido.Adaptive(**given))
        return strategies[-1]

    with patch.object(loop, "Learner", keep_learner):
        result = rido.evaluate(
            env,
            agent,
            env_kwargs=arguments,
            horizon=horizon,
            gamma=gamma,
            strategy=keep_strategy,
            progress=False,
            **settings,
        )
    known = population(env, agent, horizon, tuple(arguments.items()), size)
    rewards = true_weights(known.trajectories, gamma)
    teams = strategies[-1]._team_counts()
    variance = 0.0
    for team, counts in enumerate(teams):
        weights = rewards
        if learners and (shares := learners[-1]._teams[team].shares).any():
            values = shares @ learners[-1].value_functions(learners[-1]._teams[team].coefficients, known)
            weights = true_weights(signal_of_values(values, known.trajectories, gamma=gamma).trajectories, gamma)
        variance += float(np.sum(weights / counts)) / len(teams) ** 2
    return [variance / (rewards.sum() * horizon / settings["budget"]), result.critic != "none"]
