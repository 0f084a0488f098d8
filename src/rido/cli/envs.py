"""``rido envs``: what there is to evaluate in."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rido.cli.console import JsonOption, one_line_errors, print_json

_DOMAINS = {
    "rido/LQG-v0": ("A linear system with quadratic rewards; all that matters happens early.", "optimal feedback"),
    "rido/Navigation-v0": ("A walk to a far goal, and rewards only there: all that matters happens late.", "expert"),
    "rido/FirstStep-v0": ("Only the first step pays: every later transition is wasted.", "random"),
    "rido/LastStep-v0": ("Only the last step pays: uniform evaluation is best.", "random"),
}


def envs_command(
    everything: Annotated[bool, typer.Option("--all", help="Gymnasium's environments too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the environments that come with rido, and with --all those that Gymnasium knows."""
    with one_line_errors():
        rows = _environments(everything)
    if as_json:
        print_json({"environments": rows})
        return
    from rich.console import Console
    from rich.table import Table

    columns = {"environment": "id", "policy": "policy", "what it is": "description"}
    if everything:
        columns = {"environment": "id", "time limit": "time_limit", **columns}
    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*("" if row[key] is None else str(row[key]) for key in columns.values()))
    Console(highlight=False, markup=False).print(table)


def _environments(everything: bool) -> list[dict[str, Any]]:
    """Returns id, description, default policy and time limit of each environment."""
    import gymnasium as gym

    import rido.simulators.envs

    rows: list[dict[str, Any]] = []
    for env_id in [
        *rido.simulators.envs.ENV_IDS,
        *(sorted(set(gym.registry) - set(rido.simulators.envs.ENV_IDS)) if everything else ()),
    ]:
        description, policy = _DOMAINS.get(env_id, (None, None))
        limit = gym.registry[env_id].max_episode_steps
        rows.append({"id": env_id, "description": description, "policy": policy, "time_limit": limit})
    return rows
