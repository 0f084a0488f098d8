"""Finds the trained agent of a domain: a shipped one, or one of the paper's from a folder or the hub."""

from __future__ import annotations

import shutil
import urllib.error
import urllib.request
from pathlib import Path

from rido.paper.domains import Domain
from rido.paper.storage import write_whole
from rido.policies.resolve import shipped_agent

HUB = "https://huggingface.co/sb3"
"""Where the agents of the RL Baselines3 Zoo are."""

_TIMEOUT = 60


def find_policy(domain: Domain, agents: str | Path | None, downloads: Path, hub: str = HUB) -> Path | None:
    """Returns the file of the agent that acts in a domain; None where the domain has a policy of its own.

    Loading an agent of the zoo unpickles it, and a pickle runs code: name a folder, or the hub, only if you trust it.
    The shipped ones are plain arrays.

    Args:
        domain: the domain.
        agents: a folder of the RL Baselines3 Zoo (``ppo/Pendulum-v1/Pendulum-v1.zip`` and so on), "hub" to download
            them, or None for the shipped ones, which are also used where the zoo has none.
        downloads: where downloaded agents are kept.
        hub: address of the hub.
    """
    if not domain.trained:
        return None
    shipped = shipped_agent(f"rido:{domain.name}")
    if agents is None or domain.zoo is None:
        return shipped
    algorithm, env = domain.zoo
    if agents == "hub":
        return _download(algorithm, env, downloads, hub)
    folder = Path(agents)
    if not folder.is_dir():
        raise ValueError(f'agents must be a folder of trained agents or "hub", got {agents}')
    path = folder / algorithm / env / f"{env}.zip"
    return path if path.is_file() else shipped


def _download(algorithm: str, env: str, downloads: Path, hub: str) -> Path:
    """Fetches an agent and, where there are any, the statistics of its observations."""
    path = downloads / algorithm / env / f"{env}.zip"
    if not path.exists():
        name = f"{algorithm}-{env}"
        source = f"{hub}/{name}/resolve/main"
        _fetch(f"{source}/vec_normalize.pkl", path.with_name("vecnormalize.pkl"), needed=False)
        _fetch(f"{source}/{name}.zip", path, needed=True)
    return path


def _fetch(address: str, path: Path, *, needed: bool) -> None:
    try:
        with urllib.request.urlopen(address, timeout=_TIMEOUT) as response, write_whole(path) as file:
            shutil.copyfileobj(response, file)
    except urllib.error.HTTPError as error:
        if needed or error.code != 404:
            raise ConnectionError(f"the agent at {address} could not be downloaded: {error}") from error
    except urllib.error.URLError as error:
        raise ConnectionError(f"the agent at {address} could not be downloaded: {error.reason}") from error
