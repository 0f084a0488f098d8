"""Studies: many repetitions of whole runs, on processes and recorded rewards whose truth is known."""

from rido.study.compare import Comparison, StrategyResult, compare
from rido.study.zoo import HELD_OUT, ZOO, Process, random_process

__all__ = ["HELD_OUT", "ZOO", "Comparison", "Process", "StrategyResult", "compare", "random_process"]
