"""Rankings of single queries: documents, scores, and the features that go with a difference."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.core.lists import Lists
from twinrank.core.ranks.exact import exact_ranks
from twinrank.data.dataset import Dataset
from twinrank.support.arrays import Floats, Ints

DEPTH = 10
"""The number of documents that a ranking shows."""
_FEATURES = 5  # for each pair of methods
_DIGITS = 4


@dataclass(frozen=True, eq=False)
class RankedQuery:
    """One query with the scores of all methods."""

    name: str
    labels: Floats
    scores: Mapping[str, npt.ArrayLike]
    values: Mapping[str, float]
    """The measure of each method."""
    X: npt.ArrayLike
    docids: Sequence[str] = ()
    """By default the numbers of the documents, from 1."""
    attributions: Mapping[str, npt.ArrayLike] = field(default_factory=dict)
    """By method, what each feature adds to each score; without them, features are correlated."""


def ranked_query(
    data: Dataset,
    number: int,
    scores: Mapping[str, Any],
    values: Mapping[str, float],
    attributions: Mapping[str, npt.ArrayLike] | None = None,
) -> RankedQuery:
    """A query of some data by its number, with the scores of all its documents by method."""
    first, last = data.lists.offsets[number : number + 2]
    return RankedQuery(
        str(data.query_ids[number]),
        np.asarray(data.y[first:last], np.float64),
        {name: own[first:last] for name, own in scores.items()},
        values,
        data.take(np.array([number])),
        () if data.docids is None else data.docids[first:last].tolist(),
        attributions or {},
    )


def chosen_queries(values: Mapping[str, Floats], count: int) -> Ints:
    """The queries on which methods differ most, from the largest difference on.

    >>> chosen_queries({"a": np.array([0.1, 0.9, 0.5]), "b": np.array([0.2, 0.1, 0.5])}, 2)
    array([1, 0])
    """
    table = np.array(list(values.values()), np.float64)
    known = np.asarray(~np.isnan(table).any(axis=0))
    spread = np.where(known, np.ptp(np.nan_to_num(table), axis=0), -1.0)
    order = np.argsort(-spread, kind="stable")[:count]
    return np.asarray(order[known[order]], np.int64)


def choice_note(chosen: int, total: int) -> str:
    """How the queries of a report were chosen.

    >>> choice_note(200, 1000)
    'The list has the 200 of 1,000 queries on which methods differ most.'
    """
    if chosen == total:
        return f"The list has all {total:,} queries."
    return f"The list has the {chosen:,} of {total:,} queries on which methods differ most."


def as_json(
    queries: Sequence[RankedQuery], methods: Sequence[str], features: Sequence[str], measure: str
) -> str:
    """The data of the section, as JSON that can be part of an HTML page."""
    content = {
        "measure": measure,
        "methods": list(methods),
        "features": list(features),
        "attributed": bool(queries) and all(query.attributions for query in queries),
        "queries": [_query(query, methods) for query in queries],
    }
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _query(query: RankedQuery, methods: Sequence[str]) -> dict[str, Any]:
    """The documents that some method ranks high, and the features of each pair of methods."""
    scores = np.array([np.asarray(query.scores[name], np.float64) for name in methods])
    size = scores.shape[1]
    lists = Lists.from_sizes([size])
    ranks = np.array([exact_ranks(row, lists, ties="stable") for row in scores]).astype(int)
    shown = np.flatnonzero(ranks.min(axis=0) <= DEPTH).tolist()
    names = query.docids if len(query.docids) else [str(i + 1) for i in range(size)]
    return {
        "id": query.name,
        "size": size,
        "values": [_rounded(query.values[name]) for name in methods],
        "documents": [str(names[i]) for i in shown],
        "labels": [_rounded(query.labels[i]) for i in shown],
        "scores": [[_rounded(row[i]) for i in shown] for row in scores],
        "ranks": ranks[:, shown].tolist(),
        "pairs": _pairs(query, methods, scores, ranks),
    }


def _pairs(
    query: RankedQuery, methods: Sequence[str], scores: Floats, ranks: Ints
) -> dict[str, list[list[Any]]]:
    """By pair of methods "i,j": the features that go with the difference of j from i.

    Each has its number, its strength, its correlation with the labels, and its means in the
    documents that j ranks higher and lower than i. The strength is the correlation with the
    difference of scores, or the share of it that the attributions explain.
    """
    X = np.asarray(query.X, np.float64)
    X = np.where(np.isfinite(X), X, np.nan)
    standard = _standardised(scores.T)
    with_labels = _correlations(X, np.asarray(query.labels, np.float64))
    pairs = {}
    for i, j in combinations(range(len(methods)), 2):
        difference = standard[:, j] - standard[:, i]
        if query.attributions:
            strength = _shares(query, methods[i], methods[j], scores[[i, j]], difference)
        else:
            strength = _correlations(X, difference)
        best = np.argsort(-np.abs(strength), kind="stable")[:_FEATURES]
        moves = ranks[i] - ranks[j]  # above 0 if j ranks the document higher
        pairs[f"{i},{j}"] = [
            [
                int(f),
                _rounded(strength[f]),
                _rounded(with_labels[f]),
                _mean(X[moves > 0, f]),
                _mean(X[moves < 0, f]),
            ]
            for f in best.tolist()
            if abs(strength[f]) > 1e-6
        ]
    return pairs


def _shares(
    query: RankedQuery, first: str, second: str, scores: Floats, difference: Floats
) -> Floats:
    """The share of each feature in the difference of two methods' standardised scores."""
    parts = []
    for name, row in zip((first, second), scores, strict=True):
        values = np.asarray(query.attributions[name], np.float64)
        parts.append((values - values.mean(axis=0)) / (row.std() or 1.0))
    total = float(difference @ difference)
    if not total:
        return np.zeros(parts[0].shape[1])
    return np.asarray(difference @ (parts[1] - parts[0]) / total)


def _standardised(columns: Floats) -> Floats:
    """Columns with mean 0 and deviation 1; constant ones, and missing values, become 0."""
    known = ~np.isnan(columns)
    counts = np.maximum(known.sum(axis=0), 1)
    centred = np.where(known, columns - np.nansum(columns, axis=0) / counts, 0.0)
    deviation = np.sqrt((centred**2).sum(axis=0) / counts)
    scale = np.abs(np.nan_to_num(columns)).max(axis=0, initial=0.0)
    varies = deviation > 1e-7 * scale
    return np.asarray(centred / np.where(varies, deviation, 1.0) * varies)


def _correlations(X: Floats, values: Floats) -> Floats:
    """The correlation of each column with values; 0 for constants."""
    return np.asarray(_standardised(X).T @ _standardised(values[:, None])[:, 0] / len(values))


def _mean(values: Floats) -> float | None:
    known = values[~np.isnan(values)]
    return _rounded(known.mean()) if known.size else None


def _rounded(value: Any) -> float | None:
    """A number with few digits; None if it is not finite."""
    number = float(value)
    return float(f"{number:.{_DIGITS}g}") if np.isfinite(number) else None
