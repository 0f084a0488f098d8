"""``rido suite``: several policies in several tasks, described in a file."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from rido.cli.console import may_run_code
from rido.cli.options import Output, command, option
from rido.core.options import COLLECT
from rido.suite.suite import Suite, ray_simulator


def _folder(file: Path, output: Path | None) -> Path:
    return file.with_suffix("") if output is None else output


@command(
    Suite.run,
    interrupted=lambda given: f"stopped; the same command resumes {_folder(given['file'], given['output'])}",
)
def suite_command(
    file: Annotated[Path, typer.Argument(help="A TOML file: budget, [tasks.NAME], [policies].")],
    output: Annotated[
        Path | None, option("Folder of run files and pages (default: FILE without its suffix).", None, "--output", "-o")
    ] = None,
    no_page: Annotated[bool, option("Write no leaderboard, only run files.", COLLECT, "--no-page")] = False,
    **options: Any,
) -> Output:
    """Rank policies over several tasks with one budget, and write a leaderboard.

    Policies and environments of the file may be "module:attribute", which runs Python code: read a foreign file
    first. The same command resumes it. After tasks, policies or the budget have changed, only what is new is simulated.
    """
    if not no_page:
        from rido.plots.report import require_extras

        require_extras()
    folder, suite = _folder(file, output), Suite.read(file)
    policies = {str(policy) for named in suite.policies.values() for policy in named.values()}
    options["trust"] = may_run_code(*sorted(policies), trust=options["trust"])
    if isinstance(options["simulator"], partial):  # of --ray, which all tasks share
        options["simulator"] = ray_simulator(options["simulator"].keywords["address"], options["workers"])
        options["workers"] = 1
    board = suite.run(folder / "trajectories", **options)
    page = None
    if not no_page:
        from rido.plots.leaderboard import write_leaderboard

        page = write_leaderboard(board, folder)
    summary = board.summary() if page is None else f"{board.summary()}\nleaderboard: {page}"
    return Output({**board.to_dict(), "page": None if page is None else str(page)}, summary)
