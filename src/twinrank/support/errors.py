"""Public exceptions and warnings, whose messages are data: text, and the arguments they name.

A message is a sequence of text and `Argument`s. Python shows an argument as `unjudged='keep'`, the
command line as `--unjudged keep`; both render the same parts.
"""

import errno
import math
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.util import find_spec
from numbers import Integral, Real
from typing import Any

_LISTED = 60  # choices in a message
_NUMBER = re.compile(r"\(os error (\d+)\)")  # the format of libraries written in Rust


@dataclass(frozen=True)
class Argument:
    """An argument that a message names, with the value that it should have or has.

    `code` is what Python writes for an option that only the command line has.

    >>> str(Argument("max_features")), str(Argument("ignore", ["date"]))
    ('max_features', "ignore=['date']")
    """

    name: str
    value: Any = None
    code: str = ""

    def __str__(self) -> str:
        if self.code:
            return self.code
        return self.name if self.value is None else f"{self.name}={self.value!r}"


Parts = Sequence[str | Argument]
"""A message: text and the arguments that it names."""


def rendered(parts: Parts, show: Callable[[Argument], str] = str) -> str:
    """Join the parts of a message; `show` renders its arguments.

    >>> rendered(["Pass ", Argument("unjudged", "keep"), "."])
    "Pass unjudged='keep'."
    """
    return "".join(show(part) if isinstance(part, Argument) else str(part) for part in parts)


class _Told(BaseException):
    """An exception or a warning that keeps the parts of its message."""

    def __init__(self, *parts: str | Argument) -> None:
        super().__init__(rendered(parts))
        self.parts = parts

    def render(self, show: Callable[[Argument], str]) -> str:
        """Return the message with its arguments rendered by `show`."""
        return rendered(self.parts, show)


class TwinRankError(_Told, Exception):
    """Base class of all exceptions of TwinRank.

    `parts` holds the parts of the message, which another error can repeat.
    """


class InputError(TwinRankError, ValueError):
    """An argument or a data file is invalid.

    The message says what is wrong, where, and what to do. It is a `ValueError`.

    Parameters
    ----------
    *parts : str or Argument
        The message. By default it says that the value is not among the choices.
    argument : str, optional
        The name of the argument that is wrong.
    value : object, optional
        Its value.
    choices : iterable of str, default ()
        The values that it can have.

    Examples
    --------
    >>> str(InputError(argument="unjudged", value="dorp", choices=("error", "keep", "drop")))
    "Unknown unjudged 'dorp'. Did you mean 'drop'?"
    """

    argument: str | None = None
    value: Any = None
    choices: tuple[str, ...] = ()

    def __init__(
        self,
        *parts: str | Argument,
        argument: str | None = None,
        value: Any = None,
        choices: Iterable[str] = (),
    ) -> None:
        known = tuple(choices)
        if not parts and argument is not None:
            parts = ("Unknown ", Argument(argument), f" {value!r}. {suggestion(str(value), known)}")
        super().__init__(*parts)
        self.argument, self.value, self.choices = argument, value, known


class MissingPackageError(InputError, ImportError):
    """An optional dependency is not installed; the message says how to install it."""


def has_torch() -> bool:
    """True if torch is installed; it is not imported."""
    try:
        return find_spec("torch") is not None
    except ModuleNotFoundError:
        return False


@contextmanager
def needing(what: str, package: str, extra: str) -> Iterator[None]:
    """Say how to install an optional package if it is missing for an import within the context."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package.lower():
            raise
        install = f"install it with pip install 'twinrank[{extra}]'"
        raise MissingPackageError(f"{what} needs {package}; {install}.") from error


def needing_torch(what: str) -> AbstractContextManager[None]:
    """As `needing`, for torch."""
    return needing(what, "torch", "nets")


class FileError(TwinRankError, OSError):
    """A file or folder cannot be read or written.

    The message names the file and the reason. It is an `OSError`.
    """


class DataWarning(_Told, UserWarning):
    """Data was changed while it was read, or looks wrong, such as a label among the features."""


def warn(warning: Warning) -> None:
    """Issue a warning for the line outside this package that made the call."""
    package = __name__.partition(".")[0]
    level, frame = 2, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        level, frame = level + 1, frame.f_back
    warnings.warn(warning, stacklevel=level)


@contextmanager
def explained(
    doing: str, path: str | os.PathLike[str], hint: Parts = (), *, exactly: bool = False
) -> Iterator[None]:
    """Convert an `OSError` to a `FileError` that names the operation and the file.

    With `exactly`, the message names `path` instead of the temporary file that failed.

    >>> with explained("read", "nowhere.txt"):
    ...     open("nowhere.txt")
    Traceback (most recent call last):
    twinrank.support.errors.FileError: Can't read nowhere.txt: No such file or directory.
    """
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        number = error.errno
        if number is None and (match := _NUMBER.search(str(error))):
            number = int(match[1])
        reason = error.strerror or (os.strerror(number) if number else _first_line(error))
        if number in (errno.ENOSPC, errno.EDQUOT) and not hint:
            hint = ["Free disk space, or choose another folder."]
        named = isinstance(error.filename, str) and not exactly
        file = error.filename if named else os.fspath(path)
        raise FileError(
            f"Can't {doing} {file}: {reason}.", *((" ", *hint) if hint else ())
        ) from error


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0].rstrip(".")


def error_message(error: BaseException) -> str:
    """The message of an error, after its type unless it is an `InputError`.

    >>> error_message(InputError("X is empty")), error_message(KeyError("x"))
    ('X is empty', "KeyError: 'x'")
    >>> error_message(MemoryError())
    'MemoryError'
    """
    name = "" if isinstance(error, InputError) else type(error).__name__
    return ": ".join(filter(None, [name, str(error)])) or type(error).__name__


def check_number(name: str, value: Any, whole: bool = False, least: float | None = None) -> None:
    """Raise InputError unless a value is a finite number above 0, or of at least `least`."""
    number = isinstance(value, Integral if whole else Real) and not isinstance(value, bool)
    if not number or not (value > 0 if least is None else value >= least) or value == math.inf:
        kind = "whole number" if whole else "number"
        bound = f"positive {kind}" if least is None else f"{kind} of at least {least}"
        raise InputError(Argument(name), f" must be a {bound}, not {value!r}.")


def unknown(kind: str, name: str, choices: Iterable[str]) -> str:
    """The message for an unknown name: it suggests the nearest choices, or lists all of them.

    >>> unknown("strategy", "type4", ["type1", "type2", "type3"])
    "Unknown strategy 'type4'. Did you mean 'type3', 'type2' or 'type1'?"
    >>> unknown("kernel", "x", ["torch", "numba"])
    "Unknown kernel 'x'. Choose from torch, numba."
    """
    return f"Unknown {kind} {name!r}. {suggestion(name, choices)}"


def suggestion(name: str, choices: Iterable[str], cutoff: float = 0.6) -> str:
    """The nearest choices as a question, or all of them; of very many, the first ten."""
    known = list(choices)
    by_lower = {choice.lower(): choice for choice in reversed(known)}  # the first spelling wins
    matches = get_close_matches(name.lower(), by_lower, n=3, cutoff=cutoff)
    nearest = [repr(by_lower[match]) for match in matches]
    if not nearest:
        more = [f"… ({len(known)} in all)"] if len(known) > _LISTED else []
        return f"Choose from {', '.join([*known[: 10 if more else None], *more])}."
    return f"Did you mean {' or '.join(filter(None, [', '.join(nearest[:-1]), nearest[-1]]))}?"
