"""Extras: the line that installs a package which is missing."""

import re
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

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
_ENVIRONMENTS = {"ALE/": "ale_py", "BabyAI-": "minigrid", "MiniGrid-": "minigrid"}  # by how ids begin


def missing_package(error: Exception) -> str:
    """Returns why an import failed, with the line that installs what is missing where that is known.

    Example:
        >>> missing_package(ModuleNotFoundError("No module named 'brax'", name="brax"))
        'brax is not installed: pip install brax'
    """
    name = getattr(error, "name", None)
    known = isinstance(error, ModuleNotFoundError) and name in _INSTALL
    return f"{name} is not installed: pip install {_INSTALL[str(name)]}" if known else str(error)


def import_extra(what: str, module: str, extra: str) -> Any:
    """Imports a module of an extra that something needs.

    Raises:
        ImportError: It is not installed; the message has the line that installs it.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f'{what} needs {module.partition(".")[0]}: pip install "rido[{extra}]"') from error


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
    found: dict[str, int] = {}  # how unlikely a module is
    for package in metadata.distributions():
        if package.name == "gymnasium" or not any(re.match(r"gymnasium(?![\w-])", n) for n in package.requires or ()):
            continue
        for file in package.files or ():
            path = Path(str(file.locate()))
            if file.name in ("__init__.py", "registration.py") and path.is_file():
                source = path.read_text(errors="replace")
                ranks = [rank for rank, text in enumerate(likely) if f'"{text}' in source or f"'{text}" in source]
                if ranks and re.search(r"\bregister\w*\(", source):
                    found[".".join(file.parent.parts)] = ranks[0]
    return sorted(module for module, rank in found.items() if rank == min(found.values()))[:3]
