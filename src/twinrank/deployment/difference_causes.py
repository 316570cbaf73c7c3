"""Why logged scores differ from a model's: each hypothesis predicts on changed input."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, islice, permutations
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from twinrank.data.batches import rows_of
from twinrank.data.builder import numbered
from twinrank.data.dataset import Dataset, with_features
from twinrank.support.errors import InputError
from twinrank.support.quantities import counted

if TYPE_CHECKING:
    from twinrank.learning.estimators.base_ranker import BaseRanker

Floats = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Change = Callable[[Floats], Floats]
Hypothesis = tuple[str, Change]
"""A cause in words, and the features that production then has."""

FOUND = 0.95
"""A cause that explains this share of the differing rows ends the search."""
_SHOWN = 0.5  # causes that explain less are not shown
_SCREENED = 64  # rows on which every hypothesis is tried first, but for whole queries
_CONFIRMED = 20_000  # rows on which the best ones are tried again
_BEST = 3
_MOST_DOCUMENTS = 1_000_000  # scored for hypotheses about two features
_AT_ONCE = 1 << 22  # values of features
_MOST_RENAMED = 1_000
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
    rows = _Rows(difference)
    if rows.per_query:
        alone = rows.predict([difference.X[rows.many]], np.ones_like(rows.many))[0]
        text = "each document was scored alone, without the others of its query"
        found.append(Cause(text, difference.explained(alone, rows.many)))
    for family in (_renamed(rows, lacking, spare), _all(rows), _single(rows)):
        if not _is_found(found):
            found += rows.best(family)
    if not _is_found(found):
        near = np.abs(difference.logged - difference.predicted)[difference.differs]
        share = float((near <= _LOW_PRECISION * np.abs(difference.predicted).max()).mean())
        found.append(Cause("lower precision, such as float16, or rounded features", share))
    if not _is_found(found):
        found += rows.best(_swaps(rows))
    shown = [cause for cause in found if cause.share >= _SHOWN]
    return tuple(sorted(shown, key=lambda cause: -cause.share)[:_BEST])


def _is_found(causes: Sequence[Cause]) -> bool:
    return any(cause.share >= FOUND for cause in causes)


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


class _Rows:
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

    def best(self, family: Iterable[Hypothesis]) -> list[Cause]:
        """The hypotheses that explain most of a few rows, tried on many."""
        X = self.difference.X[self.few]
        tried: list[tuple[float, Hypothesis]] = []
        possible = ((one, new) for one in family if self._is_possible(X, new := one[1](X)))
        while batch := list(islice(possible, max(1, _AT_ONCE // X.size))):
            scores = self.predict([new for _, new in batch], self._few_sizes)
            shares = [self.difference.explained(own, self.few) for own in scores]
            tried += [(share, one) for share, (one, _) in zip(shares, batch, strict=True)]
            tried = sorted(tried, key=lambda each: -each[0])[:_BEST]
            if tried[0][0] >= FOUND:
                break
        X, causes = self.difference.X[self.many], []
        for share, (text, change) in tried:
            if share >= _SHOWN / 2:
                scores = self.predict([change(X)], self._many_sizes)[0]
                causes.append(Cause(text, self.difference.explained(scores, self.many)))
        return causes

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


def _on(columns: Sequence[int], change: Change) -> Change:
    """A change of some columns only."""

    def changed(X: Floats) -> Floats:
        X = X.copy()
        X[:, columns] = change(X[:, columns])
        return X

    return changed


_MISSING: tuple[Hypothesis, ...] = (
    ("values that are missing in the log are 0", lambda X: np.where(np.isnan(X), 0, X)),
    ("values that are 0 in the log are missing", lambda X: np.where(X == 0, np.nan, X)),
)
_ABSENT: tuple[Hypothesis, ...] = (
    ("it is always 0", np.zeros_like),
    ("it is always missing", lambda X: np.full_like(X, np.nan)),
)
_SHIFTED = "features are shifted by one, for example numbered from 0 instead of 1"
_CHANGES: tuple[Hypothesis, ...] = (
    *_MISSING,
    (
        "values at thresholds: < instead of ≤, or features that were rounded up",
        lambda X: np.nextafter(X, np.float32(np.inf)),
    ),
    (
        "values at thresholds: ≤ instead of <, or features that were rounded down",
        lambda X: np.nextafter(X, np.float32(-np.inf)),
    ),
    ("thresholds are larger by 1e-6, as in Solr", lambda X: X - np.float32(1e-6)),
    (_SHIFTED, lambda X: np.pad(X[:, 1:], ((0, 0), (0, 1)))),
    (_SHIFTED, lambda X: np.pad(X[:, :-1], ((0, 0), (1, 0)))),
)


def _renamed(rows: _Rows, lacking: Sequence[str], spare: Sequence[str]) -> Iterator[Hypothesis]:
    """Features that the log lacks have other names there; in the order of the log first."""
    columns = [rows.names.index(name) for name in lacking]
    if not columns or not set(columns) <= set(rows.numeric):
        return
    places = range(len(rows.names), len(rows.names) + len(spare))
    for chosen in islice(permutations(places, len(columns)), _MOST_RENAMED):
        new = [spare[place - len(rows.names)] for place in chosen]
        pairs = [f"{a!r} is {b!r} in the log" for a, b in zip(lacking, new, strict=True)]
        more = f", and {len(pairs) - 2} more" if len(pairs) > 2 else ""
        text = f"other names of features: {', '.join(pairs[:2])}{more}"
        half = len(columns)
        yield text, _on([*columns, *chosen], lambda X, n=half: np.tile(X[:, n:], 2))  # type: ignore[misc]


def _all(rows: _Rows) -> Iterator[Hypothesis]:
    """All features are changed in the same way."""
    for text, change in _CHANGES:
        yield text, _on(rows.numeric, change)
    by_name = np.argsort([rows.names[column] for column in rows.numeric], kind="stable")
    yield "features are in alphabetical order", _on(rows.numeric, lambda X: X[:, by_name])


def _single(rows: _Rows) -> Iterator[Hypothesis]:
    """One feature is absent, or its missing values are treated otherwise."""
    for column in rows.numeric:
        for text, change in (*_ABSENT, *_MISSING):
            yield f"feature {rows.names[column]!r}: {text}", _on([column], change)


def _swaps(rows: _Rows) -> Iterator[Hypothesis]:
    """Two features are swapped; pairs with important features come first."""
    names, count = rows.names, len(rows.names)
    importances = getattr(rows.difference.ranker, "feature_importances_", np.ones(count))
    ordered = sorted(rows.numeric, key=lambda column: -importances[column])
    for pair in islice(combinations(ordered, 2), _MOST_DOCUMENTS // rows.few.size):
        first, second = sorted(pair)
        text = f"features {names[first]!r} and {names[second]!r} are swapped"
        yield text, _on(pair, lambda X: X[:, ::-1])
