"""Data as every command takes it: the options of `load`, written once."""

import inspect
import warnings
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinrank.support.errors import DataWarning

if TYPE_CHECKING:
    from twinrank.data.dataset import Dataset

_FRAMES = "CSV, Parquet, Feather:"
_READING: dict[str, tuple[Any, Any]] = {  # what `load` takes: (type and help, default)
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
    "docid": (Annotated[str | None, typer.Option(help=f"{_FRAMES} … of document ids.")], None),
    "ignore": (
        Annotated[
            list[str] | None,
            typer.Option(help=f"{_FRAMES} a column to leave out (may be repeated)."),
        ],
        None,
    ),
    "cache_dir": (
        Annotated[
            Path | None,
            typer.Option(
                help="Where parsed files are kept; else TWINRANK_CACHE_DIR or the user's cache."
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


def takes_data(**defaults: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of `load`; it gets them together, as `reading`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**given: Any) -> None:
            reading = {name: given.pop(name) for name in _READING}
            reading["ignore"] = reading["ignore"] or ()
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
        return load(path, **reading)


def show_notes(data: "Dataset") -> None:
    """Tell what one should know about how data was read."""
    for note in data.notes:
        typer.echo(f"Note: {data.name}: {note}", err=True)
