"""Features and labels as the tree engines take them: transformed and checked."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np

from twinrank.boosting.engines import Rows
from twinrank.data.batches import blocks
from twinrank.data.dataset import Dataset
from twinrank.data.transforms import Compose, Transform
from twinrank.lists import Lists
from twinrank.models.columns import except_columns
from twinrank.support.errors import InputError


def tree_transform(transform: Transform, categorical: tuple[int, ...]) -> Transform:
    """The transform without the categorical columns; an empty transform stays empty."""
    return transform if transform == Compose() else except_columns(transform, categorical)


def features_of(data: Dataset, transform: Transform, categorical: tuple[int, ...]) -> Iterator[Any]:
    """The transformed features, block by block; without a transform all at once, not copied.

    Missing values stay NaN. Infinite values, and categories that are not whole numbers, raise an
    error.
    """
    unchanged = transform == Compose()
    for queries in blocks(data):
        first, last = int(queries[0]), int(queries[-1])
        docs = slice(int(data.lists.offsets[first]), int(data.lists.offsets[last + 1]))
        if unchanged:
            _check_values(data.X[docs], transform, categorical, data, docs.start)
            continue
        X = transform(data.take(queries), Lists.from_sizes(data.lists.sizes[queries]))
        _check_values(X, transform, categorical, data, docs.start)
        yield X
    if unchanged and data.documents:
        yield data.X


def rows_of(
    data: Dataset, transform: Transform, categorical: tuple[int, ...], weights: Any = None
) -> Rows:
    """All rows of a dataset; unjudged documents count as 0."""
    parts = features_of(data, transform, categorical)
    X = next(parts)
    if len(X) < data.documents:  # copy block by block: a second copy of all may need too much
        first, X = X, np.empty((data.documents, X.shape[1]), np.float32)
        place = 0
        for part in chain([first], parts):
            X[place : place + len(part)] = part
            place += len(part)
    return Rows(X, np.maximum(data.y, 0), data.lists, weights)


def check_grades(data: Dataset) -> None:
    """Refuse fractional labels, which the engines' own objectives cannot take."""
    fractional = data.y != np.trunc(data.y)
    if fractional.any():
        label = float(data.y[fractional][0])
        raise InputError(
            f"Labels must be whole numbers for this objective, but one is {label:g}. Round them, "
            f"or choose a measure as objective."
        )


def _check_values(
    X: Any, transform: Transform, categorical: tuple[int, ...], data: Dataset, first: int
) -> None:
    """Refuse infinite values and invalid categories; the first row of X is document `first`."""
    invalid = np.isinf(X)
    if invalid.any():
        where = _position(data, invalid, transform, first)
        raise InputError(f"{where} is infinite. Put Clip in transforms.")
    if not categorical:
        return
    values = X[:, categorical]
    fractional = (values != np.trunc(values)) & ~np.isnan(values)
    invalid[:, categorical] = (values < 0) | fractional
    if invalid.any():
        raise InputError(
            f"{_position(data, invalid, transform, first)} is {X[invalid][0]:g}, but a category "
            f"must be a whole number of at least 0, or missing."
        )


def _position(data: Dataset, invalid: Any, transform: Transform, first: int) -> str:
    """The feature and the query of the first invalid value."""
    row, column = np.argwhere(invalid)[0].tolist()
    column = int(transform.sources(data.features)[column])
    names = data.feature_names
    name = column + 1 if names is None else repr(names[column])
    query = data.query_ids[int(data.lists.list_of(first + row))]
    return f"Feature {name} of a document of query {query}"
