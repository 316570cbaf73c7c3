"""What `fit` and `predict` take, as datasets: arrays, sparse matrices, frames, datasets."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from twinrank.data.dataset import Dataset
from twinrank.support.arrays import to_numpy
from twinrank.support.errors import InputError
from twinrank.training.settings import RESERVED

_HOW = "give (X, y, qid), a Dataset, a dict of these by name, or [(X, y)] with eval_qid=[qid]"


class NotNumbersError(InputError, TypeError):
    """Objects that are no numbers; scikit-learn has a TypeError for them."""


def as_dataset(
    X: Any,
    y: Any = None,
    qid: Any = None,
    group: Any = None,
    *,
    labelled: bool = False,
    one_query: bool = False,
) -> Dataset:
    """Features, labels and queries as a dataset; rows of one query may be scattered.

    `labelled`: there must be labels. `one_query`: rows without a query id are one query's.
    """
    if isinstance(X, Dataset):
        if any(given is not None for given in (y, qid, group)):
            raise InputError("a Dataset has its own labels and queries: pass it alone")
        return X
    if labelled and y is None:
        raise InputError("a ranker requires y to be passed, but the target y is None")
    matrix, names = _matrix(X)
    if one_query and qid is None and group is None:
        group = [matrix.shape[0]]
    return Dataset.from_arrays(
        matrix,
        y,
        qid=None if qid is None else _ids(qid),
        group=group,
        feature_names=names,
        unjudged="keep",
        non_finite="keep",
    )


def _matrix(X: Any) -> tuple[Any, list[str] | None]:
    """Features as a matrix, and the names of the columns where all have one."""
    if hasattr(X, "toarray"):  # scipy sparse
        return X, None
    if hasattr(type(X), "columns"):  # asked of the type, since a lazy frame would look them up
        return _frame(X)
    try:
        given = to_numpy(X)
    except ValueError as error:  # rows of different lengths
        raise InputError(f"X can't be made a matrix: {error}") from error
    if given.dtype.kind == "c":
        raise InputError(f"Complex data not supported: X is {given.dtype}")
    if given.ndim != 2:
        raise InputError(
            f"X must be a matrix, but its shape is {given.shape}. Reshape your data: "
            f"X.reshape(1, -1) for one document, X.reshape(-1, 1) for one feature"
        )
    if given.shape[1] == 0:
        raise InputError(
            f"X has 0 feature(s) (shape={given.shape}) while a minimum of 1 is required."
        )
    return _numbers(given, "X") if given.dtype.kind == "O" else given, None


def _numbers(values: Any, name: str) -> Any:
    """Objects as float64, None as NaN; text is refused, also where it spells a number."""
    text = next((v for v in values.flat if isinstance(v, str | bytes)), None)
    if text is not None:
        raise InputError(f"{name} holds the text {text!r}; encode it as a number, or drop it")
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise NotNumbersError(f"{name} holds something that is no number: {error}") from error


def _frame(frame: Any) -> tuple[Any, list[str] | None]:
    """A frame of features as a matrix, missing values as NaN, and the names of its columns."""
    import narwhals as nw

    try:
        native = nw.from_native(frame)
        table = native.collect() if isinstance(native, nw.LazyFrame) else native
        columns = list(table.columns)
    except nw.exceptions.DuplicateError as error:
        raise InputError("X has columns of the same name; rename them") from error
    except TypeError:  # not a frame after all
        return np.asarray(frame), None
    if not columns:
        raise InputError(
            f"X has 0 feature(s) (shape={table.shape}) while a minimum of 1 is required."
        )
    X = np.empty(table.shape, np.float32)
    with np.errstate(over="ignore"):  # too large becomes infinite
        for i in range(len(columns)):
            X[:, i] = _column(table[:, i])
    return X, columns if all(isinstance(name, str) for name in columns) else None


def _column(series: Any) -> Any:
    import narwhals as nw

    kind, name = series.dtype, f"feature {series.name!r}"
    if kind == nw.Object:
        return _numbers(np.array(series.to_list(), object), name)
    if not (kind.is_numeric() or kind == nw.Boolean):
        raise InputError(f"{name} is {kind}, not a number; encode or drop it")
    odd = kind in (nw.Int128, nw.UInt128, nw.Decimal)
    if odd or (series.null_count() and not kind.is_float()):
        series = series.cast(nw.Float64)
    return series.to_numpy()


def _ids(qid: Any) -> Any:
    """Query ids, every one of them there."""
    ids = to_numpy(qid)
    missing = None
    if ids.dtype.kind == "f":
        missing = np.isnan(ids)
    elif ids.dtype.kind == "O":
        missing = np.array([_is_missing(value) for value in ids.flat])
    if missing is not None and missing.any():
        raise InputError(f"row {int(missing.argmax())} has no query id: qid is missing there")
    return ids


def _is_missing(value: Any) -> bool:
    try:
        return value is None or not bool(value == value)
    except TypeError:  # pandas.NA is neither
        return True


def as_evaluation_sets(
    eval_set: Any, eval_qid: Any = None, eval_group: Any = None
) -> dict[str, Dataset]:
    """Evaluation sets by name, however they are written.

    A Dataset or (X, y, qid) is "validation"; a dict gives names; a list of (X, y) goes with a list
    of query ids or groups, as LightGBM and XGBoost have it: "validation", then "validation_2" …
    """
    beside = eval_qid is not None or eval_group is not None
    if eval_set is None:
        if beside:
            raise InputError(f"eval_qid and eval_group go with eval_set: {_HOW}")
        return {}
    if isinstance(eval_set, Dataset) or _is_set(eval_set, 3):
        eval_set = {"validation": eval_set}
    if isinstance(eval_set, Mapping):
        if beside:
            raise InputError(f"this eval_set takes no eval_qid or eval_group: {_HOW}")
        return {_name(name): _one(given, None, None) for name, given in eval_set.items()}
    if not isinstance(eval_set, Sequence) or isinstance(eval_set, str):
        raise InputError(f"eval_set can't be {type(eval_set).__name__}: {_HOW}")
    if _is_set(eval_set, 2):
        eval_set = [eval_set]
        eval_qid = None if eval_qid is None else [eval_qid]
        eval_group = None if eval_group is None else [eval_group]
    for name, given in (("eval_qid", eval_qid), ("eval_group", eval_group)):
        if given is not None and len(given) != len(eval_set):
            raise InputError(
                f"{name} ({len(given)}) must have one entry for each of {len(eval_set)} "
                f"evaluation sets: {_HOW}"
            )
    found = {}
    for i, given in enumerate(eval_set):
        qid, group = (None if x is None else x[i] for x in (eval_qid, eval_group))
        found["validation" if i == 0 else f"validation_{i + 1}"] = _one(given, qid, group)
    return found


def _is_set(given: Any, length: int) -> bool:
    """Whether this is one set, (X, y) or (X, y, qid), rather than a tuple of several."""
    if not isinstance(given, tuple) or len(given) != length:
        return False
    return not all(isinstance(part, Dataset | tuple) for part in given)


def _name(name: Any) -> str:
    if str(name) in RESERVED:
        raise InputError(f"an evaluation set can't be called {name!r}: the history has its own")
    return str(name)


def _one(given: Any, qid: Any, group: Any) -> Dataset:
    beside = qid is not None or group is not None
    if isinstance(given, Dataset) and not beside:
        return given
    if isinstance(given, tuple | list) and len(given) == 3 and not beside:
        return as_dataset(given[0], given[1], qid=given[2], labelled=True)
    if isinstance(given, tuple | list) and len(given) == 2:
        if not beside:
            raise InputError(f"the queries of an evaluation set aren't given: {_HOW}")
        return as_dataset(given[0], given[1], qid=qid, group=group, labelled=True)
    raise InputError(f"can't use this as an evaluation set: {_HOW}")


def list_weights(sample_weight: Any, data: Dataset, own_order: bool = False) -> Any:
    """One weight per list, from one per list or one per row (equal within a query).

    Rows are in the order that the source had, or in the dataset's own.
    """
    if sample_weight is None:
        return None
    weights = _weights(sample_weight)
    if weights.shape == (data.queries,) and data.queries != data.documents:
        return weights
    if weights.shape != (data.documents,):
        raise InputError(
            f"sample_weight {weights.shape} must have one entry for each of {data.queries} queries "
            f"or {data.documents} documents"
        )
    ordered = weights if own_order else data.from_source_order(weights)
    low, high = data.lists.min(ordered), data.lists.max(ordered)
    if (low != high).any():
        query = data.query_ids[int(np.argmax(low != high))]
        raise InputError(f"sample_weight must be the same for all rows of query {query}")
    return high


def _weights(given: Any) -> Any:
    try:
        weights = np.asarray(given, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"sample_weight must be numbers: {error}") from error
    bad = ~(np.isfinite(weights) & (weights >= 0))
    if bad.any():
        raise InputError(f"sample_weight must be finite and not negative, not {weights[bad][0]:g}")
    if not weights.any():
        raise InputError("sample_weight is zero for all queries")
    return weights


def trainable_queries(data: Dataset, weights: Any = None) -> Any:
    """The numbers of the queries that can teach: two documents or more, one of them relevant.

    A query of weight 0 doesn't.
    """
    relevant = data.lists.any(data.y > 0)
    counts = True if weights is None else weights > 0
    return np.flatnonzero((data.lists.sizes >= 2) & relevant & counts)
