"""The table of results: methods by measures, with what is behind each figure."""

import math
from dataclasses import dataclass, replace

from twinrank.evaluation.comparison import Comparison
from twinrank.report import words
from twinrank.report.content import ReportContent


@dataclass(frozen=True)
class Figure:
    """One mean in the table."""

    text: str
    value: float | None
    """What it is sorted by; None comes last."""
    best: bool
    mark: str
    said: str
    """How it stands to the best, said on hover and to a screen reader."""


@dataclass(frozen=True)
class Row:
    """One method."""

    method: str
    number: int
    figures: list[Figure]


@dataclass(frozen=True)
class Standing:
    """The table, its rows from the best by one of the measures."""

    measures: list[str]
    sorted_by: str
    rows: list[Row]
    notes: list[str]

    @property
    def longest_name(self) -> int:
        """Letters of the longest name of a method, for the width of its column."""
        return max(len(row.method) for row in self.rows)


def standing_of(content: ReportContent) -> Standing | None:
    """The table of a report; None if nothing was compared."""
    found = content.results
    if found is None:
        return None
    means, measures = found.means, found.measures
    by = content.main_measure if content.main_measure in measures else measures[0]
    best = {name: found.best(name) for name in measures}
    rows = [
        Row(
            method,
            content.methods.index(method),
            [_figure(found, method, name, means, best[name]) for name in measures],
        )
        for method in found.values
    ]
    place = measures.index(by)
    rows.sort(key=lambda row: _rank(row.figures[place].value))
    table = replace(found, intervals=None).table()  # said with each figure
    about = f"Bold: {table.about_best}." if table.about_best else ""
    return Standing(measures, by, rows, [note for note in (about, *table.notes) if note])


def _figure(
    found: Comparison,
    method: str,
    measure: str,
    means: dict[str, dict[str, float]],
    best: str,
) -> Figure:
    mean = means[method][measure]
    if math.isnan(mean):
        return Figure("–", None, False, "", "no query has a value")
    leads = mean == means[best][measure]
    p = found.p_values[measure][method]
    said = []
    if leads:
        said.append("best of its column")
    elif len(found.values) > 1:
        behind = words.difference(mean - means[best][measure])
        said.append(f"{behind} to {best}, {words.chance(p)}")
    if found.intervals is not None:
        low, high = found.intervals[method][measure]
        said.append(f"95 % interval {low:.4f} to {high:.4f}")
    lower = method != best and p < found.level
    return Figure(words.mean(mean), mean, leads, "*" if lower else "", "; ".join(said))


def _rank(value: float | None) -> tuple[bool, float]:
    return value is None, -(value or 0.0)
