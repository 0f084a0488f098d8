"""Trajectories from Gymnasium environments, many side by side, of different lengths."""

from collections.abc import Sequence
from typing import Any, Unpack

import rido.simulators.envs
from rido.core.options import takes
from rido.policies.base import Policies
from rido.policies.resolve import resolve_policy
from rido.simulators.components import TransitionFunction, check_components
from rido.simulators.environments_simulator import EnvironmentsSimulator
from rido.simulators.identity import environment_fingerprint
from rido.simulators.opening import open_environments
from rido.simulators.options import SimulatorOptions


class GymnasiumSimulator(EnvironmentsSimulator):
    """Rolls a policy out in Gymnasium environments, in this process.

    Args:
        env: an id ("Pendulum-v1", "module:Env-v0"), a function that makes an environment, an environment, or
            a VectorEnv without autoreset, whose rows are all stepped together, also those without a trajectory.
        policy: see :func:`rido.policies.resolve.resolve_policy`. The paper's domains ("rido/LQG-v0" and so on) have a
            default, the policy that the paper evaluates. Or several :class:`~rido.policies.base.Policies`, one of
            which a request names.
        horizon: the longest trajectory that will be asked for. A shorter time limit of the environment is lifted as
            long as this simulator is open, and an error where it cannot be reached.
        gamma: discount factor, on which the default policy of "rido/LQG-v0" depends.
        components: what rewards consist of beside the reward itself: names in info, or a function of observation,
            action, reward, next observation and info that returns a dictionary of numbers.
        **options: as in :func:`rido.evaluate`: ``env_kwargs``, ``deterministic``, ``trust``, ``end_on_truncation``,
            ``reseed`` and ``num_envs``; if not given, 16, or 256 where the environment is vectorised. A policy of one
            observation acts in a single one, unless it is a row of a vectorised environment.

    Attributes:
        num_envs: the largest number of sub-environments side by side.
        policies: all resolved policies by their names.
        observation_space: of one environment.
    """

    @takes(SimulatorOptions)
    def __init__(
        self,
        env: Any,
        policy: Any = None,
        *,
        horizon: int,
        gamma: float = 1.0,
        components: Sequence[str] | TransitionFunction | None = None,
        **options: Unpack[SimulatorOptions],
    ) -> None:
        env_kwargs = dict(options["env_kwargs"] or {})
        if policy is None:
            if not isinstance(env, str) or env.rpartition(":")[2] not in rido.simulators.envs.ENV_IDS:
                raise ValueError('policy must be given: an agent, a function of observations, or "random"')
            policy = rido.simulators.envs.default_policy(env, gamma, **env_kwargs)
        self._given = env, env_kwargs
        given = policy if isinstance(policy, Policies) else Policies({"": policy})
        envs = open_environments(env, horizon, options)
        try:
            envs.read_components(check_components(components))
            acting: dict[str, Any] = dict(deterministic=options["deterministic"], trust=options["trust"])
            acting |= dict(observation_space=envs.observation_space, action_space=envs.action_space)
            policies = {name: resolve_policy(one, **acting) for name, one in given.items()}
        except BaseException:
            envs.close()
            raise
        super().__init__(envs, policies, horizon)

    @property
    def fingerprint(self) -> str:
        """Digest of the environment and the policy."""
        env, env_kwargs = self._given
        return self.fingerprint_of(environment_fingerprint(env), env_kwargs)
