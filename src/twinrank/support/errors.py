"""Public exceptions and warnings, and helpers for their messages."""

import errno
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib.util import find_spec

_NUMBER = re.compile(r"\(os error (\d+)\)")  # the format of libraries written in Rust


class TwinRankError(Exception):
    """Base class of all exceptions of TwinRank."""


class InputError(TwinRankError, ValueError):
    """An argument or a data file is invalid.

    The message says what is wrong, where, and what to do. It is a `ValueError`.
    """


class MissingPackageError(InputError, ImportError):
    """An optional dependency is not installed; the message says how to install it."""


def has_torch() -> bool:
    """True if torch is installed; it is not imported."""
    try:
        return find_spec("torch") is not None
    except ModuleNotFoundError:
        return False


@contextmanager
def needing_torch(what: str) -> Iterator[None]:
    """Say how to install torch if an import within the context fails because it is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "torch":
            raise
        install = "install it with pip install 'twinrank[nets]'"
        raise MissingPackageError(f"{what} needs torch; {install}") from error


class FileError(TwinRankError, OSError):
    """A file or folder cannot be read or written.

    The message names the file and the reason. It is an `OSError`.
    """


class DataWarning(UserWarning):
    """Data was changed while it was read, for example by sorting rows by query."""


@contextmanager
def explained(
    doing: str, path: str | os.PathLike[str], hint: str = "", *, exactly: bool = False
) -> Iterator[None]:
    """Convert an `OSError` to a `FileError` that names the operation and the file.

    With `exactly`, the message names `path` instead of the temporary file that failed.

    >>> with explained("read", "nowhere.txt"):
    ...     open("nowhere.txt")
    Traceback (most recent call last):
    twinrank.support.errors.FileError: can't read nowhere.txt: No such file or directory
    """
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        number = error.errno
        if number is None and (match := _NUMBER.search(str(error))):
            number = int(match[1])
        reason = error.strerror or (os.strerror(number) if number else str(error))
        if number in (errno.ENOSPC, errno.EDQUOT) and not hint:
            hint = "free disk space or choose another folder"
        named = isinstance(error.filename, str) and not exactly
        file = error.filename if named else os.fspath(path)
        raise FileError(
            f"can't {doing} {file}: {reason}" + (f"; {hint}" if hint else "")
        ) from error


def error_message(error: BaseException) -> str:
    """The message of an error, after its type unless it is an `InputError`.

    >>> error_message(InputError("X is empty")), error_message(KeyError("x"))
    ('X is empty', "KeyError: 'x'")
    >>> error_message(MemoryError())
    'MemoryError'
    """
    name = "" if isinstance(error, InputError) else type(error).__name__
    return ": ".join(filter(None, [name, str(error)])) or type(error).__name__


def unknown(kind: str, name: str, choices: Iterable[str]) -> str:
    """The message for an unknown name: it suggests the nearest choices, or lists all of them.

    >>> unknown("strategy", "type4", ["type1", "type2", "type3"])
    "Unknown strategy 'type4'. Did you mean 'type3', 'type2' or 'type1'?"
    >>> unknown("kernel", "x", ["torch", "numba"])
    "Unknown kernel 'x'. Choose from torch, numba."
    """
    known = list(choices)
    by_lower = {choice.lower(): choice for choice in reversed(known)}  # the first spelling wins
    nearest = [repr(by_lower[match]) for match in get_close_matches(name.lower(), by_lower, n=3)]
    if not nearest:
        return f"Unknown {kind} {name!r}. Choose from {', '.join(known)}."
    suggestions = " or ".join(filter(None, [", ".join(nearest[:-1]), nearest[-1]]))
    return f"Unknown {kind} {name!r}. Did you mean {suggestions}?"
