"""The options for reading data that commands share, and error messages that name options."""

import inspect
import re
import shlex
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinrank.cli.output_options import is_quiet, show_note
from twinrank.cli.standard_input import STANDARD_INPUT, standard_input
from twinrank.support.errors import DataWarning, InputError, TwinRankError

if TYPE_CHECKING:
    from twinrank.data.dataset import Dataset
    from twinrank.study.source import Source


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
    "ignore": (
        list[str] | None,
        None,
        _option("Tables: column to leave out; may be repeated (default: none).", metavar="NAME"),
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
# How a message names an argument of `load`: unjudged='keep', ignore=['x'], cache=False, features=
_ARGUMENT = re.compile(rf"\b({'|'.join(_READING)})=(?:\[?'([^']*)'\]?|(True|False))?")
# A message about the value of an argument: "max_features must be …", "unjudged: unknown …"
_SUBJECT = re.compile(rf"^({'|'.join(_READING)})(?= must |: )")
# How a message names a parameter of a ranker or of `evaluate`: transforms='Clip', ties='docid'
_PARAMETER = re.compile(
    r"\b(architecture|booster|convention|device|empty|engine|mode|objective|precision|select|strategy"
    r"|ties|transforms)='([^']*)'"
)
_OWN_OPTIONS = ("architecture", "convention", "empty", "objective", "strategy", "ties")
_PHRASES = {
    "Use mode='default'.": "Leave out --paper.",
    "mode='paper'": "--paper",
    "needs docids=, one id per document": "needs the id of each document; pass --docid",
    "cache_dir=, --cache-dir": "--cache-dir",
    "use load_folds, or name a file in it": "name a file in it",
}


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
            reading["ignore"] = reading["ignore"] or ()
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


def load_data(path: Path | None, reading: dict[str, Any]) -> "Dataset":
    """Load a command's data, or make the built-in synthetic data if there is no path."""
    if path is None:
        from twinrank.data.synthetic import synthetic_web_search

        return synthetic_web_search()
    if path == STANDARD_INPUT:
        with standard_input() as file:
            data = load_data(file, {**reading, "cache": False})
            data.name = "standard input"
            return data
    from twinrank.data.loading import load

    with warnings.catch_warnings(), in_words_of_options():
        warnings.simplefilter("ignore", DataWarning)  # `show_notes` prints the same
        features = features_of(path, reading["features"])
        progress = False if is_quiet() else None
        return load(path, **{**reading, "features": features, "progress": progress})


def load_unlabelled(path: Path, reading: dict[str, Any]) -> "Dataset":
    """Load data whose labels are ignored; a table may have no column of labels."""
    reading = {**reading, "unjudged": "keep"}
    try:
        return load_data(path, reading)
    except InputError:
        if not _has_columns(path):
            raise
        return load_data(path, {**reading, "label": False})


def source_of(data: Path | None, reading: dict[str, Any] | None, **choices: Any) -> "Source":
    """The data of a study: a folder with folds, a file, or the built-in data."""
    from twinrank.study.source import Source, forget

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


@contextmanager
def in_words_of_options() -> Iterator[None]:
    """Rewrite the library's errors: `--unjudged keep` instead of `unjudged='keep'`."""
    try:
        yield
    except TwinRankError as error:
        raise type(error)(as_options(str(error))) from error


def as_options(message: str) -> str:
    """Replace the arguments that a message names by options of the command line.

    >>> as_options("say which: query='q id', or label=False; max_features= raises it")
    "say which: --query 'q id', or --no-label; --max-features raises it"
    >>> as_options("max_features must be 1 to 9,999,999, not 0")
    '--max-features must be 1 to 9,999,999, not 0'
    >>> as_options("ties='docid' fails; choose engine='lightgbm' or transforms='Clip(low=0)'")
    "--ties docid fails; choose --set engine=lightgbm or --set 'transforms=Clip(low=0)'"
    """
    for phrase, replacement in _PHRASES.items():
        message = message.replace(phrase, replacement)
    message = _ARGUMENT.sub(_as_option, _SUBJECT.sub(_as_name, message))
    return _PARAMETER.sub(_as_parameter, message)


def _as_parameter(match: re.Match[str]) -> str:
    name, value = match.groups()
    if name in _OWN_OPTIONS:
        return f"--{name} {shlex.quote(value)}"
    return f"--set {shlex.quote(f'{name}={value}')}"


def _as_option(match: re.Match[str]) -> str:
    name, value, flag = match.groups()
    option = ("--no-" if flag == "False" else "--") + name.replace("_", "-")
    if value is None:
        return option
    return f"{option} {value if value == '…' else shlex.quote(value)}"


def _as_name(match: re.Match[str]) -> str:
    return "--" + match[1].replace("_", "-")


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
            raise InputError(f"{option} takes numbers, such as 1,2 or 1-3, not {text!r}")
        values += range(int(bounds[0]), int(bounds[1]) + 1)
    if not values or min(values) < minimum:
        raise InputError(f"{option} takes numbers from {minimum} on, not {text!r}")
    return tuple(dict.fromkeys(values))


def names(text: str | None) -> list[str] | None:
    """Names separated by semicolons."""
    if text is None:
        return None
    return [name.strip() for name in text.split(";") if name.strip()]


def show_notes(data: "Dataset") -> None:
    """Print what the user should know about how data was read."""
    for note in data.notes:
        show_note(f"{data.name}: {as_options(note)}")


@contextmanager
def warnings_as_notes(quiet: bool = False) -> Iterator[None]:
    """Print warnings about data as notes; `quiet` drops them."""

    def show_warning(message: Warning | str, category: type[Warning], *place: Any) -> None:
        if not issubclass(category, DataWarning):
            shown(message, category, *place)
        elif not quiet:
            show_note(as_options(str(message)))

    with warnings.catch_warnings():
        warnings.simplefilter("always", DataWarning)
        shown, warnings.showwarning = warnings.showwarning, show_warning  # type: ignore[assignment]
        yield
