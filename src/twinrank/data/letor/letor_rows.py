"""Compiled parser of LETOR / SVMlight lines into rows of arrays."""

from typing import Any

import numpy as np

from twinrank.data.letor.tokens import (
    DOUBTFUL,
    NOT_A_NUMBER,
    SURE,
    eight_bytes,
    ends_token,
    leading_digits,
    line_end,
    number_of,
    read_number,
    same_bytes,
    skip_blanks,
    token_end,
)
from twinrank.support.compiled import compiled

# Problems of a line; the package `letor` has the messages.
FINE, LABEL, LABEL_RANGE, UNJUDGED, QID = range(5)
INDEX, ZERO, ORDER, LIMIT, VALUE, NOT_FINITE = range(5, 11)
# What to do with values that are not finite in float32, and with the label −1. Rows with a label
# to be dropped are kept here, but their values are not counted.
ERROR, KEEP, DROP = range(3)

# Positions in the report of `parse_rows`.
(
    PROBLEM,  # code of the first problem, or FINE
    BEGIN,  # start of the invalid token
    END,  # its end
    RESUME,  # where to continue; before the end of the text if the block is full
    ROWS,
    QUERIES,  # runs of rows with one query id
    HIGHEST,  # the highest feature index, −1 for none
    DOUBTS,  # values to be read again by Python
    COMMENTED,  # bytes of comments
    MISSING,  # values that are NaN
    INFINITE,  # infinite or too large for a float32
    INEXACT,  # whole numbers that lose digits as float32
    INEXACT_LABELS,
    REPORT_SIZE,
) = range(14)

_NEWLINE, _RETURN, _SPACE, _HASH, _MINUS, _POINT, _COLON = 10, 13, 32, 35, 45, 46, 58
_TENS = 10 ** np.arange(9, dtype=np.uint64)
_NONE, _ONE, _THREE, _EIGHT = np.uintp(0), np.uintp(1), np.uintp(3), np.uintp(8)
_BYTE, _BLANK = np.uintp(255), np.uintp(_SPACE)
_EXACT = float(1 << 24)  # float32 holds all whole numbers up to this one
_SURE = 15  # digits of whole numbers that float64 holds
_INFINITE = (2.0**128 - 2.0**103) * (1 + 1e-15)  # in float32; values just below are doubtful


@compiled
def _fail(report: Any, problem: int, begin: Any, end: Any) -> None:
    report[PROBLEM], report[BEGIN], report[END] = problem, begin, end


@compiled
def _doubt(report: Any, doubts: Any, row: Any, column: int, begin: Any, end: Any) -> None:
    """Record a value to be read again; column −1 is the label."""
    doubt = doubts[report[DOUBTS]]
    doubt[0], doubt[1], doubt[2], doubt[3] = row, column, begin, end
    report[DOUBTS] += 1


@compiled
def _is_integer(text: Any, begin: Any, end: Any) -> bool:
    """True for digits that float64 holds, without point and exponent; a sign may come first."""
    for k in range(begin, end):
        if not (48 <= text[k] <= 57 or (k == begin and text[k] == _MINUS)):
            return False
    return bool(end - begin <= _SURE)


@compiled
def _read_label(
    text: Any, i: Any, row: Any, y: Any, unjudged: int, powers: Any, doubts: Any, report: Any
) -> Any:
    """Read the label; return the position after it, and True if the document counts."""
    value, j, sure = read_number(text, i, powers)
    if sure == NOT_A_NUMBER or not ends_token(text, j):
        _fail(report, LABEL, i, token_end(text, i))
    elif value == -1:
        if unjudged == ERROR:
            _fail(report, UNJUDGED, i, j)
    elif not 0 <= value < _INFINITE:
        _fail(report, LABEL_RANGE, i, j)
    elif sure == DOUBTFUL or (value > _EXACT and not _is_integer(text, i, j)):
        _doubt(report, doubts, row, -1, i, j)
    elif value > _EXACT:
        report[INEXACT_LABELS] += np.float64(np.float32(value)) != value
    y[row] = value
    return j, value != -1 or unjudged != DROP


@compiled
def _read_qid(text: Any, i: Any, report: Any) -> Any:
    """Return the start and the end of the query id."""
    j = token_end(text, i)
    named = text[i] == 113 and text[i + _ONE] == 105 and text[i + np.uintp(2)] == 100
    begin = i + np.uintp(4)
    if not named or text[i + np.uintp(3)] != _COLON or j <= begin:
        _fail(report, QID, i, j)
    return begin, j


@compiled
def _read_index(text: Any, i: Any, first: int, limit: int, following: Any, report: Any) -> Any:
    """Read a feature's index; return its column and the position of its value."""
    word = eight_bytes(text, i)
    digits = leading_digits(word)
    column = np.int64(number_of(word, digits)) - first
    end = i + digits
    while digits == _EIGHT and 48 <= text[end] <= 57:  # longer than any valid index
        end += _ONE
    problem = FINE
    if digits == _NONE or text[end] != _COLON:
        problem = INDEX
    elif digits == _EIGHT or column >= limit:
        problem = LIMIT
    elif column < 0:
        problem = ZERO
    elif column < following:
        problem = ORDER
    if problem != FINE:
        _fail(report, problem, i, token_end(text, i))
    return column, end + _ONE


@compiled
def _read_value(text: Any, i: Any, begin: Any, non_finite: int, powers: Any, report: Any) -> Any:
    """Read the value at `begin` of the feature at i; return it, its end and how certain it is."""
    value, end, sure = read_number(text, begin, powers)
    if report[PROBLEM] != FINE:
        return value, end, sure
    if sure == NOT_A_NUMBER or not ends_token(text, end):
        _fail(report, VALUE, i, token_end(text, i))
    elif not abs(value) < _INFINITE:
        sure = SURE
        if non_finite == ERROR:
            _fail(report, NOT_FINITE, i, end)
        elif value != value:
            report[MISSING] += 1
        else:
            report[INFINITE] += 1
            value = np.inf if value > 0 else -np.inf
    return value, end, sure


@compiled
def _read_features(
    text: Any,
    i: Any,
    row: Any,
    X: Any,
    first: int,
    limit: int,
    absent: Any,
    non_finite: int,
    powers: Any,
    doubts: Any,
    report: Any,
) -> Any:
    """Read a row's features; return the position after the last.

    The loop reads the common form without a call: an index, a number with at most seven digits on
    either side of the point, one space. `_read_index` and `_read_value` read all other forms and
    detect errors.
    """
    width = X.shape[1]
    following = np.int64(0)  # the column after the last one read
    while True:
        word = eight_bytes(text, i)
        digits = leading_digits(word)
        column = np.int64(number_of(word, digits)) - first
        j = i + digits
        if text[j] == _COLON and digits < _EIGHT and following <= column < width:
            j += _ONE
            rest = (word >> (digits << _THREE)) >> _EIGHT  # the bytes after the colon
            digits = leading_digits(rest)
            mantissa, divisor = number_of(rest, digits), 1.0
            plain = digits > _NONE and (rest >> (digits << _THREE)) & _BYTE == _BLANK
            j += digits
            if not plain:  # a point, or more digits than the remaining bytes of the word
                j -= digits
                negative = text[j] == _MINUS
                if negative:
                    j += _ONE
                word = eight_bytes(text, j)
                digits = leading_digits(word)
                mantissa = number_of(word, digits)
                j += digits
                plain = _NONE < digits < _EIGHT
                if text[j] == _POINT:
                    j += _ONE
                    word = eight_bytes(text, j)
                    digits = leading_digits(word)
                    mantissa = mantissa * _TENS[digits] + number_of(word, digits)
                    j += digits
                    plain = plain and digits < _EIGHT
                    divisor = powers[digits]
                if negative:
                    divisor = -divisor
                plain = plain and text[j] == _SPACE
            if plain:
                if column > following:
                    for c in range(following, column):
                        X[row, np.uintp(c)] = absent
                # At most fourteen digits and one division: rounded only once, so exact.
                X[row, np.uintp(column)] = np.float64(np.int64(mantissa)) / divisor
                following = column + 1
                i = j + _ONE
                continue
        i = skip_blanks(text, i)
        if ends_token(text, i):
            break
        column, begin = _read_index(text, i, first, limit, following, report)
        value, j, sure = _read_value(text, i, begin, non_finite, powers, report)
        if report[PROBLEM] != FINE:
            break
        if column < width:
            large = _EXACT < abs(value) < np.inf
            if sure == DOUBTFUL or (large and not _is_integer(text, begin, j)):
                _doubt(report, doubts, row, column, begin, j)
            elif large:
                report[INEXACT] += np.float64(np.float32(value)) != value
            for c in range(following, column):
                X[row, np.uintp(c)] = absent
            X[row, np.uintp(column)] = value
        following = column + 1
        i = skip_blanks(text, j)
    if following:
        report[HIGHEST] = max(report[HIGHEST], following - 1 + first)
    for c in range(following, width):
        X[row, np.uintp(c)] = absent
    return i


@compiled
def parse_rows(
    text: Any,
    begin: int,
    stop: int,
    first: int,
    limit: int,
    absent: Any,
    unjudged: int,
    non_finite: int,
    powers: Any,
    X: Any,
    y: Any,
    starts: Any,
    ids: Any,
    comments: Any,
    comment_ends: Any,
    doubts: Any,
    report: Any,
) -> None:
    """Parse the lines text[begin:stop] until they end, the arrays are full, or one is invalid.

    The text ends with a line break, and eight more bytes after it may be read. A row's features go
    to X, with `absent` for those left out, and its label to y. Its comment is appended to
    `comments`, up to comment_ends[row]. The first row of a query goes to `starts`, and the position
    of its id to `ids`. The report contains counts, problems and where to continue.
    """
    report[HIGHEST] = -1
    i, end = np.uintp(begin), np.uintp(stop)
    row, queries, commented = np.uintp(0), np.uintp(0), np.uintp(0)
    qid, qid_end = np.uintp(0), np.uintp(0)
    while i < end:
        if row >= X.shape[0] or report[DOUBTS] + X.shape[1] >= doubts.shape[0]:
            break
        i = skip_blanks(text, i)
        if not ends_token(text, i):
            missing, infinite, inexact = report[MISSING], report[INFINITE], report[INEXACT]
            i, counts = _read_label(text, i, row, y, unjudged, powers, doubts, report)
            begin_id, end_id = i, i
            if report[PROBLEM] == FINE:
                begin_id, end_id = _read_qid(text, skip_blanks(text, i), report)
            if report[PROBLEM] == FINE:
                if queries == 0 or not same_bytes(text, qid, qid_end, begin_id, end_id):
                    starts[queries], ids[queries, 0], ids[queries, 1] = row, begin_id, end_id
                    queries += _ONE
                    qid, qid_end = begin_id, end_id
                i = _read_features(
                    text, end_id, row, X, first, limit, absent, non_finite, powers, doubts, report
                )
            if report[PROBLEM] != FINE:
                break
            if not counts:
                report[MISSING], report[INFINITE], report[INEXACT] = missing, infinite, inexact
            if text[i] == _HASH:
                i += _ONE
                while text[i] != _NEWLINE:
                    comments[commented] = text[i]
                    commented += _ONE
                    i += _ONE
                if text[i - _ONE] == _RETURN:
                    commented -= _ONE
            comment_ends[row] = commented
            row += _ONE
        i = line_end(text, i) + _ONE
    report[RESUME], report[ROWS], report[QUERIES] = i, row, queries
    report[COMMENTED] = commented
