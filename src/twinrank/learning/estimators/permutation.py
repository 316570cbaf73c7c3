"""`permutation_importances`: how much a measure drops if a feature is shuffled within queries."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils import Bunch

from twinrank.data.dataset import Dataset, with_features
from twinrank.evaluation.evaluate import evaluate
from twinrank.learning.estimators.base_ranker import BaseRanker
from twinrank.learning.training.fit_arguments import labelled
from twinrank.support.errors import InputError, unknown


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
    if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 1:
        raise InputError(f"repeats must be a whole number of at least 1, not {repeats!r}.")
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
    return evaluate(ranker._scores(data), data.y, data.lists, [name])[name]
