"""Partitions of a Dask cluster, prepared by its workers for an engine."""

from typing import Any, NamedTuple

import numpy as np

from twinrank.core.lists import Lists
from twinrank.data.transforms import transform
from twinrank.learning.boosting.newton import Newton
from twinrank.learning.boosting.tree_features import check_grades, rows_of, tree_transform
from twinrank.learning.models.encoding import columns_of
from twinrank.learning.training.fit_arguments import as_dataset, list_weights, trainable_queries
from twinrank.learning.training.matched_data import matched
from twinrank.learning.training.tree_parameters import ENGINE_OBJECTIVES
from twinrank.support.arrays import is_dask
from twinrank.support.errors import InputError


class Summary(NamedTuple):
    """What the client needs to know about a partition."""

    queries: int
    """Trainable ones."""
    documents: int
    features: int
    columns: int
    """Of the transformed features."""
    names: tuple[str, ...] | None
    weighted: bool
    hessian: float
    """The sum over all documents, at scores of zero."""


class Partition(NamedTuple):
    """A prepared partition."""

    X: Any
    y: Any
    sizes: Any
    weights: Any
    """One per row, or None."""
    ids: Any
    """Of all queries, also those that are not trainable."""
    features: int
    """Before the transform; 0 if the partition has no rows."""
    names: tuple[str, ...] | None


_NOTHING = Partition(np.empty((0, 0), np.float32), None, None, None, np.empty(0), 0, None)


def delayed_rows(X: Any, y: Any, qid: Any, weights: Any = None) -> list[Any]:
    """The partitions of X, y, qid and weights, as delayed tuples."""
    if getattr(X, "ndim", 2) != 2:
        raise InputError(f"X must be a matrix or a frame, but it has {X.ndim} dimension(s).")
    if hasattr(X, "chunks"):
        X = X.rechunk({1: -1})
    inputs = {"X": X, "y": y, "qid": qid, "sample_weight": weights}
    for name, values in inputs.items():
        if values is None and name != "sample_weight":
            raise InputError(f"On a Dask cluster, fit needs {name}, as a Dask array or column.")
        if values is not None and not is_dask(values):
            raise InputError(f"{name} must be a Dask array or column, because X is on Dask.")
        if values is not None and values.npartitions != X.npartitions:
            raise InputError(
                f"{name} has {values.npartitions} partitions but X has {X.npartitions}; both need "
                f"the same partitions."
            )
    if all(values is None or hasattr(values, "map_partitions") for values in inputs.values()):
        # Together: Dask would combine files of one column more than those of all features.
        return _frame_rows(X, y, qid, weights)
    columns = [_array_partitions(values, X.npartitions) for values in inputs.values()]
    return list(zip(*columns, strict=True))


def _frame_rows(X: Any, y: Any, qid: Any, weights: Any) -> list[Any]:
    import pandas as pd

    more = [] if weights is None else [weights]
    rows = X.map_partitions(
        _joined_rows, y, qid, *more, meta=pd.Series(dtype=object), enforce_metadata=False
    )
    return list(rows.to_delayed())


def _joined_rows(X: Any, y: Any, qid: Any, weights: Any = None) -> tuple[Any, Any, Any, Any]:
    return X, y, qid, weights


def _array_partitions(values: Any, count: int) -> list[Any]:
    if values is None:
        return [None] * count
    own = {} if hasattr(values, "chunks") else {"optimize_graph": False}
    return list(np.ravel(np.asarray(values.to_delayed(**own), object)))


def prepare(rows: Any, parameters: dict[str, Any]) -> Partition:
    """The rows of a partition's trainable queries, sorted by query and transformed."""
    X, y, qid, weights = rows
    if not len(y):
        return _NOTHING
    data = as_dataset(X, y, qid=qid, labelled=True)
    if data.categories:  # a partition does not know the texts of the others
        raise InputError(
            "On a Dask cluster, columns of text cannot be encoded. Encode them as whole numbers, "
            "and name them in categorical_features."
        )
    queries, per_list = np.empty(0, np.int64), None
    if weights is None:
        queries = trainable_queries(data, mode=parameters["mode"])
    elif np.any(weights):
        per_list = list_weights(weights, data)
        queries = trainable_queries(data, per_list, parameters["mode"])
    names, ids = data.feature_names, data.query_ids
    if not queries.size:
        nothing = np.empty((0, data.features), np.float32)
        return Partition(nothing, None, None, None, ids, data.features, names)
    trainable = data.select(queries)
    if str(parameters["objective"]) in ENGINE_OBJECTIVES:
        check_grades(trainable)
    categorical = columns_of(parameters["categorical_features"], data.features, names)
    chosen = tree_transform(transform(parameters["transforms"]), categorical)
    rows = rows_of(trainable, chosen, categorical)
    per_row = None if per_list is None else trainable.lists.spread(per_list[queries])
    X = np.ascontiguousarray(rows.X.matrix())
    return Partition(X, rows.y, trainable.lists.sizes, per_row, ids, data.features, names)


def prepare_evaluation(
    rows: Any, parameters: dict[str, Any], features: int, names: tuple[str, ...] | None
) -> Partition:
    """The rows of an evaluation partition, sorted by query and transformed.

    They have the `features` of training, found by name. The mode "paper" leaves out queries.
    """
    X, y, qid, _ = rows
    if not len(y):
        return _NOTHING
    data = as_dataset(X, y, qid=qid, labelled=True)
    data = matched(data, features, names, "BoostedRanker", "the evaluation set")
    if parameters["mode"] == "paper":
        data = data.select(trainable_queries(data, mode="paper"))
        if not data.queries:
            return _NOTHING
    categorical = columns_of(parameters["categorical_features"], data.features, data.feature_names)
    chosen = tree_transform(transform(parameters["transforms"]), categorical)
    own = rows_of(data, chosen, categorical)
    sizes, ids, names = data.lists.sizes, data.query_ids, data.feature_names
    return Partition(own.X.matrix(), own.y, sizes, None, ids, data.features, names)


def summarise(partition: Partition, newton: Newton | None) -> Summary:
    """What the client needs to know."""
    features, columns, names = partition.features, partition.X.shape[1], partition.names
    if partition.y is None:
        return Summary(0, 0, features, columns, names, False, 0.0)
    lists, total = Lists.from_sizes(partition.sizes), 0.0
    weighted = partition.weights is not None
    if newton is not None:
        weights = lists.max(partition.weights) if weighted else None
        scores = np.zeros(len(partition.y))
        hessian = newton.sums(scores, partition.y, lists, weights)[1]
        total = float(hessian.sum(dtype=np.float64))
    return Summary(len(lists), len(partition.y), features, columns, names, weighted, total)


def list_numbers(partition: Partition, first: int) -> Any:
    """The number of the list of each row, counted from `first`."""
    last = first + len(partition.sizes)
    return np.repeat(np.arange(first, last, dtype=np.uint32), partition.sizes)


def query_ids(partition: Partition) -> Any:
    """The ids of all queries of a partition."""
    return partition.ids


def query_in_two(ids: list[Any]) -> str | None:
    """A query that has rows in two partitions, or None."""
    filled = [own for own in ids if len(own)]
    if not filled:
        return None
    unique, counts = np.unique(np.concatenate(filled), return_counts=True)
    return str(unique[counts > 1][0]) if (counts > 1).any() else None
