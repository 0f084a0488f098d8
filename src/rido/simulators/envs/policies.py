"""The policy that the paper evaluates in each of its domains."""

from collections.abc import Callable
from typing import Any, Literal

from rido.core import checks
from rido.simulators.envs.base import Array
from rido.simulators.envs.lqg import LinearPolicy, riccati_gain
from rido.simulators.envs.navigation import expert
from rido.simulators.registration import ENV_IDS


@checks.checked()
def default_policy(env_id: str, gamma: float, **env_kwargs: Any) -> Callable[[Array], Array] | Literal["random"]:
    """Returns the policy that the paper evaluates in one of its domains.

    Args:
        env_id: id of the environment, with or without a module in front ("rido.envs:rido/LQG-v0").
        gamma: discount factor, for which the linear policy of LQG is optimal.
        **env_kwargs: arguments of the environment, on which no policy depends.
    """
    match checks.instance("env_id", env_id, str).rpartition(":")[2]:
        case "rido/LQG-v0":
            return LinearPolicy(riccati_gain(gamma))
        case "rido/Navigation-v0":
            return expert
        case "rido/FirstStep-v0" | "rido/LastStep-v0":
            return "random"
    raise ValueError(f"env_id must have a policy, as {', '.join(ENV_IDS)} have, got {checks.shown(env_id)}")
