"""The paper's domains as Gymnasium environments; ``import rido`` registers them.

``rido/LQG-v0``, ``rido/Navigation-v0``, ``rido/FirstStep-v0`` and ``rido/LastStep-v0``, each as a single
environment (``gymnasium.make``) and as a vectorised one in numpy (``gymnasium.make_vec``) with the same
trajectories for the same seeds. None of them ends by itself, and none has a time limit.
"""

from rido.simulators.envs import lqg
from rido.simulators.envs.examples import FirstStepEnv, FirstStepVectorEnv, LastStepEnv, LastStepVectorEnv
from rido.simulators.envs.lqg import LinearPolicy, LQGEnv, LQGVectorEnv
from rido.simulators.envs.navigation import NavigationEnv, NavigationVectorEnv, expert
from rido.simulators.envs.policies import default_policy
from rido.simulators.registration import ENV_IDS, register_envs

__all__ = [
    "ENV_IDS",
    "FirstStepEnv",
    "FirstStepVectorEnv",
    "LQGEnv",
    "LQGVectorEnv",
    "LastStepEnv",
    "LastStepVectorEnv",
    "LinearPolicy",
    "NavigationEnv",
    "NavigationVectorEnv",
    "default_policy",
    "expert",
    "lqg",
    "register_envs",
]
