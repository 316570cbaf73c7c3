"""LETOR / SVMlight text, `label qid:ID index:value … # comment`, read as blocks.

Internal: import public names from `twinrank`.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from twinrank.data.block import Block, Place, Runs
from twinrank.data.builder import as_ids, checked
from twinrank.data.letor import letor_rows as rows
from twinrank.data.letor.tokens import POWERS
from twinrank.data.options import NON_FINITE, UNJUDGED, ReadOptions
from twinrank.data.streams import ByteStream, check_unchanged, opened, settled_state
from twinrank.data.table import Texts
from twinrank.support.errors import Argument, InputError, Parts

_PIECE = 1 << 22  # bytes of text that one thread parses at a time
_BLOCK = 1 << 23  # bytes of X that a thread fills at a time
_LONGEST_LINE = 1 << 28
_PADDING = 16  # bytes after the text that the parser may read
_LONGEST_SHOWN = 60  # characters of an invalid token that a message shows
_BOM = b"\xef\xbb\xbf"
NAMES = b"# features = "
LONGEST_ID = 1_000  # bytes; an array of ids needs the length of the longest for each
_CONTROL = re.compile(rb"[\0-\x1f]")
_ID_TEXT, _ID_LENGTH = -1, -2  # problems besides those of `letor_rows`
_PROBLEMS = {
    rows.LABEL_RANGE: "a label must be a finite number ≥ 0 (or −1 for unjudged), not {}.",
    rows.QID: "expected qid:ID after the label, found {}.",
    _ID_TEXT: "a query id must be UTF-8 without control characters, found {}.",
    _ID_LENGTH: f"a query id must have at most {LONGEST_ID:,} bytes, found {{}}.",
    rows.INDEX: "expected a feature as index:value, found {}.",
    rows.ORDER: "feature indices must increase within a line, but {} repeats or goes back.",
    rows.VALUE: "the value of a feature must be a number, found {}.",
}


class TooNarrowError(Exception):
    """The file has a higher index than its beginning; it must be read again with more features."""

    def __init__(self, features: int) -> None:
        super().__init__(features)
        self.features = features


@dataclass
class _Text:
    """Whole lines of a file: content[:size] ends with a line break, and padding follows."""

    content: bytearray
    size: int


class LetorReader:
    """Reads a file of LETOR text. The width is estimated from the beginning of the file."""

    notes: Sequence[Parts] = ()

    def __init__(self, path: Path, options: ReadOptions) -> None:
        if options.features is not None and not isinstance(options.features, int):
            raise InputError(
                f"{path} has no column names; ", Argument("features"), " must be a number here."
            )
        options.refuse_columns(f"{path} is LETOR text, which has no columns")
        self.path, self._state = path, settled_state(path)
        self._options, self._first = options, 0 if options.zero_based else 1
        with opened(path) as source:
            beginning = next(_texts(source), None)
        self._names, highest = None, -1
        if beginning is not None:
            self._names = _names(path, beginning)
            highest = int(_parsed(beginning, 0, 1, options)[-2][rows.HIGHEST])  # up to an error
        self._width = options.features or max(highest - self._first + 1, 1)
        self._indices: list[int] = []  # the highest of each block

    def pieces(self, _: object) -> Iterator[tuple[float, Callable[[], Block]]]:
        """The share of the file up to the end of each piece, and a function that parses it."""
        lines = 0
        with opened(self.path) as source:
            for text in _texts(source):
                yield source.share, partial(self._parse, text, 0, lines)
                lines += text.content.count(b"\n", 0, text.size)
        check_unchanged(self.path, self._state)

    @property
    def features(self) -> list[str] | None:
        """The names of the features, after all pieces were parsed."""
        if not self._indices:
            return None  # there are no documents
        width = max(self._indices) - self._first + 1
        if width > self._width:
            raise TooNarrowError(width)
        if max(self._indices) < 0 and self._options.features is None:
            raise InputError(
                f"{self.path} has no features: no line has an index:value. If this is intended, "
                f"pass their number as ",
                Argument("features"),
                ".",
            )
        if self._names is not None and len(self._names) != self._width:
            raise InputError(
                f"{self.path}, line 1: there are {len(self._names)} feature names but "
                f"{self._width} features; name each feature once."
            )
        return self._names

    def _parse(self, text: _Text, begin: int, lines: int) -> Block:
        """Parse and check a text from a position on, until it ends or the block is full."""
        options = self._options
        X, y, starts, ids, comments, report, problems = _parsed(text, begin, self._width, options)
        if problems:
            raise self._error(text, begin, lines, *min(problems))
        if len(X):
            self._indices.append(int(report[rows.HIGHEST]))
        names = as_ids([bytes(text.content[a:b]).decode() for a, b in ids])
        kind, names = ("integer", names) if names.dtype == np.int64 else ("text", names.astype("O"))
        resume, rest = int(report[rows.RESUME]), None
        if resume < text.size:
            lines += text.content.count(b"\n", begin, resume)
            rest = partial(self._parse, text, resume, lines)
        block = Block(
            X=X,
            y=y,
            runs=Runs(starts, names, kind),
            place=Place(self._names, str(self.path)),
            docids=comments,
            inexact_values=int(report[rows.INEXACT]),
            inexact_labels=bool(report[rows.INEXACT_LABELS]),
            finite=True,
            missing=int(report[rows.MISSING]),
            infinite=int(report[rows.INFINITE]),
            rest=rest,
        )
        return checked(block, options)

    def _error(
        self, text: _Text, begin: int, lines: int, place: int, end: int, code: int
    ) -> InputError:
        """Return the error for text[place:end], in a text with `lines` before its part `begin`."""
        content = bytes(text.content[: text.size])
        line = lines + content.count(b"\n", begin, place) + 1
        start = content.rfind(b"\n", 0, place) + 1
        column = len(content[start:place].decode("utf-8", errors="replace")) + 1
        features = self._options.features
        limit = features if isinstance(features, int) else self._options.max_features
        where, token = f"{self.path}, line {line}, column {column}: ", content[place:end]
        return InputError(where, *_message(code, _shown(token), token, limit))


def _names(path: Path, text: _Text) -> list[str] | None:
    """The names in a first line `# features = ["name", …]`, which other readers skip."""
    if not text.content.startswith(NAMES + b"["):  # at most an ordinary comment
        return None
    line = bytes(text.content[len(NAMES) : text.content.index(b"\n")])
    try:
        names = json.loads(line)
        valid = isinstance(names, list) and all(isinstance(name, str) for name in names)
    except (ValueError, RecursionError):
        valid = False
    if not valid:
        raise InputError(f"{path}, line 1: expected a JSON list of names after {NAMES.decode()!r}.")
    return names  # type: ignore[no-any-return]


def _texts(source: ByteStream) -> Iterator[_Text]:
    """Split a file at line breaks into pieces; the last line may have no line break."""
    rest, size = b"", _PIECE
    first = True
    while True:
        content = bytearray(len(rest) + size + _PADDING)
        content[: len(rest)] = rest
        filled = source.fill(memoryview(content)[len(rest) : len(rest) + size])
        end = len(rest) + filled
        if first and end >= len(_BOM):
            first = False
            if content.startswith(_BOM):
                del content[: len(_BOM)]
                content += bytes(len(_BOM))
                end -= len(_BOM)
        if filled < size:
            if end:
                content[end] = ord("\n")
                yield _Text(content, end + 1)
            return
        cut = content.rfind(b"\n", 0, end) + 1
        if cut == 0 and end > _LONGEST_LINE:
            raise InputError(
                f"{source.path} has a line of more than {_LONGEST_LINE >> 20} MB; "
                f"check that it is a text file."
            )
        rest = bytes(memoryview(content)[cut:end])
        size = _PIECE if cut else 2 * size
        if cut:
            yield _Text(content, cut)


def _parsed(text: _Text, begin: int, width: int, options: ReadOptions) -> tuple[Any, ...]:
    """Parse lines: features, labels, starts and ids of runs, comments, the report, and problems."""
    # The shortest line is "0 qid:1"; a row may be wider than a block.
    most_rows = min(max(_BLOCK // (4 * width), 1), (text.size - begin) // 8 + 1)
    X = np.empty((most_rows, width), np.float32)
    y = np.empty(most_rows, np.float32)
    starts, ids = np.empty(most_rows, np.int64), np.empty((most_rows, 2), np.int64)
    comments = np.empty(text.size - begin, np.uint8)
    comment_ends = np.empty(most_rows, np.int64)
    doubts = np.empty((max(1024, 2 * width), 4), np.int64)
    report = np.zeros(rows.REPORT_SIZE, np.int64)
    rows.parse_rows(
        np.frombuffer(text.content, np.uint8),
        begin,
        text.size,
        0 if options.zero_based else 1,
        width if isinstance(options.features, int) else options.max_features,
        np.float32(np.nan if options.missing == "nan" else 0),
        UNJUDGED.index(options.unjudged),
        NON_FINITE.index(options.non_finite),
        POWERS,
        X,
        y,
        starts,
        ids,
        comments,
        comment_ends,
        doubts,
        report,
    )
    code, place, end = report[: rows.END + 1].tolist()
    problems = [] if code == rows.FINE else [(place, end, code)]
    for row, column, start, end in doubts[: report[rows.DOUBTS]].tolist():
        token = text.content[start:end].decode()
        with np.errstate(over="ignore"):
            value = np.float32(float(token))
        if column < 0:
            y[row] = value
        else:
            X[row, column] = value
        counts = y[row] != -1 or options.unjudged != "drop"
        if np.isinf(value) and column < 0:
            problems.append((start, end, rows.LABEL_RANGE))
        elif np.isinf(value) and options.non_finite == "error":
            feature = 1 + max(text.content.rfind(blank, 0, start) for blank in (b" ", b"\t"))
            problems.append((feature, end, rows.NOT_FINITE))
        elif np.isinf(value):
            report[rows.INFINITE] += counts
        elif counts and abs(value) >= 1 << 24 and _loses_digits(token, value):
            report[rows.INEXACT if column >= 0 else rows.INEXACT_LABELS] += 1
    count, queries = int(report[rows.ROWS]), int(report[rows.QUERIES])
    for start, end in ids[:queries].tolist():
        if (code := _id_problem(bytes(text.content[start:end]))) != rows.FINE:
            problems.append((start - len("qid:"), end, code))
    texts = Texts(comments[: report[rows.COMMENTED]], comment_ends[:count])
    found = starts[:queries], ids[:queries].tolist(), texts, report, problems
    return X[:count], y[:count], *found


def _id_problem(name: bytes) -> int:
    if len(name) > LONGEST_ID:
        return _ID_LENGTH
    try:
        name.decode()
    except UnicodeDecodeError:
        return _ID_TEXT
    return _ID_TEXT if _CONTROL.search(name) else rows.FINE


def _loses_digits(token: str, value: np.float32) -> bool:
    """True if a token is a whole number that differs from its float32."""
    exact = Decimal(token)
    return exact == exact.to_integral_value() and exact != Decimal(float(value))


def _shown(token: bytes) -> str:
    text = token[: 4 * _LONGEST_SHOWN + 4].decode("utf-8", errors="backslashreplace")
    if len(text) > _LONGEST_SHOWN:
        text = text[:_LONGEST_SHOWN] + "…"
    return repr(text) if not text.isprintable() else f"'{text}'"


def _message(code: int, shown: str, token: bytes, limit: int) -> Parts:
    if code == rows.LABEL:
        if token.startswith((b"\xff\xfe", b"\xfe\xff")):
            return ["this is UTF-16 text; save the file as UTF-8."]
        hint = "; check that the file is UTF-8 text" if b"\0" in token else ""
        return [f"expected a label (a number), found {shown}{hint}."]
    if code == rows.UNJUDGED:
        keep, drop = Argument("unjudged", "keep"), Argument("unjudged", "drop")
        means = "label −1 means unjudged; pass "
        return [means, keep, " (measures count such documents as 0) or ", drop, "."]
    if code == rows.ZERO:
        start = f"feature indices start at 1, found {shown}; if they start at 0, pass "
        return [start, Argument("zero_based", True), "."]
    if code == rows.LIMIT:
        limits = (Argument("features"), " and ", Argument("max_features"), " set the limit.")
        return [f"the index exceeds the limit of {limit:,} features: {shown}; ", *limits]
    if code == rows.NOT_FINITE:
        keep, clip = Argument("non_finite", "keep"), Argument("non_finite", "clip")
        fix = f"{shown} is not a finite float32; fix the value, or pass "
        return [fix, keep, " or ", clip, " (infinities become ±3.4e38)."]
    return [_PROBLEMS[code].format(shown if token else "nothing")]
