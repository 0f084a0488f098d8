"""How good is a policy? Its expected return, with the least error for a given number of transitions.

>>> import numpy as np, rido
>>> rng = np.random.default_rng(0)
>>> strategy = rido.Rido(horizon=10, budget=500, gamma=0.9)
>>> while (schedule := strategy.ask()) is not None:
...     rewards = rng.normal(size=(schedule.trajectories, schedule.horizon))
...     strategy.tell(rido.Trajectories(rewards, schedule.lengths))
>>> low, high = strategy.estimate().interval(confidence=0.99)
>>> low < 0 < high
True
"""

import rido.core._path  # noqa: F401 - before anything else
from rido.core.allocation import allocate
from rido.core.estimate import Estimate
from rido.core.reward_moments import RewardMoments
from rido.core.schedule import Schedule
from rido.core.trajectories import Trajectories
from rido.evaluation.compare import compare
from rido.evaluation.comparison import Comparison
from rido.evaluation.evaluate import evaluate
from rido.evaluation.gradient import Gradient, gradient
from rido.evaluation.leaderboard import Leaderboard, Task
from rido.evaluation.race import Race
from rido.evaluation.result import Evaluation
from rido.evaluation.suite import Suite
from rido.simulators.registration import register_when_imported
from rido.strategies import Adaptive, Oracle, Rido, Robust, Strategy, Uniform

__version__ = "0.1.0"

__all__ = [
    "Adaptive",
    "Comparison",
    "Estimate",
    "Evaluation",
    "Gradient",
    "Leaderboard",
    "Oracle",
    "Race",
    "RewardMoments",
    "Rido",
    "Robust",
    "Schedule",
    "Strategy",
    "Suite",
    "Task",
    "Trajectories",
    "Uniform",
    "allocate",
    "compare",
    "evaluate",
    "gradient",
]

register_when_imported()
