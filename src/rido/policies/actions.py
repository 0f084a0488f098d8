"""Actions: what policies return, checked, and chosen from scores and distributions."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rido.policies.base import Actor, Space
from rido.policies.observations import take
from rido.policies.tensors import as_array


class ActionError(ValueError):
    """A policy returned something else than actions."""


def one_by_one(actors: Sequence[Actor], observations: Any, space: Space) -> NDArray[Any]:
    """The actions of a batch, from one actor for each row, each called with that row's observation."""
    return np.stack([one_action(act(take(observations, row)), space) for row, act in enumerate(actors)])


def one_action(action: Any, space: Space) -> Any:
    """An action of one observation as the environment gets it: as it is, if it has the shape of the space.

    Example:
        >>> from gymnasium import spaces
        >>> one_action(np.array([1]), spaces.Discrete(3)), one_action([0.5], spaces.Box(-1, 1, (1,)))
        (np.int64(1), array([0.5]))
    """
    if space.shape is None:  # parts of it may be anything
        return action
    if isinstance(action, np.ndarray):
        if action.shape == space.shape and action.shape and action.dtype.kind in "biuf":
            return action
    elif not space.shape and isinstance(action, (int, float, np.integer, np.floating)):
        return action
    elif isinstance(action, tuple) and all(isinstance(part, (int, float, np.number)) for part in action):
        action = list(action)
    array = check_actions(action, space)
    return array if space.shape else array.astype(np.int64 if array.dtype.kind == "b" else array.dtype)[()]


def check_actions(actions: Any, space: Space, rows: int | None = None) -> NDArray[Any]:
    """Actions as an array, checked to have the right shape: one for each row, or that of one observation."""
    if isinstance(actions, tuple):
        raise ActionError(
            f"policy must return an array of actions, got a tuple of {len(actions)}: return actions alone"
        )
    array = as_array(actions)
    batch, observations = ((), "one observation") if rows is None else ((rows,), f"{rows} observations")
    expected = (*batch, *(space.shape or ()))
    if (*array.shape, 1) == expected or array.shape == (*expected, 1):
        array = array.reshape(expected)  # a number and an array of one number are the same action
    if array.shape != expected or array.dtype.kind not in "biuf":
        found = array.shape if array.dtype.kind in "biuf" else type(actions).__name__
        raise ActionError(f"policy must return actions of shape {expected} for {observations}, got {found}")
    return array


def choose_actions(output: Any, action_space: Space, *, deterministic: bool) -> NDArray[Any]:
    """Actions of what a network returned: a tensor of actions or of scores of discrete actions, or a distribution."""
    import torch

    if isinstance(output, torch.distributions.Distribution):
        if not deterministic:
            return as_array(output.sample())
        try:
            output = output.mode
        except NotImplementedError:
            raise ActionError(
                f"policy returned a {type(output).__name__}, which has no mode: let it return the action to take, or "
                "sample with deterministic=False"
            ) from None
        return as_array(output)
    if not isinstance(output, torch.Tensor):
        raise ActionError(
            f"policy network must return a tensor of actions or a distribution, got a {type(output).__name__}: wrap it "
            "in a module or function that returns the actions alone"
        )
    return best_choice(as_array(output), action_space, deterministic=deterministic)


def best_choice(output: NDArray[Any], action_space: Space, *, deterministic: bool) -> NDArray[Any]:
    """Actions themselves, or the best of discrete actions where floating numbers score all of them."""
    from gymnasium import spaces

    if not isinstance(action_space, spaces.Discrete) or not np.issubdtype(output.dtype, np.floating):
        return output
    if output.ndim == 0 or output.shape[-1] != action_space.n:
        raise ActionError(
            f"policy must return integers or scores of all actions for {action_space}, got {output.dtype} of shape "
            f"{output.shape}"
        )
    if not deterministic:
        raise ActionError(
            "policy returned scores, which may be logits or Q-values: to sample, let it return "
            "torch.distributions.Categorical(logits=...)"
        )
    best: NDArray[Any] = output.argmax(axis=-1) + action_space.start
    return best
