"""Features and labels as the tree engines take them: transformed and checked."""

from collections.abc import Iterator
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
"""Bytes of features, as float32. XGBoost gets more data in chunks; LightGBM always does."""


def tree_transform(transform: Transform, categorical: tuple[int, ...]) -> Transform:
    """The transform without the categorical columns; an empty transform stays empty."""
    return transform if transform == Compose() else except_columns(transform, categorical)


def rows_of(
    data: Dataset, transform: Transform, categorical: tuple[int, ...], weights: Any = None
) -> Rows:
    """All rows of a dataset; unjudged documents count as 0."""
    features = StreamedFeatures(data, transform, categorical)
    return Rows(features, np.maximum(data.y, 0), data.lists, weights)


class StreamedFeatures:
    """Transformed features that are computed chunk by chunk, whenever they are read.

    A chunk holds whole queries. Missing values stay NaN. Infinite values, and categories that are
    not whole numbers, raise an error.
    """

    def __init__(self, data: Dataset, transform: Transform, categorical: tuple[int, ...]) -> None:
        self._data, self._transform, self._categorical = data, transform, categorical
        self._queries = blocks(data)
        self.shape = (data.documents, transform.outputs(data.features))

    @property
    def is_large(self) -> bool:
        """True if there should be no matrix of all features."""
        return 4 * self.shape[0] * self.shape[1] > STREAMED

    def matrix(self) -> Any:
        """All features; not copied if there is no transform."""
        if self._transform == Compose():
            for _ in self:  # checks the values
                pass
            return self._data.X
        X, place = np.empty(self.shape, np.float32), 0
        for part in self:  # one after the other: a second copy of all may need too much
            X[place : place + len(part)] = part
            place += len(part)
        return X

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
        X = self._transformed(self._queries[number])
        first = self.rows(number).start
        _check_values(X, self._transform, self._categorical, self._data, first)
        return X

    def sample(self, documents: int, seed: int) -> Any:
        """The columns of about this many documents of random queries, as float64.

        All documents, if there are not more; otherwise at most this many.
        """
        lists = self._data.lists
        if documents >= lists.documents:
            parts, size = iter(self), lists.documents
        else:
            order = np.random.default_rng(seed).permutation(np.flatnonzero(lists.sizes))
            enough = int(np.searchsorted(np.cumsum(lists.sizes[order]), documents)) + 1
            chosen, size = np.sort(order[:enough]), documents
            parts = (self._transformed(chosen[i : i + 100]) for i in range(0, enough, 100))
        columns, place = np.empty((self.shape[1], size)), 0
        for X in parts:
            end = min(place + len(X), size)
            columns[:, place:end] = X[: end - place].T
            place = end
        return columns

    def _transformed(self, queries: Any) -> Any:
        """The features of some queries."""
        X = self._data.take(queries)
        if self._transform == Compose():
            return X
        return self._transform(X, Lists.from_sizes(self._data.lists.sizes[queries]))


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
