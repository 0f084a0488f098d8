"""Reading files that may be hostile: pickles by an allowlist, and nothing that allocates much more than it has."""

import collections
import io
import math
import os
import pickle
import pickletools
import struct
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

MOST_BYTES = 4 * 2**30
"""Bytes that the content of an archive may declare. The largest agents of the RL Baselines3 Zoo have 60 MB."""

SMALL_BYTES = 64 * 2**20  # an archive that declares no more than this may be compressed as much as it likes
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
    "torch": {"device"},
}
_CONTAINERS = (collections.OrderedDict, collections.deque, set, frozenset, slice, complex)


def _bit_generator(name: Any) -> Any:
    if isinstance(name, np.random.BitGenerator):
        return name
    found = name if isinstance(name, str) else name.__name__
    return getattr(np.random, found)(0) if found in _BIT_GENERATORS else None  # its state follows; None is refused


def _scalar(dtype: np.dtype[Any], content: bytes = b"") -> Any:
    if len(content) != dtype.itemsize:
        raise ValueError(f"numbers must have {dtype.itemsize} bytes, got {len(content)}")
    return np.frombuffer(content, dtype)[0]


# In place of functions whose arguments could ask for any size, or for a device that this machine does not have.
_LIMITED: dict[str, Any] = {
    "_reconstruct": lambda *_: np.empty(0),  # the content comes afterwards
    "scalar": _scalar,
    "dtype": lambda *arguments: np.dtype(*arguments),  # a class would be refused
    "__randomstate_ctor": lambda name, *_: np.random.RandomState(_bit_generator(name)),
    "__generator_ctor": lambda name, *_: np.random.Generator(_bit_generator(name)),
    "__bit_generator_ctor": _bit_generator,
    "device": lambda *_: "cpu",
}
_BYTEARRAY = ("bytearray", "builtins bytearray", "__builtin__ bytearray")  # torch calls it with any size
_PACKAGES = ("gymnasium.spaces", "torch.nn.modules", "torch.optim", "stable_baselines3", "sb3_contrib")


class UntrustedFileError(ValueError):
    """A file would run code when it is read, and the user did not say that it may."""


def unpickle(content: bytes, path: Path, *, trust: bool) -> Any:
    """Reads a pickle from an agent's files, saved with gymnasium or the old gym.

    If it may not run code, it may use the classes of spaces, networks, optimizers and statistics, and arrays, and it
    cannot ask for more memory than its content has.
    """
    return _Unpickler(content, path, trust).load()


_InPython: Any = pickle._Unpickler  # its opcodes can be limited


class _Unpickler(_InPython):  # type: ignore[misc]
    def __init__(self, content: bytes, path: Path, trust: bool) -> None:
        super().__init__(io.BytesIO(content))
        self._path, self._trust, self._size = path, trust, len(content)
        if not trust:
            self.dispatch = self.limited

    def load_bytearray8(self) -> None:
        """Allocates no more than there is, whatever length is declared."""
        (size,) = struct.unpack("<Q", self.read(8))
        self.append(bytearray(self.read(min(size, self._size))))

    def load_reduce(self) -> None:
        self._limit()
        super().load_reduce()

    def load_newobj(self) -> None:
        self._limit()
        super().load_newobj()

    def _limit(self) -> None:
        """Refuses to construct what could allocate any size; pickles make objects without arguments, then fill them."""
        found, arguments = self.stack[-2:]
        if arguments and isinstance(found, type) and found not in _CONTAINERS:
            raise self._refused(f"{found.__module__}.{found.__qualname__}(...)")

    limited: ClassVar[dict[int, Any]] = dict(_InPython.dispatch)
    limited |= {pickle.BYTEARRAY8[0]: load_bytearray8, pickle.REDUCE[0]: load_reduce, pickle.NEWOBJ[0]: load_newobj}
    for opcode in (pickle.NEWOBJ_EX, pickle.OBJ, pickle.INST):  # other ways to call a class, which agents do not need
        del limited[opcode[0]]

    def find_class(self, module: str, name: str) -> Any:
        if module == "gym" or module.startswith("gym."):
            module = f"gymnasium{module[3:]}"
        if self._trust:
            return super().find_class(module, name)
        if name in _PLAIN.get(module, ()):
            return _LIMITED.get(name) or super().find_class(module, name)
        # No dots in the name: they would lead from a class to its methods and on to modules.
        listed = module in ("numpy", "numpy.dtypes") or f"{module}.".startswith(tuple(f"{name}." for name in _PACKAGES))
        if listed and "." not in name:
            found = super().find_class(module, name)
            if isinstance(found, type) and issubclass(found, _known_classes()):
                return found
        raise self._refused(f"{module}.{name}")

    def _refused(self, what: str) -> UntrustedFileError:
        return UntrustedFileError(
            f"{self._path} uses {what}, and loading it may run any code: if you trust the file, say so with --trust, "
            "RIDO_TRUST=1 or trust=True"
        )


def _known_classes() -> tuple[type, ...]:
    """Classes that hold an agent's spaces, networks and statistics, and whose constructors touch nothing else."""
    import gymnasium
    import torch
    from stable_baselines3.common.buffers import BaseBuffer
    from stable_baselines3.common.running_mean_std import RunningMeanStd
    from stable_baselines3.common.vec_env import VecNormalize

    networks = (torch.nn.Module, torch.optim.Optimizer, BaseBuffer)
    return (np.generic, np.dtype, gymnasium.Space, VecNormalize, RunningMeanStd, *networks)


def check_declared_sizes(archive: zipfile.ZipFile, size: int) -> None:
    """Refuses a zip of ``size`` bytes that would grow too much, by the sizes that it declares: no more is ever read."""
    declared = sum(entry.file_size for entry in archive.infolist())
    if declared > MOST_BYTES or declared > max(SMALL_BYTES, _MOST_COMPRESSION * size):
        raise ValueError(
            f"its content must be at most {MOST_BYTES / 2**30:.0f} GiB and {_MOST_COMPRESSION} times its {size:,} "
            f"bytes, got {declared:,} bytes"
        )


def check_weights(content: bytes) -> None:
    """Refuses weights of torch, a zip or the older sequence of pickles, that ask for more memory than they have."""
    pickles = [content]
    if zipfile.is_zipfile(io.BytesIO(content)):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            check_declared_sizes(archive, len(content))
            pickles = [archive.read(name) for name in archive.namelist() if name.endswith(".pkl")]
    most = max(SMALL_BYTES, len(content))
    for file in map(io.BytesIO, pickles):
        with suppress(ValueError):  # numbers follow the last pickle
            while True:
                for _, argument, _ in pickletools.genops(file):
                    # Older files name tensors by their addresses, which are larger than any size that can be allocated.
                    if (isinstance(argument, int) and most < argument < 2**40) or argument in _BYTEARRAY:
                        raise MemoryError(f"weights must be at most {most:,} numbers, got {argument!r:.40}")


def check_space(space: Any) -> None:
    """Refuses a space whose samples have more than 64 million numbers."""
    spaces = getattr(space, "spaces", ())
    for part in spaces.values() if isinstance(spaces, Mapping) else spaces:
        check_space(part)
    if (size := math.prod(getattr(space, "shape", None) or ())) > SMALL_BYTES:
        raise MemoryError(f"spaces must have at most {SMALL_BYTES:,} numbers, got {size:.3g}")


@contextmanager
def limited_loading(most: int) -> Iterator[None]:
    """Lets SB3 load networks whose parameters have at most this many bytes, from files of tensors only.

    More raise a MemoryError before memory is written.
    """
    from torch.nn.modules.module import register_module_parameter_registration_hook

    total, tensors_only = 0, "TORCH_FORCE_WEIGHTS_ONLY_LOAD"  # SB3 before 2.4 unpickles weights without limits

    def count(module: Any, name: str, parameter: Any) -> None:
        nonlocal total
        total += 0 if parameter is None else parameter.nbytes
        if total > most:
            raise MemoryError(f"its networks must have at most {most:,} bytes, as its weights have")

    handle, before = register_module_parameter_registration_hook(count), os.environ.get(tensors_only)
    os.environ[tensors_only] = "1"
    try:
        yield
    finally:
        handle.remove()
        os.environ.pop(tensors_only)
        os.environ.update({} if before is None else {tensors_only: before})
