"""Options: each is declared once, with type, default, check and text, for all functions and commands that take it.

A room declares options as the keys of a ``TypedDict``, whose docstring has their texts. A function takes them as
``**options``; its signature, its docstring and its command are made from the declarations.
"""

import ast
import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, ParamSpec, Required, TypeVar, get_args, get_origin, get_type_hints

from rido.core import checks

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

REQUIRED = inspect.Parameter.empty  # default of an option that must be given
ESTIMATE, SPEND, COLLECT = "What to estimate", "How much to spend", "How to collect"
"""Headings of options, in the order in which they are listed."""

_TEXTS: dict[Any, dict[str, str]] = {}  # of options, by the TypedDict
_ARGUMENTS = re.compile(r"\nArgs:\n((?: {4}.*\n|\n)*)")  # of a docstring


@dataclass(frozen=True)
class Option:
    """What is declared of an option beside its type and its text."""

    default: Any  # its value if it is not given; ``REQUIRED`` if it must be
    heading: str = COLLECT  # under which it is listed
    rule: checks.Rule | None = None  # takes name and value; that of :mod:`rido.core.checks` if not given
    switch: tuple[str, str] | None = None  # name and help on the command line, if not its own name and first sentence
    refused: Mapping[str, str] = field(default_factory=dict)  # what to do instead, by the circumstances that refuse it
    noted: bool = False  # whether a run file notes it, because it decides on the rewards
    passed: Literal["always", "changed", "never"] = "never"  # whether simulators get it, or where it has changed
    text: str = ""  # what it means


def declares(kind: type[T]) -> type[T]:
    """Marks a TypedDict whose keys are options; its docstring has the texts of those that it does not inherit."""
    inherited = {name: text for known in _TEXTS.values() for name, text in known.items()}
    _TEXTS[kind] = {**inherited, **texts(kind.__doc__ or "")}
    return kind


@functools.cache
def declared(kind: Any) -> dict[str, tuple[Any, Option]]:
    """Returns type and declaration of each option of a TypedDict, those that say what to estimate first."""
    found: dict[str, tuple[Any, Option]] = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        hint = get_args(hint)[0] if get_origin(hint) is Required else hint
        found[name] = (hint.__origin__, replace(hint.__metadata__[0], text=_TEXTS[kind].get(name, "")))
    places = {ESTIMATE: 0, COLLECT: 2}  # other headings between them
    return dict(sorted(found.items(), key=lambda item: places.get(item[1][1].heading, 1)))


def takes(
    kind: Any, *, without: Mapping[str, Sequence[str]] | None = None, **special: checks.Rule | None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Returns a decorator for public functions with ``**options``, which come checked, and with their defaults.

    Args:
        kind: the TypedDict that declares the options.
        without: those that this function does not take, by the reason.
        **special: rules of the function's other arguments, as in :func:`rido.core.checks.checked`.
    """
    missing = {name: reason for reason, names in (without or {}).items() for name in names}

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        options = {name: each for name, each in declared(kind).items() if name not in missing}
        given = inspect.signature(function)
        own = [each for each in given.parameters.values() if each.kind is not each.VAR_KEYWORD]
        made = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=_written(kind, name)
            )
            for name, (_, option) in options.items()
        ]
        signature = given.replace(parameters=[*own, *made])
        rules = {name: option.rule for name, (_, option) in options.items() if option.rule is not None}
        check = checks.checker(signature.parameters, {**rules, **special})

        @functools.wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError as error:
                why = next((f"does not take {name}: {missing[name]}" for name in kwargs if name in missing), str(error))
                raise TypeError(f"{function.__qualname__}() {why}") from None
            bound.apply_defaults()
            return function(**{name: check(name, value) for name, value in bound.arguments.items()})  # type: ignore[call-arg]

        known = {**texts(function.__doc__ or ""), **{name: option.text for name, (_, option) in options.items()}}
        lines = [
            textwrap.fill(f"{name}: {known[name]}", 112, initial_indent=" " * 4, subsequent_indent=" " * 8)
            for name in signature.parameters
            if name in known
        ]
        arguments = "\n".join(["\nArgs:", *lines, "\n"])
        wrapper.__doc__ = _ARGUMENTS.sub(lambda _: arguments, inspect.cleandoc(function.__doc__ or "") + "\n")
        wrapper.__signature__ = signature  # type: ignore[attr-defined]
        wrapper.__options__, wrapper.__without__ = options, missing  # type: ignore[attr-defined]
        return wrapper

    return decorate


def _written(kind: Any, name: str) -> str:
    """Returns the type of an option as its declaration has it, which is shorter than what it stands for."""
    tree: Any = ast.parse(kind.__annotations__[name].__forward_arg__, mode="eval").body
    while not isinstance(tree.slice, ast.Tuple):  # Required[Annotated[...]]
        tree = tree.slice
    return ast.unparse(tree.slice.elts[0])


def refuse(options: Mapping[str, Any], kind: Any, circumstances: str) -> None:
    """Raises if an option is not its default under circumstances where it must be, by its declaration."""
    for name, (_, option) in declared(kind).items():
        value = options.get(name, option.default)
        same = value is option.default or (isinstance(value, int) and value == option.default) or value == {}
        if circumstances in option.refused and not same:
            raise ValueError(
                f"{name} must be {option.default} with {circumstances}, got {checks.shown(value)}: "
                f"{option.refused[circumstances]}"
            )


def texts(docstring: str) -> dict[str, str]:
    """Returns the text of each argument in a docstring, in one line.

    Example:
        >>> texts(takes.__doc__)["kind"]
        'the TypedDict that declares the options.'
    """
    found = _ARGUMENTS.search(inspect.cleandoc(docstring) + "\n")
    parts = re.split(r"^ {4}\**(\w+): ", found[1], flags=re.MULTILINE) if found else []
    return {name: " ".join(text.split()) for name, text in zip(parts[1::2], parts[2::2], strict=True)}
