"""CSV and TSV files: a strict check of their structure, and polars for their values.

Parsers repair malformed text, each in its own way, and may skip rows without a word. The check is
independent of the parser. It accepts what RFC 4180 describes, with line feeds as line ends, too.
"""

import csv
import io
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from twinrank.data.options import ReadOptions, Roles
from twinrank.data.streams import ByteStream, opened
from twinrank.support.compiled import compiled
from twinrank.support.errors import InputError

SEPARATORS = {".csv": ",", ".tsv": "\t"}
PIECE = 1 << 24  # bytes of text that are parsed at a time
_SEPARATOR_NAMES = {";": "semicolons", "\t": "tabs", ",": "commas", "|": "bars"}
_MISSING = ("", "NA", "N/A", "NULL", "null", "None")  # spellings of a missing number
_SAMPLE = 1000  # rows
_BOM = b"\xef\xbb\xbf"
_LONGEST_ROW = 1 << 28

_FINE, _NUL, _QUOTE, _AFTER_QUOTE, _RETURN, _UNCLOSED, _RAGGED = range(7)
_PROBLEMS = {
    _NUL: "a NUL byte",
    _QUOTE: 'a " in a field that does not begin with one; double it and quote the whole field',
    _AFTER_QUOTE: "text after a closing quote; quote the whole field and double the quotes in it",
    _RETURN: "a carriage return without a line feed; save the file with Unix or Windows line ends",
    _UNCLOSED: "a quoted field that does not end",
}
_FEED, _CARRIAGE, _SIGN = 10, 13, 34


def open_csv(
    pl: Any, path: Path, separator: str, options: ReadOptions
) -> tuple[list[str], Callable[[Roles], Iterator[tuple[int, float, Callable[[], Any]]]]]:
    """Return the header of a file, and a function that reads it piece by piece.

    A piece has its number of rows, the share of the file up to its end, and a function that parses
    it to a frame. Ids are text, so 007 stays 007. Malformed text raises an error, and so does a row
    that the parser loses.
    """
    texts = _pieces(path, separator)
    first = next(texts, None)
    if first is None:
        raise InputError(f"{path} is empty.")
    header, end = _header(path, first[0], separator)

    def pieces(roles: Roles) -> Iterator[tuple[int, float, Callable[[], Any]]]:
        as_text = {roles.query, roles.docid, *options.categorical_features, *options.text}
        parse = partial(_frame, pl, path, separator, header, roles, as_text)
        for i, (content, rows, share) in enumerate(chain([first], texts)):
            if rows:
                whole = first[0][:end] + content if i else content
                yield rows, share, partial(parse, whole, rows)

    return header, pieces


def separator_hint(header: list[str], separator: str) -> str | None:
    """What is wrong if a header without roles has another separator."""
    others = [sign for sign in _SEPARATOR_NAMES if sign in header[0]]
    if len(header) > 1 or not others:
        return None
    return (
        f"columns must be separated by {_SEPARATOR_NAMES[separator]}, but the header has "
        f"{_SEPARATOR_NAMES[others[0]]}: {header[0][:60]!r}"
    )


def _frame(
    pl: Any,
    path: Path,
    separator: str,
    header: list[str],
    roles: Roles,
    as_text: set[str | None],
    content: bytes,
    rows: int,
) -> Any:
    """Parse a text of known structure; the columns `as_text` keep their spelling."""
    try:
        # polars renames some columns, such as repeated ones.
        renamed = pl.read_csv(content, n_rows=0, infer_schema=False, separator=separator).columns
        pairs = zip(renamed, header, strict=True)
        texts = {own: pl.String for own, name in pairs if name in as_text}
        frame = _typed(pl, content, texts, separator)
        frame.columns = header
    except (pl.exceptions.PolarsError, IndexError, ValueError) as error:
        try:
            content.decode()
        except UnicodeDecodeError:
            raise InputError(f"{path} is not UTF-8 text; save it as UTF-8.") from error
        reason = str(error).strip().split("\n")[0]
        raise InputError(f"{path}: {reason}.") from error
    if len(frame) != rows:
        frame = frame.filter(~pl.all_horizontal(pl.all().is_null()))  # blank lines
    if len(frame) != rows:
        raise InputError(f"{path}: {len(frame):,} of {rows:,} rows were read; is it valid CSV?")
    return _with_numbers(pl, frame, {*roles.features, roles.label, roles.weight} - as_text)


def _typed(pl: Any, content: bytes, texts: dict[str, Any], separator: str) -> Any:
    """Read a text with the column types of its first rows.

    If that fails, all rows determine the types, which takes ten times as long. Large integers
    stay integers, so that a loss of digits in float32 is noticed later.
    """
    arguments: dict[str, Any] = {"separator": separator, "infer_schema_length": _SAMPLE}
    lenient = {"n_rows": _SAMPLE, "ignore_errors": True, "truncate_ragged_lines": True}
    sample = pl.read_csv(content, schema_overrides=texts, **lenient, **arguments)
    numbers = {
        column.name: pl.Float64
        for column in sample.get_columns()
        if column.dtype.is_float()
        or (column.dtype.is_integer() and (column.abs().max() or 0) <= 2**24)
    }
    try:
        return pl.read_csv(content, schema_overrides={**texts, **numbers}, **arguments)
    except pl.exceptions.ComputeError:
        arguments["infer_schema_length"] = None
        return pl.read_csv(content, schema_overrides=texts, **arguments)


def _with_numbers(pl: Any, frame: Any, names: set[str | None]) -> Any:
    """Convert text columns whose values are numbers, padded with blanks, or missing."""
    converted = []
    for column in frame.get_columns():
        if column.dtype == pl.String and column.name in names:
            text = column.str.strip_chars()
            numbers = text.cast(pl.Float64, strict=False)
            if numbers.null_count() == text.null_count() + text.is_in(_MISSING).sum():
                converted.append(numbers)
    return frame.with_columns(converted)


def _header(path: Path, content: bytes, separator: str) -> tuple[list[str], int]:
    """The first row that is not blank, and the number of bytes up to its end."""
    read = 0

    def lines(text: io.TextIOWrapper) -> Iterator[str]:
        nonlocal read
        for line in text:
            read += len(line.encode())
            yield line

    try:
        with io.TextIOWrapper(io.BytesIO(content), "utf-8-sig", newline="") as text:
            for row in csv.reader(lines(text), delimiter=separator):
                if row:
                    return row, read
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text; save it as UTF-8.") from error
    except csv.Error as error:
        raise InputError(f"{path} is not valid CSV: {error}.") from error
    raise InputError(f"{path} is empty.")


def _pieces(path: Path, separator: str) -> Iterator[tuple[bytes, int, float]]:
    """Pieces of a file with their numbers of rows, and the share of the file up to their ends."""
    with opened(path) as source:
        for content, rows in whole_rows(source, separator):
            yield content, rows, source.share


def whole_rows(source: ByteStream, separator: str) -> Iterator[tuple[bytes, int]]:
    """Pieces of CSV text, each of whole rows, with their numbers of rows; the first has the header.

    Only one piece is in memory at a time. Malformed text raises an error.
    """
    rest, width, line, size = b"", 0, 1, PIECE
    is_first = True
    while True:
        content = bytearray(len(rest) + size)
        content[: len(rest)] = rest
        filled = source.fill(memoryview(content)[len(rest) :])
        last, end = filled < size, len(rest) + filled
        start = len(_BOM) if is_first and content.startswith(_BOM) else 0
        if is_first and content.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise InputError(f"{source.path} is not UTF-8 text; save it as UTF-8.")
        text = np.frombuffer(content, np.uint8)[:end]
        rows, lines, width, stop = _counted(source.path, text, start, separator, width, line, last)
        if stop > start:
            yield bytes(memoryview(content)[start:stop]), rows
            is_first = False
        elif end > _LONGEST_ROW:
            raise InputError(
                f"{source.path}, line {line}: a row of more than {_LONGEST_ROW >> 20} MB; is there "
                f"a quoted field that does not end?"
            )
        if last:
            return
        line += lines
        rest = bytes(memoryview(content)[stop:end])
        size = PIECE if stop else 2 * size


def _counted(
    path: Path, text: Any, start: int, separator: str, width: int, line: int, last: bool
) -> tuple[int, int, int, int]:
    """Rows, line breaks, fields of the header, and the end of the last whole row."""
    rows, problem, lines, column, width, stop = _scan(text, start, ord(separator), width, last)
    line += lines - 1
    if problem == _RAGGED:
        raise InputError(f"{path}, line {line}: {column} fields, but the header has {width}.")
    if problem != _FINE:
        raise InputError(f"{path}, line {line}, column {column}: {_PROBLEMS[problem]}.")
    return int(rows), int(lines) - 1, int(width), int(stop)


@compiled
def _scan(
    text: Any, start: int, separator: int, width: int, last: bool
) -> tuple[int, int, int, int, int, int]:
    """Rows with a value, and the first problem with its line, its column and the header's width.

    The column of a ragged row is its number of fields. A `width` of 0 means that the text begins
    with the header. If the text is not the last of a file, an incomplete row at its end is left
    out. The last number is the end of the rows that were counted.
    """
    rows, line, first_line = -(width == 0), 1, 1  # the header is no row
    fields, filled, size = 1, False, text.size
    begins, quoted, closed = True, False, False  # the state of the field
    row_begin = start
    for i in range(start, size):
        byte = text[i]
        if byte == 0:
            return rows, _NUL, line, fields, width, 0
        if quoted:
            if byte == _FEED:
                line += 1
            elif byte == _SIGN:
                quoted, closed = False, True
        elif byte == _SIGN:
            if closed:  # a doubled quote
                quoted, closed = True, False
            elif begins:
                quoted, begins, filled = True, False, True
            else:
                return rows, _QUOTE, line, fields, width, 0
        elif byte == separator:
            fields, begins, closed = fields + 1, True, False
        elif byte in (_FEED, _CARRIAGE):
            if byte == _CARRIAGE:
                if i + 1 == size and not last:
                    break
                if i + 1 == size or text[i + 1] != _FEED:
                    return rows, _RETURN, line, fields, width, 0
                continue
            empty = i == row_begin or (i == row_begin + 1 and text[i - 1] == _CARRIAGE)
            if not empty:
                if width == 0:
                    width, filled = fields, True
                elif fields != width:
                    return rows, _RAGGED, first_line, fields, width, 0
                rows += filled
            line, row_begin = line + 1, i + 1
            first_line, fields, filled, begins, closed = line, 1, False, True, False
        elif closed:
            return rows, _AFTER_QUOTE, line, fields, width, 0
        else:
            begins, filled = False, True
    if not last:
        return rows, _FINE, first_line, fields, width, row_begin
    if quoted:
        return rows, _UNCLOSED, first_line, fields, width, 0
    if row_begin < size:  # the last line has no end
        if width and fields != width:
            return rows, _RAGGED, first_line, fields, width, 0
        rows += filled or width == 0
    return rows, _FINE, line, fields, width, size
