"""Tables 4 to 7 of the paper: measured values next to the published ones."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from twinrank.display.tables import Cell, Table
from twinrank.evaluation.comparison import Comparison, compare
from twinrank.evaluation.result import Evaluation
from twinrank.study.paper.published import (
    ARCHITECTURES,
    CUTOFFS,
    FAMILIES,
    LEVEL,
    MEASURES,
    PUBLISHED,
    TABLES,
    VALIDATION,
    system,
)
from twinrank.study.result_files import csv_text
from twinrank.support.quantities import counted

_PAPER_AP = (
    "MAP@k as in the paper: AP@k divided by the sum of the k highest graded labels (paperAP@k)."
)
_UNPUBLISHED = "The paper does not print nERR."


@dataclass(frozen=True, eq=False)
class Measured:
    """A method on one architecture (None for trees), evaluated on all folds."""

    method: str
    architecture: str | None
    evaluation: Evaluation
    validation: float
    """The mean over folds of the best nDCG@5 on validation data, which chooses architectures."""
    tied_pairs: float
    """The share of pairs of test documents of one query with equal scores, a mean over folds."""

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
    return list(PUBLISHED).index(row.method), position


@dataclass(frozen=True, eq=False)
class PaperTable:
    """One of Tables 4 to 7: its methods on their chosen architectures, and significance tests.

    `published` adds the paper's values, which are comparable on the paper's data only.
    """

    number: int
    rows: Sequence[Measured]
    comparison: Comparison
    published: bool

    @classmethod
    def of(
        cls, number: int, chosen: Mapping[str, Measured], published: bool
    ) -> "PaperTable | None":
        """A table of the measured methods, None if there are none."""
        rows = [row for name, row in chosen.items() if PUBLISHED[name].table == number]
        if not rows:
            return None
        values = {row.system: row.evaluation for row in rows}
        return cls(number, rows, compare(values, level=LEVEL), published)

    @cached_property
    def best(self) -> dict[str, Measured]:
        """The best method in each measure."""
        by_system = {row.system: row for row in self.rows}
        return {name: by_system[self.comparison.best(name)] for name in MEASURES}

    @property
    def title(self) -> str:
        """A short form of the title in the paper."""
        return f"Table {self.number}, {TABLES[self.number]}"

    def tables(self) -> list[Table]:
        """One table for each measure, so that it fits on a terminal."""
        return [self._table(family) for family in FAMILIES]

    def _table(self, family: str) -> Table:
        names = [f"{family}@{k}" for k in CUTOFFS]
        beside = self.published and family != "nERR"
        rows = []
        for row in self.rows:
            rows.append([Cell(row.system), *(self._cell(row, name) for name in names)])
            if beside:
                rows += self._published_rows(row, names)
        lists = counted(self.comparison.lists, "query")
        notes = [f"*: differs from it, p < {LEVEL:g} (Wilcoxon's signed-rank test)."]
        notes += [_PAPER_AP] if family == "paperAP" else []
        notes += [_UNPUBLISHED] if family == "nERR" and self.published else []
        shown = FAMILIES[family]
        return Table(
            f"{self.title}: {shown}",
            ["", *(f"{shown}@{k}" for k in CUTOFFS)],
            rows,
            notes,
            f"the best mean of its column ({lists})",
        )

    def _cell(self, row: Measured, name: str) -> Cell:
        mean = row.evaluation[name]
        text = "–" if np.isnan(mean) else f"{mean:.4f}"
        return Cell(text, self._is_best(row, name), "*" if self._differs(row, name) else "")

    def _is_best(self, row: Measured, name: str) -> bool:
        return row.evaluation[name] == self.best[name].evaluation[name]

    def _differs(self, row: Measured, name: str) -> bool:
        p = self.comparison.p_values[name][row.system]
        return self.best[name] is not row and p < LEVEL

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
        differences = [signed(row.evaluation[name] - published.values[name]) for name in names]
        return [[Cell(f"  {label}"), *cells], [Cell("  difference"), *map(Cell, differences)]]

    def to_csv(self) -> str:
        """All values, one line per method and measure."""
        head = "table method architecture measure mean best p_value differs published "
        head += "published_architecture published_differs difference"
        lines = (self._line(row, name) for row in self.rows for name in MEASURES)
        return csv_text(head.split(), lines)

    def _line(self, row: Measured, name: str) -> list[Any]:
        published, mean = PUBLISHED[row.method], row.evaluation[name]
        p = self.comparison.p_values[name][row.system]
        measured = [self.number, row.method, row.architecture, name, mean]
        measured += [int(self._is_best(row, name)), p, int(self._differs(row, name))]
        if not self.published or name not in published.values:
            return [*measured, None, None, None, None]
        value, marked = published.values[name], int(name in published.marked)
        return [*measured, value, published.architecture, marked, mean - value]

    def distance(self) -> float:
        """The mean of |measured − published| over all published values."""
        differences = [
            abs(row.evaluation[name] - value)
            for row in self.rows
            for name, value in PUBLISHED[row.method].values.items()
        ]
        return float(np.mean(differences))


def best_published(number: int, name: str) -> float:
    """The best published value of a column."""
    return max(row.values[name] for row in PUBLISHED.values() if row.table == number)


def architecture_table(measured: Sequence[Measured], chosen: Mapping[str, Measured]) -> Table:
    """All architectures of all methods, with validation values and shares of tied scores."""
    rows = []
    counts = Counter(row.method for row in measured)
    for row in sorted(measured, key=_order):
        if row.architecture is None:
            continue
        is_chosen = chosen[row.method] is row and counts[row.method] > 1
        in_paper = PUBLISHED[row.method].architecture == row.architecture
        rows.append(
            [
                Cell(row.system, best=is_chosen),
                Cell(f"{row.validation:.4f}", best=is_chosen),
                Cell(f"{row.evaluation[VALIDATION]:.4f}"),
                Cell(f"{100 * row.tied_pairs:.2f} %"),
                Cell("chosen" if in_paper else ""),
            ]
        )
    return Table(
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
            row.evaluation[VALIDATION],
            row.tied_pairs,
            int(PUBLISHED[row.method].architecture == row.architecture),
        ]
        for row in sorted(measured, key=_order)
    )
    return csv_text([*head, "tied_pairs", "chosen_in_paper"], rows)


def signed(value: float) -> str:
    """A difference with its sign.

    >>> signed(-0.00123), signed(0.02)
    ('−0.0012', '+0.0200')
    """
    return "–" if np.isnan(value) else f"{value:+.4f}".replace("-", "−")
