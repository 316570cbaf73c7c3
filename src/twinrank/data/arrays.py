"""Arrays into a table: checked, as float32, each query's rows together."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.data.options import Reading
from twinrank.data.table import Ints, Table, scattered_note, together
from twinrank.data.texts import Texts
from twinrank.lists import Lists, query_runs
from twinrank.support.arrays import to_numpy
from twinrank.support.errors import InputError

_LARGEST = np.finfo(np.float32).max
_BLOCK = 1 << 16  # rows that are checked at a time


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
) -> Table:
    """A table of arrays in memory; `Dataset.from_arrays` says what they are."""
    Reading(unjudged=unjudged, non_finite=non_finite)  # checks the choices
    features, notes = _features(X, feature_names, non_finite)
    documents = features.shape[0]
    labels = _labels(y, documents, unjudged)
    starts, runs, query_ids = _runs(qid, group, documents)
    order, offsets = together(starts, runs, documents)
    rows = order
    if order is not None:
        notes.append(scattered_note(runs))
    if y is not None and unjudged == "drop" and (dropped := int((labels < 0).sum())):
        notes.append(f"{dropped:,} documents without a judgement (label −1) were dropped")
        order = np.arange(documents) if order is None else order
        judged = labels[order] >= 0
        sizes = Lists(offsets).sum(judged.astype(np.float64)).astype(np.int64)
        query_ids, offsets = query_ids[sizes > 0], np.append(0, np.cumsum(sizes[sizes > 0]))
        order = order[judged]
        rows = None if rows is None else np.argsort(np.argsort(order))
    if docids is not None and len(docids) != documents:
        raise InputError(f"docids ({len(docids)}) and X {features.shape} must align")
    comments = None if docids is None else Texts.of(str(docid) for docid in docids)
    return Table(
        features if order is None else features[order],
        labels if order is None else labels[order],
        Lists(offsets),
        query_ids,
        comments if comments is None or order is None else comments.take(order),
        None if feature_names is None else tuple(str(name) for name in feature_names),
        rows,
        tuple(notes),
    )


def _features(
    X: Any, names: Sequence[str] | None, non_finite: str
) -> tuple[npt.NDArray[np.float32], list[str]]:
    if hasattr(X, "toarray"):  # scipy sparse
        X = X.toarray()
    given = to_numpy(X)
    if given.ndim != 2 or given.dtype.kind not in "biuf":
        raise InputError(
            f"X must be a matrix of numbers, not {given.dtype} with shape {given.shape}"
        )
    if given.shape[0] == 0 or given.shape[1] == 0:
        raise InputError(f"X is empty: its shape is {given.shape}")
    if names is not None and len(names) != given.shape[1]:
        raise InputError(f"feature_names ({len(names)}) and X {given.shape} must align")
    with np.errstate(over="ignore"):  # too large becomes infinite, and is seen below
        features = np.ascontiguousarray(given, dtype=np.float32)
    return _finite(features, np.may_share_memory(given, features), names, non_finite)


def _finite(
    features: npt.NDArray[np.float32], shared: bool, names: Sequence[str] | None, non_finite: str
) -> tuple[npt.NDArray[np.float32], list[str]]:
    missing = infinite = 0
    for start in range(0, features.shape[0], _BLOCK):
        block = features[start : start + _BLOCK]
        if np.isfinite(block).all():
            continue
        if non_finite == "error":
            row, column = np.argwhere(~np.isfinite(block))[0].tolist()
            name = f"{names[column]!r}" if names is not None else f"{column}"
            raise InputError(
                f"feature {name} of row {start + row} is {block[row, column]}, not a finite "
                f"float32; choose what becomes of such values: non_finite='keep' or "
                f"non_finite='clip' (infinities to ±3.4e38)"
            )
        missing += int(np.isnan(block).sum())
        infinite += int(np.isinf(block).sum())
    if infinite and non_finite == "clip":
        features = np.clip(features, -_LARGEST, _LARGEST, out=None if shared else features)
    notes = [f"{missing:,} values are not a number (NaN)"] if missing else []
    if infinite:
        notes.append(f"{infinite:,} values are beyond the range of a float32")
    return features, notes


def _labels(y: Any, documents: int, unjudged: str) -> npt.NDArray[np.float32]:
    if y is None:
        return np.full(documents, -1, np.float32)
    labels = to_numpy(y)
    if labels.shape != (documents,):
        raise InputError(f"y {labels.shape} must have one label for each of {documents} rows of X")
    if labels.dtype.kind not in "biuf":
        raise InputError(f"labels must be numbers, not {labels.dtype}")
    labels = labels.astype(np.float32)
    good = np.isfinite(labels) & ((labels >= 0) | (labels == -1))
    if not good.all():
        row = int(np.argmin(good))
        raise InputError(
            f"a label must be a finite number ≥ 0 (or −1, unjudged), "
            f"but row {row} has {labels[row]}"
        )
    if unjudged == "error" and (labels == -1).any():
        row = int(np.argmax(labels == -1))
        raise InputError(
            f"row {row} has label −1, unjudged; choose what becomes of such documents: "
            f"unjudged='keep' (they count as 0 where measured) or unjudged='drop'"
        )
    return labels


def _runs(qid: Any, group: Any, documents: int) -> tuple[Ints, Ints, npt.NDArray[Any]]:
    """Where runs of one query begin, which query each belongs to, and the ids by appearance."""
    if (qid is None) == (group is None):
        raise InputError("give either qid (one query id per document) or group (sizes of queries)")
    if qid is None:
        lists = Lists.from_sizes(group)
        if lists.documents != documents:
            raise InputError(f"group adds up to {lists.documents} documents, but X has {documents}")
        numbers = np.arange(lists.sizes.size)
        return lists.offsets[:-1], numbers, numbers
    ids, starts = query_runs(qid)
    if ids.size != documents:
        raise InputError(f"qid ({ids.size}) must have one id for each of {documents} rows of X")
    names, first, inverse = np.unique(ids[starts], return_index=True, return_inverse=True)
    by_appearance = np.argsort(first)
    place = np.empty_like(by_appearance)
    place[by_appearance] = np.arange(by_appearance.size)
    return starts, place[inverse], names[by_appearance]
