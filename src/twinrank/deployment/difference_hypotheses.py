"""Hypotheses of `verify`: what production may have done with the features."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, combinations, islice, permutations
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from twinrank.deployment.difference_causes import Rows

Floats = npt.NDArray[Any]
Change = Callable[[Floats], Floats]
Hypothesis = tuple[str, Change]
"""A cause in words, and the features that production then has."""

_MOST_DOCUMENTS = 1_000_000  # scored for hypotheses about two features
_MOST_RENAMED = 1_000


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


def renamed(rows: "Rows", lacking: Sequence[str], spare: Sequence[str]) -> Iterator[Hypothesis]:
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


def of_all(rows: "Rows") -> Iterator[Hypothesis]:
    """All features are changed in the same way."""
    for text, change in _CHANGES:
        yield text, _on(rows.numeric, change)
    by_name = np.argsort([rows.names[column] for column in rows.numeric], kind="stable")
    yield "features are in alphabetical order", _on(rows.numeric, lambda X: X[:, by_name])


def of_one(rows: "Rows") -> Iterator[Hypothesis]:
    """One feature is absent, or its missing values are treated otherwise."""
    for column in rows.numeric:
        for text, change in (*_ABSENT, *_MISSING):
            yield f"feature {rows.names[column]!r}: {text}", _on([column], change)


def swaps(rows: "Rows") -> Iterator[Hypothesis]:
    """Two features are swapped; pairs with important features come first."""
    names, count = rows.names, len(rows.names)
    importances = getattr(rows.difference.ranker, "feature_importances_", np.ones(count))
    ordered = sorted(rows.numeric, key=lambda column: -importances[column])
    for pair in islice(combinations(ordered, 2), _MOST_DOCUMENTS // rows.few.size):
        first, second = sorted(pair)
        text = f"features {names[first]!r} and {names[second]!r} are swapped"
        yield text, _on(pair, lambda X: X[:, ::-1])


def two_changes(rows: "Rows", lacking: Sequence[str], spare: Sequence[str]) -> Iterator[Hypothesis]:
    """Another treatment of missing values, and a second cause."""
    first = [(text, _on(rows.numeric, change)) for text, change in _MISSING]
    known = {text for text, _ in _MISSING}
    families = renamed(rows, lacking, spare), of_all(rows), of_one(rows), swaps(rows)
    second = (one for one in chain(*families) if one[0] not in known)
    both = (_composed(a, b) for b in second for a in first)
    return islice(both, _MOST_DOCUMENTS // rows.few.size)


def _composed(first: Hypothesis, second: Hypothesis) -> Hypothesis:
    """Both changes; the first is that of the logged values."""
    return f"two causes: {first[0]}, and {second[0]}", lambda X: second[1](first[1](X))
