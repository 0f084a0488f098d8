"""Studies: many repetitions of whole runs, on reward processes and recorded rewards whose expected return is known.

May import evaluation and everything below it. A new reward process is one more function and one more row of
:data:`rido.study.ZOO`.
"""

from rido.study.compare import Comparison, StrategyResult, compare
from rido.study.environment import Study, study
from rido.study.zoo import HELD_OUT, ZOO, Process, random_process

__all__ = ["HELD_OUT", "ZOO", "Comparison", "Process", "StrategyResult", "Study", "compare", "random_process", "study"]
