"""Reading files that may be hostile: pickles by an allowlist, archives by their declared sizes."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MOST_BYTES = 4 * 2**30
"""Bytes that the content of an archive may declare. The largest agents of the RL Baselines3 Zoo have 60 MB."""

_SMALL_BYTES = 64 * 2**20  # an archive that declares no more than this may be compressed as much as it likes
_MOST_COMPRESSION = 100  # times; weights compress by 1.1, an archive of zeros by 1,000

# What rebuilds arrays, random generators and containers, and does nothing else. Not numpy.memmap: it opens files.
_ARRAYS = {"_reconstruct", "scalar", "_frombuffer"}
_GENERATORS = {"__randomstate_ctor", "__generator_ctor", "__bit_generator_ctor"}
_BIT_GENERATORS = {"MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64"}
_PLAIN: dict[str, set[str]] = {
    "numpy": {"dtype", "ndarray"},
    **{f"numpy.{core}.{module}": _ARRAYS for core in ("core", "_core") for module in ("multiarray", "numeric")},
    "numpy.random._pickle": _GENERATORS,
    **{f"numpy.random._{name}": _BIT_GENERATORS for name in ("mt19937", "pcg64", "philox", "sfc64")},
    "numpy.random.bit_generator": {"SeedSequence", "__pyx_unpickle_SeedSequence"},
    "collections": {"OrderedDict", "deque"},
    "builtins": {"set", "frozenset", "slice", "complex"},
}
_PACKAGES = ("gymnasium.spaces", "torch.nn.modules", "torch.optim", "stable_baselines3", "sb3_contrib")


class UntrustedFileError(ValueError):
    """A file would run code when it is read, and the user did not say that it may."""


def unpickle(content: bytes, path: Path, *, trust: bool) -> Any:
    """Read a pickle from an agent's files, saved with gymnasium or the old gym.

    Args:
        content: The pickle.
        path: The file that it came from, for errors.
        trust: Whether it may run code. If not, it may use the classes of spaces, networks, optimizers and statistics,
            and arrays.
    """
    return _Unpickler(content, path, trust).load()


class _Unpickler(pickle.Unpickler):
    def __init__(self, content: bytes, path: Path, trust: bool) -> None:
        super().__init__(io.BytesIO(content))
        self._path, self._trust = path, trust

    def find_class(self, module: str, name: str) -> Any:
        if module == "gym" or module.startswith("gym."):
            module = f"gymnasium{module[3:]}"
        if self._trust or name in _PLAIN.get(module, ()):
            return super().find_class(module, name)
        # No dots in the name: they would lead from a class to its methods and on to modules.
        listed = module in ("numpy", "numpy.dtypes") or f"{module}.".startswith(tuple(f"{name}." for name in _PACKAGES))
        if listed and "." not in name:
            found = super().find_class(module, name)
            if isinstance(found, type) and issubclass(found, _known_classes()):
                return found
        raise UntrustedFileError(
            f"{self._path} uses {module}.{name}, and loading it may run any code: if you trust the file, say so with "
            "--trust, RIDO_TRUST=1 or trust=True"
        )


def _known_classes() -> tuple[type, ...]:
    """Classes that hold an agent's spaces, networks and statistics, and whose constructors touch nothing else."""
    import gymnasium
    import numpy as np
    import torch
    from stable_baselines3.common.buffers import BaseBuffer
    from stable_baselines3.common.running_mean_std import RunningMeanStd
    from stable_baselines3.common.vec_env import VecNormalize

    networks = (torch.nn.Module, torch.optim.Optimizer, BaseBuffer)
    return (np.generic, np.dtype, gymnasium.Space, VecNormalize, RunningMeanStd, *networks)


def check_declared_sizes(archive: zipfile.ZipFile, size: int) -> None:
    """Refuse a zip that would grow too much, by the sizes that it declares: no more is ever read.

    Args:
        archive: The zip.
        size: Bytes of its file.
    """
    declared = sum(entry.file_size for entry in archive.infolist())
    if declared > MOST_BYTES or declared > max(_SMALL_BYTES, _MOST_COMPRESSION * size):
        raise ValueError(
            f"its content must be at most {MOST_BYTES / 2**30:.0f} GiB and {_MOST_COMPRESSION} times its {size:,} "
            f"bytes, got {declared:,} bytes"
        )


@contextmanager
def plain_weights_only(wanted: bool) -> Iterator[None]:
    """Make torch read tensors only, whatever its caller says: SB3 before 2.4 unpickles weights without limits."""
    name = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(name)
    if wanted:
        os.environ[name] = "1"
    try:
        yield
    finally:
        if wanted:
            os.environ.pop(name)
            if before is not None:
                os.environ[name] = before
