"""Simulators: one method, ``rollout(lengths, seeds)``, behind which any environment may be."""

from rido.simulators.base import SimulationError, Simulator, trajectory_seeds

__all__ = ["SimulationError", "Simulator", "trajectory_seeds"]
