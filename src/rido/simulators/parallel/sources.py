"""Does a worker run the same code as this process? Digests of the modules that both have imported.

A worker may be on another machine, or start after a module was edited; its trajectories would be of another
environment or policy, and nobody would see it in the numbers.
"""

import hashlib
import pickletools
import sys
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from rido.record.fingerprint import INSTALLED

_OWN = "rido"


class SameVersion:
    """Raises where it is unpickled with another version of rido, also one that does not know this class."""

    def __reduce__(self) -> tuple[object, ...]:
        version = sys.modules[_OWN].__version__
        message = f"workers must have rido {version} as this process, got {{rido.__version__}}"
        return exec, (f"import rido\nif rido.__version__ != {version!r}: raise ValueError(f{message!r})",)


def packages_of(pickles: Iterable[bytes]) -> frozenset[str]:
    """Returns the top-level packages that pickles name, and other words."""
    texts = (text for content in pickles for _, text, _ in pickletools.genops(content) if isinstance(text, str))
    named = {text.partition(":")[0].partition(".")[0] for text in texts}
    return frozenset(filter(str.isidentifier, named)) - sys.stdlib_module_names


def digests(packages: Collection[str]) -> dict[str, str]:
    """Returns what is known of imported modules: of rido, of these packages, and all that are not installed."""
    return {name: found for name, module in list(sys.modules.items()) if (found := _digest(name, module, packages))}


def different(theirs: Mapping[str, str] | None, packages: Collection[str], known: dict[str, str]) -> str | None:
    """Returns the first module that another process has in another version; ``known`` keeps what is known here."""
    if theirs is None:
        return _OWN
    for name, found in theirs.items():
        if name not in known:
            if name in packages and name not in sys.modules:  # an environment's, which only workers have made
                with suppress(Exception):
                    import_module(name)
            known[name] = _digest(name, sys.modules.get(name), packages)
        if known[name] and known[name] != found:
            return name
    return None


def _digest(name: str, module: ModuleType | None, packages: Collection[str]) -> str:
    """Returns a digest of a module's file, or the version of an installed package; empty for one that has no weight."""
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names or name == "__main__":
        return ""
    try:
        file = module.__file__ if module is not None else (spec := find_spec(name)) and spec.origin
    except (ImportError, AttributeError, ValueError):
        return ""
    if not isinstance(file, str):
        return ""
    installed = file.startswith(INSTALLED) and top != _OWN
    if (installed and top not in packages) or not Path(file).is_file():  # most: nothing is read
        return ""
    if installed and isinstance(version := getattr(sys.modules.get(top), "__version__", None), str):
        return version if name == top else ""
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()
