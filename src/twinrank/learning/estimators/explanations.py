"""Explanations of any ranker: `permutation_importances` and `partial_dependence`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils import Bunch

from twinrank.core.ranks.exact import exact_ranks
from twinrank.data.dataset import Dataset, with_features
from twinrank.evaluation.evaluate import evaluate_data
from twinrank.learning.estimators.base_ranker import BaseRanker
from twinrank.learning.training.fit_arguments import as_dataset, labelled
from twinrank.support.errors import InputError, check_number, unknown


def permutation_importances(
    ranker: BaseRanker,
    X: Any,
    y: Any = None,
    qid: Any = None,
    group: Any = None,
    *,
    measure: Any = None,
    features: Sequence[int | str] | None = None,
    repeats: int = 5,
    random_state: int = 0,
) -> Bunch:
    """How much a measure drops if a feature is shuffled among the documents of each query.

    Values stay within their query, so they remain plausible there. A feature that is constant
    within queries cannot change a ranking and gets 0 (after Breiman 2001). It works for every kind
    of ranker. Use queries that the ranker was not trained on.

    Parameters
    ----------
    ranker : Ranker, BoostedRanker or Blend
        A fitted ranker.
    X, y, qid, group
        Features, labels and queries as in `fit`, or a Dataset.
    measure : str or Measure, optional
        The measure; by default the ranker's `validation_measure`.
    features : sequence of int or str, optional
        The features to shuffle, as numbers from 0 or names; by default all.
    repeats : int, default 5
        How often each feature is shuffled.
    random_state : int, default 0
        The seed. A feature's result does not depend on the other features.

    Returns
    -------
    Bunch
        `importances_mean`, `importances_std` and `importances`, of shapes (n_features,) and
        (n_features, repeats), as in scikit-learn; `features`, their numbers; and `baseline`, the
        measure without shuffling.

    Raises
    ------
    InputError
        If a feature is unknown, or no query has something relevant.

    Examples
    --------
    >>> import twinrank as tr
    >>> train, test = tr.synthetic_web_search(queries=40).split(0.5, 0.5)
    >>> ranker = tr.BoostedRanker(n_estimators=5).fit(train)
    >>> found = tr.permutation_importances(ranker, test, features=["body_bm25", 0], repeats=2)
    >>> found.importances.shape
    (2, 2)
    """
    check_number("repeats", repeats, whole=True, least=1)
    data, _ = labelled(X, y, qid, group, None, ranker._known_columns())
    name = str(ranker.validation_measure if measure is None else measure)
    chosen = feature_numbers(ranker, data, features)
    baseline = _value(ranker, data, name)
    if np.isnan(baseline):
        raise InputError(f"{name} has no value: no query has something relevant.")
    values, owner = np.array(data.X), data.lists.index(data.y)
    drops = np.zeros((len(chosen), repeats))
    for i, column in enumerate(chosen):
        own = values[:, column].copy()
        for j in range(repeats):
            generator = np.random.default_rng([random_state, column, j])
            order = np.lexsort((generator.random(own.size), owner))
            values[:, column] = own[order]
            drops[i, j] = baseline - _value(ranker, with_values(data, values), name)
        values[:, column] = own
    return Bunch(
        importances_mean=drops.mean(axis=1),
        importances_std=drops.std(axis=1),
        importances=drops,
        features=np.array(chosen),
        baseline=baseline,
    )


def with_values(data: Dataset, X: Any) -> Dataset:
    """The same documents, queries and features with other values."""
    return with_features(data, X, data.feature_names, data.categories)


def feature_numbers(
    ranker: BaseRanker, data: Dataset, features: Sequence[int | str] | None
) -> list[int]:
    """The numbers of features, which may be given by name; all by default."""
    names = data.feature_names
    if names is None:
        names = tuple(getattr(ranker, "feature_names_in_", ()))
    numbers = []
    for feature in range(data.features) if features is None else features:
        if isinstance(feature, str):
            if feature not in names:
                known = names or ["numbers, since the features have no names"]
                raise InputError(unknown("feature", feature, known))
            numbers.append(names.index(feature))
        elif not 0 <= int(feature) < data.features:
            last = data.features - 1
            raise InputError(f"Feature {feature} does not exist: numbers are 0 to {last}.")
        else:
            numbers.append(int(feature))
    return numbers


def _value(ranker: BaseRanker, data: Dataset, name: str) -> float:
    return evaluate_data(ranker._scores(data), data, [name])[name]


def partial_dependence(
    ranker: BaseRanker,
    X: Any,
    feature: int | str,
    qid: Any = None,
    group: Any = None,
    *,
    grid: Any = 20,
    documents: int = 3,
    random_state: int = 0,
) -> Bunch:
    """How the score and the rank of a document depend on one of its features.

    One document of a query gets the values of the grid while the others stay as they are. So the
    result also holds for transforms and nets that compare the documents of a query: if the whole
    column were replaced (Friedman 2001), a z-score within the query would not change at all.

    Parameters
    ----------
    ranker : Ranker, BoostedRanker or Blend
        A fitted ranker.
    X : array, sparse matrix, frame or Dataset, shape (n_documents, n_features)
        The features, as in `predict`.
    feature : int or str
        The feature, as a number from 0 or by name.
    qid, group : array
        The queries, as in `predict`.
    grid : int or array of float, default 20
        The values, or the largest number of values, which are then quantiles of the data from
        5 % to 95 %; of a categorical feature, its most frequent categories. Categories of a
        column of text are texts.
    documents : int, default 3
        How many documents of each query are changed, one at a time, in random order.
    random_state : int, default 0
        The seed that chooses the documents.

    Returns
    -------
    Bunch
        `grid_values`, shape (n_values,), the texts of categories. `average`: the mean score of the
        changed document minus the mean score of the others in its query. `average_rank`: its mean
        rank, 1 for the best.
        `individual` and `individual_rank`, shape (n_changed, n_values): the same of each document.

    Raises
    ------
    InputError
        If the feature is unknown, or no query has two documents.

    Examples
    --------
    >>> import twinrank as tr
    >>> data = tr.synthetic_web_search(queries=30)
    >>> ranker = tr.BoostedRanker(n_estimators=5).fit(data)
    >>> curve = tr.partial_dependence(ranker, data, "whole_document_bm25", grid=5)
    >>> curve.average.shape, bool(curve.average_rank[-1] < curve.average_rank[0])
    ((5,), True)
    """
    data = as_dataset(X, qid=qid, group=group, known=ranker._known_columns())
    (column,) = feature_numbers(ranker, data, [feature])
    values, shown = _values_to_try(ranker, data, column, grid)
    check_number("documents", documents, whole=True, least=1)
    relative, ranks = [], []
    for rows in _changed(data, documents, random_state):
        results = [_with_value(ranker, data, column, rows, value) for value in values]
        relative.append(np.stack([scores for scores, _ in results], axis=1))
        ranks.append(np.stack([positions for _, positions in results], axis=1))
    individual, individual_rank = np.concatenate(relative), np.concatenate(ranks)
    return Bunch(
        grid_values=shown,
        average=individual.mean(axis=0),
        average_rank=individual_rank.mean(axis=0),
        individual=individual,
        individual_rank=individual_rank,
    )


def _values_to_try(
    ranker: BaseRanker, data: Dataset, column: int, grid: Any
) -> tuple[npt.NDArray[np.float64], npt.NDArray[Any]]:
    """The values of a feature to try: the numbers in the data, and what users call them."""
    texts, names, own = data.categories.get(column), data.feature_names, data.X[:, column]
    known = ranker._known_columns().categorical
    categorical = texts is not None or (column if names is None else names[column]) in known
    if categorical and isinstance(grid, int) and not isinstance(grid, bool) and grid > 0:
        found, counts = np.unique(own[own >= 0], return_counts=True)
        grid = found[np.argsort(-counts, kind="stable")[:grid]]
        grid = grid if texts is None else [texts[int(number)] for number in grid]
    if texts is None:
        values = _grid(own, grid)
        return values, values
    for text in grid if isinstance(grid, Sequence) else [grid]:
        if text not in texts:
            raise InputError(unknown("category", str(text), texts))
    return np.array([texts.index(text) for text in grid], np.float64), np.array(grid, object)


def _grid(column: npt.NDArray[np.float32], grid: Any) -> npt.NDArray[np.float64]:
    """The values of a feature to try."""
    if isinstance(grid, int) and not isinstance(grid, bool):
        known = column[np.isfinite(column)]
        if grid < 1 or not known.size:
            raise InputError("grid must be at least 1, and the feature needs a finite value.")
        if np.unique(known).size <= grid:
            return np.unique(known).astype(np.float64)
        return np.unique(np.quantile(known, np.linspace(0.05, 0.95, grid))).astype(np.float64)
    values = np.asarray(grid, np.float64)
    if values.ndim != 1 or not values.size or not np.isfinite(values).all():
        raise InputError("grid must be a whole number, or an array of finite values.")
    return values


def _changed(data: Dataset, documents: int, seed: int) -> list[npt.NDArray[np.int64]]:
    """Rows to change together: in each part one of every query that has another document."""
    generator = np.random.default_rng(seed)
    order = np.lexsort((generator.random(data.documents), data.lists.index(data.y)))
    sizes, starts = np.asarray(data.lists.sizes), np.asarray(data.lists.offsets)[:-1]
    if not (sizes > 1).any():
        raise InputError("No query has two documents, so no rank depends on a feature.")
    limit = np.where(sizes > 1, np.minimum(sizes, documents), 0)
    return [order[starts[limit > i] + i] for i in range(int(limit.max()))]


def _with_value(
    ranker: BaseRanker, data: Dataset, column: int, rows: npt.NDArray[np.int64], value: float
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The relative scores and the ranks of some documents if a feature has a value in them."""
    X = np.array(data.X)
    X[rows, column] = value
    scores = np.asarray(ranker._scores(with_values(data, X)), np.float64)
    owner = data.lists.index(scores)[rows]
    sums, sizes = np.asarray(data.lists.sum(scores))[owner], np.asarray(data.lists.sizes)[owner]
    others = (sums - scores[rows]) / (sizes - 1)
    ranks = exact_ranks(scores, data.lists, ties="average")
    return scores[rows] - others, np.asarray(ranks, np.float64)[rows]
