"""Rows on which the scores of an exported file are compared with the model's."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from twinrank.data.dataset import Dataset, with_features
from twinrank.deployment.forest import Forest
from twinrank.deployment.tree_list import next_float32

if TYPE_CHECKING:
    from twinrank.learning.models.saved_model import Model

MOST_ROWS = 20_000
"""Rows of the caller's data that are compared, but for the last query."""
_MOST_GENERATED = 5_000
_MISSING = 0.1  # the share of missing values in generated rows
_UNKNOWN = ("an unknown text", "another")


def sample(data: Dataset) -> Dataset:
    """The data, or evenly spaced queries of it."""
    if data.documents <= MOST_ROWS:
        return data
    queries = max(1, data.queries * MOST_ROWS // data.documents)
    return data.select(np.linspace(0, data.queries - 1, queries).astype(np.int64))


def _one_query(X: npt.NDArray[np.float32], texts: Any) -> Dataset:
    data = Dataset.from_arrays(X, group=[len(X)], unjudged="keep", non_finite="keep")
    return with_features(data, X, None, texts)


def random_query(model: "Model", documents: int) -> Dataset:
    """Random features, every second one skewed, and random categories, some of them unknown."""
    random = np.random.default_rng(0)
    numbers = random.normal(size=(documents, model.features))
    numbers[:, ::2] = np.exp(numbers[:, ::2])
    X = numbers.astype(np.float32)
    for column, count in model.categories.items():
        X[:, column] = random.integers(-1, count + 1, documents)
    return _one_query(X, _categories(model, X, random))


def generated(
    model: "Model", forest: Forest, written: Forest, data: Dataset | None, missing: bool = True
) -> Dataset:
    """Rows with the values at thresholds and beside them, and missing values.

    Each row has one such value at least. Values that the `written` thresholds separate otherwise
    than those of `forest` are left out: they lie between two values of `data`.
    """
    random = np.random.default_rng(0)
    edges = _edges(forest, written, model.features)
    pairs = np.array(
        [(column, value) for column, values in enumerate(edges) for value in values]
    ).reshape(-1, 2)
    pairs = random.permutation(pairs)[:_MOST_GENERATED]
    rows = max(len(pairs), 100)
    X = random.normal(size=(rows, model.features)).astype(np.float32)
    for column, values in enumerate(edges):
        if values.size:
            X[:, column] = random.choice(values, rows)
        elif data is not None:
            X[:, column] = random.choice(data.X[:, column], rows)
    if missing:
        X[random.random(X.shape) < _MISSING] = np.nan
    X[np.arange(len(pairs)), pairs[:, 0].astype(np.int64)] = pairs[:, 1]
    return _one_query(X, _categories(model, X, random))


def _edges(forest: Forest, written: Forest, columns: int) -> list[npt.NDArray[np.float32]]:
    """For each column, the last value to the left of each of its thresholds, and the next one."""
    found: list[list[npt.NDArray[np.float64]]] = [[] for _ in range(columns)]
    number = np.array([f.column if f.values is None else -1 for f in forest.features])
    for before, after in zip(forest.trees, written.trees, strict=True):
        splits = np.flatnonzero(~before.is_leaf & (number[before.feature] >= 0))
        for node in splits.tolist():
            pair = np.array([before.value[node], after.value[node]])
            found[number[before.feature[node]]].append(pair)
    edges = []
    for pairs in found:
        pair = np.array(pairs).reshape(-1, 2)
        pair = pair[np.isfinite(pair).all(axis=1)]
        values = np.unique([pair[:, 0], next_float32(pair[:, 0])])
        values = values[np.isfinite(values)]
        moved = pair[pair[:, 0] != pair[:, 1]]
        low, high = moved.min(axis=1, initial=np.inf), moved.max(axis=1, initial=-np.inf)
        if len(moved):
            between = (values[:, None] > low) & (values[:, None] <= high)
            values = values[~between.any(axis=1)]
        edges.append(values.astype(np.float32))
    return edges


def _categories(
    model: "Model", X: npt.NDArray[np.float32], random: np.random.Generator
) -> dict[int, tuple[str, ...]]:
    """Fill categorical columns with known, unknown and missing values; return the texts."""
    texts = {}
    for part in getattr(model, "models", {"": model}).values():
        for column, values in part.encoding.columns.items():
            if column in part.encoding.texts:
                texts[column] = (*map(str, values), *_UNKNOWN)
                X[:, column] = random.integers(-1, len(texts[column]), len(X))
            elif values:
                known = np.array([-1, *values, max(map(int, values)) + 1])
                X[:, column] = known[random.integers(0, known.size, len(X))]
    return texts
