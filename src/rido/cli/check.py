"""``rido check``: what is odd about an environment and a policy?"""

from __future__ import annotations

from typing import Annotated

import typer

from rido.cli.console import (
    EnvArgument,
    EnvKwargOption,
    JsonOption,
    TrustOption,
    may_run_code,
    one_line_errors,
    parse_arguments,
    print_json,
    stdout_to_stderr,
)
from rido.simulators.check import check


def check_command(
    env: EnvArgument,
    policy: Annotated[str, typer.Argument(help="As --policy of rido evaluate.")] = "random",
    env_kwarg: EnvKwargOption = None,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Try an environment and a policy for what makes numbers wrong; the exit status is 1 if something was found."""
    with one_line_errors(), stdout_to_stderr():
        arguments = parse_arguments("env-kwarg", env_kwarg)
        found = check(env, policy, env_kwargs=arguments, trust=may_run_code(policy, trust))
    if as_json:
        print_json(found.to_dict())
    else:
        print(found.summary())
    if not found.ok:
        raise typer.Exit(1)
