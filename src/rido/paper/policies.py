"""Finds the trained agent of a domain: a shipped one, or one of the paper's from a folder or the hub."""

import hashlib
import warnings
from functools import cache
from pathlib import Path

from rido.paper.domains import Domain
from rido.policies.hub import pinned
from rido.policies.loaders import agent_files
from rido.policies.resolve import shipped_agent

# SHA-256 of the agents that the published results were made with.
_KNOWN = {
    "9355d4bbf5ec376928a04d932da06ad4d9853e7c6fb31e18cf33402b35b8c928",  # ppo/HalfCheetah-v3/HalfCheetah-v3.zip
    "3cf58648c8d025a8d56142ca9599d95672ae546b3c2b058a2891f36de463652b",  # ppo/HalfCheetah-v3/vecnormalize.pkl
    "956ea765d421b8a03113f3a681034047eb5a0f4d6aa1f018edb7604b5ac889b4",  # ppo/Pendulum-v1/Pendulum-v1.zip
    "0eb714441d2cd0898dd30531b2ad4fccd4adfa8f798c037c4e0095d81017178e",  # trpo/Ant-v3/Ant-v3.zip
    "df15edbfd9f626b2d58d1a652200ae00016dba59d0f80c0c0a7cfaa934719531",  # trpo/Ant-v3/vecnormalize.pkl
    "0c040fd829ec44d05901cca71a633b3734c9bb15fe0e25ebf75820b1b4b45ac2",  # trpo/Swimmer-v3/Swimmer-v3.zip
    "19b9b18c95b5a9c5f21d9ebe17a8df9b035caa2f87879a2b42254bc5a2c01e9b",  # trpo/Swimmer-v3/vecnormalize.pkl
}


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
        if hashlib.sha256(file.read_bytes()).hexdigest() not in _KNOWN:
            warnings.warn(f"{file} is not the agent that the published results were made with", stacklevel=2)
    return path
