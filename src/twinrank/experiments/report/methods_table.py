"""The table of results: methods by measures, with differences and p-values as tooltips."""

import math
from dataclasses import dataclass, replace

from twinrank.evaluation.comparison import Comparison
from twinrank.experiments.report.content import ReportContent


@dataclass(frozen=True)
class ResultCell:
    """The mean of one method and measure."""

    text: str
    value: float | None
    """The key for sorting; None comes last."""
    best: bool
    mark: str
    tooltip: str


@dataclass(frozen=True)
class ResultRow:
    """The means of one method."""

    method: str
    cells: list[ResultCell]


@dataclass(frozen=True)
class ResultTable:
    """The table of results, sorted by one measure."""

    measures: list[str]
    sorted_by: str
    rows: list[ResultRow]
    notes: list[str]

    @property
    def longest_name(self) -> int:
        """The number of letters of the longest method, for the width of its column."""
        return max(len(row.method) for row in self.rows)


def result_table(content: ReportContent) -> ResultTable | None:
    """The table of a report; None if nothing was compared."""
    comparison = content.results
    if comparison is None:
        return None
    means, measures = comparison.means, comparison.measures
    sorted_by = content.main_measure if content.main_measure in measures else measures[0]
    best = {name: comparison.best(name) for name in measures}
    rows = [
        ResultRow(method, [_cell(comparison, method, name, means, best[name]) for name in measures])
        for method in comparison.values
    ]
    column = measures.index(sorted_by)
    rows.sort(key=lambda row: _sort_key(row.cells[column].value))
    table = replace(comparison, intervals=None).table()  # the tooltips have the intervals
    best_note = f"Bold: {table.about_best}." if table.about_best else ""
    return ResultTable(
        measures, sorted_by, rows, [note for note in (best_note, *table.notes) if note]
    )


def _cell(
    comparison: Comparison,
    method: str,
    measure: str,
    means: dict[str, dict[str, float]],
    best: str,
) -> ResultCell:
    mean = means[method][measure]
    if math.isnan(mean):
        return ResultCell("–", None, False, "", "no query has a value")
    is_best = mean == means[best][measure]
    p = comparison.p_values[measure][method]
    tooltip = []
    if is_best:
        tooltip.append("best of its column")
    elif len(comparison.values) > 1:
        difference = format_difference(mean - means[best][measure])
        tooltip.append(f"{difference} compared with {best}, {format_p_value(p)}")
    if comparison.intervals is not None:
        low, high = comparison.intervals[method][measure]
        tooltip.append(f"95 % confidence interval {low:.4f} to {high:.4f}")
    mark = "*" if method != best and p < comparison.level else ""
    return ResultCell(format_mean(mean), mean, is_best, mark, "; ".join(tooltip))


def _sort_key(value: float | None) -> tuple[bool, float]:
    return value is None, -(value or 0.0)


def format_p_value(p: float) -> str:
    """A p-value.

    >>> format_p_value(0.0312), format_p_value(1e-9), format_p_value(1.0)
    ('p = 0.031', 'p < 0.0001', 'p = 1')
    """
    if math.isnan(p):
        return "p unknown"
    return "p < 0.0001" if p < 1e-4 else f"p = {p:.2g}"


def format_mean(value: float) -> str:
    """A mean, or a dash for NaN."""
    return "–" if math.isnan(value) else f"{value:.4f}"


def format_difference(value: float) -> str:
    """A difference with its sign.

    >>> format_difference(0.01234), format_difference(-0.5), format_difference(0.0)
    ('+0.0123', '−0.5000', '0.0000')
    """
    text = f"{value:+.4f}".replace("-", "−")
    return text[1:] if float(f"{value:.4f}") == 0 else text
