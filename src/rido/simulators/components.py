"""Components: what else is read off each transition beside the reward, such as a cost or a part of the reward."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rido.core import checks

TransitionFunction = Callable[[Any, Any, Any, Any, Mapping[str, Any]], Mapping[str, float]]
"""A function of observation, action, reward, next observation and info that returns numbers by their names."""

REWARD = "reward"
"""Name of the component that is the reward itself."""

ALL = "all"
"""What plans serve where they serve every component; no component may have this name."""

_FUNCTION = "give a function of the transition, which may return 0 where there is none"


class ComponentError(ValueError):
    """A transition without the components that were asked for."""


def check_names(names: Iterable[Any]) -> tuple[str, ...]:
    """Returns the names of components if they are different texts that can be shown."""
    found = tuple(checks.instance("components", names, Sequence))
    for name in found:
        if not isinstance(name, str) or not name.strip() or not name.isprintable() or name == ALL:
            raise ValueError(
                f"components must have names of printable characters other than {ALL!r}, got {checks.shown(name)}"
            )
    if len(set(found)) < len(found):
        raise ValueError(f"components must have different names, got {checks.shown(found)}")
    return found


def check_components(components: Any) -> tuple[str, ...] | TransitionFunction | None:
    """Returns what evaluate() was given as components: names, a function of the transition, or None."""
    if components is None or callable(components):
        given: TransitionFunction | None = components
        return given
    if isinstance(components, str) or not isinstance(components, Iterable):
        raise ValueError(
            'components must be names in info, such as ("cost",), or a function of the transition, got '
            f"{checks.shown(components)}"
        )
    names = check_names(components)
    if not names:
        raise ValueError("components must be at least one name, got none")
    return names


class ComponentReader:
    """Reads the components off transitions: the reward, or the entries of a vector reward, and then the others.

    From a ``transition`` it learns the names of a function's numbers and the size of the reward; names in info beside a
    plain reward need none. Where the reward is a vector, ``components`` are the names of its entries.

    Attributes:
        names: of all components.
        needs_observations: whether a function looks at observations.
    """

    def __init__(
        self, components: tuple[str, ...] | TransitionFunction | None, transition: Sequence[Any] | None = None
    ) -> None:
        self._function = components if callable(components) else None
        self.needs_observations = self._function is not None
        entries = 1 if transition is None else self._entries(transition[2])
        rewards = (REWARD,) if entries == 1 else tuple(f"{REWARD}_{index}" for index in range(entries))
        others: tuple[str, ...] = ()
        if self._function is not None and transition is not None:
            others = check_names(tuple(self._call(*transition)))
            if not others or set(others) & set(rewards):
                raise ValueError(
                    f"the function of components must return other names than {', '.join(rewards)}, at least one, got "
                    f"{', '.join(others) or 'none'}"
                )
        elif isinstance(components, tuple) and entries == 1:
            others = tuple(name for name in components if name != REWARD)
        elif isinstance(components, tuple):
            if len(components) != entries:
                raise ValueError(
                    f"components must name the {entries} entries of the vector reward, got {len(components)} names; "
                    "a function of the transition adds others"
                )
            rewards = components
        self._entry_count, self._others = entries, others
        self.names = (*rewards, *others)

    def read(self, observation: Any, action: Any, reward: Any, following: Any, info: Any) -> NDArray[np.float64]:
        """Returns the components of a transition, or raises a ComponentError where one is missing or no number."""
        found = info if self._function is None else self._call(observation, action, reward, following, info)
        if self._function is not None and (more := sorted(map(str, set(found) - set(self._others)))):
            raise ComponentError(
                f"the function of components returned {more[0]!r}, which it had not before: it must return the same "
                "names for every transition"
            )
        if missing := [name for name in self._others if name not in found]:
            source = "info" if self._function is None else "what the function of components returned"
            there = ", ".join(map(repr, sorted(map(str, found)))) or "nothing"
            raise ComponentError(
                f"{source} lacks the component {missing[0]!r}, it has {there}: name others, or {_FUNCTION}"
            )
        if self._entries(reward) != self._entry_count:
            raise ComponentError(f"the reward has shape {np.shape(reward)}, but had {self._entry_count} entries before")
        values = np.empty(len(self.names))
        values[: self._entry_count] = np.reshape(reward, -1)
        for column, name in enumerate(self._others, start=self._entry_count):
            try:
                values[column] = np.asarray(found[name], dtype=np.float64).reshape(())
            except (TypeError, ValueError):
                raise ComponentError(
                    f"component {name!r} must be one number for each transition, got {checks.shown(found[name])}: "
                    "leave it out, or give a function of the transition that returns numbers"
                ) from None
        return values

    def _call(self, *transition: Any) -> Mapping[str, float]:
        assert self._function is not None
        try:
            found = self._function(*transition)
        except Exception as error:
            raise ComponentError(
                f"the function of components raised {error!r}; it gets observation, action, reward, next observation "
                "and info"
            ) from error
        if not isinstance(found, Mapping):
            raise ComponentError(
                f"the function of components must return a dictionary of numbers, got a {type(found).__name__}"
            )
        return found

    @staticmethod
    def _entries(reward: Any) -> int:
        if np.ndim(reward) > 1:
            raise ComponentError(f"the reward must be a number or a vector, got shape {np.shape(reward)}")
        return max(1, int(np.size(reward)))


def info_of(info: Mapping[str, Any], row: int) -> dict[str, Any]:
    """Returns a row of a VectorEnv's info, where the mask ``_name`` tells which rows have an entry ``name``."""
    found: dict[str, Any] = {}
    for name, values in info.items():
        mask = info.get(f"_{name}")
        if isinstance(values, Mapping):
            found[name] = info_of(values, row)
        elif np.ndim(values) > 0 and (mask is None or mask[row]):
            found[name] = values[row]
    return found
