"""Compiled writer of LETOR text, with the shortest numbers that read back as the same float32."""

import json
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from twinrank.data.letor import NAMES
from twinrank.data.letor.letor_rows import LONGEST_ID
from twinrank.data.letor.tokens import POWERS
from twinrank.data.streams import written
from twinrank.data.table import Texts
from twinrank.support.compiled import compiled
from twinrank.support.errors import InputError

if TYPE_CHECKING:
    from twinrank.data.dataset import Dataset

_BLOCK = 1 << 22  # bytes of features formatted at a time
_WIDEST = 26  # bytes of one feature: " 9999999:-1.23456789e-38"
_ZERO, _MINUS, _POINT, _SPACE, _COLON, _HASH = 48, 45, 46, 32, 58, 35
_NEWLINE, _RETURN = 10, 13


@compiled
def _put_whole(out: Any, at: Any, number: Any) -> Any:
    """Write an integer ≥ 0; return the position after it."""
    size, rest = 1, number // 10
    while rest:
        size += 1
        rest //= 10
    for k in range(size - 1, -1, -1):
        out[at + k] = _ZERO + number % 10
        number //= 10
    return at + size


@compiled
def _put_word(out: Any, at: Any, word: tuple[int, ...]) -> Any:
    for k in range(len(word)):
        out[at + k] = word[k]
    return at + len(word)


@compiled
def _shortest(value: Any, powers: Any) -> Any:
    """Return the shortest digits d and a power p such that d · 10^p reads back as `value` > 0.

    Seven digits are enough for most float32 values and nine for all. A candidate is accepted if it
    reads back correctly even with an error of a few units in the last place of a float64.
    """
    exact = np.float64(value)
    exponent = int(np.floor(np.log10(exact)))
    for digits in range(1, 10):
        scale = digits - 1 - exponent
        scaled = exact * powers[scale] if scale >= 0 else exact / powers[-scale]
        whole = np.rint(scaled)
        back = whole / powers[scale] if scale >= 0 else whole * powers[-scale]
        low, high = np.float32(back * (1 - 1e-15)), np.float32(back * (1 + 1e-15))
        if (low == value and high == value) or digits == 9:
            break
    number = np.int64(whole)
    while number % 10 == 0:
        number //= 10
        scale -= 1
    return number, -scale


@compiled
def _put_number(out: Any, at: Any, value: Any, powers: Any) -> Any:
    """Write a float32; return the position after it."""
    if np.isnan(value):
        return _put_word(out, at, (110, 97, 110))
    if value < 0 or (value == 0 and 1 / np.float64(value) < 0):
        out[at] = _MINUS
        at += 1
        value = -value
    if np.isinf(value):
        return _put_word(out, at, (105, 110, 102))
    if value < 1_000_000 and value == np.floor(value):
        return _put_whole(out, at, np.int64(value))
    number, power = _shortest(value, powers)
    size, rest = 0, number
    while rest:
        size += 1
        rest //= 10
    if power >= 0 or size + power < -4:  # very large or small: d.ddde±p
        out[at + 1] = _POINT
        shift = 1 if size > 1 else 0
        for k in range(size - 1, -1, -1):
            out[at + (k + shift if k else 0)] = _ZERO + number % 10
            number //= 10
        at += size + shift
        power += size - 1
        out[at] = 101  # e
        at += 1
        if power < 0:
            out[at] = _MINUS
            at += 1
        return _put_whole(out, at, abs(power))
    point = max(size + power, 1)  # digits before the point
    total = point - power
    for k in range(total - 1, -1, -1):
        out[at + (k + 1 if k >= point else k)] = _ZERO + number % 10
        number //= 10
    out[at + point] = _POINT
    return at + total + 1


@compiled
def _put_bytes(out: Any, at: Any, content: Any, begin: int, end: int) -> Any:
    for k in range(begin, end):
        out[at] = content[k]
        at += 1
    return at


@compiled
def _put_rows(
    X: Any,
    y: Any,
    query: Any,
    ids: Any,
    id_ends: Any,
    comments: Any,
    comment_ends: Any,
    powers: Any,
    out: Any,
) -> int:
    """Write rows as lines; return the number of bytes."""
    at = 0
    for row in range(X.shape[0]):
        at = _put_number(out, at, y[row], powers)
        at = _put_word(out, at, (_SPACE, 113, 105, 100, _COLON))
        q = query[row]
        at = _put_bytes(out, at, ids, id_ends[q - 1] if q else 0, id_ends[q])
        for column in range(X.shape[1]):
            out[at] = _SPACE
            at = _put_whole(out, at + 1, column + 1)
            out[at] = _COLON
            at = _put_number(out, at + 1, X[row, column], powers)
        begin = comment_ends[row - 1] if row else 0
        if comment_ends[row] > begin:
            at = _put_word(out, at, (_SPACE, _HASH))
            at = _put_bytes(out, at, comments, begin, comment_ends[row])
        out[at] = _NEWLINE
        at += 1
    return at


def write_letor(data: "Dataset", path: Path, name: Path) -> None:
    """Write a dataset to `path`, zeros included, compressed by the suffix of `name`."""
    ids = Texts.of(str(q) for q in data.query_ids)
    _check(data, ids, name)
    with written(path, name) as file:
        if data.feature_names is not None:
            file.write(NAMES + json.dumps(list(data.feature_names)).encode() + b"\n")
        for queries in data.batches(max(_BLOCK // (4 * data.features), 1)).plan(0):
            _write_block(data, queries, ids, file)


def _write_block(data: "Dataset", queries: Any, ids: Texts, file: IO[bytes]) -> None:
    offsets = data.lists.offsets
    rows = slice(int(offsets[queries[0]]), int(offsets[queries[-1] + 1]))
    sizes = data.lists.sizes[queries[0] : queries[-1] + 1]
    count = rows.stop - rows.start
    query = np.repeat(np.arange(queries[0], queries[-1] + 1), sizes)
    comments = Texts(np.empty(0, np.uint8), np.zeros(count, np.int64))
    if data.comments is not None:
        comments = data.comments.take(rows)
    id_sizes = np.diff(ids.ends, prepend=0)
    size = count * (_WIDEST * data.features + 40) + comments.content.size
    out = np.empty(size + int(id_sizes[query].sum()), np.uint8)
    arrays = (ids.content, ids.ends, comments.content, comments.ends)
    used = _put_rows(data.take(queries), data.y[rows], query, *arrays, POWERS, out)
    file.write(out[:used].data)


def _breaks_lines(comments: Texts) -> bool:
    """Return True if a comment contains a line break or ends with a carriage return."""
    filled = comments.ends[np.diff(comments.ends, prepend=0) > 0]
    content = comments.content
    return bool((content == _NEWLINE).any() or (content[filled - 1] == _RETURN).any())


def _check(data: "Dataset", ids: Texts, name: Path) -> None:
    """Raise an error for ids and comments that LETOR text cannot represent."""
    for i, text in enumerate(ids.all_raw()):
        too_long = len(text) > LONGEST_ID
        if not text or too_long or any(byte <= 32 or byte == _HASH for byte in text):
            raise InputError(
                f"Can't write {name}: query id {str(data.query_ids[i])[:60]!r} is empty, too long, "
                f"or contains blanks or '#'; write CSV or Parquet instead of LETOR text."
            )
    if data.comments is not None and _breaks_lines(data.comments):
        raise InputError(
            f"Can't write {name}: a document id contains a line break; write CSV or Parquet "
            f"instead of LETOR text."
        )
