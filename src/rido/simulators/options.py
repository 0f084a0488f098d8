"""Options that evaluations, comparisons, suites, gradients, studies and their commands share: each is declared once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Literal, TypedDict, get_args

from rido.core import checks
from rido.core.options import ESTIMATE, Option, declares
from rido.simulators.base import Simulator
from rido.simulators.sobol import Starts

SimulatorName = Literal["gymnasium", "workers", "envpool", "ray", "jax"]

OWN, JAX, EVEN = "a simulator of your own", "simulator 'jax'", "starts='sobol'"
"""Circumstances under which some options must keep their defaults."""


@declares
class HorizonOptions(TypedDict, total=False):
    """How long trajectories are.

    Args:
        horizon: steps over which the return is summed; by default from gamma and the environment's time limit. These
            are as many as leave out 0.1% of the return of constant rewards, or the time limit if that is less; a
            function that makes an environment is called once more for it. A longer horizon lifts that limit, and the
            result says so.
    """

    horizon: Annotated[int | None, Option(None, ESTIMATE)]


@declares
class SimulatorOptions(TypedDict, total=False):
    """What simulators of environments take, as functions that collect with them do.

    Args:
        end_on_truncation: whether the environment's own truncation ends an episode. All rewards after it are then 0, as
            in SB3's ``evaluate_policy``. If not, the time limit is lifted, and another truncation is an error.
        env_kwargs: arguments of the environment, with an id.
        deterministic: whether an agent takes its most likely action or samples one.
        trust: whether the files of an SB3 zip may run code when they are loaded. Agents made of the classes of SB3,
            torch, Gymnasium and numpy load without; see :func:`rido.policies.sb3_zip.load_agent`.
        reseed: whether each trajectory's reset gets its own seed. Where seeding takes most of the time, as in Atari
            games, False seeds each environment once. The result is then not reproducible, and warns of it.
        num_envs: environments side by side, in each worker, where the policy is known to act on batches. A policy of
            one observation acts in one environment. It does not change the result.
    """

    end_on_truncation: Annotated[
        bool,
        Option(
            False,
            ESTIMATE,
            noted=True,
            passed="changed",
            refused={
                OWN: "let its rollout() end trajectories there",
                JAX: "its environments are not truncated; the time limit as the horizon gives whole episodes",
            },
        ),
    ]
    env_kwargs: Annotated[
        Mapping[str, Any] | None, Option(None, ESTIMATE, passed="always", refused={OWN: "make the simulator with them"})
    ]
    deterministic: Annotated[
        bool,
        Option(
            True,
            ESTIMATE,
            switch=("--stochastic", "Sample the agent's actions."),
            noted=True,
            passed="always",
            refused={OWN: "make the simulator act as it should"},
        ),
    ]
    trust: Annotated[
        bool,
        Option(
            False,
            ESTIMATE,
            switch=("--trust", "Load an SB3 zip even if it has other classes, which runs code. RIDO_TRUST=1 does too."),
            passed="changed",
        ),
    ]
    reseed: Annotated[
        bool,
        Option(
            True,
            switch=("--no-reseed", "Seed environments once, where seeding is slow; not reproducible."),
            noted=True,
            passed="changed",
            refused={
                OWN: "let its rollout() decide on seeds",
                JAX: "seeding costs nothing there",
                EVEN: "each trajectory's reset takes its own point",
            },
        ),
    ]
    num_envs: Annotated[
        int | None, Option(None, passed="always", refused={OWN: "set the simulator's attribute num_envs"})
    ]


@declares
class Options(HorizonOptions, SimulatorOptions, total=False):
    """What is estimated, and how it is collected.

    Args:
        starts: where trajectories start: at "random", or evenly spread by "sobol". The latter takes the random numbers
            of resets from a scrambled Sobol sequence, which covers the possible starts more evenly than independent
            ones. It gains where returns depend smoothly on the start; see docs/starts.md.
        seed: what all randomness comes from; drawn and reported if not given.
        workers: processes to collect in. They do not change the result, and pay where a step of the environment is
            slow; see :class:`rido.simulators.parallel.processes.WorkerSimulator`.
        simulator: what collects: "gymnasium", "workers", "envpool", "ray", "jax", or a function that makes a simulator
            and takes what they take, such as ``partial(RaySimulator, address="auto")``.
        step_timeout: seconds without a single step or reset after which collecting is stuck. It is tried once more;
            then an error names the trajectory, its seed and its step. A call in this process cannot be interrupted, so
            one worker collects where ``workers`` is 1, with the same result. If not given, workers wait for 300
            seconds, and this process without a limit.
        progress: whether to show a progress bar; if not given, when standard error is a terminal.
    """

    starts: Annotated[Starts, Option("random", rule=partial(checks.choice, options=get_args(Starts)))]
    seed: Annotated[int | None, Option(None, switch=("--seed", "The same seed gives the same result."))]
    workers: Annotated[int, Option(1, refused={OWN: "let its rollout() use several processes"})]
    simulator: Annotated[
        SimulatorName | Callable[..., Simulator] | None,
        Option(
            None, switch=("--simulator", "What collects; jax needs a policy in JAX."), refused={OWN: "leave it out"}
        ),
    ]
    step_timeout: Annotated[
        float | None, Option(None, refused={OWN: "let its rollout() raise where a step takes too long"})
    ]
    progress: Annotated[bool | None, Option(None)]


WITHOUT: dict[str, dict[str, tuple[str, ...]]] = {
    "Suite.run": {
        "the suite says it": ("deterministic", "seed"),
        "its tasks say it": ("horizon", "end_on_truncation", "env_kwargs"),
        "the errors of scores are those of independent trajectories": ("starts",),
    },
    "gradient": {
        "its policy is an object, and its actions are sampled": ("deterministic", "trust"),
        "it needs what the policy saw and did, in this process": ("workers", "simulator", "step_timeout"),
        "its error is that of independent trajectories": ("starts",),
    },
    "study": {"runs draw independent trajectories from the bank": ("starts",)},
    "check": {"it plays a few episodes as they are": ("end_on_truncation", "reseed", "num_envs")},
}
"""What functions do not take, by the reason."""
