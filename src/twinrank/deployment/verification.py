"""`verify`: compare the scores that production logged with those of a model."""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from twinrank.core.lists import Lists
from twinrank.data.builder import numbered
from twinrank.data.dataset import Dataset, with_features
from twinrank.deployment.difference_causes import FOUND, Cause, Difference, causes_of
from twinrank.deployment.difference_hypotheses import Floats
from twinrank.deployment.export_format import TOLERANCE
from twinrank.evaluation.comparison import Comparison, compare
from twinrank.support.errors import Argument, InputError
from twinrank.support.quantities import counted
from twinrank.support.tables import Cell, ResultTable

if TYPE_CHECKING:
    from twinrank.learning.estimators.base_ranker import BaseRanker

_FIRST = 5  # differing rows that are shown


@dataclass(frozen=True)
class DifferentRow:
    """A logged document whose score is not that of the model."""

    query: str
    docid: str
    """Its id, or its number within the query, from 1, if the log has no ids."""
    logged: float
    predicted: float


@dataclass(frozen=True, eq=False)
class Verification:
    """The result of `verify`: which scores differ, why, and what this changes.

    `str(verification)` says it in words.

    Parameters
    ----------
    queries, documents : int
        The size of the log.
    equal : int
        The number of documents whose scores are equal.
    limit : float
        The largest difference of equal scores.
    largest : float
        The largest difference.
    first : tuple of DifferentRow
        The first rows that differ, with `query`, `docid`, `logged` and `predicted`.
    causes : tuple of Cause
        Likely causes, the best first, each with `text` and `share`, the share of the differing
        rows that it explains.
    lacking : tuple of str
        Features of the model that the log does not have.
    reordered : int
        The number of queries whose documents have another order.
    pairs, exchanged : int
        The number of pairs of documents within queries, and of those in another order.
    effect : Comparison or None
        The measure of both scores with a paired test; None without a difference or labels, or if
        the log lacks features.
    notes : tuple of str
        What could not be tested.
    """

    queries: int
    documents: int
    equal: int
    limit: float
    largest: float
    first: tuple[DifferentRow, ...]
    causes: tuple[Cause, ...]
    lacking: tuple[str, ...]
    reordered: int
    pairs: int
    exchanged: int
    effect: Comparison | None
    notes: tuple[str, ...]

    @property
    def is_equal(self) -> bool:
        """True if production does what the model does: same features, same scores."""
        return self.equal == self.documents and not self.lacking

    def table(self) -> ResultTable:
        """The first rows that differ."""
        rows = [
            [
                *(Cell(row.query), Cell(row.docid), Cell(f"{row.logged:.6g}")),
                *(Cell(f"{row.predicted:.6g}"), Cell(f"{row.logged - row.predicted:+.3g}")),
            ]
            for row in self.first
        ]
        return ResultTable("", ["query", "docid", "logged", "predict", "difference"], rows)

    def sentences(self) -> list[str]:
        """What was found, in words."""
        size = f"{counted(self.documents, 'row')} in {counted(self.queries, 'query')}"
        share = f"{100 * self.equal / self.documents:.4g} %"
        limit = f"Scores within {self.limit:.2g} count as equal."
        differs = self.equal < self.documents
        if differs:
            largest = f"The largest difference is {self.largest:.3g}."
            lines = [f"Different: {share} of {size} have equal scores. {largest} {limit}"]
        elif self.lacking:
            lines = [f"Different features, but {size} have the scores of predict. {limit}"]
        else:
            lines = [f"Equal: {size} have the scores of predict. {limit}"]
        if self.lacking:
            names = ", ".join(map(repr, self.lacking[:5])) + (", …" if self.lacking[5:] else "")
            lines.append(
                f"The log lacks {counted(len(self.lacking), 'feature')} of the model: {names}. "
                f"predict got 0 instead, or no category."
            )
        for cause in self.causes:
            word = "Cause" if cause.share >= FOUND else "Possible cause"
            explained = f"explains {100 * cause.share:.4g} % of the differing rows"
            lines.append(f"{word}: {cause.text} ({explained}).")
        if differs and not self.causes:
            lines.append("Cause: not found.")
        if differs and not self.lacking:
            lines.append(
                f"Order: {self.reordered:,} of {counted(self.queries, 'query')} have another "
                f"order; {self.exchanged:,} of {counted(self.pairs, 'pair')} are exchanged."
            )
        if self.effect is not None:
            (name,), means = self.effect.measures, self.effect.means
            lines.append(
                f"{name}: {means['production'][name]:.4f} in production, "
                f"{means['predict'][name]:.4f} by predict, "
                f"p = {min(self.effect.p_values[name].values()):.2g} (Wilcoxon signed-rank test)."
            )
        return [*lines, *self.notes]

    def __str__(self) -> str:
        table = [self.table().to_text(), ""] if self.first else []
        return "\n".join([*table, *self.sentences()])

    def to_json(self) -> dict[str, Any]:
        """All results as a dictionary for JSON."""
        values = {**vars(self), "is_equal": self.is_equal}
        values["first"] = [vars(row) for row in self.first]
        values["causes"] = [vars(cause) for cause in self.causes]
        values["effect"] = None if self.effect is None else self.effect.to_json()
        return values


def verify(
    ranker: "BaseRanker",
    log: Dataset,
    score: str = "score",
    *,
    others: "Mapping[str, BaseRanker] | None" = None,
    measure: str = "nDCG@10",
    tolerance: float = TOLERANCE,
) -> Verification:
    """Compare the scores that production logged with those of a model.

    If scores differ, hypotheses about the cause are tested: each changes the logged features or
    the scores, predicts, and counts the rows that then agree.

    Parameters
    ----------
    ranker : Ranker, BoostedRanker or Blend
        The model that production should use.
    log : Dataset
        The logged features, with the logged score as one more column. If scores depend on the
        other documents of a query, the log needs whole queries.
    score : str, default "score"
        The column of the logged scores; in LETOR text the number of the feature.
    others : mapping of str to ranker, optional
        Other models by name, such as older ones, whose scores production may show.
    measure : str, default "nDCG@10"
        The measure that compares both orders, if the log has labels.
    tolerance : float, default 1e-5
        The largest difference of equal scores, relative to the largest score.

    Returns
    -------
    Verification
        With `is_equal`, `first`, `causes`, `reordered`, `exchanged` and `effect`.

    Raises
    ------
    InputError
        If the log has no such column, or does not fit the model.

    Examples
    --------
    >>> import twinrank as tr
    >>> data = tr.synthetic_web_search(queries=20)
    >>> ranker = tr.BoostedRanker(n_estimators=5).fit(data)
    >>> columns = [*data.X.T, ranker.predict(data)]
    >>> names = [*data.feature_names, "score"]
    >>> log = tr.Dataset.from_arrays(np.c_[*columns], qid=data.qid, feature_names=names,
    ...                              unjudged="keep")
    >>> verify(ranker, log).is_equal
    True
    """
    logged, rows = _split(log, score)
    data, lacking, spare = _completed(ranker, rows)
    predicted = np.asarray(ranker.predict(data), np.float64)
    limit = tolerance * float(np.abs(predicted).max(initial=0))
    X = data.X
    if spare:
        own = rows.feature_names or ()
        X = np.c_[X, rows.X[:, [own.index(name) for name in spare]]]
    difference = Difference(ranker, data, X, logged, predicted, limit)
    differs = difference.differs
    causes: tuple[Cause, ...] = ()
    if differs.any():
        older = {name: np.asarray(own.predict(rows)) for name, own in (others or {}).items()}
        causes = causes_of(difference, older, lacking, spare)
    seen = np.where(differs, logged, predicted)  # rounding does not change the order
    exchanged = [_exchanged(predicted[part], seen[part]) for part in data.lists]
    effect = None
    if differs.any() and not lacking and (log.y > 0).any():
        systems = {"production": seen, "predict": predicted}
        effect = compare(systems, log.y, log.lists, [measure])
    return Verification(
        queries=log.queries,
        documents=log.documents,
        equal=int((~differs).sum()),
        limit=limit,
        largest=float(np.abs(logged - predicted).max()),
        first=_first(log, logged, predicted, differs),
        causes=causes,
        lacking=lacking,
        reordered=int(np.count_nonzero(exchanged)),
        pairs=_pairs(data.lists),
        exchanged=sum(exchanged),
        effect=effect,
        notes=_notes(ranker, data, causes) if differs.any() else (),
    )


def _split(log: Dataset, score: str) -> tuple[Floats, Dataset]:
    """The logged scores, and the other columns."""
    names = log.feature_names or numbered(log.features)
    if score not in names:
        raise InputError(
            f"{log.name or 'The log'} has no column {score!r} for the logged scores; pass ",
            Argument("score"),
            ".",
            argument="score",
            value=score,
            choices=names,
        )
    column = names.index(score)
    logged = np.asarray(log.X[:, column], np.float64)
    if column in log.categories or not np.isfinite(logged).all():
        raise InputError(f"Column {score!r} must have a finite number in each row.")
    kept = [i for i in range(log.features) if i != column]
    texts = {kept.index(i): values for i, values in log.categories.items()}
    own = None if log.feature_names is None else [names[i] for i in kept]
    return logged, with_features(log, log.X[:, kept], own, texts)


def _completed(
    ranker: "BaseRanker", log: Dataset
) -> tuple[Dataset, tuple[str, ...], tuple[str, ...]]:
    """The features of the model, 0 or missing where the log lacks one; these; and other columns."""
    names, own = ranker.model_.feature_names, log.feature_names
    lacking = () if names is None or own is None else tuple(n for n in names if n not in own)
    if own is None or not lacking:
        return ranker._matched(log), (), ()
    numeric = [name for i, name in enumerate(own) if i not in log.categories]
    spare = tuple(name for name in numeric if name not in names)
    if len(spare) < len(lacking) == len(names):
        return ranker._matched(log), (), ()  # which raises an error: it is another table
    texts = ranker._known_columns().text
    X = np.zeros((log.documents, len(own) + len(lacking)), np.float32)
    X[:, : len(own)] = log.X
    X[:, [len(own) + i for i, name in enumerate(lacking) if name in texts]] = -1
    empty: dict[int, tuple[str, ...]] = {
        len(own) + i: () for i, name in enumerate(lacking) if name in texts
    }
    filled = with_features(log, X, [*own, *lacking], {**log.categories, **empty})
    return ranker._matched(filled), lacking, spare


def _first(log: Dataset, logged: Floats, predicted: Floats, differs: Any) -> Any:
    docids = log.docids_or_numbers
    return tuple(
        DifferentRow(str(log.qid[i]), str(docids[i]), float(logged[i]), float(predicted[i]))
        for i in np.flatnonzero(differs)[:_FIRST]
    )


def _exchanged(first: Floats, second: Floats) -> int:
    """The number of pairs that two scores order in opposite ways; ties are in no order.

    >>> _exchanged(np.array([3.0, 2.0, 1.0]), np.array([1.0, 2.0, 2.0]))
    2
    """
    seen: list[float] = []
    count = 0
    for value in second[np.lexsort((second, first))].tolist():
        place = bisect_right(seen, value)
        count += len(seen) - place
        seen.insert(place, value)
    return count


def _pairs(lists: Lists) -> int:
    sizes = np.asarray(lists.sizes, np.int64)
    return int((sizes * (sizes - 1) // 2).sum())


def _notes(ranker: "BaseRanker", data: Dataset, causes: tuple[Cause, ...]) -> tuple[str, ...]:
    """What could not be tested."""
    if any(cause.share >= FOUND for cause in causes):
        return ()
    notes = []
    if ranker.model_.per_query:
        notes.append(
            "Scores of this model depend on the other documents of a query. They differ if the log "
            "does not have all documents that were scored together, which cannot be tested."
        )
    if decimals := _decimals(data.X):
        notes.append(
            f"All features of the log have at most {counted(decimals, 'decimal')}. If production "
            f"has more, log all of them."
        )
    return tuple(notes)


def _decimals(X: Any) -> int | None:
    """The decimals to which all features are rounded, 1 to 4; None if they are whole, or not."""
    for decimals in range(5):
        near = np.round(X.astype(np.float64), decimals).astype(np.float32)
        if np.array_equal(near, X, equal_nan=True):
            return decimals or None
    return None
