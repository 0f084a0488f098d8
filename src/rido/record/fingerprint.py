"""Fingerprints: digests of the content of a policy, a critic or a simulator.

A run file keeps them, so that a run resumes only with what it began with. A fingerprint covers numbers and code: arrays
and parameters byte by byte; functions by their bytecode, constants, defaults, closures and the globals that they read;
objects by their class and what pickle would store of them. Two things do not count: the state of a random generator,
and the code of classes of installed packages, which are known by their names. What is named by its module is known by
the sources of modules. The same content gives the same fingerprint in every process of the same version of Python.
"""

import copyreg
import dis
import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import random
import struct
import sys
import sysconfig
import types
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

_FOLDERS = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
INSTALLED = tuple(f"{folder}{os.sep}" for folder in sorted(_FOLDERS | {str(Path(__file__).parents[1])}))
"""Folders of the standard library, of installed packages and of rido, as prefixes of the paths of files."""

_GENERATORS = (np.random.Generator, np.random.BitGenerator, np.random.RandomState, random.Random)
_DESCRIPTORS = (types.MemberDescriptorType, types.GetSetDescriptorType)
_GLOBAL_READS = ("LOAD_GLOBAL", "LOAD_NAME")


def identify(what: str, thing: Any) -> str:
    """The attribute ``fingerprint`` of something that a user gave, or else the fingerprint of its content.

    Raises:
        ValueError: The content cannot be read, and there is no attribute ``name`` to go by.
    """
    given = getattr(thing, "fingerprint", None)
    return given if isinstance(given, str) and given else content_of(what, thing)


def content_of(what: str, thing: Any) -> str:
    """The fingerprint of the content, or the attribute ``name`` where the content cannot be read."""
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
    """The digest of the content of things, 64 hexadecimal digits.

    Example:
        >>> fingerprint(np.zeros(3)) == fingerprint(np.zeros(3)) != fingerprint(np.ones(3))
        True
    """
    return _Reader().read(things).hex()


def source_fingerprint(reference: str) -> str:
    """The digest of the code behind "module:attribute", which does not change while the code is used.

    That is the source of the module and of all modules outside of installed packages that it uses. A module of an
    installed package stands for itself, with the package's version. Code that is in no file is read instead.
    """
    name, _, attribute = reference.partition(":")
    found = None if name == "__main__" else importlib.util.find_spec(name)
    if found is None or found.origin is None or not Path(found.origin).is_file():
        return content_of("env", getattr(sys.modules.get(name), attribute, reference))
    if found.origin.startswith(INSTALLED):
        try:
            version = importlib.metadata.version(name.partition(".")[0])
        except importlib.metadata.PackageNotFoundError:
            version = ""
        return fingerprint(reference, version, Path(found.origin).read_bytes())
    importlib.import_module(name)
    sources: dict[str, bytes] = {}
    waiting = [name]
    while waiting:
        name = waiting.pop()
        file = getattr(sys.modules.get(name), "__file__", None) or ""
        if name in {*sources, "__main__"} or file.startswith(INSTALLED) or not file:
            continue
        sources[name] = Path(file).read_bytes()
        for value in list(vars(sys.modules[name]).values()):
            module = isinstance(value, types.ModuleType)
            waiting.append(value.__name__ if module else str(getattr(value, "__module__", "")))
    return fingerprint(reference, sources)


class _OpaqueError(Exception):
    """Content that cannot be read; the message says what it is."""


class _Reader:
    """Computes digests of content. A reference to an object that contains it is known by the number of levels up."""

    def __init__(self) -> None:
        self._depths: dict[int, int] = {}
        self._known: dict[int, tuple[Any, bytes]] = {}  # holds the thing, so that its id is not reused

    def read(self, thing: Any) -> bytes:
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
            array = np.asarray(thing)
            if array.dtype.hasobject:
                return _digest("objects", str(array.shape), self._sequence("list", array.ravel().tolist()))
            form = f"{array.dtype.name} {array.dtype.descr} {array.shape}"
            return _digest("array", form, np.ascontiguousarray(array).tobytes())
        if (numbers := _numbers(thing)) is not None:
            return _digest(kind.__name__, *numbers)
        if kind in (list, tuple):
            return self._sequence(kind.__name__, thing)
        if kind in (set, frozenset):
            return _digest("set", *sorted(self.read(part) for part in thing))
        if kind in (dict, OrderedDict, types.MappingProxyType):
            keys = sorted(((self.read(key), key) for key in thing), key=lambda pair: pair[0])
            return _digest("dict", *(part for digest, key in keys for part in (digest, self.read(thing[key]))))
        if isinstance(thing, _GENERATORS):
            return _digest("generator", kind.__name__)
        if isinstance(thing, types.ModuleType):
            file = getattr(thing, "__file__", None)
            if thing.__name__ == "__main__" or file is None or file.startswith(INSTALLED):
                return _digest("module", thing.__name__)
            return _digest("module", thing.__name__, Path(file).read_bytes() if Path(file).is_file() else b"")
        if isinstance(thing, type):
            return self._class(thing)
        if (parts := _function_parts(thing)) is not None:
            return self._sequence(kind.__name__, parts)
        if _installed_class(kind) and hasattr(thing, "__wrapped__"):  # such as the results of jax.jit, functools.cache
            return self._sequence(kind.__qualname__, [thing.__wrapped__])
        return self._object(thing)

    def _sequence(self, kind: str, parts: Iterable[Any]) -> bytes:
        return _digest(kind, *(self.read(part) for part in parts))

    def _class(self, kind: type) -> bytes:
        name = f"{kind.__module__}.{kind.__qualname__}"
        if _installed_class(kind):
            return _digest("class", name)
        parts = [self.read(base) for base in kind.__bases__]
        for key, member in sorted(vars(kind).items()):
            internal = key.startswith(("__", "_abc_")) or isinstance(member, _DESCRIPTORS)
            if internal and _function_parts(member) is None:
                continue  # Python's own bookkeeping
            parts += [_digest(key), self.read(member)]
        return _digest("class", name, *parts)

    def _object(self, thing: Any) -> bytes:
        """Read what pickle would store."""
        reduce = copyreg.dispatch_table.get(type(thing))
        try:
            stored: Any = thing.__reduce_ex__(4) if reduce is None else reduce(thing)
        except Exception:
            raise _OpaqueError(f"a {type(thing).__module__}.{type(thing).__qualname__} inside") from None
        if isinstance(stored, str):
            return _digest("global", type(thing).__qualname__, stored)
        items = [list(part) for part in stored[3:5] if part is not None]
        return self._sequence("object", [type(thing), *stored[:3], *items])


def _function_parts(thing: Any) -> list[Any] | None:
    """The content of functions, their code and what wraps them; None for other things."""
    match thing:
        case types.FunctionType():
            code, known = thing.__code__, thing.__globals__
            installed = code.co_filename.startswith(INSTALLED)
            cells = [_cell(cell) for cell in thing.__closure__ or ()]
            reads = {} if installed else {name: known[name] for name in _globals(code) if name in known}
            attributes = {key: value for key, value in vars(thing).items() if key != "__wrapped__"}
            return [code, thing.__defaults__, thing.__kwdefaults__, cells, reads, attributes]
        case types.CodeType():
            names = (thing.co_names, thing.co_freevars, thing.co_cellvars, thing.co_varnames[: thing.co_argcount])
            return [thing.co_code, thing.co_consts, *names, thing.co_argcount, thing.co_flags, thing.co_exceptiontable]
        case types.MethodType():
            return [thing.__func__, thing.__self__]
        case functools.partial():
            return [thing.func, thing.args, thing.keywords]
        case property():
            return [thing.fget, thing.fset]
        case functools.cached_property():
            return [thing.func]
        case staticmethod() | classmethod():
            return [thing.__func__]
        case types.BuiltinFunctionType() | types.MethodDescriptorType() | types.WrapperDescriptorType():
            return [str(getattr(thing, "__module__", "")), thing.__qualname__, getattr(thing, "__self__", None)]
    return None


def _digest(*parts: str | bytes) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        digest.update(struct.pack("<q", len(content)))
        digest.update(content)
    return digest.digest()


def _numbers(thing: Any) -> tuple[str, bytes] | None:
    """Form and bytes of a torch tensor or JAX array; of a torch generator none, because its state does not count."""
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
    return kind.__module__ != "__main__" and (file == "" or file.startswith(INSTALLED))


def _cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the variable has no value yet
        return None


def _globals(code: types.CodeType) -> set[str]:
    """The names of globals that code and the functions within it read."""
    names = {part.argval for part in dis.get_instructions(code) if part.opname in _GLOBAL_READS}
    return names.union(*(_globals(part) for part in code.co_consts if isinstance(part, types.CodeType)))
