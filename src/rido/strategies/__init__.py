"""Strategies: how to spend a budget of transitions, behind ``ask()`` and ``tell()``."""

from rido.strategies.adaptive import Adaptive
from rido.strategies.base import Strategy
from rido.strategies.fixed import Oracle, Robust, Uniform
from rido.strategies.rido import Rido

__all__ = ["Adaptive", "Oracle", "Rido", "Robust", "Strategy", "Uniform"]
