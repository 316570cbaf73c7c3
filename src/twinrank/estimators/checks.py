"""Whether data fits an estimator: number and names of features, missing values, queries."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from twinrank.data.batches import blocks
from twinrank.data.dataset import Dataset
from twinrank.data.transforms import Clip, Compose, SignedLog1p, Transform
from twinrank.estimators.inputs import trainable_queries
from twinrank.lists import Lists
from twinrank.models.columns import Apart
from twinrank.support.errors import InputError
from twinrank.support.plurals import counted

_BY_VALUE = (Clip, SignedLog1p)  # in which missing values stay missing


def check_features(
    data: Dataset, count: int, names: Sequence[str] | None, who: str, what: str = "X"
) -> None:
    """Refuse another number of features, or names in another order where both sides have some."""
    if data.features != count:
        raise InputError(
            f"{what} has {data.features} features, but {who} is expecting {count} features as input"
        )
    if names is None or data.feature_names is None:
        return
    for i, (here, there) in enumerate(zip(data.feature_names, names, strict=True)):
        if here != there:
            raise InputError(
                f"feature {i + 1} of {what} is {here!r}, but {who} was trained with {there!r} "
                f"there; put the features in that order: X[ranker.feature_names_in_]"
            )


def keeps_missing(transform: Transform) -> bool:
    """Whether missing values are still there after a transform."""
    if isinstance(transform, Apart):
        return keeps_missing(transform.within)
    parts = transform.transforms if isinstance(transform, Compose) else (transform,)
    return all(isinstance(part, _BY_VALUE) for part in parts)


def check_values(data: Dataset, transform: Transform, categories: Any = None) -> None:
    """Refuse values that aren't finite where the transform leaves them so.

    The transforms with statistics take a missing value for the mean or the minimum, and say
    themselves what they can't take; categories have an embedding for missing values.
    """
    if not keeps_missing(transform):
        return
    for queries in blocks(data):
        X = data.take(queries)
        if np.isfinite(X).all():
            continue
        left = ~np.isfinite(transform(X, Lists.from_sizes(data.lists.sizes[queries])))
        left[:, list(categories or ())] = False
        if left.any():
            row, column = np.argwhere(left)[0].tolist()
            raise InputError(_what(data, queries, X, row, column, transform))


def _what(data: Dataset, queries: Any, X: Any, row: int, column: int, transform: Transform) -> str:
    names = data.feature_names
    name = column + 1 if names is None else repr(names[column])
    ends = np.cumsum(data.lists.sizes[queries])
    query = data.query_ids[queries[int(np.searchsorted(ends, row, side="right"))]]
    if np.isnan(X[row, column]):
        what, how = "missing (NaN)", "fill it in, or let QueryZScore or Standardise do that"
    else:
        what, how = "infinite (inf, or beyond a float32's range)", "put Clip before the others"
    return (
        f"feature {name} is {what} in query {query}; transforms={str(transform)!r} keeps it: {how}"
    )


def check_evaluation(sets: dict[str, Dataset], data: Dataset, who: str) -> None:
    """Refuse evaluation sets that don't fit the training data, or that no measure can judge."""
    for name, one in sets.items():
        what = f"evaluation set {name!r}"
        check_features(one, data.features, data.feature_names, who, what)
        if not (one.y > 0).any():
            raise InputError(f"{what} has no relevant document, so that nothing can be measured")


def usable(data: Dataset, weights: Any) -> tuple[Dataset, Any]:
    """The queries that can teach, of which there must be one, and their weights."""
    good = trainable_queries(data, weights)
    if good.size:
        return data.select(good), None if weights is None else weights[good]
    if data.documents == 1:
        raise InputError("one sample can't teach: a query needs two documents or more")
    if data.queries == 1:
        raise InputError("the one query can't teach: it has nothing relevant, or weight 0")
    why = "each has a single document, nothing relevant, or weight 0"
    raise InputError(f"none of {counted(data.queries, 'query')} can teach: {why}")
