"""Problem: what is estimated and how it is collected, with the options that evaluations, comparisons and others share.

An option is declared once, in a ``TypedDict`` here or, where simulators take it, in :mod:`rido.simulators.options`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypedDict, cast, get_args

from rido.core import checks
from rido.core.options import ESTIMATE, Option, changed, declares, refuse
from rido.record.fingerprint import identify
from rido.simulators import factory
from rido.simulators.base import Simulator, close, describe
from rido.simulators.identity import engine, environment_fingerprint, environment_name
from rido.simulators.lineup import Lineup
from rido.simulators.options import JAX, OWN, EnvironmentOptions, MachineOptions, PolicyOptions, ResetOptions
from rido.simulators.sobol import Starts


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
class ProblemOptions(HorizonOptions, EnvironmentOptions, total=False):
    """What is estimated."""


@declares
class ProgressOptions(TypedDict, total=False):
    """What is shown meanwhile.

    Args:
        progress: whether to show a progress bar; if not given, when standard error is a terminal.
    """

    progress: Annotated[bool | None, Option(None)]


@declares
class CollectingOptions(ResetOptions, ProgressOptions, total=False):
    """How trajectories are collected in this process.

    Args:
        seed: what all randomness comes from; drawn and reported if not given.
    """

    seed: Annotated[int | None, Option(None, switch=("--seed", "The same seed gives the same result."))]


@declares
class StartsOptions(TypedDict, total=False):
    """Where trajectories start.

    Args:
        starts: where trajectories start: at "random", or evenly spread by "sobol". The latter takes the random numbers
            of resets from a scrambled Sobol sequence, which covers the possible starts more evenly than independent
            ones. It gains where returns depend smoothly on the start; see docs/starts.md.
    """

    starts: Annotated[
        Starts,
        Option(
            "random",
            rule=partial(checks.choice, options=get_args(Starts)),
            only="errors of scores, gradients and recorded trajectories need independent starts",
        ),
    ]


@declares
class SimulationOptions(ProblemOptions, PolicyOptions, CollectingOptions, MachineOptions, total=False):
    """What is estimated, and how any simulator collects it."""


@dataclass(frozen=True)
class Problem:
    """What is estimated and how it is collected: an environment and the options of a function, resolved.

    Attributes:
        env: the environment; what "module:attribute" names is imported.
        gamma: the largest discount factor.
        horizon: steps over which the return is summed.
        options: all options of the function that are declared here and in :mod:`rido.simulators.options`.
    """

    env: Any
    gamma: float
    horizon: int
    options: Mapping[str, Any]

    @classmethod
    def resolve(cls, env: Any, gamma: float, options: Mapping[str, Any]) -> Problem:
        """Imports the environment, and finds out what the options leave open.

        Raises:
            ValueError: an option has no meaning for this environment.
        """
        simulator = options.get("simulator")
        if not factory.is_simulator(env):  # before anything is imported
            factory.check_simulator(simulator, options.get("workers", 1), options.get("step_timeout"))
        if simulator != "jax":
            env = factory.import_environment(env)
        if factory.is_simulator(env):
            refuse(options, SimulationOptions, OWN)
        if simulator is None and factory.is_in_jax(env):
            simulator = "jax"
        if simulator == "jax":
            refuse(options, SimulationOptions, JAX)
        horizon = factory.resolve_horizon(
            env, options.get("horizon"), gamma, env_kwargs=options.get("env_kwargs"), simulator=simulator
        )
        return cls(env, gamma, horizon, {**options, "simulator": simulator, "horizon": horizon})

    @property
    def own(self) -> bool:
        """Whether the environment is a simulator of the user's own."""
        return factory.is_simulator(self.env)

    @contextmanager
    def simulate(self, policy: Any, warnings: list[str]) -> Iterator[Simulator]:
        """Opens the simulator in which a policy acts, and closes it, which may add a warning."""
        if self.own:
            yield cast(Simulator, self.env)
            return
        running = self._make(policy)
        try:
            yield running
        finally:
            warnings += close(running)

    def open(self, policies: Mapping[str, Any]) -> Lineup:
        """Returns simulators of several policies in the environment."""
        return Lineup(self._make, policies, switching=factory.switches_policies(self.options["simulator"]))

    def _make(self, policy: Any) -> Simulator:
        options = self.options
        make = factory.simulator_kind(options["simulator"], options["workers"], options["step_timeout"])
        # Simulators of the user's own need to know these; the others only where they are not the defaults.
        settings = {name: options.get(name) for name in ("env_kwargs", "num_envs", "deterministic")}
        settings |= {} if options.get("components") is None else {"components": options["components"]}
        for kind in (EnvironmentOptions, PolicyOptions, ResetOptions):
            settings |= changed(options, kind)
        return make(self.env, policy, horizon=self.horizon, gamma=self.gamma, **settings)

    def name(self, simulator: Simulator | None = None) -> str:
        """Returns the environment's name in results; that which a simulator declares where it is no id."""
        known = None if simulator is None or isinstance(self.env, str) else describe(simulator).environment
        return known or environment_name(self.env)

    def configuration(self, *, brief: bool = False) -> dict[str, Any]:
        """Returns what a run file notes of the options that decide on the rewards.

        Args:
            brief: whether it is noted only of some that they have their defaults.
        """
        if self.own:
            return {}
        found = {name: self.options[name] for name in ("deterministic", "end_on_truncation", "reseed")}
        if brief:
            usual = changed(found, SimulationOptions)
            found = {name: value for name, value in found.items() if name in usual or name == "deterministic"}
        return {"env_kwargs": repr(dict(self.options["env_kwargs"] or {})), **found}

    def fingerprints(self, simulator: Simulator) -> dict[str, Any]:
        """Returns the digests by which a run file recognises environment, simulator and acting policy."""
        if self.own:
            return {"simulator_fingerprint": identify("simulator", self.env)}
        return {
            "simulator": engine(simulator),
            "policy_fingerprint": policy_fingerprint(simulator),
            "environment_fingerprint": environment_fingerprint(self.env),
        }


def policy_fingerprint(simulator: Simulator) -> str:
    """Returns the digest of the policy that acts in a simulator."""
    return identify("policy", describe(simulator).load_policy())
