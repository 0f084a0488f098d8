"""Lineup: several policies in one environment, one acting in each simulator."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rido.policies.base import Policies
from rido.simulators.base import Batch, Capabilities, Request, Simulator, close


class Acting(Simulator):
    """A simulator of several policies in which one of them acts."""

    def __init__(self, shared: Simulator, name: str) -> None:
        self._shared, self._name = shared, name
        self.num_envs, self.observation_space = shared.num_envs, shared.observation_space
        self.beside: Sequence[str] = ()

    @property
    def capabilities(self) -> Capabilities:
        """Those of the shared simulator, with this policy as the only one."""
        able, name = self._shared.capabilities, self._name
        return replace(
            able,
            policies={name: able.policies[name]},
            load_policy=lambda _="": able.load_policy(name),
            remembers=lambda _="": able.remembers(name),
        )

    def collect(self, request: Request) -> Batch:
        return self._shared.collect(replace(request, policy=self._name, beside=self.beside))


class Lineup:
    """Simulators of several policies in one environment.

    Gymnasium environments, worker pools and simulators in JAX are made once for all policies (``switching``). Others
    are made for each, when it acts for the first time.
    """

    def __init__(self, make: Callable[[Any], Simulator], policies: Mapping[str, Any], *, switching: bool) -> None:
        self._make = make
        self._policies = dict(policies)
        self._shared = make(Policies(policies)) if switching else None
        self._own: dict[str, Simulator] = {}

    def simulator(self, name: str) -> Simulator:
        """Returns the simulator in which this policy acts."""
        if name not in self._own:
            self._own[name] = self._make(self._policies[name]) if self._shared is None else Acting(self._shared, name)
        return self._own[name]

    def expect(self, names: Sequence[str]) -> None:
        """Says which policies will be asked for the same trajectories, so that these may run together."""
        for acting in self._own.values():
            if isinstance(acting, Acting):
                acting.beside = names

    def dismiss(self, name: str) -> tuple[str, ...]:
        """Closes what only this policy needed; returns warnings."""
        return close(self._own.pop(name)) if name in self._own else ()

    def close(self) -> tuple[str, ...]:
        """Closes everything; returns warnings."""
        shared = () if self._shared is None else close(self._shared)
        return (*shared, *(warning for name in list(self._own) for warning in self.dismiss(name)))
