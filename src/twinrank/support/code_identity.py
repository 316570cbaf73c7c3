"""Fingerprints of a user's own functions, classes and objects, to notice that they changed."""

import dis
import re
import zlib
from collections.abc import Iterator
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

_PLAIN = (int, float, complex, str, bytes, bool, type(None), type(...))
_USED = (*_PLAIN, tuple, frozenset, np.ndarray, partial, FunctionType, MethodType, type)
_CHANGING = (list, dict, set, bytearray, ModuleType)
_STATE = {"training"}  # attributes of torch modules that are no settings


def code_identity(value: Any) -> str:
    """A fingerprint of a callable: its code, its defaults, and the values that it uses.

    These are the variables of enclosing functions, attributes of objects, and globals of the module
    that defines it: numbers, texts, tuples, arrays, functions, classes, and other objects by their
    `repr`. What may change while it runs does not count: lists, dictionaries, sets, iterators, and
    whatever it assigns to. Code of other modules counts by its name.

    >>> def scaled(factor):
    ...     return lambda x: factor * x
    >>> code_identity(scaled(2)) == code_identity(scaled(2))
    True
    >>> code_identity(scaled(2)) == code_identity(scaled(3))
    False
    """
    crc, visitor = 0, _Visitor(_module_of(value))
    for part in visitor.parts(value):
        crc = zlib.crc32(part + b"\0", crc)
    return f"{crc:08x}"


class _Visitor:
    """Walks through what a callable uses; code of other modules than `module` by its name."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.seen: set[int] = set()

    def parts(self, value: Any) -> Iterator[bytes]:
        """The bytes that tell a value from others."""
        if isinstance(value, _PLAIN):
            yield repr(value).encode()
        elif isinstance(value, frozenset):  # whose order changes from process to process
            yield " ".join(sorted(map(repr, value))).encode()
        elif isinstance(value, tuple):
            for item in value:
                yield from self.parts(item)
        elif isinstance(value, np.ndarray):
            yield np.ascontiguousarray(value).tobytes()
        elif isinstance(value, CodeType):
            yield value.co_code
            yield " ".join((*value.co_names, *value.co_varnames)).encode()
            yield from self.parts(value.co_consts)
        elif isinstance(value, partial):
            yield from self.parts((value.func, value.args, tuple(value.keywords.items())))
        elif isinstance(value, MethodType):
            yield from self.parts((value.__func__, value.__self__))
        elif id(value) not in self.seen:
            self.seen.add(id(value))
            if isinstance(value, FunctionType):
                yield from self._function(value)
            elif isinstance(value, type):
                yield from self._class(value)
            else:
                yield from self._object(value)

    def _function(self, value: FunctionType) -> Iterator[bytes]:
        yield f"{value.__module__}.{value.__qualname__}".encode()
        if value.__module__ != self.module:
            return
        code, defaults = value.__code__, (value.__kwdefaults__ or {}).items()
        yield from self.parts((code, value.__defaults__, tuple(defaults)))
        cells = zip(code.co_freevars, value.__closure__ or (), strict=False)
        variables = {name: cell.cell_contents for name, cell in cells if not _is_empty(cell)}
        used = {n: value.__globals__[n] for n in sorted(_names(code)) if n in value.__globals__}
        assigned = _assigned(code)
        for name, own in (variables | used).items():
            if name not in assigned and not isinstance(own, _CHANGING) and not _iterates(own):
                yield name.encode()
                yield from self.parts(own)

    def _class(self, value: type) -> Iterator[bytes]:
        yield f"{value.__module__}.{value.__qualname__}".encode()
        if value.__module__ != self.module:
            return
        for name, own in sorted(vars(value).items()):
            own = own.__func__ if isinstance(own, staticmethod | classmethod) else own
            if isinstance(own, _USED) and name not in ("__doc__", "__firstlineno__"):
                yield name.encode()
                yield from self.parts(own)
        yield from self.parts(value.__bases__)

    def _object(self, value: Any) -> Iterator[bytes]:
        """The class of an object, its text without addresses, and its attributes."""
        kind = type(value)
        yield from self.parts(kind)
        yield re.sub(r" at 0x\w+", "", repr(value)).encode()
        if kind.__module__ != self.module:
            return
        methods = [m for name, m in vars(kind).items() if name != "__init__"]
        codes = [m.__code__ for m in methods if isinstance(m, FunctionType)]
        assigned = _STATE.union(*map(_assigned, codes))
        for name, own in sorted(getattr(value, "__dict__", {}).items()):
            if isinstance(own, _USED) and name not in assigned:
                yield name.encode()
                yield from self.parts(own)


def _names(code: CodeType) -> set[str]:
    """The names of globals that code uses, also in the functions that it defines."""
    inner = (_names(each) for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*inner)


def _assigned(code: CodeType) -> set[str]:
    """The variables and attributes that code assigns to: they are state."""
    stores = ("STORE_DEREF", "STORE_GLOBAL", "STORE_ATTR")
    return {str(i.argval) for i in dis.get_instructions(code) if i.opname in stores}


def _iterates(value: Any) -> bool:
    return hasattr(type(value), "__next__")


def _is_empty(cell: Any) -> bool:
    """True for the variable of a function that is being defined."""
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return True
    return False


def _module_of(value: Any) -> str:
    """The module that defines a function, a class, or the class of an object."""
    if isinstance(value, partial):
        return _module_of(value.func)
    named = value if hasattr(value, "__qualname__") else type(value)
    return str(named.__module__)
