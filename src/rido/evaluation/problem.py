"""Problem: what is estimated and how it is collected; what evaluations, comparisons, suites and others open."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rido.core.options import declared, refuse
from rido.record.fingerprint import identify
from rido.simulators import factory
from rido.simulators.base import Simulator, as_simulator, close
from rido.simulators.identity import engine, environment_fingerprint, environment_name
from rido.simulators.lineup import Lineup
from rido.simulators.options import EVEN, JAX, OWN, Options


@dataclass(frozen=True)
class Problem:
    """What is estimated and how it is collected: an environment and the options of a function, resolved."""

    env: Any  # the environment; what "module:attribute" names is imported
    gamma: float  # the largest discount factor
    horizon: int  # steps over which the return is summed
    options: Mapping[str, Any]  # of the function; those that it does not take have their defaults

    @classmethod
    def resolve(cls, env: Any, gamma: float, options: Mapping[str, Any], kind: Any = Options) -> "Problem":
        """Imports the environment, and finds out what the options leave open.

        Args:
            env: what the function was given.
            gamma: the largest discount factor.
            options: what the function was given.
            kind: the TypedDict that declares them.

        Raises:
            ValueError: an option has no meaning for this environment.
        """
        options = {**{name: option.default for name, (_, option) in declared(Options).items()}, **options}
        simulator = options["simulator"]
        if options["starts"] == "sobol":
            refuse(options, kind, EVEN)
        if not factory.is_simulator(env):  # before anything is imported
            factory.check_simulator(simulator, options["workers"], options["step_timeout"])
        if simulator != "jax":
            env = factory.import_environment(env)
        if factory.is_simulator(env):
            refuse(options, kind, OWN)
        if simulator is None and factory.is_in_jax(env):
            simulator = "jax"
        if simulator == "jax":
            refuse(options, kind, JAX)
        horizon = factory.resolve_horizon(
            env, options["horizon"], gamma, env_kwargs=options["env_kwargs"], simulator=simulator
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
            yield as_simulator(self.env)
            return
        running = self._make(policy)
        try:
            yield running
        finally:
            warnings += close(running)

    def open(self, policies: Mapping[str, Any]) -> Lineup:
        """Returns simulators of several policies in the environment."""
        simulator = self.options["simulator"]
        return Lineup(self._make, policies, switching=simulator == "jax" or factory.runs_gymnasium(simulator))

    def _make(self, policy: Any) -> Simulator:
        options = self.options
        make = factory.simulator_kind(options["simulator"], options["workers"], options["step_timeout"])
        settings = {"components": options["components"]} if options.get("components") is not None else {}
        for name, (_, option) in declared(Options).items():
            if option.passed == "always" or (option.passed == "changed" and options[name] != option.default):
                settings[name] = options[name]
        return make(self.env, policy, horizon=self.horizon, gamma=self.gamma, **settings)

    def name(self, simulator: Simulator | None = None) -> str:
        """Returns the environment's name in results; that which a simulator declares where it is no id."""
        known = None if simulator is None or isinstance(self.env, str) else simulator.capabilities.environment
        return known or environment_name(self.env)

    def configuration(self, *, brief: bool = False) -> dict[str, Any]:
        """Returns what a run file notes of the options that decide on the rewards.

        Args:
            brief: whether to leave out those that simulators get where they have changed, if they have not.
        """
        if self.own:
            return {}
        found = {"env_kwargs": repr(dict(self.options["env_kwargs"] or {}))}
        for name, (_, option) in declared(Options).items():
            if option.noted and not (brief and option.passed == "changed" and self.options[name] == option.default):
                found[name] = self.options[name]
        return found

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
    return identify("policy", simulator.capabilities.load_policy())
