"""The errors that a user can cause, or meets."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager


class TwinRankError(Exception):
    """Base class of the library's own errors."""


class InputError(TwinRankError, ValueError):
    """What was given can't be used; the message says what, where, and what to do."""


class FileError(TwinRankError, OSError):
    """A file or folder can't be read or written; the message says which, why, and what to do."""


class DataWarning(UserWarning):
    """Data was used in a way that one should know of, such as rows of a query put together."""


@contextmanager
def explained(doing: str, path: str | os.PathLike[str], hint: str = "") -> Iterator[None]:
    """Turn the system's errors into a `FileError` that says what was being done to which file.

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
        reason = error.strerror or str(error)
        if error.errno in (errno.ENOSPC, errno.EDQUOT) and not hint:
            hint = "make room, or choose another place"
        place = error.filename if isinstance(error.filename, str) else path
        message = f"can't {doing} {os.fspath(place)}: {reason}" + (f"; {hint}" if hint else "")
        raise FileError(message) from error
