"""Runs and judgements as files, dictionaries, frames, or the named tuples of ir_datasets."""

import os
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from twinrank.data.block import Place, canonical_id
from twinrank.data.from_frames import as_frame, is_frame
from twinrank.evaluation.trec_files import Run, read_qrels, read_run, read_subtopics
from twinrank.support.errors import InputError

_QUERY = ("query_id", "qid", "query")
_DOCUMENT = ("doc_id", "docno", "docid", "document")
_SCORE = ("score",)
_GRADE = ("relevance", "label", "rel")
"""The names of columns and fields in ir_measures and ir_datasets, then those of others."""

_SUBTOPIC = ("subtopic_id", "subtopic", "iteration")

T = TypeVar("T")


def as_run(source: Any) -> Run:
    """A run from a file, a dictionary, a frame or an iterable of named tuples."""
    if isinstance(source, Run):
        return source
    if isinstance(source, str | os.PathLike):
        return read_run(source)
    return Run("", _by_query(source, "run", _SCORE))


def as_qrels(source: Any) -> Mapping[str, Mapping[str, float]]:
    """Judgements from a file, a dictionary, a frame or an iterable of named tuples."""
    if isinstance(source, str | os.PathLike):
        return read_qrels(source)
    return _by_query(source, "qrels", _GRADE)


def as_subtopics(source: Any) -> Mapping[str, Mapping[str, Mapping[str, float]]]:
    """Judgements by query, document and sub-topic, as `as_qrels` reads them.

    In a dictionary, the grades of a document are a dictionary by sub-topic. Grades without a
    sub-topic are those of a single one.
    """
    if isinstance(source, str | os.PathLike):
        return read_subtopics(source)
    if isinstance(source, Mapping):
        return {
            query: {d: g if isinstance(g, Mapping) else {"0": g} for d, g in documents.items()}
            for query, documents in source.items()
        }
    roles = (_QUERY, _SUBTOPIC, _DOCUMENT, _GRADE)
    rows = (
        _frame_rows(source, "qrels", roles) if is_frame(source) else _tuples(source, "qrels", roles)
    )
    found: dict[str, dict[str, dict[str, float]]] = {}
    place = Place()
    for query, subtopic, document, grade in rows:
        of_query = found.setdefault(canonical_id(query, place), {})
        own = of_query.setdefault(canonical_id(document, place), {})
        if str(subtopic) in own:
            raise InputError(
                f"qrels: query {query!r} has document {document!r} twice for sub-topic "
                f"{subtopic!r}."
            )
        own[str(subtopic)] = _number(grade, "relevance", query, document, "qrels")
    return found


def _number(value: Any, name: str, query: Any, document: Any, what: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InputError(
            f"{what}: the {name} of document {document!r} for query {query!r} must be a "
            f"number, not {value!r}."
        ) from None


def _by_query(source: Any, what: str, value: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """Values by query and document; the ids of a dictionary stay as they are."""
    if not isinstance(source, Mapping):
        return _nested(source, what, value)
    for query, documents in source.items():
        if not isinstance(documents, Mapping):
            raise InputError(
                f"{what}: query {query!r} must have a dictionary of documents, not "
                f"{type(documents).__name__}."
            )
    return {
        query: {d: _number(x, value[0], query, d, what) for d, x in documents.items()}
        for query, documents in source.items()
    }


def _nested(source: Any, what: str, value: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """Values by query and document. Ids become text, as in files."""
    roles = (_QUERY, _DOCUMENT, value)
    rows = _frame_rows(source, what, roles) if is_frame(source) else _tuples(source, what, roles)
    nested: dict[str, dict[str, float]] = {}
    place = Place()
    for query, document, number in rows:
        by_document = nested.setdefault(canonical_id(query, place), {})
        name = canonical_id(document, place)
        if name in by_document:
            raise InputError(f"{what}: query {query!r} has document {document!r} twice.")
        by_document[name] = _number(number, value[0], query, document, what)
    return nested


def _frame_rows(frame: Any, what: str, roles: Iterable[tuple[str, ...]]) -> Iterable[Any]:
    table = as_frame(frame, what)
    names = [_first(role, table.columns, f"{what} has no column") for role in roles]
    return zip(*(table[name].to_list() for name in names), strict=True)


def _tuples(source: Any, what: str, roles: Iterable[tuple[str, ...]]) -> Iterable[Any]:
    fields: dict[type, list[str]] = {}
    try:
        rows = iter(source)
    except TypeError:
        raise InputError(
            f"{what} must be a file, a dictionary, a frame or an iterable of named tuples, not "
            f"{type(source).__name__}."
        ) from None
    for row in rows:
        kind = type(row)
        if kind not in fields:
            known = getattr(row, "_fields", None) or dir(row)
            fields[kind] = [
                _first(role, known, f"{what}: {kind.__name__} has no field") for role in roles
            ]
        yield [getattr(row, name) for name in fields[kind]]


def _first(role: tuple[str, ...], known: Iterable[str], complaint: str) -> str:
    present = {*known}
    for name in role:
        if name in present:
            return name
    raise InputError(f"{complaint} {' or '.join(role)}.")
