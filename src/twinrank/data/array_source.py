"""Arrays to a table: checks, float32, and rows grouped by query."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.data.table import (
    Floats,
    Ints,
    ReadOptions,
    Table,
    Texts,
    as_ids,
    dropped_note,
    grouped_rows,
    not_finite_notes,
    scattered_note,
    scattered_queries,
)
from twinrank.lists import Lists, query_runs
from twinrank.support.arrays import refuse_dask, to_numpy
from twinrank.support.errors import InputError
from twinrank.support.quantities import counted

_LARGEST = np.finfo(np.float32).max
_BLOCK = 1 << 16  # rows checked at a time


@dataclass(frozen=True)
class Locations:
    """How error messages name a place in the source.

    Arrays count from 0, like subscripts. Frames have column names and count rows from 1.

    >>> Locations().feature(3, 0), Locations(("bm25",)).label(3)
    ('X[3, 0]', 'y[3]')
    >>> Locations(("bm25",), "train.csv").feature(3, 0)
    "train.csv: column 'bm25' in row 4"
    """

    feature_names: tuple[str, ...] | None = None
    frame: str = ""  # the name of the frame; empty for arrays
    label_column: str = ""
    first_row: int = 0  # of a piece of a larger source

    def name(self, column: int) -> str:
        """Return the name of a feature, or its number."""
        return str(column) if self.feature_names is None else repr(self.feature_names[column])

    def feature(self, row: int, column: int) -> str:
        """Return the location of a feature value."""
        if self.frame:
            place = self.first_row + row + 1
            return f"{self.frame}: column {self.name(column)} in row {place}"
        suffix = "" if self.feature_names is None else f" ({self.name(column)})"
        return f"X[{row}, {column}]{suffix}"

    def label(self, row: int) -> str:
        """Return the location of a label."""
        if self.frame:
            place = self.first_row + row + 1
            return f"{self.frame}: column {self.label_column!r} in row {place}"
        return f"y[{row}]"


def table_from_arrays(
    X: Any,
    y: Any = None,
    *,
    qid: Any = None,
    group: Any = None,
    docids: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    unjudged: str = "error",
    non_finite: str = "error",
    locations: Locations | None = None,
    notes: Sequence[str] = (),
) -> Table:
    """Make a table from arrays in memory; `Dataset.from_arrays` documents the parameters."""
    ReadOptions(unjudged=unjudged, non_finite=non_finite)  # checks the choices
    matrix = _matrix(X)
    names = _names(feature_names, matrix)
    locations = locations or Locations(names)
    features, inexact, missing, infinite = checked_features(matrix, non_finite, locations)
    notes = [
        *notes,
        *(rounded_note(locations.name(column)) for column in np.flatnonzero(inexact).tolist()),
        *not_finite_notes(missing, infinite),
    ]
    documents = features.shape[0]
    labels = checked_labels(y, documents, unjudged, locations)
    starts, runs, query_ids = _runs(qid, group, documents)
    order, offsets = grouped_rows(starts, runs, documents)
    rows = order
    if order is not None:
        notes.append(scattered_note(int(scattered_queries(runs).sum())))
    if y is not None and unjudged == "drop" and (dropped := int((labels < 0).sum())):
        if dropped == documents:
            raise InputError(
                f"all {documents:,} documents are unjudged (label −1) and would be dropped; "
                f"pass unjudged='keep' to keep them"
            )
        notes.append(dropped_note(dropped))
        order = np.arange(documents) if order is None else order
        judged = labels[order] >= 0
        sizes = Lists(offsets).sum(judged.astype(np.float64)).astype(np.int64)
        query_ids, offsets = query_ids[sizes > 0], np.append(0, np.cumsum(sizes[sizes > 0]))
        order = order[judged]
        rows = None if rows is None else np.argsort(np.argsort(order))
    comments = _comments(docids, documents)
    return Table(
        features if order is None else features[order],
        labels if order is None else labels[order],
        Lists(offsets),
        query_ids,
        comments if comments is None or order is None else comments.take(order),
        names,
        rows,
        tuple(notes),
    )


def checked_again(table: Table, options: ReadOptions) -> Table:
    """Apply other options for labels and values to a table."""
    rows = table.rows
    if rows is not None and options.unjudged == "drop":
        rows = np.argsort(np.argsort(rows[table.y >= 0]))
    checked = table_from_arrays(
        table.X,
        table.y,
        group=table.lists.sizes,  # not ids, which a table may repeat
        docids=None if table.comments is None else list(table.comments),
        feature_names=table.feature_names,
        unjudged=options.unjudged,
        non_finite=options.non_finite,
        notes=table.notes,
    )
    query_ids = table.query_ids[checked.query_ids]
    return replace(checked, query_ids=query_ids, rows=rows, categories=table.categories)


def _array(values: Any, name: str) -> npt.NDArray[Any]:
    """Return any values as an array; masked values become NaN."""
    refuse_dask(name, values)
    try:
        array = to_numpy(values)
    except ValueError as error:  # rows of different lengths
        raise InputError(f"{name} can't be converted to an array: {error}") from error
    return np.ma.filled(array.astype(np.float64), np.nan) if np.ma.isMaskedArray(array) else array


def _matrix(X: Any) -> npt.NDArray[Any]:
    if hasattr(X, "toarray"):  # scipy sparse
        X = X.toarray(order="C")
    matrix = _array(X, "X")
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
        hint = "; for a frame use Dataset.from_frame" if hasattr(X, "columns") else ""
        raise InputError(
            f"X must be a matrix of numbers, not {matrix.dtype} with shape {matrix.shape}{hint}"
        )
    if matrix.shape[0] == 0 or matrix.shape[1] == 0:
        raise InputError(f"X is empty: its shape is {matrix.shape}")
    return matrix


def _names(feature_names: Sequence[str] | None, X: npt.NDArray[Any]) -> tuple[str, ...] | None:
    """Check the names of features; the default names 1, 2, … count as no names."""
    if feature_names is None:
        return None
    names = tuple(str(name) for name in feature_names)
    if len(names) != X.shape[1]:
        raise InputError(
            f"feature_names has {counted(len(names), 'name')} but X has "
            f"{counted(X.shape[1], 'column')}; "
            f"pass one name per column"
        )
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise InputError(f"feature_names contains {repeated!r} twice; names must be unique")
    return None if names == numbered(len(names)) else names


def numbered(count: int) -> tuple[str, ...]:
    """Return the default names of features: 1, 2, …, as in LETOR text."""
    return tuple(str(i + 1) for i in range(count))


def checked_features(
    matrix: npt.NDArray[Any], non_finite: str, locations: Locations
) -> tuple[Floats, npt.NDArray[np.bool_], int, int]:
    """Return the features as checked float32, and a report on their values.

    The report has a mask of columns with integers that lose digits, and the numbers of missing and
    of infinite values.
    """
    with np.errstate(over="ignore"):  # values that are too large become infinite; checked below
        features = np.ascontiguousarray(matrix, dtype=np.float32)
    missing = infinite = 0
    inexact = np.zeros(matrix.shape[1], np.bool_)
    for start in range(0, features.shape[0], _BLOCK):
        block, source = features[start : start + _BLOCK], matrix[start : start + _BLOCK]
        if matrix.dtype.kind in "iu":
            inexact |= rounded(source, block).any(axis=0)
        finite = np.isfinite(block)
        if finite.all():
            continue
        if non_finite == "error":
            row, column = np.argwhere(~finite)[0].tolist()
            raise InputError(
                f"{locations.feature(start + row, column)} is {_shown(source[row, column])}, but "
                f"a feature must be a finite float32; fix the value, or pass non_finite='keep' or "
                f"non_finite='clip' (infinities become ±3.4e38)"
            )
        missing += int(np.isnan(block).sum())
        infinite += int(np.isinf(block).sum())
    if infinite and non_finite == "clip":
        out = None if np.may_share_memory(matrix, features) else features
        features = np.clip(features, -_LARGEST, _LARGEST, out=out)
    return features, inexact, missing, infinite


def rounded(integers: npt.NDArray[Any], floats: Floats) -> npt.NDArray[np.bool_]:
    """Return a mask of integers that float32 cannot represent exactly."""
    return np.not_equal(integers.astype(np.float64), floats)


def rounded_note(feature: str) -> str:
    """Return the note about a feature with such integers, which is often an id or a time."""
    return f"feature {feature} has integers beyond 2^24, which lose digits as float32"


def _shown(value: Any) -> str:
    if np.isfinite(value):
        return f"{value:g}"
    return "missing (NaN)" if np.isnan(value) else "infinite or too large"


def checked_labels(y: Any, documents: int, unjudged: str, locations: Locations) -> Floats:
    """Return labels as float32; an invalid label raises an error that names its row."""
    if y is None:
        return np.full(documents, -1, np.float32)
    values = _array(y, "y")
    if values.shape != (documents,):
        raise InputError(
            f"y has shape {values.shape} but X has {counted(documents, 'row')}; "
            f"pass one label per row"
        )
    if values.dtype.kind == "O":  # None among numbers
        values = _without_none(values)
    if values.dtype.kind not in "biuf":
        raise InputError(f"labels must be numbers, not {values.dtype}")
    with np.errstate(over="ignore"):
        labels: Floats = values.astype(np.float32)
    valid = np.isfinite(labels) & ((labels >= 0) | (labels == -1))
    if not valid.all():
        row = int(np.argmin(valid))
        raise InputError(
            f"{locations.label(row)} is {_shown(values[row])}, but a label must be a finite "
            f"number ≥ 0 (or −1 for unjudged)"
        )
    if unjudged == "error" and (labels == -1).any():
        row = int(np.argmax(labels == -1))
        raise InputError(
            f"{locations.label(row)} is −1, which means unjudged; pass unjudged='keep' (measures "
            f"count such documents as 0) or unjudged='drop'"
        )
    return labels


def _without_none(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError):
        return values


def _comments(docids: Sequence[str] | None, documents: int) -> Texts | None:
    """Return the document ids as texts, or None if all are empty."""
    if docids is None:
        return None
    if len(docids) != documents:
        raise InputError(
            f"docids has {counted(len(docids), 'id')} but X has {counted(documents, 'row')}; "
            f"pass one id per row"
        )
    texts = Texts.of(str(docid) for docid in docids)
    return texts if texts.content.size else None


def _runs(qid: Any, group: Any, documents: int) -> tuple[Ints, Ints, npt.NDArray[Any]]:
    """Return the start of each run of one query, the run's query, and the ids by appearance."""
    if (qid is None) == (group is None):
        raise InputError(
            "give either qid (one query id per document) or group (documents per query)"
        )
    if qid is None:
        try:
            lists = Lists.from_sizes(group)
        except InputError as error:
            raise InputError(f"group: {error}") from error
        if lists.documents != documents:
            raise InputError(f"group adds up to {lists.documents} documents, but X has {documents}")
        numbers = np.arange(lists.sizes.size)
        return lists.offsets[:-1], numbers, numbers
    ids, starts = query_runs(_array(qid, "qid"))
    if ids.size != documents:
        raise InputError(
            f"qid has {counted(ids.size, 'id')} but X has {counted(documents, 'row')}; "
            f"pass one id per row"
        )
    return starts, *by_appearance(plain_ids(ids[starts]))


def by_appearance(ids: npt.NDArray[Any]) -> tuple[Ints, npt.NDArray[Any]]:
    """Return the number of each id by first appearance, and the ids in that order."""
    names, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    order = np.argsort(first)
    number_of = np.empty_like(order)
    number_of[order] = np.arange(order.size)
    return number_of[inverse], names[order]


def plain_ids(ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return query ids as int64 if they are integers of any type or spelling, else as text."""
    if ids.dtype.kind in "iu" and ids.dtype != np.uint64:
        return ids.astype(np.int64)
    if ids.dtype.kind == "f" and np.isfinite(ids).all() and (ids == np.rint(ids)).all():
        return as_ids([str(int(value)) for value in ids.tolist()])
    if ids.dtype.kind == "S":
        ids = np.char.decode(ids, "utf-8")
    return as_ids([str(value) for value in ids.tolist()])
