"""Agents on the Hugging Face hub, named ``hf:org/name``; needs the extra ``hub``."""

from __future__ import annotations

import re
from pathlib import Path

PREFIX = "hf:"
"""Of the names of agents on the hub."""

_NAME = re.compile(r"hf:(?P<repo>[^/@\s]+/[^/@\s]+)(?:@(?P<revision>[^/\s]+))?(?:/(?P<file>\S+))?")
_SUFFIXES = (".zip", ".onnx", ".npz")


def download(name: str) -> Path:
    """Download an agent's file, with what it needs beside it, into the cache of huggingface_hub.

    Args:
        name: ``hf:org/name``, with a revision ``hf:org/name@revision``, and either with the file, as in
            ``hf:org/name@revision/file.zip``. A revision is a branch, a tag or a commit; only a commit always names the
            same files. Where no file is named, it is the one called as the repository, or the only one that is a zip,
            an ONNX file or an npz.

    Returns:
        The file in the cache.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        raise ValueError(f"policy must be hf:org/name, hf:org/name@revision or either with /file.zip, got {name!r}")
    try:
        import huggingface_hub  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise ImportError('An agent on the hub needs huggingface_hub: pip install "rido[hub]"') from error
    repo, file = found["repo"], found["file"]
    wanted = [f"*{suffix}" for suffix in _SUFFIXES] if file is None else [file]
    patterns = [*wanted, *(f"{pattern}.data" for pattern in wanted), "*vec_normalize.pkl", "*vecnormalize.pkl"]
    try:
        folder = Path(huggingface_hub.snapshot_download(repo, revision=found["revision"], allow_patterns=patterns))
    except OSError as error:  # also where the hub does not have it, or cannot be reached and the cache is empty
        raise ConnectionError(f"{name} could not be downloaded: {error}") from error
    return folder / (file or _only_agent(name, repo, folder))


def _only_agent(name: str, repo: str, folder: Path) -> Path:
    known = sorted(path for path in folder.rglob("*") if path.suffix in _SUFFIXES)
    named = [path for path in known if path.stem == repo.rpartition("/")[2]]
    chosen = named if len(named) == 1 else known
    if len(chosen) != 1:
        listed = ", ".join(path.relative_to(folder).as_posix() for path in known) or "none"
        raise ValueError(f"policy must name its file, as in {PREFIX}{repo}/agent.zip, got {name!r}; agents: {listed}")
    return chosen[0]
