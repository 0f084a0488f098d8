"""The paper's domains, registered with Gymnasium by this import; see :mod:`rido.simulators.envs`."""

from rido.simulators.envs import *  # noqa: F403
