"""Studies: many repetitions of whole runs on recorded rewards, whose expected return is known.

May import evaluation and everything below it. Reward processes to tune strategies on are in
``benchmarks/reward_processes.py``.
"""

from rido.study.environment import Study, study
from rido.study.strategies import StrategyComparison, StrategyResult, compare_strategies

__all__ = ["StrategyComparison", "StrategyResult", "Study", "compare_strategies", "study"]
