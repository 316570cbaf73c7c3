"""CSV and TSV by polars, with errors that name the line."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from twinrank.data.column_roles import Roles, choose_columns
from twinrank.data.streams import COMPRESSED, opened
from twinrank.data.table import ReadOptions
from twinrank.support.errors import InputError

SEPARATORS = {".csv": ",", ".tsv": "\t"}
_OTHERS = {";": "semicolons", "\t": "tabs", ",": "commas", "|": "bars"}
_MISSING = ("", "NA", "N/A", "NULL", "null", "None")  # how people write that a number is missing
_SAMPLE = 1000  # rows
_PIECE = 1 << 22


def read_delimited(pl: Any, path: Path, reading: ReadOptions, separator: str) -> Any:
    """The frame of a CSV file; ids are text, so that 007 stays 007."""
    content = _content(path) if path.suffix.lower() in COMPRESSED else None
    header = _header(path, content, separator)
    roles = _roles(header, reading, path, separator)
    source, choices = content or path, {"separator": separator}
    try:
        # polars renames columns that its own reading of the header finds odd.
        called = pl.read_csv(source, n_rows=0, infer_schema=False, **choices).columns
        texts = {called[header.index(n)]: pl.String for n in (roles.query, roles.docid) if n}
        frame = _parsed(pl, source, texts, choices)
        frame.columns = header
    except (pl.exceptions.PolarsError, IndexError, ValueError) as error:
        reason = _ragged(path, content, separator) or ": " + _first_line(error)
        raise InputError(f"{path}{reason}") from error
    frame = frame.filter(~pl.all_horizontal(pl.all().is_null()))  # blank lines
    if frame[:, -1].null_count() and (reason := _ragged(path, content, separator)):
        raise InputError(f"{path}{reason}")  # polars takes what is absent for missing
    return _with_numbers(pl, frame, roles)


def _parsed(pl: Any, source: Any, texts: dict[str, Any], choices: dict[str, Any]) -> Any:
    """Read a file; what its first rows have as numbers is taken for numbers all along.

    Only if that fails do all rows decide together, which takes ten times as long. Large whole
    numbers stay what they are: as floats nobody would notice that they lose digits.
    """
    choices = {**choices, "infer_schema_length": _SAMPLE}
    lenient = {"n_rows": _SAMPLE, "ignore_errors": True, "truncate_ragged_lines": True}
    first = pl.read_csv(source, schema_overrides=texts, **lenient, **choices)
    kinds = {
        column.name: pl.Float64
        for column in first
        if column.dtype.is_float() or (column.dtype.is_integer() and not (column > 2**24).any())
    }
    try:
        return pl.read_csv(source, schema_overrides={**texts, **kinds}, **choices)
    except pl.exceptions.ComputeError:
        choices["infer_schema_length"] = None
        return pl.read_csv(source, schema_overrides=texts, **choices)


def _with_numbers(pl: Any, frame: Any, roles: Roles) -> Any:
    """Text that is numbers after all, but for blanks around them or words for missing ones."""
    found = []
    for name in (*roles.features, *((roles.label,) if roles.label else ())):
        if frame[name].dtype == pl.String:
            text = frame[name].str.strip_chars()
            numbers = text.cast(pl.Float64, strict=False)
            if numbers.null_count() == text.null_count() + text.is_in(_MISSING).sum():
                found.append(numbers)
    return frame.with_columns(found)


def _roles(header: list[str], reading: ReadOptions, path: Path, separator: str) -> Roles:
    try:
        return choose_columns(header, reading, str(path))
    except InputError as error:
        other = [sign for sign in _OTHERS if sign in header[0]]
        if len(header) > 1 or not other:
            raise
        raise InputError(
            f"{path}: columns must be separated by {_OTHERS[separator]}, but seem to be by "
            f"{_OTHERS[other[0]]}: {header[0][:60]!r}"
        ) from error


def _header(path: Path, content: bytes | None, separator: str) -> list[str]:
    try:
        for _, row in _rows(path, content, separator):
            return row
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text; save it as UTF-8") from error
    except csv.Error as error:
        raise InputError(f"{path} can't be read as CSV: {error}") from error
    raise InputError(f"{path} holds no documents: it is empty")


def _ragged(path: Path, content: bytes | None, separator: str) -> str:
    """What to say of the first line with another number of fields than the header, if any."""
    width = 0
    try:
        for line, row in _rows(path, content, separator):
            width = width or len(row)
            if len(row) != width:
                return f", line {line}: {len(row)} fields, but the header has {width}"
    except UnicodeDecodeError:
        return " is not UTF-8 text; save it as UTF-8"
    except csv.Error:
        pass
    return ""


def _rows(path: Path, content: bytes | None, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Rows that aren't blank, and the number of the line that each begins with."""
    with path.open("rb") if content is None else io.BytesIO(content) as file:
        reader = csv.reader(io.TextIOWrapper(file, "utf-8-sig", newline=""), delimiter=separator)
        before = 0
        for row in reader:
            if row:
                yield before + 1, row
            before = reader.line_num


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
