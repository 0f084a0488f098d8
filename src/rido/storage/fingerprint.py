"""Fingerprints: what a policy, a critic or a simulator is, by content.

A run file keeps them, so that a run goes on only with what it began with. A fingerprint is a digest of numbers and
code: arrays and parameters byte by byte; functions by their bytecode, constants, defaults, closures and the globals
that they read; objects by their class and what pickle would store of them. Two things do not count: where a random
generator stands, and the code of classes of installed packages, which are known by their names. The same content gives
the same fingerprint in any process of the same version of Python.
"""

from __future__ import annotations

import copyreg
import dis
import functools
import hashlib
import os
import random
import struct
import sys
import sysconfig
import types
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

_FOLDERS = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
_INSTALLED = tuple(f"{folder}{os.sep}" for folder in sorted(_FOLDERS | {str(Path(__file__).parents[1])}))
_GENERATORS = (np.random.Generator, np.random.BitGenerator, np.random.RandomState, random.Random)
_WRAPPERS = (
    types.CodeType,
    types.MethodType,
    functools.partial,
    property,
    functools.cached_property,
    staticmethod,
    classmethod,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
)
_DESCRIPTORS = (types.MemberDescriptorType, types.GetSetDescriptorType)
_GLOBAL_READS = ("LOAD_GLOBAL", "LOAD_NAME")


def identify(what: str, thing: Any) -> str:
    """Returns what tells something that a user gave from others: its attribute ``fingerprint``, or else its content.

    Args:
        what: "policy", "critic" or "simulator", for the error.
        thing: what was given.

    Raises:
        ValueError: the content cannot be read, and there is no attribute ``name`` that says what it is.
    """
    given = getattr(thing, "fingerprint", None)
    return given if isinstance(given, str) and given else content_of(what, thing)


def content_of(what: str, thing: Any) -> str:
    """Returns the fingerprint of the content, or the attribute ``name`` where that cannot be read."""
    try:
        return fingerprint(thing)
    except _OpaqueError as error:
        owner = getattr(thing, "__self__", thing)
        name = getattr(owner, "name", None)
        if isinstance(name, str) and name:
            return f"{type(owner).__qualname__} {name}"
        raise ValueError(
            f"{what} must have content that a run file can compare, got a {type(owner).__qualname__} with {error}: "
            f"give it an attribute name, another one for each {what}"
        ) from None


def fingerprint(*things: Any) -> str:
    """Returns the digest of the content of things, 64 hexadecimal digits.

    Example:
        >>> fingerprint(np.zeros(3)) == fingerprint(np.zeros(3)) != fingerprint(np.ones(3))
        True
    """
    return _Reader().read(things).hex()


class _OpaqueError(Exception):
    """Content that cannot be read; the message says what it is."""


class _Reader:
    """Reads content into digests. What refers back to something that is being read is known by how far up that is."""

    def __init__(self) -> None:
        self._depths: dict[int, int] = {}
        self._known: dict[int, tuple[Any, bytes]] = {}  # with the thing itself, so that its id stays its own

    def read(self, thing: Any) -> bytes:
        """Returns the digest of a thing."""
        if thing is None or thing is Ellipsis or thing is NotImplemented:
            return _digest(repr(thing))
        if type(thing) is int:
            return _digest("int", f"{thing:x}")
        if type(thing) in (bool, float, complex, str, bytes):
            return _digest(type(thing).__name__, repr(thing))
        if id(thing) in self._known:
            return self._known[id(thing)][1]
        if id(thing) in self._depths:
            return _digest("above", str(len(self._depths) - self._depths[id(thing)]))
        self._depths[id(thing)] = len(self._depths)
        try:
            found = self._content(thing)
        except RecursionError:
            raise _OpaqueError("content that is nested too deeply") from None
        finally:
            del self._depths[id(thing)]
        self._known[id(thing)] = thing, found
        return found

    def _content(self, thing: Any) -> bytes:
        kind = type(thing)
        if kind in (np.ndarray, np.memmap) or isinstance(thing, np.generic):
            return self._array(np.asarray(thing))
        if (numbers := _numbers(thing)) is not None:
            return _digest(kind.__name__, *numbers)
        if kind in (list, tuple):
            return self._sequence(kind.__name__, thing)
        if kind in (set, frozenset):
            return _digest("set", *sorted(self.read(part) for part in thing))
        if kind in (dict, OrderedDict, types.MappingProxyType):
            return self._mapping(thing)
        if isinstance(thing, _GENERATORS):
            return _digest("generator", kind.__name__)
        if isinstance(thing, types.ModuleType):
            return self._module(thing)
        if isinstance(thing, type):
            return self._class(thing)
        if isinstance(thing, types.FunctionType):
            return self._function(thing)
        if isinstance(thing, _WRAPPERS):
            return self._wrapper(thing)
        if _installed_class(kind) and hasattr(thing, "__wrapped__"):  # such as what jax.jit and functools.cache make
            return self._sequence(kind.__qualname__, [thing.__wrapped__])
        return self._object(thing)

    def _sequence(self, kind: str, parts: Iterable[Any]) -> bytes:
        return _digest(kind, *(self.read(part) for part in parts))

    def _mapping(self, thing: Mapping[Any, Any]) -> bytes:
        keys = sorted(((self.read(key), key) for key in thing), key=lambda pair: pair[0])
        return _digest("dict", *(part for digest, key in keys for part in (digest, self.read(thing[key]))))

    def _array(self, array: Any) -> bytes:
        if array.dtype.hasobject:
            return _digest("objects", str(array.shape), self._sequence("list", array.ravel().tolist()))
        form = f"{array.dtype.name} {array.dtype.descr} {array.shape}"
        return _digest("array", form, np.ascontiguousarray(array).tobytes())

    def _module(self, module: types.ModuleType) -> bytes:
        file = getattr(module, "__file__", None)
        if module.__name__ == "__main__" or file is None or file.startswith(_INSTALLED):
            return _digest("module", module.__name__)
        return _digest("module", module.__name__, Path(file).read_bytes() if Path(file).is_file() else b"")

    def _class(self, kind: type) -> bytes:
        name = f"{kind.__module__}.{kind.__qualname__}"
        if _installed_class(kind):
            return _digest("class", name)
        parts = [self.read(base) for base in kind.__bases__]
        for key, member in sorted(vars(kind).items()):
            data = not isinstance(member, (types.FunctionType, *_WRAPPERS))
            if data and (key.startswith(("__", "_abc_")) or isinstance(member, _DESCRIPTORS)):
                continue  # what Python keeps there for itself
            parts += [_digest(key), self.read(member)]
        return _digest("class", name, *parts)

    def _function(self, thing: types.FunctionType) -> bytes:
        code, known = thing.__code__, thing.__globals__
        installed = code.co_filename.startswith(_INSTALLED)
        cells = [_cell(cell) for cell in thing.__closure__ or ()]
        reads = {} if installed else {name: known[name] for name in _globals(code) if name in known}
        attributes = {key: value for key, value in vars(thing).items() if key != "__wrapped__"}
        return self._sequence("function", [code, thing.__defaults__, thing.__kwdefaults__, cells, reads, attributes])

    def _wrapper(self, thing: Any) -> bytes:
        """Reads what holds functions, and functions that are not Python's."""
        if isinstance(thing, types.CodeType):
            table = getattr(thing, "co_exceptiontable", b"")
            names = (thing.co_names, thing.co_freevars, thing.co_cellvars, thing.co_varnames[: thing.co_argcount])
            parts = [thing.co_code, thing.co_consts, *names, thing.co_argcount, thing.co_flags, table]
        elif isinstance(thing, types.MethodType):
            parts = [thing.__func__, thing.__self__]
        elif isinstance(thing, functools.partial):
            parts = [thing.func, thing.args, thing.keywords]
        elif isinstance(thing, property):
            parts = [thing.fget, thing.fset]
        elif isinstance(thing, functools.cached_property):
            parts = [thing.func]
        elif isinstance(thing, (staticmethod, classmethod)):
            parts = [thing.__func__]
        else:
            owner = getattr(thing, "__self__", None)
            parts = [str(getattr(thing, "__module__", "")), thing.__qualname__, owner]
        return self._sequence(type(thing).__name__, parts)

    def _object(self, thing: Any) -> bytes:
        """Reads what pickle would store."""
        reduce = copyreg.dispatch_table.get(type(thing))
        try:
            stored: Any = thing.__reduce_ex__(4) if reduce is None else reduce(thing)
        except Exception:
            raise _OpaqueError(f"a {type(thing).__module__}.{type(thing).__qualname__} inside") from None
        if isinstance(stored, str):
            return _digest("global", type(thing).__qualname__, stored)
        items = [list(part) for part in stored[3:5] if part is not None]
        return self._sequence("object", [type(thing), *stored[:3], *items])


def _digest(*parts: str | bytes) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        digest.update(struct.pack("<q", len(content)))
        digest.update(content)
    return digest.digest()


def _numbers(thing: Any) -> tuple[str, bytes] | None:
    """Returns form and bytes of a tensor of torch or an array of JAX, and where they stand of no generator."""
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    try:
        if torch is not None and isinstance(thing, torch.Generator):
            return "generator", b""
        if torch is not None and isinstance(thing, torch.Tensor):
            flat = thing.detach().cpu().contiguous().reshape(-1)
            content = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
            return f"{thing.dtype} {tuple(thing.shape)}", content
        if jax is not None and isinstance(thing, jax.Array):
            key = jax.dtypes.issubdtype(thing.dtype, jax.dtypes.prng_key)
            array = np.asarray(jax.random.key_data(thing) if key else thing)
            return f"{thing.dtype} {array.shape}", array.tobytes()
    except (RuntimeError, TypeError, NotImplementedError) as error:
        raise _OpaqueError(f"a {type(thing).__qualname__} whose numbers cannot be read ({error})") from None
    return None


def _installed_class(kind: type) -> bool:
    file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    return kind.__module__ != "__main__" and (file == "" or file.startswith(_INSTALLED))


def _cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a variable that has no value yet
        return None


def _globals(code: types.CodeType) -> set[str]:
    """Returns the names of globals that code reads, with those of the functions within it."""
    names = {part.argval for part in dis.get_instructions(code) if part.opname in _GLOBAL_READS}
    return names.union(*(_globals(part) for part in code.co_consts if isinstance(part, types.CodeType)))
