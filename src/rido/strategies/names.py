"""The strategies that can be asked for by name, in evaluate(), in studies and on the command line."""

from typing import Literal

from rido.strategies.adaptive import Adaptive
from rido.strategies.base import Strategy
from rido.strategies.fixed import Robust, Uniform
from rido.strategies.rido import Rido

StrategyName = Literal["adaptive", "uniform", "robust", "rido"]

STRATEGIES: dict[str, type[Strategy]] = {"uniform": Uniform, "robust": Robust, "rido": Rido, "adaptive": Adaptive}
"""Strategies by name."""
