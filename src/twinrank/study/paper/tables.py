"""Tables 4 to 7 of the paper from what was measured, beside what was published."""

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
from twinrank.study.paper.writing import csv_text
from twinrank.support.plurals import counted

_PAPER_AP = (
    "MAP@k as in the paper: AP@k divided by the sum of the k highest graded labels (paperAP@k)."
)
_UNPUBLISHED = "The paper doesn't print nERR."


@dataclass(frozen=True, eq=False)
class Measured:
    """A method on one architecture (None: trees), over all folds that were run."""

    method: str
    architecture: str | None
    evaluation: Evaluation
    validation: float
    """The mean over folds of the best nDCG@5 on validation data: what the choice goes by."""
    tied_pairs: float
    """The share of pairs of a query's test documents with equal scores; the mean over folds."""

    @property
    def system(self) -> str:
        """What it is called in a table."""
        return self.method if self.architecture is None else system(self.method, self.architecture)


def choose(measured: Iterable[Measured]) -> dict[str, Measured]:
    """For each method the architecture with the best validation value; the first of equals."""
    chosen: dict[str, Measured] = {}
    for one in sorted(measured, key=_order):
        if one.method not in chosen or one.validation > chosen[one.method].validation:
            chosen[one.method] = one
    return chosen


def _order(one: Measured) -> tuple[int, int]:
    place = -1 if one.architecture is None else ARCHITECTURES.index(one.architecture)
    return list(PUBLISHED).index(one.method), place


@dataclass(frozen=True, eq=False)
class PaperTable:
    """One of Tables 4 to 7: the chosen architecture of each of its methods, and their tests.

    `published` puts the paper's figures beside the measured ones; that is right on its own data.
    """

    number: int
    rows: Sequence[Measured]
    comparison: Comparison
    published: bool

    @classmethod
    def of(
        cls, number: int, chosen: Mapping[str, Measured], published: bool
    ) -> "PaperTable | None":
        """A table of the methods that were measured, None if none was."""
        rows = [one for name, one in chosen.items() if PUBLISHED[name].table == number]
        if not rows:
            return None
        values = {one.system: one.evaluation for one in rows}
        return cls(number, rows, compare(values, level=LEVEL), published)

    @cached_property
    def best(self) -> dict[str, Measured]:
        """The best of each measure's column."""
        names = {one.system: one for one in self.rows}
        return {name: names[self.comparison.best(name)] for name in MEASURES}

    @property
    def title(self) -> str:
        """As in the paper, in short."""
        return f"Table {self.number}, {TABLES[self.number]}"

    def tables(self) -> list[Table]:
        """One for each measure, so that a terminal is wide enough."""
        return [self._table(family) for family in FAMILIES]

    def _table(self, family: str) -> Table:
        names = [f"{family}@{k}" for k in CUTOFFS]
        beside = self.published and family != "nERR"
        rows = []
        for one in self.rows:
            rows.append([Cell(one.system), *(self._cell(one, name) for name in names)])
            if beside:
                rows += self._beside(one, names)
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

    def _cell(self, one: Measured, name: str) -> Cell:
        mean = one.evaluation[name]
        text = "–" if np.isnan(mean) else f"{mean:.4f}"
        return Cell(text, self._is_best(one, name), "*" if self._differs(one, name) else "")

    def _is_best(self, one: Measured, name: str) -> bool:
        return one.evaluation[name] == self.best[name].evaluation[name]

    def _differs(self, one: Measured, name: str) -> bool:
        p = self.comparison.p_values[name][one.system]
        return self.best[name] is not one and p < LEVEL

    def _beside(self, one: Measured, names: Sequence[str]) -> list[list[Cell]]:
        """What the paper has, and how far off it is."""
        row = PUBLISHED[one.method]
        label = "published" if row.architecture is None else f"published ({row.architecture})"
        theirs = [
            Cell(
                f"{row.values[name]:.4f}",
                row.values[name] == best_published(self.number, name),
                "*" if name in row.marked else "",
            )
            for name in names
        ]
        off = [Cell(signed(one.evaluation[name] - row.values[name])) for name in names]
        return [[Cell(f"  {label}"), *theirs], [Cell("  difference"), *off]]

    def to_csv(self) -> str:
        """One line per method and measure, with all that is known."""
        head = "table method architecture measure mean best p_value differs published "
        head += "published_architecture published_differs difference"
        return csv_text(head.split(), (self._line(o, name) for o in self.rows for name in MEASURES))

    def _line(self, one: Measured, name: str) -> list[Any]:
        row, mean = PUBLISHED[one.method], one.evaluation[name]
        p = self.comparison.p_values[name][one.system]
        known = [self.number, one.method, one.architecture, name, mean]
        known += [int(self._is_best(one, name)), p, int(self._differs(one, name))]
        if not self.published or name not in row.values:
            return [*known, None, None, None, None]
        theirs = row.values[name]
        return [*known, theirs, row.architecture, int(name in row.marked), mean - theirs]

    def distance(self) -> float:
        """The mean of |measured − published| over all cells that the paper has."""
        off = [
            abs(one.evaluation[name] - value)
            for one in self.rows
            for name, value in PUBLISHED[one.method].values.items()
        ]
        return float(np.mean(off))


def best_published(number: int, name: str) -> float:
    """The best published value of a column."""
    return max(row.values[name] for row in PUBLISHED.values() if row.table == number)


def architecture_table(measured: Sequence[Measured], chosen: Mapping[str, Measured]) -> Table:
    """All architectures of all methods: what the choice went by, and how many scores tied."""
    rows = []
    tried = Counter(one.method for one in measured)
    for one in sorted(measured, key=_order):
        if one.architecture is None:
            continue
        taken = chosen[one.method] is one and tried[one.method] > 1
        theirs = PUBLISHED[one.method].architecture == one.architecture
        rows.append(
            [
                Cell(one.system, best=taken),
                Cell(f"{one.validation:.4f}", best=taken),
                Cell(f"{one.evaluation[VALIDATION]:.4f}"),
                Cell(f"{100 * one.tied_pairs:.2f} %"),
                Cell("chosen" if theirs else ""),
            ]
        )
    return Table(
        "Architectures",
        ["", f"validation {VALIDATION}", f"test {VALIDATION}", "tied pairs", "in the paper"],
        rows,
        [
            "Tied pairs: documents of one query with equal test scores. The paper blames them for "
            "what ReLU in the last layer (R5) costs."
        ],
        f"the method's best mean over folds of {VALIDATION} on validation data: its choice",
    )


def architecture_csv(measured: Sequence[Measured], chosen: Mapping[str, Measured]) -> str:
    """The same with all digits, trees included."""
    head = ["method", "architecture", "chosen", f"validation {VALIDATION}", f"test {VALIDATION}"]
    rows = (
        [
            one.method,
            one.architecture,
            int(chosen[one.method] is one),
            one.validation,
            one.evaluation[VALIDATION],
            one.tied_pairs,
            int(PUBLISHED[one.method].architecture == one.architecture),
        ]
        for one in sorted(measured, key=_order)
    )
    return csv_text([*head, "tied_pairs", "chosen_in_paper"], rows)


def signed(value: float) -> str:
    """A difference with its sign.

    >>> signed(-0.00123), signed(0.02)
    ('−0.0012', '+0.0200')
    """
    return "–" if np.isnan(value) else f"{value:+.4f}".replace("-", "−")
