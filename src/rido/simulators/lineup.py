"""Lineup: several policies in one environment, which act by turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rido.policies.base import Policies
from rido.simulators.base import Simulator, SwitchingSimulator, TogetherSimulator, close


class Lineup:
    """Simulators of several policies in one environment.

    Gymnasium environments, worker pools and simulators in JAX are made once for all policies. Other simulators are made
    for each, when it acts for the first time.

    Args:
        make: makes a simulator for a policy, or for several if it is a :class:`SwitchingSimulator`.
        policies: by their names.
        switching: whether it makes one for several.
    """

    def __init__(self, make: Callable[[Any], Simulator], policies: Mapping[str, Any], *, switching: bool) -> None:
        self._make = make
        self._policies = dict(policies)
        self._shared = make(Policies(policies)) if switching else None
        self._own: dict[str, Simulator] = {}

    def simulator(self, name: str) -> Simulator:
        """Returns the simulator in which this policy acts, until another one is asked for."""
        if isinstance(self._shared, SwitchingSimulator):
            self._shared.use(name)
            return self._shared
        if name not in self._own:
            self._own[name] = self._make(self._policies[name])
        return self._own[name]

    def expect(self, names: Sequence[str]) -> None:
        """Says which policies will be asked for the same trajectories, so that these may run together."""
        if isinstance(self._shared, TogetherSimulator):
            self._shared.expect(names)

    def dismiss(self, name: str) -> tuple[str, ...]:
        """Closes what only this policy needed; returns warnings."""
        return close(self._own.pop(name)) if name in self._own else ()

    def close(self) -> tuple[str, ...]:
        """Closes everything; returns warnings."""
        shared = () if self._shared is None else close(self._shared)
        return (*shared, *(warning for name in list(self._own) for warning in self.dismiss(name)))
