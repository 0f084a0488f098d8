"""Policy: what a simulator calls for actions, and how policies are called on batches.

A matrix product may round a row differently in a batch of another size, and a chaotic simulator amplifies that last
bit. Policies are therefore called on blocks of one fixed size, padded where rows are missing, and all random numbers of
a row come from that row's own generator. So a trajectory does not depend on which others run beside it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rido.policies.observations import stack_alike, take
from rido.record.fingerprint import content_of

if TYPE_CHECKING:
    import gymnasium as gym

    Space = gym.Space[Any]
else:
    Space = Any

BLOCK = 8
"""Rows in one call of a policy. OpenBLAS rounds float64 products of 16 rows by position, of 8 rows it does not."""

_TRIED_BLOCKS = (16, 8, 4)  # rows in one call, tried in this order; larger blocks have less overhead

Generators = Sequence[np.random.Generator]

Actor = Callable[[Any], Any]
"""What acts in one trajectory: a function of one observation, which returns one action."""


@dataclass(frozen=True)
class ValueFunction:
    """A value function learned in training.

    Attributes:
        infinite_horizon: Maps a batch of observations to values for an infinite horizon, in units of the environment's
            rewards.
        discount: Discount factor of the values.
        rowwise: Whether a row's value has the same bits in every batch.
        advantages: Where actions are drawn and Q is known: maps a batch of observations, the actions that were drawn
            there and a generator to Q(s, a) less a mean of Q over the policy's actions in s. The mean may come from
            other actions that are drawn with the generator, as long as the difference is 0 on average.
    """

    infinite_horizon: Callable[[Any], NDArray[np.float64]]
    discount: float
    rowwise: bool = False
    advantages: Callable[[Any, NDArray[Any], np.random.Generator], NDArray[np.float64]] | None = None


class Policy(ABC):
    """Maps batches of observations to actions.

    Attributes:
        name: Name in results.
        reproducible: Whether a row's action depends only on its observation and its generator. False if it may
            depend on global random state.
        draws: Whether it uses the generators. If not, each of them may be None.
        in_sequence: Whether it acts by :meth:`begin` only, on one observation at a time, in one environment after the
            other.
        remembers: Whether it has a memory that :meth:`begin` clears, so that only one trajectory may run at a time.
        normalisation: What happens to observations before the policy sees them, where a reader of the result should
            know, such as "observations normalised by vecnormalize.pkl"; else empty.
        remarks: What else such a reader should know.
        warnings: Why it may not be the agent that was trained.
    """

    name: str
    reproducible: bool = True
    draws: bool = True
    in_sequence: bool = False
    remembers: bool = False
    normalisation: str = ""
    remarks: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    _block: int = BLOCK

    @property
    def fingerprint(self) -> str:
        """Digest of the policy's files or content, which distinguishes policies of the same name."""
        return content_of("policy", self)

    @abstractmethod
    def __call__(self, observations: Any, generators: Generators) -> NDArray[Any]:
        """Computes actions for a batch.

        Args:
            observations: Batch of observations (see :mod:`rido.policies.observations`).
            generators: For each row, the generator of its trajectory.

        Returns:
            One action per row.
        """

    def begin(self, generator: Any) -> Actor:
        """Begins a trajectory.

        Args:
            generator: That of the trajectory, None if the policy does not draw.

        Returns:
            What maps each of its observations, in order, to an action, as the environment gets it.
        """
        return lambda observation: self.executed(self(stack_alike([observation]), [generator]))[0]

    def take_batches(self, error: Exception) -> None:
        """Takes batches from now on, because of a :class:`rido.policies.functions.TakesBatchesError`."""
        raise NotImplementedError

    def act_alone(self) -> None:
        """Acts on one row in each call from now on."""
        self._block = 1

    def executed(self, actions: NDArray[Any]) -> NDArray[Any]:
        """Actions as the environment gets them, such as clipped to its bounds."""
        return actions

    def value_function(self) -> ValueFunction | None:
        """The value function learned together with the policy, None if there is none."""
        return None


class Policies(dict[str, Any]):
    """Several policies by their names, each as a user gave it, for a simulator in which they act by turns."""


def call_in_blocks(
    function: Callable[[Any, int], NDArray[Any]], observations: Any, rows: int, block: int = BLOCK
) -> NDArray[Any]:
    """Calls a function on blocks of exactly ``block`` rows; the last block is padded with copies of the last row.

    The function maps a block of observations and the index of its first row to one result per row.
    """
    results = []
    for start in range(0, rows, block):
        index = np.minimum(np.arange(start, start + block), rows - 1)
        results.append(function(take(observations, index), start))
    return results[0][:rows] if len(results) == 1 else np.concatenate(results)[:rows]


def steady_block(function: Callable[[Any, int], NDArray[Any]], observation_space: Space) -> int:
    """Largest block in which such a function gives a row the same bits at every position; 1 always does."""
    from gymnasium.vector.utils import batch_space

    rows = _TRIED_BLOCKS[0]
    space = batch_space(observation_space, rows)
    space.seed(0)
    batch = space.sample()
    for block in _TRIED_BLOCKS:
        together = call_in_blocks(function, batch, rows, block)
        alone = [call_in_blocks(function, take(batch, np.array([row])), 1, block) for row in range(rows)]
        if np.array_equal(together, np.concatenate(alone)):
            return block
    return 1


def draw(distribution: str, generators: Generators, size: int) -> NDArray[np.float64]:
    """Draws numbers for each row from its generator, by this method of ``numpy.random.Generator``."""
    if size == 1:  # scalars are several times faster to draw than arrays of one
        return np.array([[getattr(generator, distribution)()] for generator in generators])
    variates = np.empty((len(generators), size))
    for row, generator in zip(variates, generators, strict=True):
        getattr(generator, distribution)(out=row)
    return variates
