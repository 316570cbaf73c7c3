"""CSV and TSV files, read by polars, with errors that name the line."""

import csv
import io
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from twinrank.data.column_roles import Roles, choose_columns
from twinrank.data.csv_structure import count_rows, whole_rows
from twinrank.data.streams import COMPRESSED, opened
from twinrank.data.table import ReadOptions
from twinrank.support.errors import InputError

SEPARATORS = {".csv": ",", ".tsv": "\t"}
_SEPARATOR_NAMES = {";": "semicolons", "\t": "tabs", ",": "commas", "|": "bars"}
_MISSING = ("", "NA", "N/A", "NULL", "null", "None")  # spellings of a missing number
_SAMPLE = 1000  # rows
_PIECE = 1 << 22
_NOT_TEXT = " is not UTF-8 text; save it as UTF-8"


def read_delimited(pl: Any, path: Path, options: ReadOptions, separator: str) -> Any:
    """Read a CSV file as a frame; ids are text, so 007 stays 007.

    Malformed text raises an error, and so does a row that the parser loses.
    """
    content = _content(path) if path.suffix.lower() in COMPRESSED else None
    header, _ = _header(path, content, separator)
    rows = count_rows(path, content, separator)
    roles = delimited_roles(header, options, str(path), separator)
    return _read_rows(pl, path, content, header, roles, rows, separator)


def delimited_pieces(
    pl: Any, path: Path, separator: str
) -> tuple[list[str], Callable[[Roles], Iterator[tuple[int, int, Callable[[], Any]]]]]:
    """The header of a CSV file, and a function that reads it piece by piece.

    Each piece has a number of rows, the number of bytes of the file up to its end, and a function
    that parses it, for use in another thread.
    """
    texts = _texts(path, separator)
    piece = next(texts, None)
    if piece is None:
        raise InputError(f"{path} is empty")
    header, end = _header(path, piece[0], separator)
    head = piece[0][:end]

    def pieces(roles: Roles) -> Iterator[tuple[int, int, Callable[[], Any]]]:
        for i, (content, rows, read) in enumerate(chain([piece], texts)):
            if rows:
                whole = head + content if i else content
                task = partial(_read_rows, pl, path, whole, header, roles, rows, separator)
                yield rows, read, task

    return header, pieces


def _texts(path: Path, separator: str) -> Iterator[tuple[bytes, int, int]]:
    with opened(path) as source:
        for content, rows in whole_rows(source, separator):
            yield content, rows, source.consumed


def _read_rows(
    pl: Any,
    path: Path,
    content: bytes | None,
    header: list[str],
    roles: Roles,
    rows: int,
    separator: str,
) -> Any:
    """Parse a file, or its content, of known structure."""
    source, arguments = content or path, {"separator": separator}
    try:
        # polars renames some columns, such as repeated ones.
        renamed = pl.read_csv(source, n_rows=0, infer_schema=False, **arguments).columns
        ids = [name for name in (roles.query, roles.docid) if name]
        texts = {renamed[header.index(name)]: pl.String for name in ids}
        frame = _parsed(pl, source, texts, arguments)
        frame.columns = header
    except (pl.exceptions.PolarsError, IndexError, ValueError) as error:
        reason = _not_text(path, content) or ": " + _first_line(error)
        raise InputError(f"{path}{reason}") from error
    frame = frame.filter(~pl.all_horizontal(pl.all().is_null()))  # blank lines
    if len(frame) != rows:
        raise InputError(f"{path}: {len(frame):,} of {rows:,} rows were read; is it valid CSV?")
    return _with_numbers(pl, frame, roles)


def _parsed(pl: Any, source: Any, texts: dict[str, Any], arguments: dict[str, Any]) -> Any:
    """Read a file with the column types of its first rows.

    If that fails, all rows determine the types, which takes ten times as long. Large integers
    stay integers, so that a loss of digits in float32 is noticed later.
    """
    arguments = {**arguments, "infer_schema_length": _SAMPLE}
    lenient = {"n_rows": _SAMPLE, "ignore_errors": True, "truncate_ragged_lines": True}
    sample = pl.read_csv(source, schema_overrides=texts, **lenient, **arguments)
    numbers = {
        column.name: pl.Float64
        for column in sample
        if column.dtype.is_float() or (column.dtype.is_integer() and not (column > 2**24).any())
    }
    try:
        return pl.read_csv(source, schema_overrides={**texts, **numbers}, **arguments)
    except pl.exceptions.ComputeError:
        arguments["infer_schema_length"] = None
        return pl.read_csv(source, schema_overrides=texts, **arguments)


def _with_numbers(pl: Any, frame: Any, roles: Roles) -> Any:
    """Convert text columns whose values are numbers, padded with blanks, or missing."""
    converted = []
    for name in (*roles.features, *((roles.label,) if roles.label else ())):
        if frame[name].dtype == pl.String:
            text = frame[name].str.strip_chars()
            numbers = text.cast(pl.Float64, strict=False)
            if numbers.null_count() == text.null_count() + text.is_in(_MISSING).sum():
                converted.append(numbers)
    return frame.with_columns(converted)


def delimited_roles(header: list[str], options: ReadOptions, path: str, separator: str) -> Roles:
    """Choose the column of each role; an error names a wrong separator."""
    try:
        return choose_columns(header, options, path)
    except InputError as error:
        separators = [sign for sign in _SEPARATOR_NAMES if sign in header[0]]
        if len(header) > 1 or not separators:
            raise
        raise InputError(
            f"{path}: columns must be separated by {_SEPARATOR_NAMES[separator]}, but the header "
            f"has {_SEPARATOR_NAMES[separators[0]]}: {header[0][:60]!r}"
        ) from error


def _header(path: Path, content: bytes | None, separator: str) -> tuple[list[str], int]:
    """The first row that is not blank, and the number of bytes up to its end."""
    read = 0

    def lines(text: io.TextIOWrapper) -> Iterator[str]:
        nonlocal read
        for line in text:
            read += len(line.encode())
            yield line

    try:
        with _opened(path, content) as text:
            for row in csv.reader(lines(text), delimiter=separator):
                if row:
                    return row, read
    except UnicodeDecodeError as error:
        raise InputError(f"{path}{_NOT_TEXT}") from error
    except csv.Error as error:
        raise InputError(f"{path} is not valid CSV: {error}") from error
    raise InputError(f"{path} is empty")


def _not_text(path: Path, content: bytes | None) -> str:
    """The reason if a file is not UTF-8, or ""."""
    try:
        with _opened(path, content) as text:
            while text.read(_PIECE):
                pass
    except UnicodeDecodeError:
        return _NOT_TEXT
    return ""


def _opened(path: Path, content: bytes | None) -> io.TextIOWrapper:
    file = path.open("rb") if content is None else io.BytesIO(content)
    return io.TextIOWrapper(file, "utf-8-sig", newline="")


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]


def _content(path: Path) -> bytes:
    pieces = []
    with opened(path) as source:
        while True:
            piece = bytearray(_PIECE)
            count = source.fill(memoryview(piece))
            pieces.append(bytes(piece[:count]))
            if count < len(piece):
                return b"".join(pieces)
