"""The errors that a user can cause, or meets."""

import errno
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

_NUMBER = re.compile(r"\(os error (\d+)\)")  # how libraries written in Rust tell it


class TwinRankError(Exception):
    """Base class of the library's own errors."""


class InputError(TwinRankError, ValueError):
    """What was given can't be used; the message says what, where, and what to do."""


class FileError(TwinRankError, OSError):
    """A file or folder can't be read or written; the message says which, why, and what to do."""


class DataWarning(UserWarning):
    """Data was used in a way that one should know of, such as rows of a query put together."""


@contextmanager
def explained(
    doing: str, path: str | os.PathLike[str], hint: str = "", *, exactly: bool = False
) -> Iterator[None]:
    """Turn the system's errors into a `FileError` that says what was being done to which file.

    `exactly` names `path`, not a temporary file that the system had trouble with.

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
            hint = "make room, or choose another place"
        named = isinstance(error.filename, str) and not exactly
        place = error.filename if named else os.fspath(path)
        raise FileError(
            f"can't {doing} {place}: {reason}" + (f"; {hint}" if hint else "")
        ) from error


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
