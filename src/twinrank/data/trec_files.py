"""TREC files: runs (`query Q0 document rank score tag`) and qrels (`query 0 document grade`).

And scores, one a line, as LightGBM and others write them.
"""

import math
import os
from array import array
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from twinrank.data.streams import opened
from twinrank.support.errors import InputError

Scores = dict[str, dict[str, float]]
Grades = dict[str, dict[str, int]]
_RUN = "a run has six columns, query Q0 document rank score tag"
_QRELS = "qrels have four columns, query 0 document grade"
_PIECE = 1 << 22


@dataclass(frozen=True)
class Run:
    """What a system retrieved: scores by query and document, and the tag of the last line."""

    name: str
    scores: Mapping[str, Mapping[str, float]]


def read_run(path: str | os.PathLike[str]) -> Run:
    """Read a run, plain or compressed; its scores order the documents, not its ranks."""
    source, scores, tag = Path(path).expanduser(), Scores(), b""
    for number, fields in _rows(source):
        if len(fields) != 6:
            raise _wrong(source, number, b" ".join(fields), _RUN)
        query, _, document, _, score, tag = fields
        try:
            value = float(score)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise _wrong(source, number, score, "a score must be a finite number")
        found = scores.setdefault(_text(source, number, query), {})
        name = _text(source, number, document)
        if name in found:
            raise _wrong(source, number, document, f"a document twice for query {_short(query)}")
        found[name] = value
    if not scores:
        raise InputError(f"{source} holds no retrieved documents")
    return Run(_text(source, number, tag), scores)


def read_qrels(path: str | os.PathLike[str]) -> Grades:
    """Read judgements, plain or compressed: grades by query and document."""
    source, grades = Path(path).expanduser(), Grades()
    for number, fields in _rows(source):
        if len(fields) != 4:
            raise _wrong(source, number, b" ".join(fields), _QRELS)
        query, _, document, grade = fields
        try:
            value = int(grade)
        except ValueError:
            raise _wrong(source, number, grade, "a grade must be a whole number") from None
        found = grades.setdefault(_text(source, number, query), {})
        name = _text(source, number, document)
        if name in found:
            raise _wrong(source, number, document, f"a document twice for query {_short(query)}")
        found[name] = value
    if not grades:
        raise InputError(f"{source} holds no judgements")
    return grades


def read_scores(path: str | os.PathLike[str]) -> "array[float]":
    """Read scores, one a line, plain or compressed."""
    source, scores = Path(path).expanduser(), array("d")
    for number, fields in _rows(source):
        try:
            (score,) = map(float, fields)
        except ValueError:
            raise _wrong(source, number, b" ".join(fields), "expected one score a line") from None
        if math.isnan(score):
            raise InputError(f"{source}, line {number}: the score is NaN")
        scores.append(score)
    return scores


def _rows(path: Path) -> Iterator[tuple[int, list[bytes]]]:
    """Lines that aren't blank, with their numbers, cut at spaces and tabs.

    Other spaces, such as U+00A0, may be part of a name.
    """
    number, rest = 0, b""
    with opened(path) as source:
        while True:
            piece = bytearray(_PIECE)
            count = source.fill(memoryview(piece))
            lines = (rest + piece[:count]).split(b"\n")
            rest = lines.pop() if count == _PIECE else b""
            for line in lines:
                number += 1
                fields = (line if number > 1 else line.removeprefix(BOM_UTF8)).split()
                if fields:
                    yield number, fields
            if count < _PIECE:
                return


def _text(path: Path, number: int, field: bytes) -> str:
    try:
        return field.decode()
    except UnicodeDecodeError:
        raise _wrong(path, number, field, "not UTF-8 text") from None


def _wrong(path: Path, number: int, field: bytes, what: str) -> InputError:
    return InputError(f"{path}, line {number}: {what}; found {_short(field)}")


def _short(field: bytes) -> str:
    """What was found, in quotation marks, not too long, with bytes that aren't text as such."""
    text = field.decode(errors="backslashreplace")
    return repr(text if len(text) <= 80 else text[:80] + "…").replace("\\\\x", "\\x")
