"""Simulators: one method, ``rollout(lengths, seeds)``, behind which any environment may be."""

from rido.simulators.bank import BankSimulator
from rido.simulators.base import Observed, ObservingSimulator, SimulationError, Simulator, trajectory_seeds

__all__ = ["BankSimulator", "Observed", "ObservingSimulator", "SimulationError", "Simulator", "trajectory_seeds"]
