"""Agents on the Hugging Face hub, named ``hf:org/name``; needs the extra ``hub``."""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from rido.core.extras import import_extra
from rido.policies.loaders import LOADERS, loader_of

PREFIX = "hf:"
"""Of the names of agents on the hub."""

_NAME = re.compile(r"hf:(?P<repo>\w[\w.-]*/\w[\w.-]*)(?:@(?P<revision>\w[\w.-]*))?(?:/(?P<file>\S+))?", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SECONDS = 10.0  # that the hub gets for an answer; huggingface_hub would wait indefinitely


@dataclass(frozen=True)
class HubAgent:
    """An agent of the hub whose files are here. It stays what it is when the hub gets another version.

    Attributes:
        name: as the user gave it.
        path: of the agent's file.
        remarks: what a reader of the result should know about where it comes from.
    """

    name: str
    path: Path
    remarks: tuple[str, ...] = ()


def pinned(policy: Any) -> Any:
    """Returns the agent that ``hf:org/name`` means now, or any other policy as it is.

    Its file, with what it needs beside it, is downloaded into the cache of huggingface_hub. Where the hub gives no
    answer, the cache is used.

    Args:
        policy: ``hf:org/name``, with a revision ``hf:org/name@revision``, and either with the file, as in
            ``hf:org/name@revision/file.zip``. A revision is a branch, a tag or a commit; only a commit always names the
            same files. Where no file is named, it is the one called as the repository, or the only one with the
            suffix of an agent.
    """
    if not isinstance(policy, str) or not policy.startswith(PREFIX):
        return policy
    found = _NAME.fullmatch(policy)
    if found is None or not _is_inside(found["file"] or "x"):
        raise ValueError(f"policy must be hf:org/name, hf:org/name@revision or either with /file.zip, got {policy!r}")
    hub = import_extra("an agent on the hub", "huggingface_hub", "hub")
    repo, revision, remarks = found["repo"], found["revision"] or "main", []
    try:
        commit, files = _listed(hub, repo, revision)
        file = found["file"] or _only_agent(policy, repo, files)
        folder = _fetched(hub, repo, revision, commit, _needed(file, files))
    except (_ChoiceError, hub.utils.RevisionNotFoundError) as error:
        raise ValueError(_line(error, policy)) from error
    except Exception as failure:  # whatever a server or a proxy may answer: HTML, redirects, half a file
        try:
            folder = Path(hub.snapshot_download(repo, revision=revision, local_files_only=True))
        except Exception:
            raise ConnectionError(_line(failure, policy)) from failure
        files = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
        file = found["file"] or _only_agent(policy, repo, files)
        if file not in files:
            raise ConnectionError(_line(failure, policy)) from failure
        if not hub.constants.HF_HUB_OFFLINE:
            remarks.append(f"{policy} is commit {folder.name[:8]} in the cache, because the hub gave no good answer")
    used = _needed(file, files)
    unused = [each for each in files if each not in used and re.search(r"vec_?normalize\.pkl$", each)]
    if unused and file.endswith(".zip"):
        remarks.append(f"{policy} has {', '.join(unused)} in another folder than the agent, which was not used")
    return HubAgent(policy, folder / file, tuple(remarks))


class _ChoiceError(ValueError):
    """The name leaves open which file is meant."""


def _listed(hub: Any, repo: str, revision: str) -> tuple[str, list[str]]:
    """Returns the commit that a revision is now, and its files."""
    try:
        info = hub.HfApi().model_info(repo, revision=revision, timeout=_SECONDS)
        files = [each.rfilename for each in info.siblings or () if _is_inside(each.rfilename)]
        if not _COMMIT.fullmatch(info.sha):
            raise ValueError(f"commit {info.sha!r:.80}")
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ConnectionError(f"the answer is no list of files ({error!r:.100})") from error
    return info.sha, files


def _fetched(hub: Any, repo: str, revision: str, commit: str, files: Sequence[str]) -> Path:
    """Downloads files of a commit, all before the cache calls it the present one; returns their folder."""
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # it logs each attempt; the last one's error is raised
    try:
        for file in reversed(files):  # the agent last: where it is in the cache, so is all that it needs
            # Asked beforehand, because hf_hub_download asks for minutes where it gets no answer.
            hub.get_hf_file_metadata(hub.hf_hub_url(repo, file, revision=commit), timeout=_SECONDS)
            path = Path(hub.hf_hub_download(repo, file, revision=commit, etag_timeout=_SECONDS))
    finally:
        logger.setLevel(level)
    folder = path.parents[len(PurePosixPath(file).parts) - 1]
    if not _COMMIT.fullmatch(revision):
        reference = folder.parents[1] / "refs" / revision
        reference.parent.mkdir(parents=True, exist_ok=True)
        reference.write_text(commit)
    return folder


def _needed(file: str, files: Sequence[str]) -> list[str]:
    """Returns the agent's file and what is used beside it."""
    beside = (path.as_posix() for path in loader_of(file).beside(Path(file)))
    return [file, *(each for each in beside if each in files)]


def _only_agent(name: str, repo: str, files: Sequence[str]) -> str:
    known = sorted(file for file in files if PurePosixPath(file).suffix in LOADERS)
    named = [file for file in known if PurePosixPath(file).stem == repo.rpartition("/")[2]]
    chosen = named if len(named) == 1 else known
    if len(chosen) != 1:
        listed = ", ".join(known) or "none"
        raise _ChoiceError(f"policy must name its file, as in {PREFIX}{repo}/agent.zip, got {name!r}; agents: {listed}")
    return chosen[0]


def _is_inside(file: str) -> bool:
    """Whether the path of a file stays in the folder of its repository."""
    return "\\" not in file and not {"", ".", ".."} & set(file.split("/"))


def _line(error: Exception, name: str) -> str:
    text = " ".join((str(error) or type(error).__name__).split())
    return text if isinstance(error, _ChoiceError) else f"{name} could not be downloaded: {text:.300}"
