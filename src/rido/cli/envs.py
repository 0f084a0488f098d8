"""``rido envs``: the environments and agents that come with rido."""

from typing import Annotated, Any

from rido.cli.options import Output, command, option

_DOMAINS = {
    "rido/LQG-v0": ("A linear system with quadratic rewards; all that matters happens early.", "optimal feedback"),
    "rido/Navigation-v0": ("A walk to a far goal, and rewards only there: all that matters happens late.", "expert"),
    "rido/FirstStep-v0": ("Only the first step pays: every later transition is wasted.", "random"),
    "rido/LastStep-v0": ("Only the last step pays: uniform evaluation is best.", "random"),
}


@command()
def envs_command(
    everything: Annotated[bool, option("Gymnasium's environments too.", None, "--all")] = False,
) -> Output:
    """List the environments and agents that come with rido, and with --all the environments that Gymnasium knows."""
    rows, agents = _environments(everything), _agents()
    return Output({"environments": rows, "agents": agents}, lambda: _show(rows, agents, everything))


def _show(rows: list[dict[str, Any]], agents: list[dict[str, Any]], everything: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    columns = {"environment": "id", "policy": "policy", "what it is": "description"}
    if everything:
        columns = {"environment": "id", "time limit": "time_limit", **columns}
    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*("" if row[key] is None else str(row[key]) for key in columns.values()))
    table_of_agents = Table("agent", "environment", "arguments", "mean return", box=None, pad_edge=False)
    for agent in agents:
        arguments = " ".join(f"--env-kwarg {name}={value}" for name, value in agent["env_kwargs"].items())
        table_of_agents.add_row(agent["policy"], agent["env"], arguments, f"{agent['mean']:,.4g}")
    Console(highlight=False, markup=False).print(table, "", table_of_agents, sep="\n")


def _agents() -> list[dict[str, Any]]:
    """Returns name, environment, its arguments and mean undiscounted return of each agent that comes with rido."""
    from rido.policies.npz import MlpPolicy
    from rido.policies.resolve import shipped_agent, shipped_agents

    abouts = {name: MlpPolicy.load(shipped_agent(name)).about for name in shipped_agents()}
    return [
        {"policy": name, **{key: about[key] for key in ("env", "env_kwargs", "mean")}} for name, about in abouts.items()
    ]


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
