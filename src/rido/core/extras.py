"""Extras: the line that installs a package which is missing."""

from __future__ import annotations

import re
from importlib import import_module, metadata

_INSTALL = {  # by the name under which it is imported
    "ale_py": "ale-py",
    "brax": "brax",
    "envpool": '"rido[envpool]"',
    "flax": "flax",
    "gymnax": "gymnax",
    "huggingface_hub": "huggingface_hub",
    "jax": '"rido[jax]"',
    "jinja2": '"rido[report]"',
    "matplotlib": '"rido[plot]"',
    "minigrid": "minigrid",
    "mujoco": '"rido[mujoco]"',
    "onnxruntime": "onnxruntime",
    "ray": '"rido[ray]"',
    "sb3_contrib": '"rido[sb3]"',
    "stable_baselines3": '"rido[sb3]"',
    "torch": '"rido[sb3]"',
}
_ENVIRONMENTS = {"ALE/": "ale_py", "BabyAI-": "minigrid", "MiniGrid-": "minigrid"}  # who registers ids that begin so


def missing_package(error: Exception) -> str:
    """Returns why an import failed, with the line that installs what is missing where that is known.

    Example:
        >>> missing_package(ModuleNotFoundError("No module named 'brax'", name="brax"))
        'brax is not installed: pip install brax'
    """
    name = getattr(error, "name", None)
    known = isinstance(error, ModuleNotFoundError) and name in _INSTALL
    return f"{name} is not installed: pip install {_INSTALL[str(name)]}" if known else str(error)


def import_package_of(env_id: str) -> None:
    """Imports the well-known package, if there is one, that registers environments with ids like this.

    Raises:
        ImportError: It is not installed; the message has the line that installs it.
    """
    for beginning, package in _ENVIRONMENTS.items():
        if env_id.startswith(beginning):
            try:
                import_module(package)
            except ImportError as error:
                raise ImportError(f"{env_id} is an environment of {package}: {missing_package(error)}") from error


def packages_that_register(env_id: str) -> list[str]:
    """Returns at most three modules of installed packages that seem to register this id when they are imported.

    They are not imported. Their source registers environments, and has the id, its namespace or its first word.
    """
    namespace, _, name = env_id.rpartition("/")
    word = "".join(re.findall(r"^[A-Z]+[a-z]{3,}", name))
    likely = [text for text in (re.sub(r"-v\d+$", "", env_id), namespace and f"{namespace}/", word) if text]
    found: dict[str, int] = {}
    for package in metadata.distributions():
        needs = [re.split(r"[^\w-]", need)[0] for need in package.requires or ()]
        if package.name == "gymnasium" or "gymnasium" not in needs:
            continue
        for file in package.files or ():
            if file.name in ("__init__.py", "registration.py") and (path := file.locate()).is_file():
                source = path.read_text(errors="replace")
                ranks = (place for place, text in enumerate(likely) if f'"{text}' in source or f"'{text}" in source)
                rank = next(ranks, None)
                if rank is not None and re.search(r"\bregister\w*\(", source):
                    module = ".".join(file.parent.parts)
                    found[module] = min(rank, found.get(module, rank))
    best = min(found.values(), default=0)
    return [module for module, rank in sorted(found.items()) if rank == best][:3]
