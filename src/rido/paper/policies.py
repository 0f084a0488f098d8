"""Finds the trained agent of a domain: a shipped one, or one of the paper's from a folder or the hub."""

from __future__ import annotations

import hashlib
import urllib.error
import urllib.request
import warnings
from pathlib import Path

from rido.paper.domains import Domain
from rido.paper.storage import write_whole
from rido.policies.resolve import shipped_agent

HUB = "https://huggingface.co/sb3"
"""Where the agents of the RL Baselines3 Zoo are."""

_TIMEOUT = 60  # seconds
_MOST_BYTES = 256 * 2**20  # of one downloaded file; the largest agent of the paper has 2 MB

# SHA-256 of the agents that the published results were made with.
_KNOWN = {
    "ppo/HalfCheetah-v3/HalfCheetah-v3.zip": "9355d4bbf5ec376928a04d932da06ad4d9853e7c6fb31e18cf33402b35b8c928",
    "ppo/HalfCheetah-v3/vecnormalize.pkl": "3cf58648c8d025a8d56142ca9599d95672ae546b3c2b058a2891f36de463652b",
    "ppo/Pendulum-v1/Pendulum-v1.zip": "956ea765d421b8a03113f3a681034047eb5a0f4d6aa1f018edb7604b5ac889b4",
    "trpo/Ant-v3/Ant-v3.zip": "0eb714441d2cd0898dd30531b2ad4fccd4adfa8f798c037c4e0095d81017178e",
    "trpo/Ant-v3/vecnormalize.pkl": "df15edbfd9f626b2d58d1a652200ae00016dba59d0f80c0c0a7cfaa934719531",
    "trpo/Swimmer-v3/Swimmer-v3.zip": "0c040fd829ec44d05901cca71a633b3734c9bb15fe0e25ebf75820b1b4b45ac2",
    "trpo/Swimmer-v3/vecnormalize.pkl": "19b9b18c95b5a9c5f21d9ebe17a8df9b035caa2f87879a2b42254bc5a2c01e9b",
}


def find_policy(domain: Domain, agents: str | Path | None, downloads: Path, hub: str = HUB) -> Path | None:
    """Returns the file of the agent that acts in a domain; None where the domain has its own policy.

    Agents of the zoo are loaded without trust, so their files run no code. A download that is not the file
    that the published results were made with gives a warning. The shipped agents are plain arrays.

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
    for file in (path, path.with_name("vecnormalize.pkl")):
        known = _KNOWN.get(file.relative_to(downloads).as_posix())
        if file.exists() and hashlib.sha256(file.read_bytes()).hexdigest() != known:
            warnings.warn(f"{file} is not the agent that the published results were made with", stacklevel=2)
    return path


def _fetch(address: str, path: Path, *, needed: bool) -> None:
    try:
        with urllib.request.urlopen(address, timeout=_TIMEOUT) as response:
            content = response.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise ValueError(f"the agent at {address} must have at most {_MOST_BYTES:,} bytes, got more")
        with write_whole(path) as file:
            file.write(content)
    except urllib.error.HTTPError as error:
        if needed or error.code != 404:
            raise ConnectionError(f"the agent at {address} could not be downloaded: {error}") from error
    except urllib.error.URLError as error:
        raise ConnectionError(f"the agent at {address} could not be downloaded: {error.reason}") from error
