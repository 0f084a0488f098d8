"""Functions and objects of the user as policies, and random actions.

How a function or object is called:

1. With one observation at a time, in one environment after the other, as its author wrote it. A method ``reset()`` is
   called where a trajectory begins.
2. What fails on the first observation of all takes batches. Without a memory it gets blocks of rows from then on
   (:class:`TakesBatchesError`); with one, blocks of one row, and still one trajectory at a time.
3. What says that it takes batches gets blocks of rows from the start, or whole batches if it is ``rowwise``.
"""

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial, wraps
from itertools import chain, repeat
from math import floor
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rido.core import checks
from rido.policies.actions import ActionError, check_actions, one_action, one_by_one
from rido.policies.base import BLOCK, Actor, Generators, Policy, Space, call_in_blocks, draw
from rido.policies.observations import stack_alike
from rido.policies.tensors import evaluation_mode
from rido.record.fingerprint import identify


class FunctionPolicy(Policy):
    """A function of one observation, or of a batch of observations.

    A parameter ``generators``, an attribute ``rowwise`` that is True, or :func:`batched` say that it takes batches:
    blocks of ``BLOCK`` observations, or whole ones if it is ``rowwise``. A parameter ``generator`` says that it takes
    one observation and draws. The ``reset`` of its owner is called where a trajectory begins, if there is one.
    """

    _keeps_state = False  # whether it is given back the state that it returned
    _as_it_is = True  # whether it is called on one observation without _evaluate

    def __init__(self, function: Callable[..., Any], action_space: Space, *, owner: Any = None) -> None:
        self.name = function_name(function)
        self._function, self._space, self._block = function, action_space, BLOCK
        self._rowwise = getattr(function, "rowwise", False) is True
        self._padding_generator = np.random.default_rng(0)
        parameters = function_parameters(function)
        self.draws = not parameters.isdisjoint({"generators", "generator"})
        self.in_sequence = not (self._rowwise or "generators" in parameters or takes_batches(function))
        self._reset = reset_of(function if owner is None else owner) if self.in_sequence else None
        self.remembers = self._reset is not None
        self._tried = self.draws  # whether it is known to take one observation, if in_sequence
        self._in_rows = False  # whether that is a batch of one row
        self._on_one: Exception | None = None  # what it did on one observation, if it takes batches for that reason

    @property
    def fingerprint(self) -> str:
        with evaluation_mode(self._function):
            return identify("policy", self._function)

    def begin(self, generator: Any) -> Actor:
        if not self.in_sequence:
            return super().begin(generator)
        if self._reset is not None:
            self._reset()
        act = self._actor(generator)
        return act if self._tried else self._trying(act, generator)

    def _trying(self, act: Actor, generator: Any) -> Actor:
        """What acts in a trajectory where it is not known yet whether the function takes one observation."""

        def try_first(observation: Any) -> Any:
            nonlocal act
            if self._tried:
                return act(observation)
            try:
                action = act(observation)
                one_action(action, self._space)
            except Exception as on_one:
                if not self.remembers and not self._keeps_state:
                    raise TakesBatchesError from on_one
                if self._reset is not None:
                    self._reset()
                self._in_rows = True
                act = self._actor(generator)
                try:
                    action = act(observation)
                except Exception as on_batch:
                    raise _fails_on_both(on_batch, on_one, stack_alike([observation]), 1) from on_batch
            self._tried = True
            return action

        return try_first

    def __call__(self, observations: Any, generators: Generators) -> NDArray[Any]:
        if self.in_sequence:
            try:
                return one_by_one([self.begin(generator) for generator in generators], observations, self._space)
            except TakesBatchesError as error:
                self.take_batches(error)
        try:
            actions = self._in_blocks(observations, generators)
        except Exception as on_batch:
            if self._on_one is None:
                raise
            raise _fails_on_both(on_batch, self._on_one, observations, self._block) from on_batch
        self._on_one = None
        return actions

    def take_batches(self, error: Exception) -> None:
        assert isinstance(error.__cause__, Exception)
        self.in_sequence, self._on_one = False, error.__cause__

    def _actor(self, generator: Any) -> Actor:
        """What acts in a trajectory that begins."""
        if self._in_rows:
            return lambda observation: self._batch_actions(stack_alike([observation]), [generator])[0]
        function: Callable[..., Any] = self._function if self._as_it_is else self._evaluate
        return partial(function, generator=generator) if self.draws else function

    def _evaluate(self, observations: Any, **options: Any) -> Any:
        """Calls the function; subclasses convert observations and actions here."""
        return self._function(observations, **options)

    def _in_blocks(self, observations: Any, generators: Generators) -> NDArray[Any]:
        rows = len(generators)
        if self._rowwise:
            return self._batch_actions(observations, generators)
        # Padding rows have their own generator, so that they do not advance those of the trajectories.
        padded = [*generators, *[self._padding_generator] * (-rows % self._block)]

        def act(block: Any, start: int) -> NDArray[Any]:
            return self._batch_actions(block, padded[start : start + self._block])

        return call_in_blocks(act, observations, rows, self._block)

    def _batch_actions(self, observations: Any, generators: Sequence[Any]) -> NDArray[Any]:
        options = {"generators": generators} if self.draws else {}
        return check_actions(self._evaluate(observations, **options), self._space, len(generators))


class PredictPolicy(FunctionPolicy):
    """An object with a method ``predict``, which returns actions, or actions and a state as SB3's does.

    ``deterministic`` is given to ``predict`` if it has a parameter of that name.
    """

    _as_it_is = False

    def __init__(self, agent: Any, action_space: Space, *, deterministic: bool) -> None:
        parameters = function_parameters(agent.predict)
        options = {"deterministic": deterministic} if "deterministic" in parameters else {}
        super().__init__(partial(agent.predict, **options) if options else agent.predict, action_space, owner=agent)
        self._keeps_state = {"state", "episode_start"} <= parameters
        self.name = function_name(agent)

    def _actor(self, generator: Any) -> Actor:
        if self._keeps_state:
            return predicting(self._function, self._space if self._in_rows else None)
        return super()._actor(generator)

    def _evaluate(self, observations: Any, **options: Any) -> Any:
        found = super()._evaluate(observations, **options)  # policies of SB3 return a state, None, too
        return found[0] if isinstance(found, tuple) and len(found) == 2 and found[1] is None else found


def predicting(predict: Callable[..., Any], rows_of: Space | None = None) -> Actor:
    """What acts in one trajectory by SB3's ``predict(observation, state, episode_start)``, which keeps its state.

    ``rows_of`` is the action space, if observation and action are batches of one row.
    """
    state, starts = None, True

    def act(observation: Any) -> Any:
        nonlocal state, starts
        given = observation if rows_of is None else stack_alike([observation])
        found = predict(given, state=state, episode_start=np.array([starts]))
        starts = False
        action, state = found if isinstance(found, tuple) and len(found) == 2 else (found, None)
        return action if rows_of is None else check_actions(action, rows_of, 1)[0]

    return act


def _fails_on_both(on_batch: Exception, on_one: Exception, observations: Any, rows: int) -> Exception:
    """The error of a function that takes neither a batch nor one observation."""
    if repr(on_one) == repr(on_batch):
        return on_batch
    given = "" if isinstance(observations, (dict, tuple)) else f" of shape {(rows, *np.shape(observations)[1:])}"
    told = on_batch if isinstance(on_batch, ActionError) else f"policy raised {on_batch!r} for a batch{given}"
    instead = str(on_one) if isinstance(on_one, ActionError) else f"raised {on_one!r} for one"
    return ActionError(f"{told}, or {instead.removeprefix('policy must return actions ')}")


class TakesBatchesError(Exception):
    """A function failed on the first observation that it got; the cause is how. It may take batches."""


def batched(function: Any) -> Any:
    """Says that a policy takes batches of observations, one in each row, and returns one action for each row.

    Functions are called with one observation at a time unless they fail on that. One that also works on batches is
    faster as ``rido.batched(function)``: environments then run side by side, and it acts in all of them at once. It
    must compute each row from that row alone.

    Args:
        function: A function of a batch, or an object with ``predict``; also as a decorator, ``@rido.batched``.

    Example:
        >>> @batched
        ... def act(observations):
        ...     return -observations / np.linalg.norm(observations, axis=1, keepdims=True)
        >>> act(np.array([[3.0, 4.0]]))
        array([[-0.6, -0.8]])
    """
    if not callable(function):
        if not callable(getattr(function, "predict", None)):
            raise ValueError(f"function must be a function or have predict, got {checks.shown(function)}")
        return SimpleNamespace(predict=batched(function.predict), name=function_name(function))

    @wraps(function, updated=())
    def on_batches(*arguments: Any, **options: Any) -> Any:
        return function(*arguments, **options)

    marked: Any = on_batches
    marked.name, marked.takes_batches = function_name(function), True
    marked.rowwise = getattr(function, "rowwise", False)
    return marked


def takes_batches(function: Any) -> bool:
    """Whether :func:`batched` said so of a function."""
    return getattr(getattr(function, "func", function), "takes_batches", False) is True


def reset_of(owner: Any) -> Callable[[], Any] | None:
    """The method of a policy, or of its method's object, that forgets what it saw in the last trajectory, if any."""
    while isinstance(owner, partial):
        owner = owner.func
    owner = owner.__self__ if inspect.ismethod(owner) else owner
    reset: Callable[[], Any] | None = getattr(owner, "reset", None)
    gymnasium = sys.modules.get("gymnasium")
    if (
        reset is None
        or not callable(reset)
        or inspect.isclass(owner)
        or (gymnasium and isinstance(owner, gymnasium.Env))
    ):
        return None
    try:
        inspect.signature(reset).bind()
    except ValueError:  # a builtin that does not tell its parameters
        return reset
    except TypeError:
        raise ValueError(
            f"policy must have a reset() without arguments, which is called where a trajectory begins, got "
            f"reset{inspect.signature(reset)} of {function_name(owner)}: give the arguments defaults"
        ) from None
    return reset


class RandomPolicy(Policy):
    """Samples the action space as Gymnasium does: uniform where bounded, normal or exponential where not."""

    name = "random"

    def __init__(self, action_space: Space) -> None:
        from gymnasium import spaces

        self._shape, self._integer = getattr(action_space, "shape", None) or (), True
        low: Any
        high: Any
        match action_space:
            case spaces.Discrete(start=low, n=choices) | spaces.MultiDiscrete(start=low, nvec=choices):
                high = low + choices
            case spaces.MultiBinary():
                low, high = np.zeros(self._shape), np.full(self._shape, 2)
            case spaces.Box(low=low, high=high):
                self._integer = np.issubdtype(action_space.dtype, np.integer)
                high = high.astype(np.float64) + self._integer
            case _:
                raise ValueError(
                    "action_space must be Discrete, Box, MultiDiscrete or MultiBinary for policy 'random', got "
                    f"{checks.shown(action_space)}"
                )
        self._dtype = action_space.dtype
        self._low = np.asarray(low, dtype=np.float64).ravel()
        self._high = np.asarray(high, dtype=np.float64).ravel()
        self._bounded = bool(np.isfinite(self._low).all() and np.isfinite(self._high).all())
        self._range = self._low.tolist(), (self._high - self._low).tolist()

    in_sequence = True

    def begin(self, generator: Any) -> Actor:
        if not self._bounded:
            return lambda observation: self(None, [generator])[0]
        if self._integer and not self._shape:
            random, whole, ((low,), (width,)) = generator.random, self._dtype.type, self._range
            return lambda observation: whole(floor(low + width * random()))
        actions = self._ahead(generator)
        return lambda observation: next(actions)

    def _ahead(self, generator: Any) -> Iterator[Any]:
        """Yields actions that are drawn several at a time."""
        for count in chain((4, 16), repeat(64)):
            yield from self._scaled(generator.random((count, self._low.size)))

    def __call__(self, observations: Any, generators: Generators) -> NDArray[Any]:
        if self._bounded:
            return self._scaled(draw("random", generators, self._low.size))
        below, above = np.isfinite(self._low), np.isfinite(self._high)
        size = self._low.size
        normal = draw("standard_normal", generators, size)
        exponential = draw("standard_exponential", generators, size)
        low, high = np.where(below, self._low, 0.0), np.where(above, self._high, 0.0)
        uniform = low + (high - low) * draw("random", generators, size)
        drawn = [uniform, low + exponential, high - exponential]
        return self._as_actions(np.select([below & above, below, above], drawn, default=normal))

    def _scaled(self, uniforms: NDArray[np.float64]) -> NDArray[Any]:
        return self._as_actions(self._low + (self._high - self._low) * uniforms)

    def _as_actions(self, numbers: NDArray[np.float64]) -> NDArray[Any]:
        numbers = np.floor(numbers) if self._integer else numbers
        return numbers.astype(self._dtype).reshape(-1, *self._shape)


def function_name(function: Callable[..., Any]) -> str:
    """The name of a function in results: its attribute ``name`` if that is a string, else where it is defined."""
    name = getattr(function, "name", None)
    if isinstance(name, str):
        return name
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def function_parameters(function: Callable[..., Any]) -> set[str]:
    """The names of a function's parameters; none where it does not tell them, as some builtins."""
    try:
        return set(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return set()
