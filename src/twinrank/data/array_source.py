"""Arrays into a table: checked, as float32, each query's rows together."""

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
    not_finite_notes,
    scattered_note,
    together,
)
from twinrank.lists import Lists, query_runs
from twinrank.support.arrays import to_numpy
from twinrank.support.errors import InputError

_LARGEST = np.finfo(np.float32).max
_BLOCK = 1 << 16  # rows that are checked at a time


@dataclass(frozen=True)
class Places:
    """Words for places: arrays count from 0, as subscripts do; frames have columns, and row 1.

    >>> Places().feature(3, 0), Places(("bm25",)).label(3)
    ('X[3, 0]', 'y[3]')
    >>> Places(("bm25",), "train.csv").feature(3, 0)
    "train.csv: column 'bm25' in row 4"
    """

    names: tuple[str, ...] | None = None  # of the features
    frame: str = ""  # what a frame is called; arrays have no such name
    label_column: str = ""

    def name(self, column: int) -> str:
        """A feature."""
        return str(column) if self.names is None else repr(self.names[column])

    def feature(self, row: int, column: int) -> str:
        """A feature of a document."""
        if self.frame:
            return f"{self.frame}: column {self.name(column)} in row {row + 1}"
        named = "" if self.names is None else f" ({self.name(column)})"
        return f"X[{row}, {column}]{named}"

    def label(self, row: int) -> str:
        """The label of a document."""
        if self.frame:
            return f"{self.frame}: column {self.label_column!r} in row {row + 1}"
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
    places: Places | None = None,
    notes: Sequence[str] = (),
) -> Table:
    """A table of arrays in memory; `Dataset.from_arrays` says what they are."""
    ReadOptions(unjudged=unjudged, non_finite=non_finite)  # checks the choices
    given = _matrix(X)
    names = _names(feature_names, given)
    places = places or Places(names)
    features, found = _features(given, non_finite, places)
    notes = [*notes, *found]
    documents = features.shape[0]
    labels = _labels(y, documents, unjudged, places)
    starts, runs, query_ids = _runs(qid, group, documents)
    order, offsets = together(starts, runs, documents)
    rows = order
    if order is not None:
        notes.append(scattered_note(runs))
    if y is not None and unjudged == "drop" and (dropped := int((labels < 0).sum())):
        if dropped == documents:
            raise InputError(f"all {documents:,} documents are unjudged (label −1), and dropped")
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


def _array(values: Any, name: str) -> npt.NDArray[Any]:
    """Anything as an array; masked values are missing."""
    try:
        array = to_numpy(values)
    except ValueError as error:  # rows of different lengths
        raise InputError(f"{name} can't be made an array: {error}") from error
    return np.ma.filled(array.astype(np.float64), np.nan) if np.ma.isMaskedArray(array) else array


def checked_again(table: Table, reading: ReadOptions) -> Table:
    """A table under other choices about labels and values than it was made with."""
    rows = table.rows
    if rows is not None and reading.unjudged == "drop":
        rows = np.argsort(np.argsort(rows[table.y >= 0]))
    again = table_from_arrays(
        table.X,
        table.y,
        qid=np.repeat(table.query_ids, table.lists.sizes),
        docids=None if table.comments is None else list(table.comments),
        feature_names=table.feature_names,
        unjudged=reading.unjudged,
        non_finite=reading.non_finite,
        notes=table.notes,
    )
    return replace(again, rows=rows)


def _matrix(X: Any) -> npt.NDArray[Any]:
    if hasattr(X, "toarray"):  # scipy sparse
        X = X.toarray(order="C")
    given = _array(X, "X")
    if given.ndim != 2 or given.dtype.kind not in "biuf":
        hint = "; for a frame use Dataset.from_frame" if hasattr(X, "columns") else ""
        raise InputError(
            f"X must be a matrix of numbers, not {given.dtype} with shape {given.shape}{hint}"
        )
    if given.shape[0] == 0 or given.shape[1] == 0:
        raise InputError(f"X is empty: its shape is {given.shape}")
    return given


def _names(given: Sequence[str] | None, X: npt.NDArray[Any]) -> tuple[str, ...] | None:
    """The names of features; 1, 2, …, which is what features without names are called, are none."""
    if given is None:
        return None
    names = tuple(str(name) for name in given)
    if len(names) != X.shape[1]:
        raise InputError(f"feature_names ({len(names)}) and X {X.shape} must align")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"feature_names must differ, but {twice!r} occurs twice")
    return None if names == numbered(len(names)) else names


def numbered(count: int) -> tuple[str, ...]:
    """What features without names are called: 1, 2, …, as in LETOR text."""
    return tuple(str(i + 1) for i in range(count))


def _features(given: npt.NDArray[Any], non_finite: str, places: Places) -> tuple[Floats, list[str]]:
    with np.errstate(over="ignore"):  # too large becomes infinite, and is seen below
        features = np.ascontiguousarray(given, dtype=np.float32)
    missing = infinite = 0
    inexact = np.zeros(given.shape[1], np.bool_)
    for start in range(0, features.shape[0], _BLOCK):
        block, source = features[start : start + _BLOCK], given[start : start + _BLOCK]
        if given.dtype.kind in "iu":
            inexact |= rounded(source, block).any(axis=0)
        finite = np.isfinite(block)
        if finite.all():
            continue
        if non_finite == "error":
            row, column = np.argwhere(~finite)[0].tolist()
            raise InputError(
                f"{places.feature(start + row, column)} is {_shown(source[row, column])}, but a "
                f"feature must be a finite float32; choose what becomes of such values: "
                f"non_finite='keep' or non_finite='clip' (infinities to ±3.4e38)"
            )
        missing += int(np.isnan(block).sum())
        infinite += int(np.isinf(block).sum())
    if infinite and non_finite == "clip":
        into = None if np.may_share_memory(given, features) else features
        features = np.clip(features, -_LARGEST, _LARGEST, out=into)
    return features, [
        *(rounded_note(places.name(column)) for column in np.flatnonzero(inexact).tolist()),
        *not_finite_notes(missing, infinite),
    ]


def rounded(whole: npt.NDArray[Any], floats: Floats) -> npt.NDArray[np.bool_]:
    """Where whole numbers have lost digits as float32."""
    return np.not_equal(whole.astype(np.float64), floats)


def rounded_note(feature: str) -> str:
    """What is said of a feature with such numbers: most likely it is an id, or a time."""
    return f"feature {feature} has whole numbers beyond 2^24, which lose digits as float32"


def _shown(value: Any) -> str:
    if np.isfinite(value):
        return f"{value:g}"
    return "missing (NaN)" if np.isnan(value) else "infinite or too large"


def _labels(y: Any, documents: int, unjudged: str, places: Places) -> Floats:
    if y is None:
        return np.full(documents, -1, np.float32)
    given = _array(y, "y")
    if given.shape != (documents,):
        raise InputError(f"y {given.shape} must have one label for each of {documents} rows of X")
    if given.dtype.kind == "O":  # None among numbers
        given = _without_none(given)
    if given.dtype.kind not in "biuf":
        raise InputError(f"labels must be numbers, not {given.dtype}")
    with np.errstate(over="ignore"):
        labels: Floats = given.astype(np.float32)
    good = np.isfinite(labels) & ((labels >= 0) | (labels == -1))
    if not good.all():
        row = int(np.argmin(good))
        raise InputError(
            f"{places.label(row)} is {_shown(given[row])}, but a label must be a finite "
            f"number ≥ 0 (or −1, unjudged)"
        )
    if unjudged == "error" and (labels == -1).any():
        row = int(np.argmax(labels == -1))
        raise InputError(
            f"{places.label(row)} is −1, unjudged; choose what becomes of such documents: "
            f"unjudged='keep' (they count as 0 where measured) or unjudged='drop'"
        )
    return labels


def _without_none(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError):
        return values


def _comments(docids: Sequence[str] | None, documents: int) -> Texts | None:
    """The document ids as texts; where all are empty there are none."""
    if docids is None:
        return None
    if len(docids) != documents:
        raise InputError(f"docids ({len(docids)}) must have one id for each of {documents} rows")
    texts = Texts.of(str(docid) for docid in docids)
    return texts if texts.content.size else None


def _runs(qid: Any, group: Any, documents: int) -> tuple[Ints, Ints, npt.NDArray[Any]]:
    """Where runs of one query begin, which query each belongs to, and the ids by appearance."""
    if (qid is None) == (group is None):
        raise InputError("give either qid (one query id per document) or group (sizes of queries)")
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
        raise InputError(f"qid ({ids.size}) must have one id for each of {documents} rows of X")
    names, first, inverse = np.unique(
        _plain_ids(ids[starts]), return_index=True, return_inverse=True
    )
    by_appearance = np.argsort(first)
    place = np.empty_like(by_appearance)
    place[by_appearance] = np.arange(by_appearance.size)
    return starts, place[inverse], names[by_appearance]


def _plain_ids(ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Query ids as int64 where they are whole numbers, however these are spelled, else as text."""
    if ids.dtype.kind in "iu" and ids.dtype != np.uint64:
        return ids.astype(np.int64)
    if ids.dtype.kind == "f" and np.isfinite(ids).all() and (ids == np.rint(ids)).all():
        return as_ids([str(int(value)) for value in ids.tolist()])
    if ids.dtype.kind == "S":
        ids = np.char.decode(ids, "utf-8")
    return as_ids([str(value) for value in ids.tolist()])
