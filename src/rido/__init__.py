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

import rido._start  # noqa: F401 - before anything else

# isort: split
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rido.comparison.compare import compare
from rido.comparison.comparison import Comparison
from rido.comparison.race import Race
from rido.core.allocation import allocate
from rido.core.estimate import Estimate
from rido.core.reward_moments import RewardMoments
from rido.core.schedule import Schedule
from rido.core.trajectories import Trajectories
from rido.evaluation.evaluate import evaluate
from rido.evaluation.result import Evaluation
from rido.gradients.gradient import Gradient, gradient
from rido.policies.functions import batched
from rido.simulators.registration import register_when_imported
from rido.strategies import Adaptive, Oracle, Rido, Robust, Strategy, Uniform

__version__ = "0.1.0"

__all__ = [
    "Adaptive",
    "Check",
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
    "batched",
    "check",
    "compare",
    "evaluate",
    "gradient",
]

# Imported when first used.
_LATE = {
    "Check": "simulators.check",
    "Leaderboard": "suite.leaderboard",
    "Suite": "suite.suite",
    "Task": "suite.leaderboard",
    "check": "simulators.check",
}

if TYPE_CHECKING:
    from rido.simulators.check import Check, check
    from rido.suite.leaderboard import Leaderboard, Task
    from rido.suite.suite import Suite
else:

    def __getattr__(name: str) -> Any:
        if name not in _LATE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found = getattr(import_module(f"rido.{_LATE[name]}"), name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


register_when_imported()
