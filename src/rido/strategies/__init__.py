"""Strategies: how to spend a budget of transitions, behind ``ask()`` and ``tell()``.

May import core. A new strategy is one more module with a subclass of :class:`rido.Strategy`; tests/strategies/
test_contract.py covers it once its ``STRATEGIES`` lists it.
"""

from rido.strategies.adaptive import Adaptive
from rido.strategies.base import Strategy
from rido.strategies.fixed import Oracle, Robust, Uniform
from rido.strategies.rido import Rido

__all__ = ["Adaptive", "Oracle", "Rido", "Robust", "Strategy", "Uniform"]
