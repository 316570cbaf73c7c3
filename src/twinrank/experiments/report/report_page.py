"""`write_report`: a report as one self-contained HTML file."""

import base64
import hashlib
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from twinrank.evaluation.comparison import Comparison
from twinrank.evaluation.evaluation_values import mean_of
from twinrank.experiments.report.query_gains import HEIGHT, WIDTH, gain_plots
from twinrank.experiments.report.query_rankings import DEPTH, as_json
from twinrank.experiments.report.report_content import Record, ReportContent
from twinrank.experiments.report.report_figures import (
    Lines,
    by_cutoff,
    by_grade,
    by_length,
    draw_curves,
    draw_lines,
    limits,
    sets_of,
)
from twinrank.experiments.report.svg import inline_svg
from twinrank.support.files import replacing
from twinrank.support.plots import COLOURS
from twinrank.support.quantities import counted, format_bytes, format_seconds
from twinrank.support.tables import Cell, ResultTable

if TYPE_CHECKING:
    from jinja2 import Template

_DASHES = ("", "6 3", "1.5 2")  # LINE_STYLES of the figures, for the legend


@dataclass(frozen=True)
class ReportFigure:
    """A figure with its title, a description for screen readers, and its values."""

    title: str
    svg: str
    description: str
    lines: Lines | None = None


def write_report(path: str | os.PathLike[str], content: ReportContent) -> None:
    """Write a report as one HTML file; if that fails, an existing file stays unchanged."""
    page = render(content)
    with replacing(Path(path)) as partial:
        partial.write_bytes(page.encode("utf-8", "backslashreplace"))


def render(content: ReportContent) -> str:
    """The HTML of a report. The same content gives the same page."""
    script = _file("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return _template().render(
        content=content,
        style=_file("page.css"),
        script=script,
        script_hash=f"sha256-{digest}",
        results=result_table(content),
        gains=gain_plots(content),
        gain_size=(WIDTH, HEIGHT),
        query_data=_query_data(content),
        query_pair=_query_pair(content),
        depth=DEPTH,
        cutoffs=list(_cutoff_panels(content)),
        groups=list(_group_panels(content)),
        curves=list(_curve_panels(content)),
        sets=sets_of(content.curves),
        losses=any("loss" in record for record in _records(content)),
        costs=_costs(content),
        tables=[_split(title, table) for title, table in content.tables],
        figures=[
            ReportFigure(title, inline_svg(svg, f"extra-{i}-"), description)
            for i, (title, svg, description) in enumerate(content.figures)
        ],
        legend_style=_legend_style,
        format_mean=format_mean,
        format_difference=format_difference,
        format_p_value=format_p_value,
        counted=counted,
    )


def _query_data(content: ReportContent) -> str:
    """The queries to explore as JSON; empty if there are none, or fewer than two methods."""
    methods = _with_values(content)
    if not content.queries or len(methods) < 2:
        return ""
    return as_json(content.queries, methods, content.feature_names, content.main_measure)


def _query_pair(content: ReportContent) -> tuple[int, int]:
    """The numbers of the methods that are compared first: the baseline, and the best other one."""
    methods, measure = _with_values(content), content.main_measure
    if len(methods) < 2:
        return 0, 1
    first = methods.index(content.baseline) if content.baseline else 0
    others = [i for i in range(len(methods)) if i != first]
    means = [mean_of(content.values[name][measure]) for name in methods]
    return first, max(others, key=lambda i: means[i])


def _with_values(content: ReportContent) -> list[str]:
    return [name for name in content.methods if name in content.values]


@cache
def _file(name: str) -> str:
    """The text of a template file."""
    return (
        resources.files("twinrank.experiments.report")
        .joinpath("templates", name)
        .read_text("utf-8")
    )


@cache
def _template() -> "Template":
    """The template of the page; it escapes every value that is not marked as safe."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("twinrank.experiments.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2")


def _records(content: ReportContent) -> Iterator[Record]:
    """All records of all training runs."""
    return (record for runs in content.curves.values() for run in runs for record in run)


def _cutoff_panels(content: ReportContent) -> Iterator[ReportFigure]:
    for i, (name, lines) in enumerate(by_cutoff(content).items()):
        svg = draw_lines(lines, content.methods, f"cutoff-{i}-", cutoffs=True)
        yield ReportFigure(name, svg, _describe(f"Mean {name} by cutoff", lines), lines)


def _group_panels(content: ReportContent) -> Iterator[ReportFigure]:
    for i, (title, lines) in enumerate(
        (("By list length", by_length(content)), ("By highest label", by_grade(content)))
    ):
        if lines is not None:
            svg = draw_lines(lines, content.methods, f"group-{i}-")
            yield ReportFigure(title, svg, _describe(f"Mean {content.main_measure}", lines), lines)


def _describe(title: str, lines: Lines) -> str:
    """A sentence about a figure: the best method at the first and at the last tick."""
    leaders = []
    for i in dict.fromkeys((0, len(lines.ticks) - 1)):
        means = {m: v[i] for m, v in lines.values.items() if not np.isnan(v[i])}
        if means:
            best = max(means, key=lambda method: means[method])
            tick = " ".join(lines.ticks[i].split())
            leaders.append(f"at {tick} the best is {best} with {means[best]:.4f}")
    return f"{title}, {counted(len(lines.values), 'method')}: {'; '.join(leaders)}."


def _curve_panels(content: ReportContent) -> Iterator[ReportFigure]:
    sets, bounds = sets_of(content.curves), limits(content.curves)
    for i, (method, runs) in enumerate(content.curves.items()):
        if svg := draw_curves(runs, sets, bounds, f"curve-{i}-"):
            sentences = [_describe_curve(method, runs, name) for name in (*sets, "loss")]
            yield ReportFigure(method, svg, ". ".join(filter(None, sentences)) + ".")


def _describe_curve(method: str, runs: Sequence[Sequence[Record]], name: str) -> str:
    """The first and the last value of a curve, averaged over the training runs."""
    ends = []
    for run in runs:
        values = [record[name] for record in run if record.get(name) is not None]
        if values:
            ends.append((values[0], values[-1]))
    if not ends:
        return ""
    first, last = np.mean(ends, axis=0)
    return (
        f"{method}, {name}: from {first:.4f} to {last:.4f} ({counted(len(ends), 'training run')})"
    )


def _costs(content: ReportContent) -> list[dict[str, Any]]:
    """Time and memory by method, as text and as percentages of the largest."""
    rows = []
    for method in content.methods:
        if method in content.seconds or method in content.memory:
            row: dict[str, Any] = {"method": method}
            for key, source, as_text in (
                ("time", content.seconds, format_seconds),
                ("memory", content.memory, format_bytes),
            ):
                value = float(source.get(method, float("nan")))
                largest = max((v for v in source.values() if np.isfinite(v)), default=0.0)
                share = 100 * value / largest if largest > 0 and np.isfinite(value) else 0.0
                row[key] = {
                    "text": as_text(value),
                    "value": value if np.isfinite(value) else None,
                    "share": f"{share:.1f}",
                }
            rows.append(row)
    return rows


def _split(title: str, table: ResultTable) -> dict[str, Any]:
    """A table and its notes, separated so that only the table scrolls; `to_html` escapes them."""
    from markupsafe import Markup

    untitled = replace(table, title="") if table.title == title else table
    html, _, notes = untitled.to_html().partition("</table>")
    return {"title": title, "table": Markup(html + "</table>"), "notes": Markup(notes)}


def _legend_style(number: int) -> dict[str, Any]:
    """The colour and dashes of a method in the legend."""
    cycle, colour = divmod(number, len(COLOURS))
    return {"colour": colour, "dashes": _DASHES[cycle % len(_DASHES)]}


@dataclass(frozen=True)
class ResultCell(Cell):
    """The mean of one method and measure."""

    value: float | None = None
    """The key for sorting; None comes last."""
    tooltip: str = ""


@dataclass(frozen=True)
class MethodsTable:
    """The table of results, sorted by one measure."""

    measures: list[str]
    sorted_by: str
    rows: dict[str, list[ResultCell]]
    """The means by method."""
    notes: list[str]

    @property
    def longest_name(self) -> int:
        """The number of letters of the longest method, for the width of its column."""
        return max(map(len, self.rows))


def result_table(content: ReportContent) -> MethodsTable | None:
    """The table of a report; None if nothing was compared."""
    comparison = content.results
    if comparison is None:
        return None
    measures, means = comparison.measures, comparison.means
    sorted_by = content.main_measure if content.main_measure in measures else measures[0]
    table = replace(comparison, intervals=None).table()  # the tooltips have the intervals
    rows = {}
    for method, (_, *cells) in zip(comparison.values, table.rows, strict=True):
        rows[method] = [
            ResultCell(
                cell.text,
                cell.best,
                cell.mark,
                None if math.isnan(means[method][measure]) else means[method][measure],
                _tooltip(comparison, means, method, measure),
            )
            for measure, cell in zip(measures, cells, strict=True)
        ]
    order = np.argsort([-means[method][sorted_by] for method in rows], kind="stable")
    notes = [*([f"Bold: {table.about_best}."] if table.about_best else []), *table.notes]
    names = list(rows)
    return MethodsTable(measures, sorted_by, {names[i]: rows[names[i]] for i in order}, notes)


def _tooltip(
    comparison: Comparison, means: dict[str, dict[str, float]], method: str, measure: str
) -> str:
    """The difference of a mean from the best of its column, and its confidence interval."""
    best = comparison.best(measure)
    mean, highest = means[method][measure], means[best][measure]
    if math.isnan(mean):
        return "no query has a value"
    parts = []
    if mean == highest:
        parts.append("best of its column")
    elif len(means) > 1:
        p = format_p_value(comparison.p_values[measure][method])
        parts.append(f"{format_difference(mean - highest)} compared with {best}, {p}")
    if comparison.intervals is not None:
        low, high = comparison.intervals[method][measure]
        parts.append(f"95 % confidence interval {low:.4f} to {high:.4f}")
    return "; ".join(parts)


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
