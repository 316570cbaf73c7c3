"""A strict check of the structure of CSV text, independent of the parser that reads its values.

Parsers repair malformed text, each in its own way, and may skip rows without a word. This check
accepts what RFC 4180 describes, with line feeds as line ends, too.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from twinrank.data.streams import ByteStream
from twinrank.support.compiled import compiled
from twinrank.support.errors import InputError

_FINE, _NUL, _QUOTE, _AFTER_QUOTE, _RETURN, _UNCLOSED, _RAGGED = range(7)
_PROBLEMS = {
    _NUL: "a NUL byte",
    _QUOTE: 'a " in a field that does not begin with one; double it and quote the whole field',
    _AFTER_QUOTE: "text after a closing quote; quote the whole field and double the quotes in it",
    _RETURN: "a carriage return without a line feed; save the file with Unix or Windows line ends",
    _UNCLOSED: "a quoted field that does not end",
}
_FEED, _CARRIAGE, _SIGN = 10, 13, 34
_BOM = b"\xef\xbb\xbf"
_LONGEST_ROW = 1 << 28
PIECE = 1 << 24  # bytes of text in a piece


def count_rows(path: Path, content: bytes | None, separator: str) -> int:
    """The number of rows with a value after the header; malformed text raises an error."""
    if content is None:
        text = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.empty(0, np.uint8)
    else:
        text = np.frombuffer(content, np.uint8)
    start = len(_BOM) if text[: len(_BOM)].tobytes() == _BOM else 0
    return _counted(path, np.asarray(text), start, separator, 0, 1, True)[0]


def whole_rows(source: ByteStream, separator: str) -> Iterator[tuple[bytes, int]]:
    """Pieces of CSV text, each of whole rows, with their numbers of rows; the first has the header.

    Only one piece is in memory at a time. Malformed text raises an error, as in `count_rows`.
    """
    rest, width, line, size = b"", 0, 1, PIECE
    is_first = True
    while True:
        content = bytearray(len(rest) + size)
        content[: len(rest)] = rest
        filled = source.fill(memoryview(content)[len(rest) :])
        last, end = filled < size, len(rest) + filled
        start = len(_BOM) if is_first and content.startswith(_BOM) else 0
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
        raise InputError(f"{path}, line {line}: {column} fields, but the header has {width}")
    if problem != _FINE:
        raise InputError(f"{path}, line {line}, column {column}: {_PROBLEMS[problem]}")
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
