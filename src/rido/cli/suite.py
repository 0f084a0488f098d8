"""``rido suite``: several policies in several tasks, described in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rido.cli.console import JsonOption, TrustOption, may_run_code, one_line_errors, print_json, stdout_to_stderr
from rido.cli.options import (
    COLLECT,
    EnvPoolOption,
    NumEnvsOption,
    RayOption,
    SimulatorOption,
    StepTimeoutOption,
    WorkersOption,
    chosen_simulator,
)
from rido.suite.suite import Suite, ray_simulator


def suite_command(
    file: Annotated[Path, typer.Argument(help="A TOML file: budget, [tasks.NAME], [policies].")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder of run files and pages (default: FILE without its suffix)."),
    ] = None,
    trust: TrustOption = False,
    num_envs: NumEnvsOption = None,
    workers: WorkersOption = 1,
    simulator: SimulatorOption = None,
    ray: RayOption = None,
    envpool: EnvPoolOption = False,
    step_timeout: StepTimeoutOption = None,
    no_page: Annotated[
        bool, typer.Option("--no-page", help="Write no leaderboard, only run files.", rich_help_panel=COLLECT)
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Rank policies over several tasks with one budget, and write a leaderboard.

    Policies and environments of the file may be "module:attribute", which runs Python code: read a foreign file
    first. The same command resumes it. After tasks, policies or the budget have changed, only what is new is simulated.
    """
    folder = file.with_suffix("") if output is None else output
    with one_line_errors(interrupted=f"stopped; the same command resumes {folder}"), stdout_to_stderr():
        if not no_page:
            from rido.plots.report import require_extras

            require_extras()
        suite = Suite.read(file)
        policies = {str(policy) for named in suite.policies.values() for policy in named.values()}
        trusted = [may_run_code(policy, trust) for policy in sorted(policies)]  # asks about each
        chosen = chosen_simulator(simulator, ray, envpool)
        if ray is not None:
            chosen, workers = ray_simulator(None if ray == "local" else ray, workers), 1
        board = suite.run(
            folder / "trajectories",
            workers=workers,
            num_envs=num_envs,
            simulator=chosen,
            step_timeout=step_timeout,
            trust=any(trusted),
        )
        page = None
        if not no_page:
            from rido.plots.leaderboard import write_leaderboard

            page = write_leaderboard(board, folder)
    if as_json:
        print_json({**board.to_dict(), "page": None if page is None else str(page)})
        return
    print(board.summary())
    if page is not None:
        print(f"leaderboard: {page}")
