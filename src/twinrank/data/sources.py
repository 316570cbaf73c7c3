"""Sources of data: a file, a folder, a pattern or a list of files, an address, a stream of batches.

A single file is a list of one part.
"""

import glob
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from twinrank.data.fold_files import by_number, fold_candidates, tables_in
from twinrank.data.options import ReadOptions, choose_columns
from twinrank.data.streams import FRAMES, plain_suffix
from twinrank.support.errors import InputError, explained

# One slash is enough: a path on the command line has lost the other.
_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+):/{1,3}(?=[^/])", re.IGNORECASE)
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class Part:
    """A file with rows, and the values that the names of its folders give to columns."""

    path: Path
    partition: tuple[tuple[str, str | int | float | None], ...] = ()

    @property
    def name(self) -> str:
        """The name in messages."""
        return str(self.path)


@dataclass(frozen=True)
class Stream:
    """Rows that can be read once: their columns, and a function that reads some columns.

    The function takes names of columns and a number of rows, and returns frames or record batches.
    """

    name: str
    columns: list[str]
    batches: Callable[[list[str], int], Iterator[Any]]


def address_of(source: object) -> str | None:
    """Return an address such as s3://bucket/folder, or None for a path.

    >>> address_of("s3://logs/day"), address_of(Path("s3://logs/day")), address_of("day.csv")
    ('s3://logs/day', 's3://logs/day', None)
    """
    match = _ADDRESS.match(text := str(source)) if isinstance(source, str | Path) else None
    if match is None:
        return None
    start = "file:///" if match[1].lower() == "file" else f"{match[1]}://"
    return start + text[match.end() :]


def is_source(value: Any) -> bool:
    """True for a source of `load` that holds labels and queries itself: files or a stream."""
    if isinstance(value, str | os.PathLike):
        return True
    if isinstance(value, list | tuple) and value:
        return all(isinstance(item, str | os.PathLike) for item in value)
    return is_stream(value)


def is_stream(value: Any) -> bool:
    """True for an Arrow dataset, a reader of record batches, and a lazy frame of polars."""
    library, name = type(value).__module__.split(".")[0], type(value).__name__
    if library == "pyarrow":
        return hasattr(value, "scanner") or hasattr(value, "read_next_batch")
    return (library, name) == ("polars", "LazyFrame")


def find_parts(source: Any) -> list[Part]:
    """Return the files of a folder, a pattern or a list; a single file is the only part."""
    if isinstance(source, list | tuple):
        return _listed(source)
    path = Path(source).expanduser()
    with explained("read", path):
        if path.is_dir():
            return _in_folder(path)
        if not path.exists() and glob.has_magic(str(path)):
            return _matching(path)
    return [Part(path)]


def is_folder_of_parts(folder: Path) -> bool:
    """True for a folder with tables that is not laid out as folds."""
    return folder.is_dir() and _roles_in(folder) is None and any(tables_in(folder))


def _listed(paths: Sequence[Any]) -> list[Part]:
    files = [Path(path).expanduser() for path in paths]
    if not files:
        raise InputError("The list of files is empty; pass at least one file.")
    if repeated := [path for path, count in Counter(files).items() if count > 1]:
        raise InputError(f"{repeated[0]} is in the list twice; name each file once.")
    if len(files) == 1 and plain_suffix(files[0]) not in FRAMES:
        return [Part(files[0])]
    return [_part(path) for path in files]


def _matching(pattern: Path) -> list[Part]:
    names = glob.glob(str(pattern), recursive=True)  # noqa: PTH207
    found = sorted(map(Path, names), key=_order)
    files = [path for path in found if not path.is_dir()]
    for folder in (path for path in found if path.is_dir()):
        files += [path for path in tables_in(folder) if path not in files]
    if not files:
        raise InputError(f"No file matches {pattern}.")
    return [_part(path) for path in files]


def _in_folder(folder: Path) -> list[Part]:
    if (fold := _roles_in(folder)) is not None:
        names = ", ".join(path.name for path in fold.values())
        raise InputError(
            f"{folder} has training and test data ({names}), which are not mixed. Name a file in "
            f"it; in Python, load_folds loads all of them."
        )
    files = list(tables_in(folder))
    if not files:
        raise InputError(
            f"{folder} is a folder without 'manifest.json' and without tables ({', '.join(FRAMES)})"
            f"; use load_folds for folds such as Fold1/train.txt, or pass the path of a file."
        )
    return [_part(path, folder) for path in files]


def _roles_in(folder: Path) -> dict[str, Path] | None:
    """The files of a fold, if a folder has at least training and other data."""
    candidates = fold_candidates(folder, {})
    return next((files for files in candidates.values() if len(files) > 1), None)


def _order(path: Path) -> tuple[Any, ...]:
    """A sort key that puts part-2 before part-10."""
    return tuple(by_number(Path(piece)) for piece in path.parts)


def _part(path: Path, base: Path | None = None) -> Part:
    """A file as a part; folders called `column=value` below `base` give values to columns."""
    if plain_suffix(path) not in FRAMES:
        raise InputError(
            f"{path} is not a table; several files must be {', '.join(FRAMES)}. Convert LETOR text "
            f"first: twinrank convert."
        )
    folders = path.parent.relative_to(base).parts if base is not None else path.parent.parts
    pairs = [folder.partition("=") for folder in folders if "=" in folder]
    return Part(path, tuple((unquote(name), _value(unquote(text))) for name, _, text in pairs))


def _value(text: str) -> str | int | float | None:
    if text == _NO_VALUE:
        return None
    for convert in (int, float):
        try:
            value = convert(text)
        except ValueError:
            continue
        return value if str(value) == text else text  # 007 is text
    return text


def open_stream(source: Any, pl: Any, options: ReadOptions) -> Stream:
    """An Arrow dataset, a reader of record batches, a lazy frame or an address as a stream."""
    if (address := address_of(source)) is not None:
        return lazy_stream(_scan(address, pl, options), address)
    if hasattr(source, "collect_schema"):
        return lazy_stream(source, "the lazy frame")
    if hasattr(source, "scanner"):

        def batches(columns: list[str], rows: int) -> Iterator[Any]:
            return iter(source.to_batches(columns=columns, batch_size=rows))

        return Stream("the Arrow dataset", list(source.schema.names), batches)

    def remaining(columns: list[str], rows: int) -> Iterator[Any]:
        for batch in source:
            for start in range(0, batch.num_rows, rows):
                yield batch.select(columns).slice(start, rows)

    return Stream("the record batches", list(source.schema.names), remaining)


def _scan(address: str, pl: Any, options: ReadOptions) -> Any:
    """A lazy frame of an address; polars knows how to reach it.

    As in local files, ids are text, and folders called `column=value` are no features.
    """
    suffix = plain_suffix(Path(address))
    if suffix in (".csv", ".tsv"):
        separator = "," if suffix == ".csv" else "\t"
        header = pl.scan_csv(address, separator=separator).collect_schema().names()
        roles = choose_columns(header, options, address)
        ids = {name: pl.String for name in (roles.query, roles.docid) if name}
        return pl.scan_csv(address, separator=separator, schema_overrides=ids)
    scan = pl.scan_ipc if suffix in (".feather", ".arrow", ".ipc") else pl.scan_parquet
    return scan(address, hive_partitioning=False)


def lazy_stream(frame: Any, name: str) -> Stream:
    """A lazy frame as a stream; polars decodes about one group of rows of a file at a time."""

    def batches(columns: list[str], rows: int) -> Iterator[Any]:
        if not hasattr(frame, "collect_batches"):
            raise InputError(f"{name} needs polars 1.34 or newer; pip install -U polars.")
        return iter(frame.select(columns).collect_batches(chunk_size=rows, maintain_order=True))

    return Stream(name, list(frame.collect_schema().names()), batches)
