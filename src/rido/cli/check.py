"""``rido check``: what is odd about an environment and a policy?"""

from typing import Annotated, Any

import typer

from rido.cli.console import may_run_code
from rido.cli.options import EnvArgument, Output, command
from rido.simulators.options import WITHOUT, SimulatorOptions


@command(SimulatorOptions, without=WITHOUT["check"])
def check_command(
    env: EnvArgument,
    policy: Annotated[str, typer.Argument(help="As --policy of rido evaluate.")] = "random",
    **options: Any,
) -> Output:
    """Try an environment and a policy for what makes numbers wrong; the exit status is 1 if something was found."""
    from rido.simulators.check import check  # slow to import

    options["trust"] = may_run_code(policy, trust=options["trust"])
    found = check(env, policy, **options)
    return Output(found.to_dict(), found.summary(), 0 if found.ok else 1)
