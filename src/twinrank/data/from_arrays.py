"""Arrays, sparse matrices and frames in memory, with labels and queries beside them, as a block."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt

from twinrank.core.lists import Lists
from twinrank.data.block import Block, Place, Runs, lost_digits, runs_in
from twinrank.data.builder import TableBuilder, checked
from twinrank.data.from_frames import Columns, as_frame, is_frame, read_columns, series_runs
from twinrank.data.options import ReadOptions, first_repeated
from twinrank.data.store import BlockSink
from twinrank.data.table import Table, Texts
from twinrank.support.arrays import refuse_clusters, to_numpy
from twinrank.support.errors import InputError, Parts
from twinrank.support.quantities import counted

_ROWS = 1 << 16  # checked at a time


class NotNumbersError(InputError, TypeError):
    """Objects that are not numbers; also a TypeError, which scikit-learn expects."""


def table_from_arrays(
    X: Any,
    y: Any = None,
    *,
    qid: Any = None,
    group: Any = None,
    docids: Sequence[str] | None = None,
    weight: Any = None,
    feature_names: Sequence[str] | None = None,
    categorical: Sequence[int | str] = (),
    options: ReadOptions | None = None,
) -> Table:
    """Make a table from arrays in memory; `Dataset.from_arrays` documents the parameters.

    `categorical` are columns, by number or name, whose values are read as categories.
    """
    columns, names = _features(X, feature_names, categorical)
    rows = len(columns.X)
    place = Place(names)
    weights = None if weight is None else _numbers(weight, "weight", rows).astype(np.float64)
    block = Block(
        X=columns.X,
        y=None if y is None else _numbers(y, "y", rows),
        runs=_runs(qid, group, rows, place),
        place=place,
        docids=_docids(docids, rows),
        weights=weights,
        categories=columns.categories,
        numeric=columns.numeric,
        inexact=columns.inexact,
        finite=columns.finite,
    )
    return table_of(block, options or ReadOptions(), names)


def table_of(
    block: Block,
    options: ReadOptions,
    names: Sequence[str] | None,
    notes: Sequence[Parts] = (),
    where: str = "The data",
) -> Table:
    """Make a table from one block, in memory."""
    builder = TableBuilder(BlockSink(), options)
    builder.add(checked(block, options))
    builder.end_part()
    return builder.finish([where], names, notes)


def checked_again(table: Table, options: ReadOptions) -> Table:
    """Apply other options for labels and values to a table."""
    numbers = np.arange(table.query_ids.size)  # not ids, which a table may repeat
    weights = table.row_weights
    if weights is None and table.weights is not None:
        weights = table.lists.spread(table.weights)
    block = Block(
        X=table.X,
        y=table.y,
        runs=Runs(table.lists.offsets[:-1], numbers),
        place=Place(table.feature_names),
        docids=table.comments,
        weights=weights,
    )
    again = table_of(block, options, table.feature_names, table.notes)
    rows = table.rows
    if rows is not None and len(again.y) < len(rows):
        rows = np.argsort(np.argsort(rows[table.y >= 0]))
    query_ids = table.query_ids[again.query_ids]
    return replace(
        again,
        query_ids=query_ids,
        rows=rows,
        categories=table.categories,
        from_clicks=table.from_clicks,
    )


def _features(
    X: Any, feature_names: Sequence[str] | None, categorical: Sequence[int | str]
) -> tuple[Columns, tuple[str, ...] | None]:
    """Return the features and their names."""
    refuse_clusters("X", X)
    if hasattr(X, "toarray"):  # scipy sparse
        X = X.toarray(order="C")
    elif is_frame(X):
        table = as_frame(X, "X")
        own = tuple(str(name) for name in table.columns)
        names = _names(feature_names, len(own)) or own
        chosen = _numbers_of(categorical, names)
        if not own:
            raise _no_features(table.shape)
        return read_columns(list(table.iter_columns()), Place(names), categorical=chosen), names
    matrix = _matrix(X)
    given = _names(feature_names, matrix.shape[1])
    chosen = _numbers_of(categorical, given or ())
    if chosen:
        columns = [matrix[:, i] for i in range(matrix.shape[1])]
        return read_columns(columns, Place(given), categorical=chosen), given
    with np.errstate(over="ignore"):  # values that are too large become infinite; checked later
        features = np.ascontiguousarray(matrix, dtype=np.float32)
    inexact = np.zeros(matrix.shape[1], np.bool_)
    for start in range(0, len(matrix), _ROWS):
        inexact |= lost_digits(matrix[start : start + _ROWS])
    return Columns(features, {}, None, inexact, matrix.dtype.kind in "biu"), given


def _numbers_of(chosen: Sequence[int | str], names: Sequence[str]) -> set[int]:
    """Return the numbers of chosen columns; the ranker refuses those that do not exist."""
    place = {name: i for i, name in enumerate(names)}
    return {place.get(name, -1) if isinstance(name, str) else int(name) for name in chosen}


def _names(feature_names: Sequence[str] | None, count: int) -> tuple[str, ...] | None:
    if feature_names is None:
        return None
    names = tuple(str(name) for name in feature_names)
    if len(names) != count:
        raise InputError(
            f"feature_names has {counted(len(names), 'name')} but X has "
            f"{counted(count, 'column')}; pass one name per column."
        )
    if (repeated := first_repeated(names)) is not None:
        raise InputError(f"feature_names contains {repeated!r} twice; names must be unique.")
    return names


def _array(values: Any, name: str) -> npt.NDArray[Any]:
    """Return any values as an array; masked values become NaN."""
    refuse_clusters(name, values)
    try:
        array = to_numpy(values)
    except ValueError as error:  # rows of different lengths
        raise InputError(f"{name} can't be converted to an array: {error}.") from error
    return np.ma.filled(array.astype(np.float64), np.nan) if np.ma.isMaskedArray(array) else array


def _matrix(X: Any) -> npt.NDArray[Any]:
    matrix = _array(X, "X")
    if matrix.dtype.kind == "c":
        raise InputError(f"Complex data not supported: X is {matrix.dtype}.")
    if matrix.ndim != 2:
        raise InputError(
            f"X must be a matrix, but it has shape {matrix.shape}. Reshape your data: "
            f"X.reshape(1, -1) for one document, X.reshape(-1, 1) for one feature."
        )
    if matrix.shape[1] == 0:
        raise _no_features(matrix.shape)
    if matrix.shape[0] == 0:
        raise InputError(f"X is empty: its shape is {matrix.shape}.")
    if matrix.dtype.kind == "O":
        return _object_numbers(matrix, "X")
    if matrix.dtype.kind not in "biuf":
        raise InputError(f"X must be a matrix of numbers, not {matrix.dtype}.")
    return matrix


def _no_features(shape: tuple[int, ...]) -> InputError:
    return InputError(f"X has 0 feature(s) (shape={shape}) while a minimum of 1 is required.")


def _object_numbers(values: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    """Return objects as floats, None as NaN. Text raises an error, even that of a number."""
    text = next((v for v in values.flat if isinstance(v, str | bytes)), None)
    if text is not None:
        raise InputError(f"{name} contains the text {text!r}. Encode it as a number, or drop it.")
    try:
        numbers = values.astype(np.float64)
        return values.astype(np.longdouble) if (np.abs(numbers) >= 2**53).any() else numbers
    except (TypeError, ValueError) as error:
        raise NotNumbersError(f"{name} contains a value that is not a number: {error}.") from error


def _numbers(values: Any, name: str, rows: int) -> npt.NDArray[Any]:
    """Return one number per row; a frame may have one column."""
    array = _array(values, name)
    if array.ndim == 2 and array.shape[1] == 1 and is_frame(values):
        array = array[:, 0]
    if array.shape != (rows,):
        raise InputError(
            f"{name} has shape {array.shape} but X has {counted(rows, 'row')}; pass one value per "
            f"row."
        )
    if array.dtype.kind == "O":
        array = _object_numbers(array, name)
    if array.dtype.kind not in "biuf":
        raise InputError(f"{name} must be numbers, not {array.dtype}.")
    return array


def _docids(docids: Sequence[str] | None, rows: int) -> Texts | None:
    if docids is None:
        return None
    if len(docids) != rows:
        raise InputError(
            f"docids has {counted(len(docids), 'id')} but X has {counted(rows, 'row')}; pass one "
            f"id per row."
        )
    return Texts.of(str(docid) for docid in docids)


def _runs(qid: Any, group: Any, rows: int, place: Place) -> Runs:
    """Return the runs of queries, from an id per row or from the sizes of queries."""
    if (qid is None) == (group is None):
        raise InputError(
            "Pass either qid (one query id per document) or group (documents per query)."
        )
    if qid is None:
        try:
            lists = Lists.from_sizes(group)
        except InputError as error:
            raise InputError("group: ", *error.parts) from error
        if lists.documents != rows:
            raise InputError(f"group adds up to {lists.documents} documents, but X has {rows}.")
        return Runs(lists.offsets[:-1], np.arange(lists.sizes.size))
    refuse_clusters("qid", qid)
    ids: Any = nw.from_native(qid, series_only=True, pass_through=True)
    if isinstance(qid, list | tuple) and any(isinstance(value, str) for value in qid):
        ids = np.array([*qid, None], object)[:-1]  # NumPy's text loses NUL characters at the end
    elif not isinstance(ids, nw.Series):
        ids = _array(qid, "qid")
    if len(ids.shape) != 1:
        raise InputError(f"qid must have one dimension, but has shape {ids.shape}.")
    if len(ids) != rows:
        raise InputError(
            f"qid has {counted(len(ids), 'id')} but X has {counted(rows, 'row')}; pass one id per "
            f"row."
        )
    return series_runs(ids, place) if isinstance(ids, nw.Series) else runs_in(ids, place)
