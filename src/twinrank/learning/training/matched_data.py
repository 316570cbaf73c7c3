"""Checks that data fits an estimator: features and their names, missing values, queries."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn import get_config

from twinrank.core.lists import Lists
from twinrank.data.batches import blocks
from twinrank.data.builder import numbered
from twinrank.data.dataset import Dataset, with_features
from twinrank.data.transforms import Compose, Transform, Union
from twinrank.data.transforms.combined import ExceptColumns
from twinrank.learning.boosting.engines import ENGINES
from twinrank.learning.training.callbacks import Callback
from twinrank.learning.training.fit_arguments import (
    TrainingSet,
    has_query_column,
    trainable_queries,
)
from twinrank.learning.training.settings import FEWEST
from twinrank.support.errors import Argument, InputError, Parts
from twinrank.support.quantities import counted

_INSTEAD = {
    "early_stopping": "the parameter early_stopping of the ranker",
    "log_evaluation": "the parameter verbose=True of the ranker",
    "evaluation_monitor": "the parameter verbose=True of the ranker",
    "record_evaluation": "the attribute history_ of the fitted ranker",
}
"""What replaces a callback of LightGBM or XGBoost."""
_ROUTING = (
    " For a search or a cross-validation of scikit-learn, write these two lines before it:\n"
    "    sklearn.set_config(enable_metadata_routing=True)\n"
    "    ranker.set_fit_request(qid=True).set_score_request(qid=True)\n"
    "Then pass qid, and groups for GroupKFold, to fit of the search."
)


def matched(
    data: Dataset, count: int, names: Sequence[str] | None, estimator: str, what: str = "X"
) -> Dataset:
    """The data with the features of training, found by name if both data sets have names.

    Other columns are left out. Without names, the number of features must be the same.
    """
    order = matched_columns(data, count, names, estimator, what)
    if order is None:
        return data
    texts = {i: data.categories[c] for i, c in enumerate(order) if c in data.categories}
    return with_features(data, data.X[:, order], names, texts)


def matched_columns(
    data: Dataset, count: int, names: Sequence[str] | None, estimator: str, what: str = "X"
) -> list[int] | None:
    """The columns that have the features of training, None if these are all columns in order."""
    own = data.feature_names
    if (names is None) != (own is None):  # features called 1, 2, … in this order have no names
        default = numbered(max(count, data.features))
        from_0 = ("0", *default)[:count]  # the labels of a frame made from an array
        if names is None and own is not None and {*own} == {*from_0}:
            names = from_0
        elif names is None and own is not None and {*own} <= {*default}:
            names = default[:count]
        elif own is None and names is not None and {*names} <= {*default}:
            own = default[: data.features]
    if names is not None and own is not None:
        if own == tuple(names):
            return None
        if missing := [name for name in names if name not in own]:
            listed = ", ".join(map(repr, missing[:5])) + (", …" if len(missing) > 5 else "")
            raise InputError(
                f"{what[0].upper()}{what[1:]} lacks {counted(len(missing), 'feature')} that "
                f"{estimator} was trained with: {listed}."
            )
        return [own.index(name) for name in names]
    if data.features != count:
        raise InputError(
            f"{what[0].upper()}{what[1:]} has {data.features} features, but {estimator} is "
            f"expecting {count} features as input."
        )
    return None


def _keeping(transform: Transform) -> Transform:
    """The transform without the branches that replace missing values; it needs no fit."""
    if isinstance(transform, ExceptColumns):
        return _keeping(transform.inner)
    if isinstance(transform, Union):
        return Union(tuple(_keeping(part) for part in transform.transforms if part.keeps_missing))
    if isinstance(transform, Compose):
        return Compose(tuple(map(_keeping, transform.transforms)))
    return transform


def check_values(data: Dataset, transform: Transform, categories: Any = None) -> None:
    """Refuse values that are not finite after the transform.

    Transforms with statistics replace missing values, and raise their own errors. Categories have
    an embedding for missing values.
    """
    if not transform.keeps_missing:
        return
    kept = _keeping(transform)
    sources = kept.sources(data.features)
    for queries in blocks(data):
        X = data.take(queries)
        if np.isfinite(X).all():
            continue
        invalid = ~np.isfinite(kept(X, Lists.from_sizes(data.lists.sizes[queries])))
        invalid[:, np.isin(sources, list(categories or ()))] = False
        if invalid.any():
            row, column = np.argwhere(invalid)[0].tolist()
            raise _value_error(data, queries, X, row, int(sources[column]), transform)


def _value_error(
    data: Dataset, queries: Any, X: Any, row: int, column: int, transform: Transform
) -> InputError:
    """The error for the value in a row and column of the features of these queries."""
    names = data.feature_names
    name = column + 1 if names is None else repr(names[column])
    ends = np.cumsum(data.lists.sizes[queries])
    query = data.query_ids[queries[int(np.searchsorted(ends, row, side="right"))]]
    if np.isnan(X[row, column]):
        problem = "missing (NaN)"
        advice = "Fill it in, or use QueryZScore or Standardise, which do so"
    else:
        problem = "infinite (inf, or too large for float32)"
        advice = "Put Clip before the other transforms"
    return InputError(
        f"Feature {name} is {problem} in query {query}, and ",
        Argument("transforms", str(transform)),
        f" keeps it. {advice}.",
    )


def matched_sets(sets: dict[str, Dataset], data: Dataset, estimator: str) -> dict[str, Dataset]:
    """Evaluation sets with the features of the training data; each needs a relevant document."""
    fitting = {}
    for name, evaluation_set in sets.items():
        names, what = data.feature_names, f"evaluation set {name!r}"
        fitting[name] = matched(evaluation_set, data.features, names, estimator, what)
        if not (evaluation_set.y > 0).any():
            raise InputError(
                f"Evaluation set {name!r} has no relevant document, so no measure has a value. "
                f"Add queries with relevant documents."
            )
    return fitting


def papers_queries(sets: Iterable[tuple[str, Dataset]]) -> tuple[list[Any], Parts]:
    """The numbers of the queries of each set that the paper keeps; a note on the others, or ().

    InputError if a set has none.
    """
    paper = Argument("mode", "paper")
    documents, relevant = FEWEST["paper"]
    rule = f"queries with at least {documents} documents, {relevant} of them relevant"
    kept, left_out = [], []
    for name, data in sets:
        queries = trainable_queries(data, mode="paper")
        if not queries.size:
            raise InputError(
                paper,
                f" keeps {rule}, but the {name} data has none among "
                f"{counted(data.queries, 'query')}. Leave out ",
                paper,
                ".",
            )
        if queries.size < data.queries:
            number = data.queries - queries.size
            left_out.append(f"{number:,} of {counted(data.queries, 'query')} ({name})")
        kept.append(queries)
    note = (paper, f" keeps {rule}. It leaves out {' and '.join(left_out)}.")
    return kept, note if left_out else ()


def trainable_part(train: TrainingSet, needs_relevant: bool = True) -> TrainingSet:
    """The trainable queries; InputError if there are none.

    Where a learner also learns from queries without a relevant document, these are all queries of
    weight above 0.
    """
    data = train.data
    queries = trainable_queries(data, train.weights)
    if queries.size and not needs_relevant:
        weights = np.ones(data.queries) if train.weights is None else train.weights
        queries = np.flatnonzero((data.lists.sizes > 0) & (weights > 0))
    if queries.size:
        return train.select(queries)
    if data.documents == 1:
        raise InputError("Cannot train on one sample: a query needs at least two documents.")
    if data.queries == 1:
        raise InputError("Cannot train on the only query: it has no relevant document or weight 0.")
    raise InputError(
        f"Cannot train on any of {counted(data.queries, 'query')}: each has a single document, no "
        f"relevant document, or weight 0."
    )


def check_has_queries(X: Any, y: Any, qid: Any, group: Any) -> None:
    """Refuse arrays to score without queries, and say how scikit-learn passes them."""
    has_queries = qid is not None or group is not None or has_query_column(X)
    if isinstance(X, Dataset) or y is None or has_queries:
        return
    advice = () if get_config()["enable_metadata_routing"] else (_ROUTING,)
    raise InputError("score needs the query of each row; pass qid or group.", *advice)


def check_callbacks(callbacks: Any) -> None:
    """Refuse anything but a list of callbacks; those of the engines by name."""
    listed = isinstance(callbacks, list | tuple)
    for callback in callbacks if listed else [callbacks]:
        package = type(callback).__module__.partition(".")[0]
        if package in ENGINES:
            name = type(callback).__name__.strip("_").removesuffix("Callback")
            snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in name).strip("_")
            instead = _INSTEAD.get(snake, "a subclass of twinrank.training.Callback")
            raise InputError(
                f"callbacks has {snake} of {package}, which TwinRank does not call. Use {instead} "
                f"instead."
            )
        if not listed or not isinstance(callback, Callback):
            raise InputError(
                f"callbacks must be a list of instances of twinrank.training.Callback, not "
                f"{callback!r}."
            )


def checked_scores(scores: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Refuse scores that are not finite: they would be ranked all the same."""
    finite = np.isfinite(scores)
    if not finite.all():
        raise InputError(
            f"The score of document {int(np.argmin(finite))} is not finite: its features are too "
            f"large for the net. Clip them, for example with ",
            Argument("transforms", "Clip(low=-1e6, high=1e6)"),
            ".",
        )
    return scores
