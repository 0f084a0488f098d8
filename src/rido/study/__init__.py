"""Studies: many repetitions of whole runs, on reward processes and recorded rewards whose expected return is known.

May import evaluation and everything below it. A new reward process is one more function and one more row of
:data:`rido.study.ZOO`.
"""

from rido.study.environment import Study, study
from rido.study.strategies import StrategyComparison, StrategyResult, compare_strategies
from rido.study.zoo import HELD_OUT, ZOO, Process, random_process

__all__ = [
    "HELD_OUT",
    "ZOO",
    "Process",
    "StrategyComparison",
    "StrategyResult",
    "Study",
    "compare_strategies",
    "random_process",
    "study",
]
