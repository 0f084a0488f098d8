"""Finds the trained agent of a domain: a shipped one, or one of the paper's from a folder or the hub."""

import hashlib
import warnings
from functools import cache
from pathlib import Path

from rido.paper.domains import TABLES, Domain
from rido.policies.hub import pinned
from rido.policies.loaders import agent_files
from rido.policies.resolve import shipped_agent


def find_policy(domain: Domain, agents: str | Path | None) -> Path | None:
    """Returns the file of the agent that acts in a domain; None where the domain has its own policy.

    Agents of the zoo are loaded without trust, so their files run no code. The shipped agents are plain arrays.

    Args:
        domain: the domain.
        agents: a folder of the RL Baselines3 Zoo (``ppo/Pendulum-v1/Pendulum-v1.zip`` and so on), "hub" to download
            them, or None for the shipped ones, which are also used where the zoo has none.
    """
    if not domain.trained:
        return None
    shipped = shipped_agent(f"rido:{domain.name}")
    if agents is None or domain.zoo is None:
        return shipped
    algorithm, env = domain.zoo
    if agents == "hub":
        return _of_hub(f"hf:sb3/{algorithm}-{env}")
    folder = Path(agents)
    if not folder.is_dir():
        raise ValueError(f'agents must be a folder of trained agents or "hub", got {agents}')
    path = folder / algorithm / env / f"{env}.zip"
    return path if path.is_file() else shipped


@cache
def _of_hub(name: str) -> Path:
    """Downloads an agent; one that is not that of the published results gives a warning."""
    path: Path = pinned(name).path
    for file in agent_files(path):
        if hashlib.sha256(file.read_bytes()).hexdigest() not in TABLES["known"]:
            warnings.warn(f"{file} is not the agent that the published results were made with", stacklevel=2)
    return path
