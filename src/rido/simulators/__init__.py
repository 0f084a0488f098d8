"""Simulators: one method, ``rollout(lengths, seeds)``, for any kind of environment.

May import policies, storage and core. A new simulator is one more module here with the methods of
:class:`rido.simulators.base.Simulator`; tests/simulators/test_contract.py covers it once its ``SIMULATORS`` lists it.
"""

from rido.simulators.bank import BankSimulator
from rido.simulators.base import Observed, ObservingSimulator, SimulationError, Simulator, trajectory_seeds

__all__ = ["BankSimulator", "Observed", "ObservingSimulator", "SimulationError", "Simulator", "trajectory_seeds"]
