"""TREC runs (`query Q0 document rank score tag`), qrels (`query 0 document grade`), and scores.

Score files have one score per line, as LightGBM writes them. Runs can also be tables.
"""

import math
import os
from array import array
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from twinrank.data.loading import load_table
from twinrank.data.options import ReadOptions
from twinrank.data.streams import FRAMES, opened, plain_suffix
from twinrank.support.errors import InputError
from twinrank.support.files import replacing

Scores = dict[str, dict[str, float]]
Grades = dict[str, dict[str, int]]
Subtopics = dict[str, dict[str, dict[str, float]]]
"""Grades by query, document and sub-topic."""
_RUN = "a run has at least six columns, query Q0 document rank score tag"
_QRELS = "qrels have four columns, query 0 document grade"
_PIECE = 1 << 22


@dataclass(frozen=True)
class Run:
    """A TREC run: scores by query and document, and the tag of the last line as its name."""

    name: str
    scores: Mapping[str, Mapping[str, float]]


def read_run(path: str | os.PathLike[str]) -> Run:
    """Read a run, plain or compressed; its scores order the documents, its ranks are ignored.

    A table (CSV, Parquet, …) has columns of queries and documents, found by name, and `score`.
    """
    source, scores, tag = Path(path).expanduser(), Scores(), b""
    if plain_suffix(source) in FRAMES:
        return _read_table(source)
    for number, fields in _rows(source):
        if len(fields) < 6:  # as in trec_eval, further columns are ignored
            raise _error(source, number, b" ".join(fields), _RUN)
        query, _, document, _, score, tag = fields[:6]
        try:
            value = float(score)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise _error(source, number, score, "a score must be a finite number")
        by_document = scores.setdefault(_text(source, number, query), {})
        name = _text(source, number, document)
        if name in by_document:
            raise _repeated(source, number, document, query)
        by_document[name] = value
    if not scores:
        raise InputError(f"{source} has no retrieved documents.")
    return Run(_text(source, number, tag), scores)


def _read_table(path: Path) -> Run:
    data = load_table(path, ReadOptions(features=("score",), label=False))
    if data.docids is None:
        raise InputError(f"{path} has no column of document ids, such as docid.")
    scores = Scores()
    columns = (data.qid.tolist(), data.docids.tolist(), data.X[:, 0].tolist())
    for query, document, score in zip(*columns, strict=True):
        by_document = scores.setdefault(str(query), {})
        if document in by_document:
            raise InputError(f"{path}: query {query!r} has document {document!r} twice.")
        by_document[document] = score
    return Run(path.name, scores)


def read_qrels(path: str | os.PathLike[str]) -> Grades:
    """Read judgements, plain or compressed, as grades by query and document."""
    source, grades = Path(path).expanduser(), Grades()
    for number, fields in _rows(source):
        query, _, document, value = _qrels_fields(source, number, fields)
        by_document = grades.setdefault(_text(source, number, query), {})
        name = _text(source, number, document)
        if name in by_document:
            raise _repeated(source, number, document, query)
        by_document[name] = value
    if not grades:
        raise InputError(f"{source} has no judgements.")
    return grades


def read_subtopics(path: str | os.PathLike[str]) -> Subtopics:
    """Read judgements of sub-topics, `query subtopic document grade`, plain or compressed."""
    source, grades = Path(path).expanduser(), Subtopics()
    for number, fields in _rows(source):
        query, subtopic, document, grade = _qrels_fields(source, number, fields)
        of_query = grades.setdefault(_text(source, number, query), {})
        of_document = of_query.setdefault(_text(source, number, document), {})
        name = _text(source, number, subtopic)
        if name in of_document:
            raise InputError(
                f"{source}, line {number}: query {_short(query)} has document {_short(document)} "
                f"twice for sub-topic {_short(subtopic)}."
            )
        of_document[name] = grade
    if not grades:
        raise InputError(f"{source} has no judgements.")
    return grades


def read_scores(path: str | os.PathLike[str]) -> "array[float]":
    """Read scores, one per line, plain or compressed."""
    source, scores = Path(path).expanduser(), array("d")
    for number, fields in _rows(source):
        try:
            (score,) = map(float, fields)
        except ValueError:
            raise _error(source, number, b" ".join(fields), "expected one score per line") from None
        if not math.isfinite(score):
            raise InputError(f"{source}, line {number}: a score must be a finite number.")
        scores.append(score)
    return scores


def _qrels_fields(path: Path, number: int, fields: list[bytes]) -> tuple[bytes, bytes, bytes, int]:
    """The columns of a line of judgements."""
    if len(fields) != 4:
        raise _error(path, number, b" ".join(fields), _QRELS)
    query, subtopic, document, grade = fields
    try:
        return query, subtopic, document, int(grade)
    except ValueError:
        raise _error(path, number, grade, "a grade must be a whole number") from None


def write_run(
    path: str | os.PathLike[str], scores: Mapping[str, Mapping[str, float]], tag: str
) -> None:
    """Write a run, the best document of each query first."""
    lines = []
    for query, by_document in scores.items():
        ranked = sorted(by_document.items(), key=lambda item: -item[1])
        for rank, (document, score) in enumerate(ranked, 1):
            lines.append(f"{_query(query)} Q0 {_field(document)} {rank} {score!r} {_field(tag)}\n")
    with replacing(Path(path)) as partial:
        partial.write_text("".join(lines), "utf-8")


def write_qrels(path: str | os.PathLike[str], grades: Mapping[str, Mapping[str, int]]) -> None:
    """Write judgements."""
    with replacing(Path(path)) as partial:
        partial.write_text(
            "".join(
                f"{_query(query)} 0 {_field(document)} {int(grade)}\n"
                for query, by_document in grades.items()
                for document, grade in by_document.items()
            ),
            "utf-8",
        )


def _query(name: str) -> str:
    """A query as the first column of a file."""
    if name.startswith("#"):
        raise InputError(
            f"The query {name!r} cannot be written to a TREC file, where # begins a comment."
        )
    return _field(name)


def _field(name: str) -> str:
    """A name as one column of a file."""
    if not name or name.split() != [name]:
        raise InputError(
            f"The name {name!r} cannot be written to a TREC file, whose columns are separated by "
            f"blanks; use names without blanks."
        )
    return name


def _rows(path: Path) -> Iterator[tuple[int, list[bytes]]]:
    """Iterate over lines that are not blank and no comments: their number, and their fields.

    Lines that begin with # are comments, as in trec_eval 10. Spaces and tabs separate fields; other
    blanks, such as U+00A0, may be part of a name.
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
                line = line if number > 1 else line.removeprefix(BOM_UTF8)
                fields = line.split()
                if fields and not line.startswith(b"#"):
                    yield number, fields
            if count < _PIECE:
                return


def _text(path: Path, number: int, field: bytes) -> str:
    try:
        return field.decode()
    except UnicodeDecodeError:
        raise _error(path, number, field, "not UTF-8 text") from None


def _error(path: Path, number: int, field: bytes, message: str) -> InputError:
    return InputError(f"{path}, line {number}: {message}; found {_short(field)}.")


def _repeated(path: Path, number: int, document: bytes, query: bytes) -> InputError:
    return InputError(
        f"{path}, line {number}: query {_short(query)} has document {_short(document)} twice."
    )


def _short(field: bytes) -> str:
    """Quote a field, shortened to 80 characters, with escapes for bytes that are not UTF-8."""
    text = field.decode(errors="backslashreplace")
    return repr(text if len(text) <= 80 else text[:80] + "…").replace("\\\\x", "\\x")
