"""The files that hold agents: each type is known by its suffix.

Another type is one more module here with a subclass of :class:`~rido.policies.base.Policy`, and a row of ``LOADERS``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rido.core import checks
from rido.policies import onnx, sb3_zip
from rido.policies.base import Policy, Space
from rido.policies.npz import MlpPolicy


@dataclass(frozen=True)
class Loader:
    """A type of file that holds an agent.

    Attributes:
        what: What messages call such a file.
        load: ``load(path, observation_space, action_space, deterministic=..., trust=...)`` makes the policy; the file
            exists.
        beside: The files beside an agent's that loading it reads where they exist, by the agent's path.
        named: Existing files beside it that are not read, but named in a warning.
        code_needed: What loading a file would run of other people's code, or None; not given if such files cannot run
            code.
    """

    what: str
    load: Callable[..., Policy]
    beside: Callable[[Path], Sequence[Path]] = lambda path: ()
    named: Callable[[Path], Sequence[Path]] = lambda path: ()
    code_needed: Callable[[Path], str | None] | None = None


LOADERS: dict[str, Loader] = {
    ".zip": Loader(
        "zip",
        sb3_zip.load_agent,
        beside=sb3_zip.statistics_files,
        named=sb3_zip.similar_files,
        code_needed=sb3_zip.code_needed,
    ),
    ".npz": Loader(
        "npz",
        lambda path, *spaces, deterministic, trust: MlpPolicy.load(path, deterministic=deterministic).fits(*spaces),
    ),
    ".onnx": Loader(
        "ONNX file",
        lambda path, *spaces, deterministic, trust: onnx.OnnxPolicy(path, *spaces, deterministic=deterministic),
        beside=lambda path: [onnx.weights_file(path)],
    ),
}
"""By the suffix of the files' names. The first one also takes files with another suffix, and paths without theirs."""

_DEFAULT = next(iter(LOADERS))


def loader_of(path: str | Path) -> Loader:
    """The loader of a file."""
    return LOADERS.get(Path(path).suffix, LOADERS[_DEFAULT])


def is_agent_file(path: str | Path) -> bool:
    """Whether a path has the suffix of an agent's file, or is that of a file, with or without the suffix ``.zip``."""
    return Path(path).suffix in LOADERS or _found(path).is_file()


def load(
    path: str | Path, observation_space: Space, action_space: Space, *, deterministic: bool, trust: bool
) -> Policy:
    """Loads the policy in a file; the arguments are those of :func:`rido.policies.resolve.resolve_policy`."""
    path = _existing(path)
    return loader_of(path).load(path, observation_space, action_space, deterministic=deterministic, trust=trust)


def code_needed(path: str | Path) -> str | None:
    """What loading an agent's file would run of other people's code; None if nothing."""
    needed = loader_of(path := _existing(path)).code_needed
    return None if needed is None else needed(path)


def agent_files(path: str | Path) -> list[Path]:
    """The existing files of an agent: its own, then those beside it that loading it reads or names; none without it."""
    path, loader = _found(path), loader_of(path)
    files = [file for file in (*loader.beside(path), *loader.named(path)) if file.is_file()]
    return [path, *files] if path.is_file() else []


def _found(path: str | Path) -> Path:
    """The path of an agent's file, also where it is given without the suffix ``.zip``."""
    path = Path(path)
    has_suffix = path.is_file() or path.suffix in LOADERS or not path.name
    return path if has_suffix else path.with_name(f"{path.name}{_DEFAULT}")


def _existing(path: str | Path) -> Path:
    path = _found(path)
    if not path.is_file():
        raise ValueError(f"policy must be the path of an existing {loader_of(path).what}, got {path}")
    return Path(checks.path("policy", path))
