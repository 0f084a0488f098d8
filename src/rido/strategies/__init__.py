"""Strategies: how to spend a budget of transitions, behind ``ask()`` and ``tell()``."""

from rido.strategies.base import Strategy
from rido.strategies.fixed import Oracle, Robust, Uniform
from rido.strategies.rido import Rido

__all__ = ["Oracle", "Rido", "Robust", "Strategy", "Uniform"]
