"""Why a ranker ranks one document of a query above another: `ranker.explain`."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from twinrank.core.ranks.exact import exact_ranks
from twinrank.data.builder import numbered
from twinrank.data.dataset import Dataset
from twinrank.data.from_frames import as_text
from twinrank.learning.models.encoding import Encoding
from twinrank.support.errors import InputError, unknown
from twinrank.support.files import json_types
from twinrank.support.plots import COLOURS, drawing
from twinrank.support.quantities import counted
from twinrank.support.tables import Cell, ResultTable

if TYPE_CHECKING:
    from twinrank.learning.estimators.base_ranker import BaseRanker

_SHOWN = 10
"""Features in the table and the plot."""
_NAME, _VALUE = 36, 12
"""Characters of the name of a feature and of a value, so that a table has at most 80 columns."""
_ROUNDING = 1e-4
"""The share of the scores below which a remainder is not shown."""


@dataclass(frozen=True, eq=False)
class PairExplanation:
    """Why document a has another score than document b of the same query.

    `str(explanation)` is a table of the features that contribute most.

    Parameters
    ----------
    query : str
        The query.
    documents : tuple of str
        The names of a and b: docids, or "row 3".
    ranks : tuple of int
        Their ranks, from 1.
    scores : tuple of float
        Their scores.
    features : tuple of str
        The names of all features.
    values : tuple of tuple of str
        By feature, its values in a and b; categories are texts.
    contributions : array of float, shape (n_features,)
        What each feature adds to the difference of scores.
    """

    query: str
    documents: tuple[str, str]
    ranks: tuple[int, int]
    scores: tuple[float, float]
    features: tuple[str, ...]
    values: tuple[tuple[str, str], ...]
    contributions: npt.NDArray[np.float64]

    @property
    def difference(self) -> float:
        """The score of a minus that of b."""
        return self.scores[0] - self.scores[1]

    @property
    def remainder(self) -> float:
        """The part of the difference that no feature explains: for trees, rounding errors.

        For nets it is the error of an integral, and what a net that sees all documents of a query
        gets from the others.
        """
        return self.difference - float(self.contributions.sum())

    @property
    def order(self) -> list[int]:
        """The numbers of the features, from the largest contribution, positive or negative."""
        return [int(i) for i in np.argsort(-np.abs(self.contributions), kind="stable")]

    def table(self) -> ResultTable:
        """The ten largest contributions, the sum of the others, and the difference of scores."""
        rows = [
            [
                Cell(_short(self.features[i], _NAME)),
                *(Cell(_short(value)) for value in self.values[i]),
                _signed(self.contributions[i]),
            ]
            for i in self._shown()
        ]
        for text, value in self._others():
            rows.append([Cell(text), Cell(""), Cell(""), _signed(value)])
        scores = [Cell(_number(score, ".4f")) for score in self.scores]
        rows.append([Cell("score"), *scores, _signed(self.difference)])
        columns = ["", *(_short(name) for name in self.documents), "contribution"]
        return ResultTable(self._title(), columns, rows)

    def draw(self, path: str | os.PathLike[str]) -> None:
        """Plot the ten largest contributions and the sum of the others.

        Parameters
        ----------
        path : str or path
            The file to write, with suffix .png, .svg or .pdf.
        """
        bars = [
            (
                f"{_short(self.features[i], _NAME)}: {' / '.join(map(_short, self.values[i]))}",
                float(self.contributions[i]),
            )
            for i in self._shown()
        ]
        names, values = zip(*[*bars, *self._others()], strict=True)
        with drawing(Path(path), 1, 1, (7, 1.2 + 0.3 * len(names))) as panels:
            axes = panels[0, 0]
            colours = [COLOURS[0] if value > 0 else COLOURS[3] for value in values]
            axes.barh(range(len(names)), values, color=colours)
            axes.set_yticks(range(len(names)), [name.replace("$", r"\$") for name in names])
            axes.invert_yaxis()
            axes.axvline(0, color="#666666", linewidth=0.8)
            first, second = (_short(name).replace("$", r"\$") for name in self.documents)
            axes.set(
                title=f"{first} (rank {self.ranks[0]}) against {second} (rank {self.ranks[1]})",
                xlabel=f"contribution to the difference of scores, {_number(self.difference)}",
            )

    def to_json(self) -> dict[str, Any]:
        """Everything as a dictionary for JSON, the features from the largest contribution."""
        found = [
            {
                "feature": self.features[i],
                "values": list(self.values[i]),
                "contribution": float(self.contributions[i]),
            }
            for i in self.order
        ]
        plain: dict[str, Any] = json_types(
            {
                "query": self.query,
                "documents": list(self.documents),
                "ranks": list(self.ranks),
                "scores": list(self.scores),
                "difference": self.difference,
                "remainder": self.remainder,
                "contributions": found,
            }
        )
        return plain

    def __str__(self) -> str:
        return self.table().to_text(width=80)

    def _title(self) -> str:
        above = "above" if self.ranks[0] < self.ranks[1] else "below"
        (a, b), (first, second) = map(_short, self.documents), self.ranks
        return f"Query {_short(self.query)}: {a} (rank {first}) is {above} {b} (rank {second})."

    def _shown(self) -> list[int]:
        return [i for i in self.order[:_SHOWN] if self.contributions[i]]

    def _others(self) -> list[tuple[str, float]]:
        """The sum of the features that are not shown, and the remainder if it is not rounding."""
        hidden = self.order[len(self._shown()) :]
        others = []
        if hidden:
            text = f"{counted(len(hidden), 'other feature')}"
            others.append((text, float(self.contributions[hidden].sum())))
        if abs(self.remainder) > _ROUNDING * max(1.0, *map(abs, self.scores)):
            others.append(("not explained", self.remainder))
        return others


def explained_pair(
    ranker: "BaseRanker", data: Dataset, documents: Sequence[int | str]
) -> PairExplanation:
    """The explanation of two documents of a query, whose data has the ranker's features."""
    rows = two_rows(data, documents)
    scores, encoding = ranker._scores(data), ranker.model_.encoding
    names = data.feature_names or tuple(f"feature {n}" for n in numbered(data.features))
    ranks = np.asarray(exact_ranks(scores, data.lists, ties="stable"))
    ids = data.docids
    return PairExplanation(
        query=str(data.query_ids[0]),
        documents=_pair(f"row {row}" if ids is None else str(ids[row]) for row in rows),
        ranks=_pair(int(ranks[row]) for row in rows),
        scores=_pair(float(scores[row]) for row in rows),
        features=tuple(map(str, names)),
        values=tuple(
            _pair(value_text(data, encoding, column, float(data.X[row, column])) for row in rows)
            for column in range(data.features)
        ),
        contributions=ranker._pair_contributions(data, *rows),
    )


def _pair(values: Any) -> Any:
    first, second = values
    return first, second


def value_text(data: Dataset, encoding: Encoding, column: int, value: float) -> str:
    """A value as text: that of a category, and whether the model knows it."""
    known = encoding.columns.get(column)
    if np.isnan(value) or (known is not None and value < 0):
        return "missing"
    if known is None:
        return _number(value, ".4g")
    text = data.categories[column][int(value)] if column in data.categories else as_text(value)
    return text if text in map(str, known) else f"{text} (unknown)"


def two_rows(data: Dataset, documents: Sequence[int | str]) -> tuple[int, int]:
    """The rows of two documents of a query, by number or docid."""
    if data.queries != 1:
        raise InputError(
            f"explain needs the documents of one query, but X has {data.queries:,} queries. Pass "
            f"those of one, such as data.select([0])."
        )
    first, second = (_row(data, document) for document in documents)
    if first == second:
        raise InputError("explain needs two different documents.")
    return first, second


def _row(data: Dataset, document: int | str) -> int:
    if isinstance(document, str):
        ids = [] if data.docids is None else data.docids.tolist()
        if document not in ids:
            raise InputError(unknown("docid", document, ids or ["row numbers: X has no docids"]))
        return int(ids.index(document))
    if not 0 <= int(document) < data.documents:
        raise InputError(
            f"There is no row {document}: the query has rows 0 to {data.documents - 1}."
        )
    return int(document)


def _short(text: str, length: int = _VALUE) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _signed(value: float) -> Cell:
    return Cell(_number(value))


def _number(value: float, form: str = "+.4f") -> str:
    return format(value, form).replace("-", "−")
