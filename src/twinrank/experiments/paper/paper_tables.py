"""Tables 4 to 7 of the paper, and 8 on trees: measured values next to the published ones."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from twinrank.evaluation.evaluation_values import Evaluation
from twinrank.evaluation.significance import p_value
from twinrank.experiments.paper.published import (
    ARCHITECTURES,
    FAMILIES,
    PAPER_CUTOFFS,
    PAPER_MEASURES,
    PUBLISHED,
    ROWS,
    SIGNIFICANCE,
    TABLES,
    VALIDATION,
    in_table,
    system,
)
from twinrank.support.arrays import Floats
from twinrank.support.quantities import counted
from twinrank.support.tables import Cell, ResultTable, csv_text

_PAPER_AP = (
    "MAP@k as in the paper: AP@k divided by the sum of the k highest graded labels (paperAP@k)."
)
_UNPUBLISHED = "The paper does not print nERR."
_POOLED = "pooled: the mean over all queries instead."
_AUTHOR = (
    "ptranking: the author's code, where it differs (k documents or 0, ties favour relevant ones)."
)


@dataclass(frozen=True, eq=False)
class Measured:
    """A method on one architecture (None for trees), evaluated on all folds with all seeds."""

    method: str
    architecture: str | None
    evaluation: Evaluation
    """The values of all queries, means over the seeds."""
    means: Mapping[str, Floats]
    """The means of each measure, [seeds, folds]."""
    author_means: Mapping[str, Floats]
    """The same by the author's code, the convention "ptranking"."""
    validation: float
    """The mean over folds of the best nDCG@5 on validation data, which chooses architectures."""
    tied_pairs: float
    """The share of pairs of test documents of one query with equal scores, a mean over folds."""

    def mean(self, name: str) -> float:
        """The mean over folds, as in the paper, and over seeds."""
        return float(self.means[name].mean())

    def spread(self, name: str) -> float:
        """The standard deviation over seeds of the mean over folds; NaN for one seed."""
        return spread(self.means[name].mean(axis=1))

    @property
    def system(self) -> str:
        """Its name in a table."""
        return self.method if self.architecture is None else system(self.method, self.architecture)


def choose(measured: Iterable[Measured]) -> dict[str, Measured]:
    """The architecture with the best validation value for each method; of equal ones the first."""
    chosen: dict[str, Measured] = {}
    for row in sorted(measured, key=_order):
        if row.method not in chosen or row.validation > chosen[row.method].validation:
            chosen[row.method] = row
    return chosen


def _order(row: Measured) -> tuple[int, int]:
    position = -1 if row.architecture is None else ARCHITECTURES.index(row.architecture)
    return list(ROWS).index(row.method), position


@dataclass(frozen=True, eq=False)
class PaperTable:
    """One of Tables 4 to 8: its methods on their chosen architectures, and significance tests.

    `published` adds the paper's values, which are comparable on the paper's data only.
    """

    number: int
    rows: Sequence[Measured]
    published: bool

    @classmethod
    def of(
        cls, number: int, chosen: Mapping[str, Measured], published: bool
    ) -> "PaperTable | None":
        """A table of the measured methods, None if there are none."""
        rows = [row for name, row in chosen.items() if in_table(name, number)]
        return cls(number, rows, published and number < 8) if rows else None

    @cached_property
    def best(self) -> dict[str, Measured]:
        """The best method in each measure."""
        return {
            n: max(self.rows, key=lambda row: np.nan_to_num(row.mean(n))) for n in PAPER_MEASURES
        }

    @cached_property
    def p_values(self) -> dict[tuple[str, str], float]:
        """Wilcoxon's p-value against the best of the column, by system and measure."""
        return {
            (row.system, name): 1.0
            if self.best[name] is row
            else p_value(self.best[name].evaluation.values[name], row.evaluation.values[name])
            for row in self.rows
            for name in PAPER_MEASURES
        }

    @property
    def title(self) -> str:
        """A short form of the title in the paper."""
        if self.number == 8:
            return f"Table 8: {TABLES[8]}"
        return f"Table {self.number}, {TABLES[self.number]}"

    def tables(self) -> list[ResultTable]:
        """One table for each measure, so that it fits on a terminal."""
        return [self._table(family) for family in FAMILIES]

    def _table(self, family: str) -> ResultTable:
        names = [f"{family}@{k}" for k in PAPER_CUTOFFS]
        beside = self.published and family != "nERR"
        rows, folds, seeds = [], self.rows[0].means[names[0]].shape[1], self._seeds
        for row in self.rows:
            rows.append([Cell(row.system), *(self._cell(row, name) for name in names)])
            if folds > 1:
                pooled = [Cell(_number(row.evaluation[name])) for name in names]
                rows.append([Cell("  pooled"), *pooled])
            rows += _author_rows(row, names)
            if beside:
                rows += self._published_rows(row, names)
        notes = [
            f"*: differs from it, p < {SIGNIFICANCE:g} (Wilcoxon's signed-rank test on queries)."
        ]
        notes.append(f"Convention: paper, the mean over {counted(folds, 'fold')}.")
        if seeds > 1:
            notes[-1] += f" ±: the standard deviation over {seeds} seeds."
        notes += [_POOLED] if folds > 1 else []
        notes += [_AUTHOR] if any(row[0].text == _PTRANKING for row in rows) else []
        notes += [_PAPER_AP] if family == "paperAP" else []
        notes += [_UNPUBLISHED] if family == "nERR" and self.published else []
        shown = FAMILIES[family]
        return ResultTable(
            f"{self.title}: {shown}",
            ["", *(f"{shown}@{k}" for k in PAPER_CUTOFFS)],
            rows,
            notes,
            f"the best of its column ({counted(self.rows[0].evaluation.lists, 'query')})",
        )

    @property
    def _seeds(self) -> int:
        return len(self.rows[0].means[VALIDATION])

    def _cell(self, row: Measured, name: str) -> Cell:
        text = _number(row.mean(name)) + plus_minus(row.spread(name))
        return Cell(text, self._is_best(row, name), "*" if self._differs(row, name) else "")

    def _is_best(self, row: Measured, name: str) -> bool:
        return row.mean(name) == self.best[name].mean(name)

    def _differs(self, row: Measured, name: str) -> bool:
        return self.p_values[row.system, name] < SIGNIFICANCE

    def _published_rows(self, row: Measured, names: Sequence[str]) -> list[list[Cell]]:
        """The published values, and the differences from them."""
        published = PUBLISHED[row.method]
        model = published.architecture
        label = "published" if model is None else f"published ({model})"
        cells = [
            Cell(
                f"{published.values[name]:.4f}",
                published.values[name] == best_published(self.number, name),
                "*" if name in published.marked else "",
            )
            for name in names
        ]
        differences = [
            Cell(signed(row.mean(name) - published.values[name]) + plus_minus(row.spread(name)))
            for name in names
        ]
        return [[Cell(f"  {label}"), *cells], [Cell("  difference"), *differences]]

    def to_csv(self) -> str:
        """All values, one line per method and measure."""
        head = "table method architecture measure mean spread pooled ptranking best p_value differs"
        head += " published published_architecture published_differs difference"
        lines = (self._line(row, name) for row in self.rows for name in PAPER_MEASURES)
        return csv_text([head.split(), *lines])

    def _line(self, row: Measured, name: str) -> list[Any]:
        mean, author = row.mean(name), float(row.author_means[name].mean())
        measured = [self.number, row.method, row.architecture, name, mean, row.spread(name)]
        measured += [row.evaluation[name], author, int(self._is_best(row, name))]
        measured += [self.p_values[row.system, name], int(self._differs(row, name))]
        published = ROWS[row.method]
        if not self.published or name not in published.values:
            return [*measured, None, None, None, None]
        value, marked = published.values[name], int(name in published.marked)
        return [*measured, value, published.architecture, marked, mean - value]

    def distance(self) -> float:
        """The mean of |measured − published| over all published values."""
        differences = [
            abs(row.mean(name) - value)
            for row in self.rows
            for name, value in ROWS[row.method].values.items()
        ]
        return float(np.mean(differences))


_PTRANKING = "  ptranking"


def _author_rows(row: Measured, names: Sequence[str]) -> list[list[Cell]]:
    """The values by the author's code, where they differ; no row if they do not."""
    own = [_number(row.mean(name)) for name in names]
    author = [_number(float(row.author_means[name].mean())) for name in names]
    if own == author:
        return []
    pairs = zip(own, author, strict=True)
    return [[Cell(_PTRANKING), *(Cell("" if a == b else b) for a, b in pairs)]]


def best_published(number: int, name: str) -> float:
    """The best published value of a column."""
    return max(row.values[name] for row in PUBLISHED.values() if row.table == number)


def architecture_table(measured: Sequence[Measured], chosen: Mapping[str, Measured]) -> ResultTable:
    """All architectures of all methods, with validation values and shares of tied scores."""
    rows = []
    counts = Counter(row.method for row in measured)
    for row in sorted(measured, key=_order):
        if row.architecture is None:
            continue
        is_chosen = chosen[row.method] is row and counts[row.method] > 1
        in_paper = ROWS[row.method].architecture == row.architecture
        rows.append(
            [
                Cell(row.system, best=is_chosen),
                Cell(f"{row.validation:.4f}", best=is_chosen),
                Cell(f"{row.mean(VALIDATION):.4f}"),
                Cell(f"{100 * row.tied_pairs:.2f} %"),
                Cell("chosen" if in_paper else ""),
            ]
        )
    return ResultTable(
        "Architectures",
        ["", f"validation {VALIDATION}", f"test {VALIDATION}", "tied pairs", "in the paper"],
        rows,
        [
            "Tied pairs: documents of one query with equal test scores. The paper explains the "
            "lower values of ReLU in the last layer (R5) by them."
        ],
        f"the method's best mean over folds of {VALIDATION} on validation data, which is chosen",
    )


def architecture_csv(measured: Sequence[Measured], chosen: Mapping[str, Measured]) -> str:
    """The same with all digits, including trees."""
    head = ["method", "architecture", "chosen", f"validation {VALIDATION}", f"test {VALIDATION}"]
    rows = (
        [
            row.method,
            row.architecture,
            int(chosen[row.method] is row),
            row.validation,
            row.mean(VALIDATION),
            row.tied_pairs,
            int(ROWS[row.method].architecture == row.architecture),
        ]
        for row in sorted(measured, key=_order)
    )
    return csv_text([[*head, "tied_pairs", "chosen_in_paper"], *rows])


def signed(value: float) -> str:
    """A difference with its sign.

    >>> signed(-0.00123), signed(0.02)
    ('−0.0012', '+0.0200')
    """
    return "–" if np.isnan(value) else f"{value:+.4f}".replace("-", "−")


def spread(values: Floats) -> float:
    """The standard deviation of a sample; NaN for a single value.

    >>> round(spread(np.array([1.0, 2.0, 3.0])), 4), spread(np.array([1.0]))
    (1.0, nan)
    """
    return float(values.std(ddof=1)) if values.size > 1 else float("nan")


def plus_minus(value: float) -> str:
    """A spread behind a value, empty if there is none.

    >>> plus_minus(0.00123), plus_minus(float("nan"))
    (' ± 0.0012', '')
    """
    return "" if np.isnan(value) else f" ± {value:.4f}"


def _number(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.4f}"
