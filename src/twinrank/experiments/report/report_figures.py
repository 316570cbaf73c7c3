"""The figures of a report: training curves, and measures by cutoff and by group of queries.

Each figure fits a phone; a wide screen shows several in a row. The names of methods and measures
are text of the page, outside the figures.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinrank.evaluation.evaluation_values import mean_of
from twinrank.experiments.report.report_content import Record, ReportContent
from twinrank.experiments.report.svg import SERIES, inline_svg, svg_axes
from twinrank.support.arrays import Floats, Ints
from twinrank.support.plots import COLOURS, use_whole_numbers

LINE_STYLES: tuple[Any, ...] = ("solid", (0, (4, 2)), (0, (1, 1.2)))
_WIDTH = 3.6  # inches, so that text of 9 points is readable on a phone
_MAX_POINTS = 90  # per line; more are not visible
_MAX_RUNS = 12  # thin lines per method
_NOT_SETS = ("iteration", "loss", "learning_rate", "seconds")
SETS = ("validation", "train", "test")
_CORNER = {"ha": "right", "va": "top", "color": "#666666"}


@dataclass(frozen=True)
class Lines:
    """A line per method over common positions on the x-axis."""

    ticks: Sequence[str]
    values: Mapping[str, Sequence[float]]  # by method
    x_label: str


def sets_of(histories: Mapping[str, Sequence[Sequence[Record]]]) -> list[str]:
    """The names of the evaluation sets in any record, validation, train and test first."""
    names = dict.fromkeys(
        name
        for runs in histories.values()
        for history in runs
        for record in history
        for name, value in record.items()
        if name not in _NOT_SETS and _is_number(value)
    )
    return sorted(names, key=lambda name: SETS.index(name) if name in SETS else len(SETS))


def limits(histories: Mapping[str, Sequence[Sequence[Record]]]) -> tuple[float, float]:
    """The common limits of the y-axis, so that curves can be compared.

    The first tenth of each training run is ignored, since its values can be far lower.
    """
    sets, values = sets_of(histories), []
    for runs in histories.values():
        for history in runs:
            late = history[len(history) // 10 :]
            values += [r[name] for r in late for name in sets if _is_number(r.get(name))]
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    margin = 0.06 * (high - low) or 0.05
    return low - margin, high + margin


def draw_curves(
    runs: Sequence[Sequence[Record]],
    sets: Sequence[str],
    bounds: tuple[float, float],
    prefix: str,
) -> str:
    """The training curves of a method: the measure on each set and, if recorded, the loss."""
    recorded = [name for name in sets if any(_line(run, name)[0].size for run in runs)]
    has_loss = any(_line(run, "loss")[0].size for run in runs)
    rows = bool(recorded) + has_loss
    if not rows:
        return ""
    with svg_axes((_WIDTH, 0.5 + 1.35 * rows), rows) as (axes, drawing):
        if recorded:
            for name in recorded:
                colour = COLOURS[sets.index(name) % len(COLOURS)]
                _draw_runs(axes[0], [_line(run, name) for run in runs], colour)
            axes[0].set(ylim=bounds)
        if has_loss:
            _draw_runs(axes[-1], [_line(run, "loss") for run in runs], "#666666")
            axes[-1].text(0.99, 0.98, "loss", **_CORNER, transform=axes[-1].transAxes)
        axes[-1].set_xlabel("iteration")
        for panel in axes:
            use_whole_numbers(panel.xaxis)
            panel.locator_params(axis="y", nbins=4)
            panel.grid(visible=False, axis="x")
        if rows == 2:
            axes[0].sharex(axes[1])
            axes[0].tick_params(labelbottom=False)
    return inline_svg(drawing.svg, prefix)


def draw_lines(lines: Lines, methods: Sequence[str], prefix: str, cutoffs: bool = False) -> str:
    """A line per method over groups, or over cutoffs on a logarithmic scale."""
    x = [float(tick) for tick in lines.ticks] if cutoffs else range(len(lines.ticks))
    with svg_axes((_WIDTH, 2.6)) as ((axes,), drawing):
        for name, values in lines.values.items():
            number = methods.index(name)
            (line,) = axes.plot(
                x, values, **_line_style(number), marker="o", markersize=3, linewidth=1.4
            )
            line.set_gid(f"{SERIES}{number}")
        if cutoffs:
            axes.set_xscale("log")
        axes.minorticks_off()
        axes.set_xticks(x, list(lines.ticks))
        axes.set_xlabel(lines.x_label)
        axes.locator_params(axis="y", nbins=5)
        axes.grid(visible=False, axis="x")
    return inline_svg(drawing.svg, prefix, dict(enumerate(methods)))


def _line_style(number: int) -> dict[str, Any]:
    """The colour and dashes of a method by its number; 18 methods look different."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": LINE_STYLES[number // len(COLOURS) % len(LINE_STYLES)],
    }


def _draw_runs(axes: Any, lines: Sequence[tuple[Floats, Floats]], colour: str) -> None:
    """Thin lines for training runs and a thick line for their mean over common iterations."""
    lines = [(x, y) for x, y in lines if x.size]
    if not lines:
        return
    marker = "o" if max(x.size for x, _ in lines) == 1 else None
    if len(lines) > 1:
        for x, y in lines[:_MAX_RUNS]:
            axes.plot(*_thinned(x, y), color=colour, linewidth=0.6, alpha=0.45, marker=marker)
    common = lines[0][0]
    for x, _ in lines[1:]:
        common = np.intersect1d(common, x)
    if common.size:
        mean = np.mean([y[np.isin(x, common)] for x, y in lines], axis=0)
        axes.plot(*_thinned(common, mean), color=colour, linewidth=1.7, marker=marker, markersize=4)


def _line(history: Sequence[Record], name: str) -> tuple[Floats, Floats]:
    """The iterations of a history, and the recorded values."""
    values = {
        float(record["iteration"]): float(record[name])
        for record in history
        if _is_number(record.get(name))
    }
    return np.array(sorted(values)), np.array([values[x] for x in sorted(values)])


def _thinned(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    if x.size <= _MAX_POINTS:
        return x, y
    kept = np.unique(np.linspace(0, x.size - 1, _MAX_POINTS).astype(int))
    return x[kept], y[kept]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and bool(np.isfinite(value))


_CUTOFF = re.compile(r"(?P<name>.+)@(?P<cutoff>\d+)")
_MAX_GRADES = 8  # more distinct labels than this are grouped by quartile


def by_cutoff(content: ReportContent) -> dict[str, Lines]:
    """The means of every measure that has several cutoffs, by the name of the measure."""
    families: dict[str, dict[int, str]] = {}
    for measure in content.measures:
        if match := _CUTOFF.fullmatch(measure):
            families.setdefault(match["name"], {})[int(match["cutoff"])] = measure
    lines = {}
    for name, by_k in families.items():
        cutoffs = sorted(by_k)
        means = {
            method: [mean_of(values[by_k[k]]) for k in cutoffs]
            for method, values in content.values.items()
        }
        if len(cutoffs) > 1:
            lines[name] = Lines([str(k) for k in cutoffs], means, "cutoff")
    return lines


def by_length(content: ReportContent) -> Lines | None:
    """The mean of the main measure by quartile of list length."""
    if content.list_sizes is None or not content.values:
        return None
    sizes = np.asarray(content.list_sizes)
    if not sizes.size:
        return None
    bounds = np.unique(np.quantile(sizes, [0.25, 0.5, 0.75], method="inverted_cdf"))
    groups = np.searchsorted(bounds, sizes, side="left")  # a bound belongs to the group below
    names = {}
    for group in np.unique(groups):
        low, high = sizes[groups == group].min(), sizes[groups == group].max()
        names[int(group)] = f"{low:,}" if low == high else f"{low:,}–{high:,}"
    return _grouped(content, groups, names, "documents in the list")


def by_grade(content: ReportContent) -> Lines | None:
    """The mean of the main measure by the highest label of the list."""
    if content.list_grades is None or not content.values:
        return None
    highest = np.asarray(content.list_grades, np.float64)
    grades = np.unique(highest)
    if not grades.size:
        return None
    if grades.size > _MAX_GRADES:
        grades = np.unique(np.quantile(highest, [0.25, 0.5, 0.75, 1], method="inverted_cdf"))
        names = {i: f"≤ {grade:g}" for i, grade in enumerate(grades)}
    else:
        names = {i: f"{grade:g}" for i, grade in enumerate(grades)}
    return _grouped(content, np.searchsorted(grades, highest), names, "highest label in the list")


def _grouped(
    content: ReportContent, groups: Ints, names: Mapping[int, str], x_label: str
) -> Lines | None:
    """Means of groups of queries; groups for which no method has a value are left out."""
    measure = content.main_measure
    if not measure:
        return None
    means = {
        method: [mean_of(values[measure][groups == group]) for group in names]
        for method, values in content.values.items()
    }
    has_value = ~np.isnan(np.array(list(means.values()))).all(axis=0)
    if not has_value.any():
        return None
    kept = np.flatnonzero(has_value)
    counts = [int((groups == group).sum()) for group in names]
    labels = [f"{name}\n({count:,})" for name, count in zip(names.values(), counts, strict=True)]
    return Lines(
        [labels[i] for i in kept],
        {method: [values[i] for i in kept] for method, values in means.items()},
        f"{x_label} (queries)",
    )
