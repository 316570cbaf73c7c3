"""Data of studies as commands are given it, and their errors in the words of the command line."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinrank.cli.options import as_options, features_of
from twinrank.support.errors import InputError, TwinRankError

if TYPE_CHECKING:
    from twinrank.study.source import Source


def source_of(data: Path | None, reading: dict[str, Any] | None, **choices: Any) -> "Source":
    """The source that a command was given: a folder with folds, a file, or the built-in data."""
    from twinrank.study.source import Source, forget

    forget()
    given = dict(reading or {})
    if data is not None and isinstance(given.get("features"), list):
        given["features"] = features_of(data, given["features"])
    return Source.of(data, given if data is not None else {}, **choices)


@contextmanager
def in_words_of_options() -> Iterator[None]:
    """Say `--unjudged keep` where the library says `unjudged='keep'`."""
    try:
        yield
    except TwinRankError as error:
        raise type(error)(as_options(str(error))) from error


def numbers(text: str, option: str, least: int) -> tuple[int, ...]:
    """Whole numbers separated by commas, or a range.

    >>> numbers("1,3-5", "--folds", 1)
    (1, 3, 4, 5)
    """
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        bounds = (first, last) if dash else (first, first)
        if not all(bound.strip().isdecimal() for bound in bounds):
            raise InputError(f"{option} takes numbers, such as 1,2 or 1-3, not {text!r}")
        found += range(int(bounds[0]), int(bounds[1]) + 1)
    if not found or min(found) < least:
        raise InputError(f"{option} takes numbers from {least} on, not {text!r}")
    return tuple(dict.fromkeys(found))


def names(text: str | None) -> list[str] | None:
    """Names separated by semicolons."""
    if text is None:
        return None
    return [name.strip() for name in text.split(";") if name.strip()]
