"""LETOR / SVMlight text, line by line and token by token, in plain Python.

    line = [blanks] label blanks qid:ID (blanks index:value)* [blanks] [# comment]

Nothing here is shared with the library. It stays as slow and as obvious as it is, so that the
compiled parser has something to be held against.
"""

import re
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

BOM = b"\xef\xbb\xbf"
NUMBER = re.compile(
    rb"[+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?|nan|inf|infinity)", re.IGNORECASE
)
INDEX = re.compile(rb"([0-9]+):")
TOKEN = re.compile(rb"[^ \t]+")
LONGEST_ID = 1_000


class Problem(Exception):  # noqa: N818
    """What is wrong with a file, and where: a line and a column, or neither."""

    def __init__(self, kind, line=None, column=None, text=b""):
        super().__init__(kind, line, column, text)
        self.kind, self.line, self.column, self.text = kind, line, column, text


@dataclass
class Choices:
    """How to read; what the names mean is said at `twinrank.load`."""

    features: int | None = None
    missing: str = "zero"
    zero_based: bool = False
    unjudged: str = "error"
    non_finite: str = "error"
    max_features: int = 100_000

    @property
    def limit(self):
        return self.features or self.max_features


@dataclass
class Row:
    label: np.float32
    qid: bytes
    values: dict[int, np.float32]  # by column
    inexact: int  # values that are whole numbers and lose digits as float32
    inexact_label: bool
    comment: bytes


@dataclass
class Parsed:
    """The rows of a file, each query's together, in order of first appearance."""

    X: np.ndarray
    y: np.ndarray
    qid: list[str]
    comments: list[bytes]
    order: list[int]  # row i was row order[i] of the file
    counts: dict[str, int]  # of what a note should tell


def parse(content, choices):
    """What a file holds; raises the first `Problem`."""
    rows = []
    counts = {"labels": 0, "inexact": 0, "NaN": 0, "infinite": 0, "dropped": 0}
    width = choices.features or 0
    lines = content.removeprefix(BOM).split(b"\n")
    for number, line in enumerate(lines, start=1):
        row = parse_line(line.removesuffix(b"\r"), number, choices)
        if row is None:
            continue
        width = max([width, *(column + 1 for column in row.values)])
        if row.label == -1 and choices.unjudged == "drop":
            counts["dropped"] += 1
            continue
        counts["labels"] += int(row.inexact_label)
        counts["inexact"] += row.inexact
        for value in row.values.values():
            counts["NaN"] += int(np.isnan(value))
            counts["infinite"] += int(np.isinf(value))
        if choices.non_finite == "clip":
            row.values = {column: clipped(value) for column, value in row.values.items()}
        rows.append(row)
    if not width and (rows or counts["dropped"]):  # both problems: this one is named
        raise Problem("no features")
    if not rows:
        raise Problem("no documents")
    return together(rows, width, choices, counts)


def together(rows, width, choices, counts):
    queries = {}
    for i, row in enumerate(rows):
        queries.setdefault(row.qid, []).append(i)
    order = [i for members in queries.values() for i in members]
    X = np.full((len(rows), width), np.nan if choices.missing == "nan" else 0, np.float32)
    for place, i in enumerate(order):
        for column, value in rows[i].values.items():
            X[place, column] = value
    return Parsed(
        X,
        np.array([rows[i].label for i in order], np.float32),
        [rows[i].qid.decode() for i in order],
        [rows[i].comment for i in order],
        order,
        counts,
    )


def parse_line(line, number, choices):
    """One line without its end: a row, or None for a line without one."""
    before, _, comment = line.partition(b"#")
    tokens = [(match[0], match.start()) for match in TOKEN.finditer(before)]

    def problem(kind, text, place):
        return Problem(kind, number, len(line[:place].decode(errors="replace")) + 1, text)

    if not tokens:
        return None
    label = parse_label(*tokens[0], choices, problem)
    qid = parse_qid(*(tokens[1] if len(tokens) > 1 else (b"", len(before))), problem)
    values, following, inexact = {}, 0, 0
    for text, place in tokens[2:]:
        column, value = parse_feature(text, place, following, choices, problem)
        values[column], following = value, column + 1
        inexact += loses_digits(text.partition(b":")[2], value)
    return Row(label, qid, values, inexact, loses_digits(tokens[0][0], label), comment)


def parse_label(text, place, choices, problem):
    if not NUMBER.fullmatch(text):
        raise problem("label", text, place)
    if float(text) == -1 and choices.unjudged == "error":
        raise problem("unjudged", text, place)
    label = float32(text)
    negative = text.startswith(b"-") and re.search(rb"[1-9]", text.lower().partition(b"e")[0])
    if float(text) != -1 and (negative or not np.isfinite(label)):
        raise problem("label range", text, place)
    return label


def parse_qid(text, place, problem):
    name = text.removeprefix(b"qid:")
    if not text.startswith(b"qid:") or not name:
        raise problem("qid", text, place)
    if len(name) > LONGEST_ID:
        raise problem("id length", text, place)
    try:
        name.decode()
    except UnicodeDecodeError as error:
        raise problem("id text", text, place) from error
    if any(byte < 32 for byte in name):
        raise problem("id text", text, place)
    return name


def parse_feature(text, place, following, choices, problem):
    match = INDEX.match(text)
    if not match:
        raise problem("index", text, place)
    column = int(match[1][:9]) - (not choices.zero_based)
    if len(match[1]) > 7 or column >= choices.limit:
        raise problem("limit", text, place)
    if column < 0:
        raise problem("zero", text, place)
    if column < following:
        raise problem("order", text, place)
    if not NUMBER.fullmatch(text, match.end()):
        raise problem("value", text, place)
    value = float32(text[match.end() :])
    if not np.isfinite(value) and choices.non_finite == "error":
        raise problem("not finite", text, place)
    return column, value


def float32(text):
    with np.errstate(over="ignore"):
        return np.float32(float(text))


def loses_digits(text, value):
    """True if a text is a whole number, and its float32 is finite but another number."""
    if not 2**24 <= abs(value) < np.inf:
        return False
    exact = Decimal(text.decode())
    return exact == exact.to_integral_value() and exact != Decimal(float(value))


def clipped(value):
    return np.copysign(np.finfo(np.float32).max, value) if np.isinf(value) else value
