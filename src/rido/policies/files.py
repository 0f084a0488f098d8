"""Several policies at once: lists, folders and patterns of checkpoints, and the names that they get."""

import glob
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rido.core import checks
from rido.policies.functions import function_name
from rido.policies.loaders import LOADERS, agent_files
from rido.policies.resolve import is_path


def named_policies(policies: Mapping[str, Any] | Sequence[Any] | str | Path) -> dict[str, Any]:
    """Returns policies by their names.

    Args:
        policies: a dictionary by name, a list, a folder, or a pattern of files such as "checkpoints/*.zip". Files are
            named by what tells their paths apart, functions by their own names.

    Returns:
        At least two policies, each as it was given; files in the order of the numbers in their names.
    """
    if isinstance(policies, Mapping):
        named = {str(name): policy for name, policy in policies.items()}
    elif isinstance(policies, (str, Path)):
        named = _by_name(checkpoints(policies))
    else:
        named = _by_name(checks.instance("policies", policies, list, tuple))
    if not 2 <= len(named) <= 100:
        raise ValueError(f"policies must be 2 to 100, got {len(named)}: {checks.shown([*named])}")
    return named


def parse_policies(texts: Sequence[str]) -> dict[str, Any]:
    """Returns policies by their names, from a command line: policies, folders or patterns; NAME=POLICY names one."""
    found: list[tuple[str | None, Any]] = []
    for text in texts:
        name, equals, policy = text.partition("=")
        files = glob.glob(text, recursive=True) or agent_files(text)
        if equals and name and not files:  # runs/lr=0.1/best.zip has no name
            found.append((name, policy))
        elif Path(text).is_dir() or (glob.has_magic(text) and not Path(text).is_file()):
            found += [(None, file) for file in checkpoints(text)]
        else:
            found.append((None, text))
    others = iter(_by_name([policy for name, policy in found if name is None]))
    names = [next(others) if name is None else name for name, _ in found]
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise ValueError(f"policies must have different names, got {repeated[0]} more than once: give NAME=POLICY")
    return named_policies(dict(zip(names, (policy for _, policy in found), strict=True)))


def checkpoints(place: str | Path) -> list[Path]:
    """Returns the agents' files in a folder or of a pattern, in the order of the numbers in their names."""
    path = Path(place)
    if path.is_dir():
        found = [file for file in path.iterdir() if file.suffix in LOADERS]
    else:
        found = [Path(file) for file in glob.glob(str(place), recursive=True) if Path(file).is_file()]
    if not found:
        raise ValueError(f"policies must be a folder or pattern of {' or '.join(LOADERS)} files, got {str(place)!r}")
    # step_9.zip comes before step_10.zip
    return sorted(found, key=lambda file: [part.zfill(20 * part.isdigit()) for part in re.split(r"(\d+)", str(file))])


def _by_name(policies: Sequence[Any]) -> dict[str, Any]:
    names = [_name(policy) for policy in policies]
    paths = {index: Path(str(policy)) for index, policy in enumerate(policies) if is_path(policy)}
    for depth in range(2, 5):  # folders tell apart files of the same name
        often = Counter(names)
        for index, path in paths.items():
            if often[names[index]] > 1:
                names[index] = "/".join(path.with_suffix("").parts[-depth:])
    often, seen = Counter(names), Counter[str]()
    for index, name in enumerate(names):
        if often[name] > 1:
            seen[name] += 1
            names[index] = f"{name} {seen[name]}"
    return dict(zip(names, policies, strict=True))


def _name(policy: Any) -> str:
    if is_path(policy):
        return Path(str(policy)).stem
    if isinstance(policy, str):
        return policy
    name = function_name(policy) if callable(policy) else type(policy).__name__
    return name.rpartition(".")[2]
