"""The options for reading data that commands share, and how messages show arguments as options."""

import inspect
import shlex
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinrank.cli.output_options import is_quiet, show_note
from twinrank.cli.standard_input import STANDARD_INPUT, standard_input
from twinrank.support.errors import Argument, DataWarning, InputError, rendered

if TYPE_CHECKING:
    from twinrank.data.dataset import Dataset
    from twinrank.experiments.study.source import Source


def _option(help: str, *names: str, **settings: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel="Options for reading data", **settings)


_READING: dict[str, tuple[Any, Any, Any]] = {  # options of `load`: type, default, declaration
    "features": (
        list[str] | None,
        None,
        _option(
            "LETOR: number of features (default: the highest index in the file). Tables (CSV, "
            "Parquet, Feather): name of a feature column; may be repeated (default: all columns "
            "without another role).",
            metavar="N|NAME",
        ),
    ),
    "missing": (str, "zero", _option("LETOR: value of an absent feature, zero or nan.")),
    "zero_based": (bool, False, _option("LETOR: feature indices start at 0.", "--zero-based")),
    "unjudged": (str, "error", _option("Documents with label −1: error, keep or drop.")),
    "non_finite": (
        str,
        "error",
        _option("NaN, infinities and values beyond float32: error, keep or clip."),
    ),
    "max_features": (int, 100_000, _option("Reject data with more features.")),
    "query": (
        str | None,
        None,
        _option("Tables: column of query ids (default: found by name).", metavar="NAME"),
    ),
    "label": (
        str | None,
        None,
        _option("Tables: column of labels (default: found by name).", metavar="NAME"),
    ),
    "no_label": (bool, False, _option("Tables: there are no labels.", "--no-label")),
    "docid": (
        str | None,
        None,
        _option("Tables: column of document ids (default: found by name).", metavar="NAME"),
    ),
    "weight": (
        str | None,
        None,
        _option("Tables: column of the weights of queries (default: no weights).", metavar="NAME"),
    ),
    "ignore": (
        list[str] | None,
        None,
        _option("Tables: column to leave out; may be repeated (default: none).", metavar="NAME"),
    ),
    "categorical_features": (
        list[str] | None,
        None,
        _option(
            "Tables: column of categories, also if it holds numbers; may be repeated (default: "
            "columns of text).",
            metavar="NAME",
        ),
    ),
    "split_queries": (
        str,
        "join",
        _option("Tables in parts: queries with rows in several files: join or error."),
    ),
    "cache": (
        bool,
        True,
        _option("Keep the parsed file, to load it faster next time.", "--cache/--no-cache"),
    ),
    "cache_dir": (
        Path | None,
        None,
        _option(
            "Folder for parsed files (default: TWINRANK_CACHE_DIR, or the user's cache).",
            metavar="DIR",
            readable=False,
        ),
    ),
    "verify": (
        bool,
        False,
        _option("Check a parsed file by hashes, not only by size and time.", "--verify"),
    ),
}
_OWN_OPTIONS = {  # arguments of rankers and of `evaluate` that are options, and their names
    "architecture": "architecture",
    "convention": "convention",
    "curve": "curve",
    "docids": "docid",
    "empty": "empty",
    "epochs": "epochs",
    "estimator": "estimator",
    "min_overlap": "min-overlap",
    "objective": "objective",
    "positions": "positions",
    "random_state": "seed",
    "strategy": "strategy",
    "teacher": "teacher",
    "ties": "ties",
    "unlabelled": "unlabelled",
}


_CACHING = ("cache", "cache_dir", "verify")


def takes_data(
    panels: dict[str, tuple[str, ...]] | None = None, **defaults: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options of `load` to a command, which gets them as one argument, `reading`.

    `panels` are the titles in the help, each with its options; the others are under "Options".
    """
    titles = {name: title for title, names in (panels or {}).items() for name in names}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**arguments: Any) -> None:
            reading = {name: arguments.pop(name) for name in _READING}
            for name in ("ignore", "categorical_features"):
                reading[name] = reading[name] or ()
            if reading.pop("no_label"):
                reading["label"] = False
            command(**arguments, reading=reading)

        signature = inspect.signature(command)
        own = [p for p in signature.parameters.values() if p.name != "reading"]
        for parameter in own:
            if parameter.name in titles:
                parameter.annotation.__metadata__[0].rich_help_panel = titles[parameter.name]
        shared = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=defaults.get(name, default),
                annotation=Annotated[kind, option],
            )
            for name, (kind, default, option) in _READING.items()
        ]
        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own] + shared
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return decorate


def load_data(path: Path | None, reading: dict[str, Any], text: Sequence[str] = ()) -> "Dataset":
    """Load a command's data, or make the built-in synthetic data if there is no path.

    `text` are columns that a model or the training data has as text.
    """
    if path is None:
        from twinrank.data.synthetic import synthetic_web_search

        return synthetic_web_search()
    if path == STANDARD_INPUT:
        with standard_input() as file:
            data = load_data(file, {**reading, "cache": False}, text)
            data.name = "standard input"
            return data
    from twinrank.data.loading import load_table
    from twinrank.data.options import ReadOptions

    settings = {name: reading[name] for name in _CACHING}
    columns = {name: value for name, value in reading.items() if name not in _CACHING}
    columns |= {"features": features_of(path, reading["features"]), "text": text}
    progress = False if is_quiet() else None
    with warnings_as_notes(is_quiet()):
        return load_table(path, ReadOptions.of(**columns), **settings, progress=progress)


def load_unlabelled(path: Path, reading: dict[str, Any], text: Sequence[str] = ()) -> "Dataset":
    """Load data whose labels are ignored; a table may have no column of labels."""
    reading = {**reading, "unjudged": "keep"}
    try:
        return load_data(path, reading, text)
    except InputError:
        if not _has_columns(path):
            raise
        return load_data(path, {**reading, "label": False}, text)


def text_columns(data: "Dataset") -> list[str]:
    """The names of the columns of text."""
    names = data.feature_names
    return [] if names is None else [names[column] for column in data.categories]


def source_of(data: Path | None, reading: dict[str, Any] | None, **choices: Any) -> "Source":
    """The data of a study: a folder with folds, a file, or the built-in data."""
    from twinrank.experiments.study.source import Source, forget

    forget()
    options = dict(reading or {})
    if data is not None and isinstance(options.get("features"), list):
        options["features"] = features_of(data, options["features"])
    return Source.of(data, options if data is not None else {}, **choices)


def features_of(path: Path, features: list[str] | None) -> int | list[str] | None:
    """The value of --features: a number for LETOR text, names for tables and for folders."""
    if not features or _has_columns(path):
        return features or None
    if len(features) > 1 or not features[0].isdecimal():
        if path.is_dir():
            return features
        raise InputError(f"{path} has no named columns; --features must be a number.")
    return int(features[0])


def _has_columns(path: Path) -> bool:
    """True for tables: a file, a pattern, a folder of parts, or an address."""
    from twinrank.data.sources import address_of, is_folder_of_parts
    from twinrank.data.streams import FRAMES, plain_suffix

    if plain_suffix(path) in FRAMES or address_of(path) is not None:
        return True
    return path.is_dir() and not (path / "manifest.json").exists() and is_folder_of_parts(path)


def as_option(argument: Argument) -> str:
    """Show an argument of the library as an option of the command line.

    >>> as_option(Argument("query", "q id")), as_option(Argument("label", False))
    ("--query 'q id'", '--no-label')
    >>> as_option(Argument("max_features")), as_option(Argument("ignore", ["date"]))
    ('--max-features', '--ignore date')
    >>> as_option(Argument("ties", "docid")), as_option(Argument("mode", "paper"))
    ('--ties docid', '--paper')
    >>> as_option(Argument("engine", "lightgbm")), as_option(Argument("transforms", "Clip(low=0)"))
    ('--set engine=lightgbm', "--set 'transforms=Clip(low=0)'")
    """
    name, value = argument.name, argument.value
    if name == "mode" and value == "paper":
        return "--paper"
    if name not in _READING and name not in _OWN_OPTIONS:
        return name if value is None else f"--set {shlex.quote(f'{name}={value}')}"
    option = _OWN_OPTIONS.get(name, name).replace("_", "-")
    if value is None or isinstance(value, bool):
        return f"--no-{option}" if value is False else f"--{option}"
    values = value if isinstance(value, list | tuple) else [value]
    return " ".join(f"--{option} {_quoted(str(each))}" for each in values)


def _quoted(value: str) -> str:
    return value if value == "…" else shlex.quote(value)


def numbers(text: str, option: str, minimum: int) -> tuple[int, ...]:
    """Whole numbers separated by commas, or ranges.

    >>> numbers("1,3-5", "--folds", 1)
    (1, 3, 4, 5)
    """
    values: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        bounds = (first, last) if dash else (first, first)
        if not all(bound.strip().isdecimal() for bound in bounds):
            raise InputError(f"{option} takes numbers, such as 1,2 or 1-3, not {text!r}.")
        values += range(int(bounds[0]), int(bounds[1]) + 1)
    if not values or min(values) < minimum:
        raise InputError(f"{option} takes numbers from {minimum} on, not {text!r}.")
    return tuple(dict.fromkeys(values))


def names(text: str | None) -> list[str] | None:
    """Names separated by semicolons."""
    if text is None:
        return None
    return [name.strip() for name in text.split(";") if name.strip()]


def show_notes(data: "Dataset") -> None:
    """Print what the user should know about how data was read."""
    for note in data._table.notes:
        show_note(f"{data.name}: {rendered(note, as_option)}")


@contextmanager
def warnings_as_notes(quiet: bool = False) -> Iterator[None]:
    """Print warnings about data as notes; `quiet` drops them."""

    def show_warning(message: Warning | str, category: type[Warning], *place: Any) -> None:
        if not isinstance(message, DataWarning):
            shown(message, category, *place)
        elif not quiet:
            show_note(message.render(as_option))

    with warnings.catch_warnings():
        warnings.simplefilter("always", DataWarning)
        shown, warnings.showwarning = warnings.showwarning, show_warning  # type: ignore[assignment]
        yield
