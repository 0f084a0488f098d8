"""Options: each is declared once, with type, default, check and text, for all functions and commands that take it.

A room declares options as the keys of a ``TypedDict``, whose docstring has their texts. A function takes them as
``**options``; its signature, its docstring and its command are made from the declarations.
"""

from __future__ import annotations

import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ParamSpec, Required, TypeVar, get_args, get_origin, get_type_hints

from rido.core import checks

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

REQUIRED = inspect.Parameter.empty
"""Default of an option that must be given."""

ESTIMATE, SPEND, COLLECT = "What to estimate", "How much to spend", "How to collect"
"""Headings of options, in the order in which they are listed."""

_TEXTS: dict[Any, dict[str, str]] = {}  # of options, by the TypedDict
_TAKERS: dict[str, list[str]] = {}  # names of the functions that take an option
_ENTRY = re.compile(r"^ {4}(\w+): ", re.MULTILINE)  # of the arguments in a docstring


@dataclass(frozen=True)
class Option:
    """What is declared of an option beside its type and its text.

    Attributes:
        default: its value if it is not given; ``REQUIRED`` if it must be.
        heading: under which it is listed.
        rule: checks and converts a value, given the option's name; that of :mod:`rido.core.checks` if not given.
        switch: name and help on the command line, where these are not its own name and its text's first sentence.
        refused: what to do instead, by the circumstances under which it must keep its default.
        only: why not all functions take it.
        text: what it means.
    """

    default: Any
    heading: str = COLLECT
    rule: checks.Rule | None = None
    switch: tuple[str, str] | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
    only: str = ""
    text: str = ""


def declares(kind: type[T]) -> type[T]:
    """Marks a TypedDict whose keys are options; its docstring has the texts of those that it does not inherit."""
    inherited = {
        name: text for known in _TEXTS.values() for name, text in known.items() if name in kind.__annotations__
    }
    _TEXTS[kind] = {**inherited, **texts(kind.__doc__ or "")}
    return kind


@functools.cache
def declared(kind: Any) -> dict[str, tuple[Any, Option]]:
    """Returns type and declaration of each option of a TypedDict, those that say what to estimate first."""
    found: dict[str, tuple[Any, Option]] = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        hint = get_args(hint)[0] if get_origin(hint) is Required else hint
        found[name] = (hint.__origin__, replace(hint.__metadata__[0], text=_TEXTS[kind][name]))
    places = {ESTIMATE: 0, COLLECT: 2}  # other headings between them
    return dict(sorted(found.items(), key=lambda item: places.get(item[1][1].heading, 1)))


def takes(kind: Any, **special: checks.Rule | None) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Returns a decorator for public functions with ``**options``, which come checked, and with their defaults.

    Args:
        kind: the TypedDict that declares the options.
        **special: rules of the function's other arguments, as in :func:`rido.core.checks.checked`.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        options = declared(kind)
        own = [each for each in inspect.signature(function).parameters.values() if each.kind is not each.VAR_KEYWORD]
        made = {
            name: inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=hint)
            for name, (hint, option) in options.items()
        }
        before = [*(each for each in own if each.kind is not each.KEYWORD_ONLY)]
        named = [each for each in own if each.kind is each.KEYWORD_ONLY]
        signature = inspect.signature(function).replace(parameters=[*before, *named, *made.values()])
        rules = {name: option.rule for name, (_, option) in options.items() if option.rule is not None}
        check = checks.checker(signature.parameters, {**rules, **special})
        for name in options:
            _TAKERS.setdefault(name, []).append(function.__qualname__)

        @functools.wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError as error:
                unknown = next((name for name in kwargs if name not in signature.parameters), "")
                known = f"; {' and '.join(_TAKERS[unknown])} take it" if unknown in _TAKERS else ""
                raise TypeError(f"{function.__qualname__}() {error}{known}") from None
            bound.apply_defaults()
            return function(**{name: check(name, value) for name, value in bound.arguments.items()})  # type: ignore[call-arg]

        wrapper.__signature__ = signature  # type: ignore[attr-defined]
        wrapper.__options__ = options  # type: ignore[attr-defined]
        wrapper.__doc__ = _documented(function.__doc__ or "", signature, options)
        return wrapper

    return decorate


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


def changed(options: Mapping[str, Any], kind: Any) -> dict[str, Any]:
    """Returns those options of a kind that are not their defaults."""
    known = declared(kind)
    return {name: value for name, value in options.items() if name in known and value != known[name][1].default}


def texts(docstring: str) -> dict[str, str]:
    """Returns the text of each argument in a docstring, in one line.

    Example:
        >>> texts(takes.__doc__)["kind"]
        'the TypedDict that declares the options.'
    """
    return {name: " ".join(text.split()) for name, text in _entries(_sections(docstring)[1])}


def _sections(docstring: str) -> tuple[str, str, str]:
    """Returns a docstring's text before its arguments, its arguments, and what follows."""
    head, _, rest = inspect.cleandoc(docstring).partition("\nArgs:\n")
    end = re.search(r"^\S", rest, re.MULTILINE)
    place = end.start() if end else len(rest)
    return head, rest[:place], rest[place:]


def _entries(arguments: str) -> list[tuple[str, str]]:
    """Returns name and text of each argument."""
    parts = _ENTRY.split(arguments)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def _documented(docstring: str, signature: inspect.Signature, options: Mapping[str, tuple[Any, Option]]) -> str:
    """Returns a docstring with all arguments of a signature."""
    head, arguments, rest = _sections(docstring)
    own = dict(_entries(arguments))
    lines = []
    for name in signature.parameters:
        text = options[name][1].text if name in options else " ".join(own.get(name, "").split())
        if text:
            lines.append(textwrap.fill(f"{name}: {text}", 112, initial_indent=" " * 4, subsequent_indent=" " * 8))
    return "\n".join([head, "", "Args:", *lines, "", rest])
