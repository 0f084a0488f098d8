"""All commands under one name."""

import atexit
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from rido import __version__
from rido._start import INTERRUPTED
from rido.cli.console import Interrupted, drop_stdout, end_stdout, fail, fail_with

# Modules of this folder, in the order of the help, each with a function NAME_command.
_NAMES = "evaluate check compare suite plan report watch card study reproduce envs"
_UsageError: Any = typer.BadParameter.__base__  # its module is not public


class _Commands(TyperGroup):
    """All commands. Whatever goes wrong is said in one line: exit code 2 for wrong usage, 1 for anything else.

    With --json it is an object on standard output as well, so that ``rido ... --json | jq`` gets one in every case.
    """

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        as_json = "--json" in (sys.argv[1:] if args is None else args)  # known even where the options are wrong
        try:
            code = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
            sys.stdout.flush()
        except _UsageError as error:
            code = error.exit_code
            if type(error).__name__ == "NoArgsIsHelpError":
                error.show()
            else:
                path = "rido" if error.ctx is None else error.ctx.command_path
                text = " ".join(error.format_message().split())
                fail(f'{text.removesuffix(".")} (see "{path} --help")', as_json=as_json)
        except typer.Abort:
            code = fail_with(Interrupted("stopped"), as_json=as_json)
        except BrokenPipeError:  # as in "rido ... | head -1"; the status is that of typer, where it prints
            drop_stdout()
            code = 1
        except SystemExit:  # completion in the shell
            raise
        except BaseException as error:
            code = fail_with(error, as_json=as_json)
        return sys.exit(code or 0) if standalone_mode else code


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="How good is a policy? Its expected return, with the least error for a given number of transitions.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rido {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Options of ``rido`` itself, before any command."""


for _name in _NAMES.split():
    app.command(_name)(getattr(import_module(f"rido.cli.{_name}"), f"{_name}_command"))


def main() -> None:
    """Entry point of the ``rido`` command."""
    sys.path.append("")  # modules of the working directory, last: none can take the place of an installed one
    try:
        app()
    except SystemExit as error:
        if error.code == INTERRUPTED:
            # CPython forgets the status of a process that was interrupted in code that it had as a string.
            atexit._run_exitfuncs()
            end_stdout()
            os._exit(INTERRUPTED)
        raise
    finally:
        end_stdout()
