"""Data as every command takes it: the options of `load`, written once."""

import inspect
import re
import shlex
import warnings
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinrank.support.errors import DataWarning, InputError, TwinRankError

if TYPE_CHECKING:
    from twinrank.data.dataset import Dataset

_FRAMES = "CSV, Parquet, Feather:"
_READING: dict[str, tuple[Any, Any]] = {  # what `load` takes: (type and help, default)
    "features": (
        Annotated[
            list[str] | None,
            typer.Option(
                help=f"LETOR: how many features there are. {_FRAMES} a column that is one "
                "(may be repeated; without it, all that are nothing else)."
            ),
        ],
        None,
    ),
    "missing": (
        Annotated[str, typer.Option(help="LETOR: what an absent feature is: zero or nan.")],
        "zero",
    ),
    "zero_based": (
        Annotated[bool, typer.Option("--zero-based", help="LETOR: indices begin with 0.")],
        False,
    ),
    "unjudged": (
        Annotated[str, typer.Option(help="Documents with label −1: error, keep or drop.")],
        "error",
    ),
    "non_finite": (
        Annotated[
            str, typer.Option(help="NaN, infinities, values beyond float32: error, keep or clip.")
        ],
        "error",
    ),
    "max_features": (
        Annotated[int, typer.Option(help="The highest number of features to believe.")],
        100_000,
    ),
    "query": (
        Annotated[str | None, typer.Option(help=f"{_FRAMES} the column of query ids.")],
        None,
    ),
    "label": (Annotated[str | None, typer.Option(help=f"{_FRAMES} … of labels.")], None),
    "no_label": (
        Annotated[bool, typer.Option("--no-label", help=f"{_FRAMES} there are no labels.")],
        False,
    ),
    "docid": (Annotated[str | None, typer.Option(help=f"{_FRAMES} … of document ids.")], None),
    "ignore": (
        Annotated[
            list[str] | None,
            typer.Option(help=f"{_FRAMES} a column to leave out (may be repeated)."),
        ],
        None,
    ),
    "cache": (
        Annotated[
            bool, typer.Option("--cache/--no-cache", help="Keep the parsed file for the next time.")
        ],
        True,
    ),
    "cache_dir": (
        Annotated[
            Path | None,
            typer.Option(
                readable=False,
                help="Where parsed files are kept; else TWINRANK_CACHE_DIR or the user's cache.",
            ),
        ],
        None,
    ),
    "verify": (
        Annotated[
            bool,
            typer.Option(
                "--verify", help="Compare hashes, not only a cached file's size and time."
            ),
        ],
        False,
    ),
}
# How a message names an argument of `load`: unjudged='keep', ignore=['x'], cache=False, features=
_ARGUMENT = re.compile(rf"\b({'|'.join(_READING)})=(?:\[?'([^']*)'\]?|(True|False))?")


def takes_data(**defaults: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of `load`; it gets them together, as `reading`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**given: Any) -> None:
            reading = {name: given.pop(name) for name in _READING}
            reading["ignore"] = reading["ignore"] or ()
            if reading.pop("no_label"):
                reading["label"] = False
            command(**given, reading=reading)

        signature = inspect.signature(command)
        own = [p for p in signature.parameters.values() if p.name != "reading"]
        shared = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=defaults.get(name, default),
                annotation=annotation,
            )
            for name, (annotation, default) in _READING.items()
        ]
        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own] + shared
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return decorate


def load_data(path: Path | None, reading: dict[str, Any]) -> "Dataset":
    """The data that a command was given, or the built-in synthetic data."""
    if path is None:
        from twinrank.data.synthetic import synthetic_web_search

        return synthetic_web_search()
    from twinrank.data.loading import load

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # `show_notes` says it in plain words
        try:
            return load(path, **{**reading, "features": features_of(path, reading["features"])})
        except TwinRankError as error:
            raise type(error)(as_options(str(error))) from error


def features_of(path: Path, given: list[str] | None) -> int | list[str] | None:
    """A number for LETOR text, names for anything that has columns, or may have: a folder."""
    from twinrank.data.streams import FRAMES, plain_suffix

    if not given or plain_suffix(path) in FRAMES:
        return given or None
    if len(given) > 1 or not given[0].isdecimal():
        if path.is_dir():
            return given
        raise InputError(f"{path} has no columns to choose by name; --features is a number here")
    return int(given[0])


def as_options(message: str) -> str:
    """A message in the words of the command line.

    >>> as_options("say which: query='q id', or label=False; max_features= raises it")
    "say which: --query 'q id', or --no-label; --max-features raises it"
    """
    return _ARGUMENT.sub(_option, message.replace("cache_dir=, --cache-dir", "--cache-dir"))


def _option(match: re.Match[str]) -> str:
    name, value, flag = match.groups()
    option = ("--no-" if flag == "False" else "--") + name.replace("_", "-")
    if value is None:
        return option
    return f"{option} {value if value == '…' else shlex.quote(value)}"


def show_notes(data: "Dataset") -> None:
    """Tell what one should know about how data was read."""
    for note in data.notes:
        typer.echo(f"Note: {data.name}: {as_options(note)}", err=True)


def show_error(error: object) -> None:
    """Tell what was wrong."""
    typer.echo(f"Error: {error}", err=True)
