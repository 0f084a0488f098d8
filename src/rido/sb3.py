"""The evaluation callback for Stable-Baselines3; see :mod:`rido.integrations.sb3`."""

from rido.integrations.sb3 import EvalCallback as EvalCallback
