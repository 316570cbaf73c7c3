"""Datasets as engines take them: transformed, and every value one that trees can take."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np

from twinrank.boosting.engines import Rows
from twinrank.data.batches import blocks
from twinrank.data.dataset import Dataset
from twinrank.data.transforms import Compose, Transform
from twinrank.lists import Lists
from twinrank.models.columns import apart
from twinrank.support.errors import InputError, unknown


def kept_from(transform: Transform, columns: tuple[int, ...]) -> Transform:
    """A transform that leaves categories alone; one that does nothing does."""
    return transform if transform == Compose() else apart(transform, columns)


def features_of(data: Dataset, transform: Transform, columns: tuple[int, ...]) -> Iterator[Any]:
    """The features as trees see them, block by block, or at once where they stay as they are.

    Missing values are NaN. Infinite ones are refused, and categories that aren't whole numbers.
    """
    same = transform == Compose()
    for queries in blocks(data):
        first, last = int(queries[0]), int(queries[-1])
        docs = slice(int(data.lists.offsets[first]), int(data.lists.offsets[last + 1]))
        if same:
            _check(data.X[docs], columns, data, docs.start)
            continue
        X = transform(data.take(queries), Lists.from_sizes(data.lists.sizes[queries]))
        _check(X, columns, data, docs.start)
        yield X
    if same and data.documents:
        yield data.X


def rows_of(
    data: Dataset, transform: Transform, columns: tuple[int, ...], weights: Any = None
) -> Rows:
    """All rows together; unjudged documents count as 0."""
    parts = features_of(data, transform, columns)
    X = next(parts)
    if len(X) < data.documents:  # filled in block by block: two copies of all may be too many
        first, X = X, np.empty((data.documents, data.features), np.float32)
        place = 0
        for part in chain([first], parts):
            X[place : place + len(part)] = part
            place += len(part)
    return Rows(X, np.maximum(data.y, 0), data.lists, weights)


def columns_of(chosen: Any, features: int, names: tuple[str, ...] | None) -> tuple[int, ...]:
    """The numbers of columns that are given by number, from 0 on, or by name."""
    if chosen is None:
        return ()
    if isinstance(chosen, str | int) or not hasattr(chosen, "__iter__"):
        raise InputError(f"categorical_features must list columns, not {chosen!r}")
    return tuple(sorted({_column(one, features, names or ()) for one in chosen}))


def _column(one: Any, features: int, names: tuple[str, ...]) -> int:
    if isinstance(one, str):
        if one not in names:
            raise InputError(unknown("feature", one, names))
        return names.index(one)
    if isinstance(one, bool) or not isinstance(one, int | np.integer):
        raise InputError(f"categorical_features must list columns, not {one!r}")
    if not 0 <= one < features:
        raise InputError(f"there is no column {one}: X has {features} features")
    return int(one)


def check_grades(data: Dataset) -> None:
    """Refuse labels that aren't grades, as engines' own objectives have to."""
    other = data.y != np.trunc(data.y)
    if other.any():
        found = float(data.y[other][0])
        raise InputError(f"labels must be whole numbers for this objective, but one is {found:g}")


def _check(X: Any, columns: tuple[int, ...], data: Dataset, first: int) -> None:
    """Look at some rows, of which the first is document `first`."""
    bad = np.isinf(X)
    if bad.any():
        raise InputError(f"{_where(data, bad, first)} is infinite; put Clip in transforms")
    if not columns:
        return
    given = X[:, columns]
    bad[:, columns] = (given < 0) | ((given != np.trunc(given)) & ~np.isnan(given))
    if bad.any():
        raise InputError(
            f"{_where(data, bad, first)} is {X[bad][0]:g}, but a category must be a whole number "
            f"from 0 on, or missing"
        )


def _where(data: Dataset, bad: Any, first: int) -> str:
    row, column = np.argwhere(bad)[0].tolist()
    names = data.feature_names
    name = column + 1 if names is None else repr(names[column])
    query = data.query_ids[int(data.lists.list_of(first + row))]
    return f"feature {name} of a document of query {query}"
