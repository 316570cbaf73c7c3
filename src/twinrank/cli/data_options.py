"""The options for reading data that commands share, and how messages show arguments as options."""

import inspect
import json
import shlex
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinrank.cli.command_signatures import Command, declared, with_options
from twinrank.cli.output_options import is_quiet, show_note
from twinrank.support.errors import (
    Argument,
    DataWarning,
    InputError,
    Parts,
    TwinRankError,
    explained,
    rendered,
)

if TYPE_CHECKING:
    from twinrank.data.dataset import Dataset
    from twinrank.experiments.study.study_source import Source


_Name = Annotated[str | None, typer.Option(metavar="NAME")]
_Names = Annotated[list[str] | None, typer.Option(metavar="NAME")]


def _reading(
    *,
    features: Annotated[list[str] | None, typer.Option(metavar="N|NAME")] = None,
    missing: str = "zero",
    zero_based: bool = False,
    unjudged: str = "error",
    non_finite: str = "error",
    max_features: int = 100_000,
    query: _Name = None,
    label: _Names = None,
    no_label: bool = False,
    docid: _Name = None,
    weight: _Name = None,
    ignore: _Names = None,
    categorical_features: _Names = None,
    split_queries: str = "join",
    cache: Annotated[bool, typer.Option("--cache/--no-cache")] = True,
    cache_dir: Annotated[Path | None, typer.Option(metavar="DIR")] = None,
    verify: bool = False,
) -> dict[str, Any]:
    """Arguments of `load`.

    Parameters
    ----------
    features
        LETOR: number of features (default: the highest index in the file). Tables (CSV, Parquet,
        Feather): name of a feature column; may be repeated (default: all columns without another
        role).
    missing
        LETOR: value of an absent feature, zero or nan.
    zero_based
        LETOR: feature indices start at 0.
    unjudged
        Documents with label −1: error, keep or drop.
    non_finite
        NaN, infinities and values beyond float32: error, keep or clip.
    max_features
        Reject data with more features.
    query
        Tables: column of query ids (default: recognised by name).
    label
        Tables: column of labels (default: recognised by name); may be repeated: the first is the
        main one, and objectives name the others, as nDCG(label=order)@10.
    no_label
        Tables: there are no labels.
    docid
        Tables: column of document ids (default: recognised by name).
    weight
        Tables: column of weights; a query has the mean of its rows (default: no weights).
    ignore
        Tables: column to leave out; may be repeated (default: none).
    categorical_features
        Tables: column of categories, also if it holds numbers; may be repeated (default: columns
        of text).
    split_queries
        Tables in parts: queries with rows in several files: join or error.
    cache
        Keep the parsed file, to load it faster next time.
    cache_dir
        Folder for parsed files (default: TWINRANK_CACHE_DIR, or the user's cache).
    verify
        Check a parsed file by hashes, not only by size and time.
    """
    chosen: dict[str, Any] = dict(locals())
    if not label or len(label) == 1:
        chosen["label"] = label[0] if label else None
    if chosen.pop("no_label"):
        chosen["label"] = False
    return chosen | {"ignore": ignore or (), "categorical_features": categorical_features or ()}


_NAMES = list(inspect.signature(_reading).parameters)
_READING = declared(_reading, {"Options for reading data": _NAMES})
_RENAMED = {"data": "check", "docids": "docid", "init_model": "from", "random_state": "seed"}
_OWN_OPTIONS = (  # arguments of rankers, studies and of `evaluate` that are options
    *("architecture", "convention", "cross_fit", "curve", "cv", "empty", "epochs", "estimator"),
    *("current", "goal_weights", "goals", "min_overlap", "objective", "positions"),
    *("calibrate", "sample_queries", "score", "strategy", "target", "teacher", "ties"),
    *("unlabelled", *_RENAMED),
)


def takes_data(**defaults: Any) -> Callable[[Command], Command]:
    """Add the options of `load` to a command, which gets them as one argument, `reading`."""
    options = [p.replace(default=defaults.get(p.name, p.default)) for p in _READING]

    def run(command: Command, **values: Any) -> None:
        command(reading=_reading(**values))

    return lambda command: with_options(command, options, run)


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
    from twinrank.experiments.study.study_source import read_data

    reading = {**reading, "features": features_of(path, reading["features"])}
    with warnings_as_notes(is_quiet()):
        return read_data(path, reading, text, False if is_quiet() else None)


def load_unlabelled(
    path: Path | None, reading: dict[str, Any], text: Sequence[str] = ()
) -> "Dataset":
    """Load data whose labels are ignored; a table may have no column of labels."""
    reading = {**reading, "unjudged": "keep"}
    try:
        return load_data(path, reading, text)
    except InputError:
        if path is None or not _has_columns(path):
            raise
        return load_data(path, {**reading, "label": False}, text)


def source_of(data: Path | None, reading: dict[str, Any] | None, **choices: Any) -> "Source":
    """The data of a study: a folder with folds, a file, or the built-in data."""
    from twinrank.experiments.study.study_source import Source, forget

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
    >>> as_option(Argument("engine_params", {"max_bin": 15}))
    "--set 'engine_params={max_bin = 15}'"
    """
    name, value = argument.name, argument.value
    if name == "mode" and value in ("paper", "per-document"):
        return f"--{value}"
    if name not in _NAMES and name not in _OWN_OPTIONS:
        if isinstance(value, dict):  # --set reads TOML
            value = (
                "{" + ", ".join(f"{key} = {json.dumps(own)}" for key, own in value.items()) + "}"
            )
        return name if value is None else f"--set {shlex.quote(f'{name}={value}')}"
    option = _RENAMED.get(name, name).replace("_", "-")
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


def show_notes(data: "Dataset", expected: Sequence[Parts] = ()) -> None:
    """Print what the user should know about how data was read, except expected notes."""
    for note in data._table.notes:
        if note not in expected:
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


STANDARD_INPUT = Path("-")
_SUFFIXES = {b"PAR1": ".parquet", b"ARROW1": ".feather"}
_COMPRESSED = (b"\x1f\x8b", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")  # gzip, xz, zstd
_SAMPLE = 4096


@contextmanager
def standard_input() -> Iterator[Path]:
    """A temporary copy of standard input; its content decides on the suffix."""
    with tempfile.TemporaryDirectory(prefix="twinrank-") as folder:
        copy = Path(folder) / "stdin"
        with explained("write", copy), copy.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        with copy.open("rb") as file:
            path = copy.rename(copy.with_suffix(_suffix(file.read(_SAMPLE))))
        try:
            yield path
        except TwinRankError as error:
            parts = [
                p.replace(str(path), "standard input") if isinstance(p, str) else p
                for p in error.parts
            ]
            raise type(error)(*parts) from error


def _suffix(start: bytes) -> str:
    """The suffix of a format, from the beginning of a file.

    >>> _suffix(b"2 qid:1 1:0.5 2:3"), _suffix(b"qid,label,bm25"), _suffix(b"PAR1...")
    ('.txt', '.csv', '.parquet')
    """
    if start.startswith(_COMPRESSED):
        raise InputError(
            "Standard input is compressed. Decompress it first, as in zcat data.gz | …."
        )
    for magic, suffix in _SUFFIXES.items():
        if start.startswith(magic):
            return suffix
    lines = [line for line in start.splitlines() if line.strip() and not line.startswith(b"#")]
    if not lines or b"qid:" in lines[0]:
        return ".txt"
    return ".tsv" if b"\t" in lines[0] else ".csv"
