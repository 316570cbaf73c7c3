"""Why logged scores differ from a model's: each hypothesis predicts on changed input."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from twinrank.data.batches import rows_of
from twinrank.data.builder import numbered
from twinrank.data.dataset import Dataset, with_features
from twinrank.deployment.difference_hypotheses import (
    Floats,
    Hypothesis,
    of_all,
    of_one,
    renamed,
    swaps,
    two_changes,
)
from twinrank.support.errors import InputError
from twinrank.support.quantities import counted

if TYPE_CHECKING:
    from twinrank.learning.estimators.base_ranker import BaseRanker

Ints = npt.NDArray[np.int64]

FOUND = 0.95
"""A cause that explains this share of the differing rows ends the search."""
_SHOWN = 0.5  # causes that explain less are not shown
_SCREENED = 64  # rows on which every hypothesis is tried first, but for whole queries
_CONFIRMED = 20_000  # rows on which the best ones are tried again
_BEST = 3
_AT_ONCE = 1 << 22  # values of features
_LOW_PRECISION = 1e-3  # float16 has a relative error of half of this
_SINGLE = 2e-7  # relative error of a logged float32


@dataclass(frozen=True)
class Cause:
    """Why scores differ, and the share of the differing rows that this explains."""

    text: str
    share: float


@dataclass(frozen=True, eq=False)
class Difference:
    """Logged scores beside those of a model on the logged features."""

    ranker: "BaseRanker"
    data: Dataset
    """The features of the model."""
    X: Floats
    """The same features, then the other columns of the log."""
    logged: Floats
    predicted: Floats
    limit: float
    """The largest difference of equal scores."""

    @cached_property
    def differs(self) -> npt.NDArray[np.bool_]:
        """True for the rows whose scores are not equal."""
        different: npt.NDArray[np.bool_] = np.abs(self.logged - self.predicted) > self.limit
        return different

    def explained(self, scores: Floats, rows: Any = slice(None), factor: float = 1) -> float:
        """The share of differing rows with these scores, less that of equal rows without them."""
        logged, differs = self.logged[rows], self.differs[rows]
        limit = self.limit * abs(factor) + _SINGLE * np.abs(logged)
        agrees = np.abs(logged - scores) <= limit
        broken = 0.0 if differs.all() else float((~agrees[~differs]).mean())
        return float(agrees[differs].mean()) - broken


def causes_of(
    difference: Difference,
    others: Mapping[str, Floats],
    lacking: Sequence[str],
    spare: Sequence[str],
) -> tuple[Cause, ...]:
    """The likely causes of a difference, the best first.

    `others` are the scores of other models, `lacking` the features of the model that the log does
    not have, and `spare` the columns of the log that the model does not have.
    """
    found: list[Cause] = []
    for cause in _about_scores(difference):
        if not _is_found(found):  # a factor and a summand explain what either explains
            found.append(cause)
    for name, scores in others.items():
        text = f"the scores are those of another model, {name}"
        found.append(Cause(text, difference.explained(scores)))
    rows = Rows(difference)
    if rows.per_query:
        alone = rows.predict([difference.X[rows.many]], np.ones_like(rows.many))[0]
        text = "each document was scored alone, without the others of its query"
        found.append(Cause(text, difference.explained(alone, rows.many)))
    for offset in (False, True):  # Elasticsearch adds a constant in any case
        for family in (renamed(rows, lacking, spare), of_all(rows), of_one(rows)):
            if not _is_found(found):
                found += _better(rows.best(family, offset), found if offset else ())
    if not _is_found(found):
        near = np.abs(difference.logged - difference.predicted)[difference.differs]
        share = float((near <= _LOW_PRECISION * np.abs(difference.predicted).max()).mean())
        found.append(Cause("lower precision, such as float16, or rounded features", share))
    if not _is_found(found):
        found += rows.best(swaps(rows))
    if not _is_found(found):
        found += _better(rows.best(two_changes(rows, lacking, spare)), found)
    shown = [cause for cause in found if cause.share >= _SHOWN]
    return tuple(sorted(shown, key=lambda cause: -cause.share)[:_BEST])


def _is_found(causes: Sequence[Cause]) -> bool:
    return any(cause.share >= FOUND for cause in causes)


def _better(causes: Sequence[Cause], than: Sequence[Cause]) -> list[Cause]:
    """The pairs of causes that explain more than single causes do."""
    best = max((cause.share for cause in than), default=0.0)
    return [cause for cause in causes if cause.share > best]


def _about_scores(difference: Difference) -> Iterator[Cause]:
    """Production changes the scores: to a constant, by rounding, a summand, a factor, or both."""
    logged, predicted = difference.logged, difference.predicted
    if np.ptp(predicted) == 0:
        return
    if np.ptp(logged) == 0:
        yield Cause(f"all logged scores are {logged[0]:g}", 1.0)
        return
    for decimals in range(8):
        unit = 10.0**-decimals
        is_round = np.abs(logged - np.round(logged, decimals)) <= _SINGLE * np.abs(logged)
        rounded = is_round & (np.abs(logged - predicted) <= unit / 2 + difference.limit)
        if rounded.mean() >= FOUND:
            share = float(rounded[difference.differs].mean())
            yield Cause(f"scores are rounded to {counted(decimals, 'decimal')}", share)
            break
    offset = float(np.median(logged - predicted))
    yield Cause(f"{offset:g} is added to every score", difference.explained(predicted + offset))
    factor = float(np.median(logged[predicted != 0] / predicted[predicted != 0]))
    if factor:
        share = difference.explained(factor * predicted, factor=factor)
        yield Cause(f"every score is multiplied by {factor:g}", share)
    slope, constant = (float(value) for value in np.polyfit(predicted, logged, 1))
    share = difference.explained(slope * predicted + constant, factor=slope)
    yield Cause(f"every score is multiplied by {slope:g}, then {constant:g} is added", share)


class Rows:
    """Rows on which hypotheses about features are tried."""

    def __init__(self, difference: Difference) -> None:
        self.difference = difference
        model, data = difference.ranker.model_, difference.data
        self.names = data.feature_names or numbered(data.features)
        categorical = {*model.encoding.columns, *model.categories, *data.categories}
        self.numeric = [c for c in range(data.features) if c not in categorical]
        self.per_query: bool = model.per_query
        self.few, self._few_sizes = self._sample(_SCREENED)
        self.many, self._many_sizes = self._sample(_CONFIRMED)
        self._takes_missing = self._can_predict_missing()

    def best(self, family: Iterable[Hypothesis], offset: bool = False) -> list[Cause]:
        """The hypotheses that explain most of a few rows, tried on many.

        With `offset`, a constant is added to the scores too, which is estimated.
        """
        X = self.difference.X[self.few]
        tried: list[tuple[float, Hypothesis]] = []
        possible = ((one, new) for one in family if self._is_possible(X, new := one[1](X)))
        while batch := list(islice(possible, max(1, _AT_ONCE // X.size))):
            scores = self.predict([new for _, new in batch], self._few_sizes)
            shares = [self._explained(own, self.few, offset)[0] for own in scores]
            tried += [(share, one) for share, (one, _) in zip(shares, batch, strict=True)]
            tried = sorted(tried, key=lambda each: -each[0])[:_BEST]
            if tried[0][0] >= FOUND:
                break
        X, causes = self.difference.X[self.many], []
        for share, (text, change) in tried:
            if share >= _SHOWN / 2:
                scores = self.predict([change(X)], self._many_sizes)[0]
                share, constant = self._explained(scores, self.many, offset)
                also = f"two causes: {constant:g} is added to every score, and " if offset else ""
                causes.append(Cause(also + text, share))
        return causes

    def _explained(self, scores: Floats, rows: Ints, offset: bool) -> tuple[float, float]:
        """The share of the differing rows that scores explain, and the constant."""
        constant = float(np.median(self.difference.logged[rows] - scores)) if offset else 0.0
        return self.difference.explained(scores + constant, rows), constant

    def predict(self, tables: Sequence[Floats], sizes: Ints) -> Floats:
        """The scores of several tables of features, each with lists of these sizes."""
        source = self.difference.data
        X = np.concatenate(tables)[:, : source.features]
        group = np.tile(sizes, len(tables))
        rows = Dataset.from_arrays(X, group=group, unjudged="keep", non_finite="keep")
        rows = with_features(rows, X, source.feature_names, source.categories)
        scores = self.difference.ranker.predict(rows)
        return np.asarray(scores, np.float64).reshape(len(tables), -1)

    def _is_possible(self, X: Floats, changed: Floats) -> bool:
        is_same = np.array_equal(X, changed, equal_nan=True)
        return not is_same and (self._takes_missing or not np.isnan(changed).any())

    def _can_predict_missing(self) -> bool:
        row = self.difference.X[self.few[:1]]
        row[:, self.numeric] = np.nan
        try:
            self.predict([row], np.ones(1, np.int64))
        except InputError:
            return False
        return True

    def _sample(self, most: int) -> tuple[Ints, Ints]:
        """Rows and the sizes of their lists: whole queries if scores depend on them."""
        lists, differs = self.difference.data.lists, self.difference.differs
        if not self.per_query:
            halves = (np.flatnonzero(differs), np.flatnonzero(~differs))
            rows = np.concatenate([_spaced(half, most // 2) for half in halves])
            return rows, np.ones_like(rows)
        queries = np.argsort(lists.sum(differs.astype(np.float64)) == 0, kind="stable")
        ends = np.cumsum(lists.sizes[queries])
        queries = queries[: max(1, int(np.searchsorted(ends, most, side="right")))]
        return rows_of(lists, queries), lists.sizes[queries]


def _spaced(rows: Ints, most: int) -> Ints:
    """The rows, or `most` of them, evenly spaced."""
    if rows.size <= most:
        return rows
    return rows[np.linspace(0, rows.size - 1, most).astype(np.int64)]
