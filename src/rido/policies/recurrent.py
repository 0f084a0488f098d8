"""Policies with a state, such as that of an LSTM, which belongs to the trajectory.

The simulator keeps the state of each running trajectory and gives it back in the next step, so that a trajectory does
not depend on which others run beside it, nor on which process runs it. A trajectory that is run again starts without.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rido.policies.actions import check_actions, choose_actions
from rido.policies.base import BLOCK, Actor, Generators, Policy, Space, call_in_blocks, steady_block
from rido.policies.functions import function_name, function_parameters
from rido.policies.observations import count, leaves, stack, stack_alike, take
from rido.policies.tensors import as_arrays, call_module, evaluation_mode, is_module, sampling_from
from rido.record.fingerprint import identify


class RecurrentFunction(Protocol):
    """A recurrent policy as a user writes it: a function, or a ``torch.nn.Module`` with such a ``forward``.

    It is known by the names of its parameters ``state`` and ``episode_start``. A function gets arrays, a network
    tensors. A function may have a parameter ``generators`` too, the generators of the rows.
    """

    def __call__(self, observations: Any, state: Any, episode_start: Any) -> tuple[Any, Any]:
        """Acts on a batch.

        Args:
            observations: Batch of observations.
            state: What the last call returned for these rows: an array, or a dictionary or tuple of arrays, rows first.
                None where the trajectories begin.
            episode_start: For each row, whether its trajectory begins. It is the same for all rows of a call.

        Returns:
            One action per row, and the state of each row after it.
        """
        ...


def is_recurrent(function: Any) -> bool:
    """Whether a function or network is a :class:`RecurrentFunction`."""
    parameters = function_parameters(function.forward if is_module(function) else function)
    return {"state", "episode_start"} <= parameters


class RecurrentPolicy(Policy):
    """A policy with a state, in blocks of rows as all others.

    Subclasses define :meth:`_advance` and may set ``_block``, the number of its rows.
    """

    _block = BLOCK

    def __call__(self, observations: Any, generators: Generators) -> NDArray[Any]:
        """Computes the first action of each trajectory."""
        return self.step(observations, [None] * len(generators), generators)[0]

    def begin(self, generator: Any) -> Actor:
        states = [None]

        def act(observation: Any) -> Any:
            nonlocal states
            actions, states = self.step(stack_alike([observation]), states, [generator])
            return actions[0]

        return act

    def step(self, observations: Any, states: Sequence[Any], generators: Generators) -> tuple[NDArray[Any], list[Any]]:
        """Computes actions and the next states, one of each per row; a state is None where a trajectory begins."""
        begins = np.array([state is None for state in states])
        groups = [rows for rows in (np.flatnonzero(begins), np.flatnonzero(~begins)) if rows.size]
        after: list[Any] = list(states)
        actions = [self._step_alike(observations, rows, after, generators) for rows in groups]
        return np.concatenate(actions)[np.argsort(np.concatenate(groups))], after

    @abstractmethod
    def _advance(
        self, observations: Any, state: Any, episode_start: NDArray[np.bool_], generators: Generators
    ) -> tuple[NDArray[Any], Any]:
        """Acts on one block; the arguments and the result are those of a :class:`RecurrentFunction`."""

    def _steady_block(self, observation_space: Space) -> int:
        """Largest block in which the second state of a row has the same bits at every position."""

        def second_state(block: Any, start: int) -> NDArray[Any]:
            rows, state = count(block), None
            for begins in (True, False):
                _, state = self._advance(block, state, np.full(rows, begins), [])
            return np.concatenate([part.reshape(rows, -1) for part in leaves(state)], axis=1)

        return steady_block(second_state, observation_space)

    def _step_alike(
        self, observations: Any, rows: NDArray[np.intp], states: list[Any], generators: Generators
    ) -> NDArray[Any]:
        """Computes actions of rows that all begin or all continue, and replaces their states by the next ones."""
        padding = np.random.default_rng(0)

        def act(block: Any, start: int) -> NDArray[Any]:
            used = rows[start : start + self._block]
            missing = self._block - used.size
            begins = states[used[0]] is None
            state = None if begins else stack([states[row] for row in [*used, *[used[-1]] * missing]])
            drawing = [*(generators[row] for row in used), *[padding] * missing]
            actions, state = self._advance(block, state, np.full(self._block, begins), drawing)
            for place, row in enumerate(used):
                states[row] = take(state, np.array([place]))
            return actions

        return call_in_blocks(act, take(observations, rows), rows.size, self._block)


class RecurrentFunctionPolicy(RecurrentPolicy):
    """A :class:`RecurrentFunction` as a policy. Distributions that a network returns give their mode, or a sample."""

    def __init__(
        self, function: Callable[..., Any], observation_space: Space, action_space: Space, *, deterministic: bool = True
    ) -> None:
        self.name = function_name(function)
        self._function = function
        self._space = action_space
        self._deterministic = deterministic
        self._is_module = is_module(function)
        if self._is_module:
            self.draws = not deterministic
            self._block = 1 if self.draws else self._steady_block(observation_space)  # torch draws for one row a call
        else:
            self.draws = "generators" in function_parameters(function)

    @property
    def fingerprint(self) -> str:
        with evaluation_mode(self._function):
            return identify("policy", self._function)

    def _advance(
        self, observations: Any, state: Any, episode_start: NDArray[np.bool_], generators: Generators
    ) -> tuple[NDArray[Any], Any]:
        state = None if isinstance(state, tuple) and not state else state
        if self._is_module:
            with sampling_from(generators if self.draws else []):
                output = call_module(self._function, observations, state=state, episode_start=episode_start)
                actions, state = _pair(output)
                actions = choose_actions(actions, self._space, deterministic=self._deterministic)
        else:
            options = {"generators": generators} if self.draws else {}
            actions, state = _pair(self._function(observations, state=state, episode_start=episode_start, **options))
        # SB3's predict() returns None as the state of agents that have none.
        return check_actions(actions, self._space, len(episode_start)), () if state is None else as_arrays(state)


def _pair(output: Any) -> tuple[Any, Any]:
    if not isinstance(output, tuple) or len(output) != 2:
        raise ValueError(f"recurrent policy must return a pair, actions and state, got {type(output).__name__}")
    return output
