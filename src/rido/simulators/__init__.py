"""Simulators collect trajectories: one method, ``collect(request)``, over any kind of environment.

``gymnasium`` runs environments in this process, ``envpool`` in C++ threads, ``parallel`` in a pool of processes or Ray
actors, ``jax`` on an accelerator; ``bank`` draws recorded trajectories; ``envs`` registers the paper's domains. May
import policies, storage and core. A new simulator is one module with a class as in :mod:`rido.simulators.base`, and one
name in :mod:`rido.simulators.factory`; ``tests/simulators/test_contract.py`` covers it.
"""

from rido.simulators.bank import BankSimulator
from rido.simulators.base import Batch, Capabilities, Found, Request, SimulationError, Simulator, trajectory_seeds

__all__ = [
    "BankSimulator",
    "Batch",
    "Capabilities",
    "Found",
    "Request",
    "SimulationError",
    "Simulator",
    "trajectory_seeds",
]
