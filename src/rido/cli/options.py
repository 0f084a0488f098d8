"""Commands from functions: their parameters are those of a function of the library, with the texts declared there."""

import functools
import inspect
import json
import re
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, is_typeddict

import typer

from rido.cli.console import one_line_errors, parse_arguments, stdout_to_stderr
from rido.core.options import COLLECT, ESTIMATE, Option, declared
from rido.strategies.names import STRATEGIES, StrategyName


def option(text: str, under: str | None = None, *names: str, **settings: Any) -> Any:
    """Returns an option of a command with this help, listed under a heading."""
    return typer.Option(*names, help=text, rich_help_panel=under, **settings)


EnvArgument = Annotated[
    str,
    typer.Argument(
        help="A Gymnasium id (Pendulum-v1, rido/LQG-v0, module:Env-v0) or a class or function, module:Class."
    ),
]
PolicyOption = Annotated[
    str | None,
    option(
        'An agent that comes with rido (rido:pendulum; "rido envs" lists them), an SB3 zip (see --trust), '
        'an agent\'s npz or ONNX file, hf:org/name on the Hugging Face hub, "random", or module:function.',
        ESTIMATE,
    ),
]
GammaOption = Annotated[float, option("Discount factor in (0, 1].", ESTIMATE)]
JsonOption = Annotated[
    bool, option('Print one JSON object and nothing else; {"error": ...} for an error.', None, "--json")
]
_SETTINGS = option(
    "A setting of the strategy, such as unbiased=True or beta=2; may be repeated.", COLLECT, metavar="NAME=VALUE"
)
_RAY = option("Collect on a Ray cluster; 'local' starts one here.", COLLECT, metavar="ADDRESS")
_ENVPOOL = option("Collect with EnvPool.", COLLECT, "--envpool")
_MORE: dict[str, dict[str, tuple[Any, Any]]] = {  # what further options of the command line stand for
    "strategy": {"strategy_kwarg": (Annotated[list[str] | None, _SETTINGS], None)},
    "simulator": {"ray": (Annotated[str | None, _RAY], None), "envpool": (Annotated[bool, _ENVPOOL], False)},
}
_LEFT_OUT = ("progress", "stop")  # of the library only


@dataclass(frozen=True)
class Output:
    """What a command prints."""

    content: Mapping[str, Any]  # with ``--json``
    show: str | Callable[[], None]  # without; a text, or what prints
    status: int = 0  # of the exit


def command(
    library: Any = None,
    *,
    without: Mapping[str, Sequence[str]] | None = None,
    interrupted: Callable[[Mapping[str, Any]], str] | None = None,
) -> Callable[[Callable[..., Output]], Callable[..., None]]:
    """Returns a decorator for commands, which also adds ``--json`` and prints what they return.

    Args:
        library: the function whose options the command takes, or the TypedDict that declares them, where the function
            is slow to import. The command gets them as ``**options``, by their own names.
        without: those that it does not take, by the reason.
        interrupted: says what a user who interrupts the command should know, given its arguments.
    """
    known = {} if library is None else declared(library) if is_typeddict(library) else library.__options__
    left_out = {*_LEFT_OUT, *(name for names in (without or {}).values() for name in names)}
    options = {name: each for name, each in known.items() if name not in left_out}

    def decorate(function: Callable[..., Output]) -> Callable[..., None]:
        parameters = {
            name: each
            for name, each in inspect.signature(function, eval_str=True).parameters.items()
            if each.kind is not each.VAR_KEYWORD
        }
        own = set(parameters)
        for name, (hint, option) in options.items():
            if name not in own:
                parameters[name] = _parameter(name, *_on_command_line(name, hint, option))
                parameters |= {extra: _parameter(extra, *each) for extra, each in _MORE.get(name, {}).items()}

        @functools.wraps(function)
        def wrapper(**given: Any) -> None:
            say = _stopped if interrupted is None else interrupted
            with one_line_errors(interrupted=say(given)), stdout_to_stderr():
                taken = {name: given[name] for name in own}
                values = {name: _value(name, each, given) for name, each in options.items() if name not in own}
                output = function(**taken, **values)
            if given["as_json"]:
                print(json.dumps(output.content, allow_nan=False))
            elif isinstance(output.show, str):
                print(output.show)
            else:
                output.show()
            if output.status:
                raise typer.Exit(output.status)

        parameters["as_json"] = _parameter("as_json", JsonOption, False)
        made = [each.replace(kind=each.KEYWORD_ONLY) for each in parameters.values()]
        wrapper.__signature__ = inspect.Signature(made)  # type: ignore[attr-defined]
        wrapper.__annotations__ = {}
        return wrapper

    return decorate


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _on_command_line(name: str, hint: Any, option: Option) -> tuple[Any, Any]:
    kind, default = _kind(hint), option.default
    flag, text = option.switch or ("", _first_sentence(option.text))
    flag, metavar = flag or f"--{name.replace('_', '-')}", None
    if kind is bool:
        default = False
    elif get_origin(kind) in (list, dict):
        metavar = "NAME=VALUE" if get_origin(kind) is dict else None
        flag = flag if option.switch else flag.removesuffix("s")
        text = text if "repeated" in text else f"{text.removesuffix('.')}; may be repeated."
        kind = list[str] if get_origin(kind) is dict else kind
        default = list(default) if isinstance(default, tuple) else default
    elif get_origin(kind) is tuple:
        metavar = "LOW HIGH"
    made = typer.Option(flag, help=text, metavar=metavar, rich_help_panel=option.heading)
    return Annotated[kind | None if default is None else kind, made], default


def _kind(hint: Any) -> Any:
    """Returns the type of an option's value on the command line, which takes texts and numbers only."""
    parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    origins = {get_origin(part): part for part in parts}
    if Mapping in origins:
        return dict[str, Any]
    if Sequence in origins:
        return list[get_args(origins[Sequence])[0]]  # type: ignore[misc]
    for origin in (Literal, tuple):
        if origin in origins:
            return origins[origin]
    return next(kind for kind in (bool, Path, int, float, str) if kind in parts)


def _first_sentence(text: str) -> str:
    """Returns the first sentence of an option's text, without the markup.

    Example:
        >>> _first_sentence("seconds to spend, see :func:`rido.evaluate`. They begin soon.")
        'Seconds to spend, see rido.evaluate.'
    """
    plain = re.sub(r":\w+:`([^`]*)`|``", r"\1", text)
    first = re.split(r"(?<=\.) (?=[A-Z])", plain)[0]
    return first[:1].upper() + first[1:]


def _value(name: str, declaration: tuple[Any, Option], given: Mapping[str, Any]) -> Any:
    hint, option = declaration
    kind, value = _kind(hint), given[name]
    if kind is bool:
        return value is not option.default
    if get_origin(kind) is dict:
        return parse_arguments(name.removesuffix("s").replace("_", "-"), value)
    if get_origin(kind) is list:
        return value or option.default
    if name == "strategy":
        return make_strategy(value, given["strategy_kwarg"])
    if name == "simulator":
        return chosen_simulator(value, given["ray"], envpool=given["envpool"])
    return value


def make_strategy(name: StrategyName, settings: list[str] | None) -> Any:
    """Returns the strategy of this name with settings that were given as NAME=VALUE."""
    try:
        return STRATEGIES[name](**parse_arguments("strategy-kwarg", settings)) if settings else name
    except TypeError as error:
        raise ValueError(f"strategy-kwarg must be a setting of {name}, got {settings}: {error}") from error


def chosen_simulator(name: str | None, ray: str | None, *, envpool: bool) -> Any:
    """Returns what collects: a name or a simulator to be made; None for what fits environment and workers."""
    if sum([name is not None, ray is not None, envpool]) > 1:
        raise ValueError("simulator must be given once, got more than one of --simulator, --ray and --envpool")
    if ray is None:
        return "envpool" if envpool else name
    from rido.simulators.parallel.ray import RaySimulator

    return partial(RaySimulator, address=None if ray == "local" else ray)


def _stopped(given: Mapping[str, Any]) -> str:
    if "run" not in given:
        return "stopped"
    run = given["run"]
    kept = "nothing was kept; with --run FILE it could resume" if run is None else f"the same command resumes {run}"
    return f"stopped; {kept}"
