"""Options of simulators: each is declared here once, for all functions and commands that collect trajectories."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypedDict

from rido.core.options import ESTIMATE, Option, declares
from rido.simulators.base import Simulator

SimulatorName = Literal["gymnasium", "workers", "envpool", "ray", "jax"]

OWN, JAX = "a simulator of your own", "simulator 'jax'"
"""Circumstances under which some options must keep their defaults."""

_CUT = "let its rollout() end trajectories there"
_UNTRUNCATED = "its environments are not truncated; the time limit as the horizon gives whole episodes"
_TRUSTED = ("--trust", "Load an SB3 zip even if it has other classes, which runs code in it. RIDO_TRUST=1 does too.")
_SEEDED_ONCE = ("--no-reseed", "Seed environments once, where seeding is slow; not reproducible.")
_HERE = "a gradient needs what its policy saw and did, in this process"


@declares
class ArgumentOptions(TypedDict, total=False):
    """How an environment is made.

    Args:
        env_kwargs: arguments of the environment, with an id.
    """

    env_kwargs: Annotated[
        Mapping[str, Any] | None, Option(None, ESTIMATE, refused={OWN: "make the simulator with them"})
    ]


@declares
class EnvironmentOptions(ArgumentOptions, total=False):
    """What is simulated.

    Args:
        end_on_truncation: whether the environment's own truncation ends an episode. All rewards after it are then 0, as
            in SB3's ``evaluate_policy``. If not, the time limit is lifted, and another truncation is an error.
    """

    end_on_truncation: Annotated[bool, Option(False, ESTIMATE, refused={OWN: _CUT, JAX: _UNTRUNCATED})]


@declares
class TrustOptions(TypedDict, total=False):
    """How a policy is loaded.

    Args:
        trust: whether the files of an SB3 zip may run code when they are loaded. Agents made of the classes of SB3,
            torch, Gymnasium and numpy load without; see :func:`rido.policies.sb3_zip.load_agent`.
    """

    trust: Annotated[bool, Option(False, ESTIMATE, switch=_TRUSTED, only="nothing else loads agents from files")]


@declares
class PolicyOptions(TrustOptions, total=False):
    """How a policy is loaded and acts.

    Args:
        deterministic: whether an agent takes its most likely action or samples one.
    """

    deterministic: Annotated[
        bool,
        Option(
            True,
            ESTIMATE,
            switch=("--stochastic", "Sample the agent's actions."),
            refused={OWN: "make the simulator act as it should"},
            only="a gradient is that of a policy whose actions are sampled",
        ),
    ]


@declares
class ResetOptions(TypedDict, total=False):
    """How environments are seeded and run side by side.

    Args:
        reseed: whether each trajectory's reset gets its own seed. Where seeding takes most of the time, as in Atari
            games, False seeds each environment once. The result is then not reproducible, and warns of it.
        num_envs: environments side by side, in each worker, where the policy is known to act on batches. A policy of
            one observation acts in one environment. It does not change the result.
    """

    reseed: Annotated[
        bool,
        Option(
            True,
            switch=_SEEDED_ONCE,
            refused={OWN: "let its rollout() decide on seeds", JAX: "seeding costs nothing there"},
        ),
    ]
    num_envs: Annotated[int | None, Option(None, refused={OWN: "set the simulator's attribute num_envs"})]


@declares
class MachineOptions(TypedDict, total=False):
    """What collects.

    Args:
        workers: processes to collect in. They do not change the result, and pay where a step of the environment is
            slow; see :class:`rido.simulators.parallel.processes.WorkerSimulator`.
        simulator: what collects: "gymnasium", "workers", "envpool", "ray", "jax", or a function that makes a simulator
            and takes what they take, such as ``partial(RaySimulator, address="auto")``.
        step_timeout: seconds without a single step or reset after which collecting is stuck. It is tried once more;
            then an error names the trajectory, its seed and its step. A call in this process cannot be interrupted, so
            one worker collects where ``workers`` is 1, with the same result. If not given, workers wait for 300
            seconds, and this process without a limit.
    """

    workers: Annotated[int, Option(1, refused={OWN: "let its rollout() use several processes"}, only=_HERE)]
    simulator: Annotated[
        SimulatorName | Callable[..., Simulator] | None,
        Option(
            None,
            switch=("--simulator", "What collects; jax needs a policy in JAX."),
            refused={OWN: "leave it out"},
            only=_HERE,
        ),
    ]
    step_timeout: Annotated[
        float | None, Option(None, refused={OWN: "let its rollout() raise where a step takes too long"}, only=_HERE)
    ]
