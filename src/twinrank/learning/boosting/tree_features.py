"""Features and labels as the tree engines take them: transformed and checked."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np

from twinrank.core.lists import Lists
from twinrank.data.batches import blocks
from twinrank.data.dataset import Dataset
from twinrank.data.transforms import Compose, Transform
from twinrank.data.transforms.combined import except_columns
from twinrank.learning.boosting.engines import Rows
from twinrank.support.errors import InputError

STREAMED = 1 << 30
"""Bytes of features, as float32; the engines get more than these in chunks."""


def tree_transform(transform: Transform, categorical: tuple[int, ...]) -> Transform:
    """The transform without the categorical columns; an empty transform stays empty."""
    return transform if transform == Compose() else except_columns(transform, categorical)


def features_of(data: Dataset, transform: Transform, categorical: tuple[int, ...]) -> Iterator[Any]:
    """The transformed features, chunk by chunk; without a transform all at once, not copied.

    Missing values stay NaN. Infinite values, and categories that are not whole numbers, raise an
    error.
    """
    features = StreamedFeatures(data, transform, categorical)
    unchanged = transform == Compose() and not features.is_large
    for X in features:
        if not unchanged:
            yield X
    if unchanged and data.documents:
        yield data.X


def rows_of(
    data: Dataset,
    transform: Transform,
    categorical: tuple[int, ...],
    weights: Any = None,
    in_memory: bool = False,
) -> Rows:
    """All rows of a dataset; unjudged documents count as 0.

    Large features are computed chunk by chunk whenever they are read, unless `in_memory`.
    """
    labels = np.maximum(data.y, 0)
    streamed = StreamedFeatures(data, transform, categorical)
    if streamed.is_large and not in_memory:
        return Rows(streamed, labels, data.lists, weights)
    parts = features_of(data, transform, categorical)
    X = next(parts)
    if len(X) < data.documents:  # copy chunk by chunk: a second copy of all may need too much
        first, X = X, np.empty((data.documents, X.shape[1]), np.float32)
        place = 0
        for part in chain([first], parts):
            X[place : place + len(part)] = part
            place += len(part)
    return Rows(X, labels, data.lists, weights)


class StreamedFeatures:
    """Transformed features that are computed chunk by chunk, whenever they are read.

    A chunk holds whole queries. The last chunk that was read stays in memory.
    """

    def __init__(self, data: Dataset, transform: Transform, categorical: tuple[int, ...]) -> None:
        self._data, self._transform, self._categorical = data, transform, categorical
        self._queries = blocks(data)
        self._last: tuple[int, Any] = (-1, None)
        self.shape = (data.documents, transform.outputs(data.features))

    @property
    def is_large(self) -> bool:
        """True if the engine should get the features in chunks."""
        return 4 * self.shape[0] * self.shape[1] > STREAMED

    def __len__(self) -> int:
        return len(self._queries)

    def __iter__(self) -> Iterator[Any]:
        return (self.chunk(number) for number in range(len(self)))

    def queries(self, number: int) -> Any:
        """The numbers of the queries of a chunk."""
        return self._queries[number]

    def rows(self, number: int) -> slice:
        """The rows of a chunk."""
        first, last = int(self._queries[number][0]), int(self._queries[number][-1])
        offsets = self._data.lists.offsets
        return slice(int(offsets[first]), int(offsets[last + 1]))

    def chunk(self, number: int) -> Any:
        """The features of a chunk, checked."""
        if self._last[0] == number:
            return self._last[1]
        data, queries = self._data, self._queries[number]
        X = data.take(queries)
        if self._transform != Compose():
            X = self._transform(X, Lists.from_sizes(data.lists.sizes[queries]))
        rows = self.rows(number)
        _check_values(X, self._transform, self._categorical, data, rows.start)
        self._last = (number, X)
        return X


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
