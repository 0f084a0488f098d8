"""Registers the paper's domains with Gymnasium, without importing it.

Gymnasium has no plugins any more, so ``import rido`` registers them. Where Gymnasium is not imported yet, that happens
right after its import, so that ``import rido`` need not wait for it.
"""

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_ENTRY_POINTS = {
    "rido/LQG-v0": "rido.simulators.envs.lqg:LQG",
    "rido/Navigation-v0": "rido.simulators.envs.navigation:Navigation",
    "rido/FirstStep-v0": "rido.simulators.envs.examples:FirstStep",
    "rido/LastStep-v0": "rido.simulators.envs.examples:LastStep",
}
ENV_IDS = tuple(_ENTRY_POINTS)
"""Ids of the registered environments."""


def register_envs() -> None:
    """Registers the domains with Gymnasium, unless they are registered already."""
    import gymnasium as gym

    for env_id, entry_point in _ENTRY_POINTS.items():
        if env_id not in gym.registry:
            gym.register(env_id, entry_point=f"{entry_point}Env", vector_entry_point=f"{entry_point}VectorEnv")


def register_when_imported() -> None:
    """Registers the domains now if Gymnasium is imported already, otherwise right after its import."""
    if sys.modules.get("gymnasium") is not None:
        register_envs()
    else:
        sys.meta_path.insert(0, _AfterGymnasium())


class _AfterGymnasium(MetaPathFinder):
    """Finds Gymnasium as usual, once, and registers the domains after it has run."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "gymnasium":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_register(module: ModuleType) -> None:
            execute(module)
            register_envs()

        spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec
