"""The HTML report of twinrank evaluate --clicks: estimates beside click-through by position."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from twinrank.cli.output_options import command_line
from twinrank.experiments.report.report_content import ReportContent
from twinrank.experiments.report.report_page import write_report
from twinrank.experiments.report.svg import svg_axes
from twinrank.support.plots import COLOURS, use_whole_numbers
from twinrank.support.quantities import counted
from twinrank.support.tables import Cell, ResultTable
from twinrank.support.versions import versions

if TYPE_CHECKING:
    from twinrank.clicks.click_log import ClickLog
    from twinrank.clicks.log_evaluation import LogEvaluation
    from twinrank.clicks.propensities import Propensities

_SIZE = (5.0, 3.0)
_ASSUMPTIONS = (
    "Estimates from clicks assume that a user sees a position with a probability that depends on "
    "the position only. An online experiment needs no such assumption."
)


def write_click_report(
    path: Path, result: "LogEvaluation", log: "ClickLog", propensities: "Propensities | None"
) -> None:
    """Write the report of an evaluation on a log of clicks."""
    summary, systems = log.summary, list(result.estimates)
    content = ReportContent(
        title=f"{counted(len(systems), 'system')} by clicks",
        headline=_headline(result),
        data_summary=summary.lines(),
        command=command_line(),
        versions=versions(),
        notes=[_ASSUMPTIONS],
        tables=[
            ("Estimates", result.table()),
            ("Clicks by position", _by_position(summary.click_rates, propensities)),
        ],
        figures=[
            *(_estimates(result, measure) for measure in result.measures),
            _click_through(summary.click_rates, propensities),
        ],
    )
    write_report(path, content)


def _headline(result: "LogEvaluation") -> str:
    """The estimate of the only system, or the difference of the best one and the first."""
    measure, systems = result.measures[0], list(result.estimates)
    if len(systems) == 1:
        return f"{measure} of {systems[0]} is {result.estimates[systems[0]][measure]}."
    best = max(systems, key=lambda name: result.estimates[name][measure].value)
    if best == systems[0]:
        return f"{best}: {measure} is {result.estimates[best][measure]}, the highest estimate."
    change = result.difference(best, systems[0], measure)
    return f"{best} − {systems[0]}: {measure} differs by {change}."


def _by_position(rates: list[float], propensities: "Propensities | None") -> ResultTable:
    columns = ["position", "click-through"]
    seen = [] if propensities is None else list(propensities.values)
    if seen:
        columns.append("propensity")
    rows = []
    for i, rate in enumerate(rates):
        row = [Cell(str(i + 1)), Cell(f"{rate:.4f}")]
        if seen:
            row.append(Cell(f"{seen[i]:.4f}" if i < len(seen) else "–"))
        rows.append(row)
    notes = [] if propensities is None else [f"Propensities: {propensities.method}."]
    return ResultTable("Clicks by position", columns, rows, notes)


def _estimates(result: "LogEvaluation", measure: str) -> tuple[str, str, str]:
    """The estimates of a measure with their intervals."""
    names = list(result.estimates)
    found = [result.estimates[name][measure] for name in names]
    values = np.array([each.value for each in found])
    errors = np.array(
        [[each.value - each.low for each in found], [each.high - each.value for each in found]]
    )
    with svg_axes((_SIZE[0], 1.0 + 0.35 * len(names))) as ((axes,), drawn):
        axes.errorbar(values, range(len(names)), xerr=np.maximum(errors, 0), fmt="o",
                      color=COLOURS[0], capsize=3)  # fmt: skip
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xlabel(measure)
    about = "; ".join(f"{name} {each}" for name, each in zip(names, found, strict=True))
    return f"{measure}, with 95 % intervals", drawn.svg, f"{measure} by system: {about}."


def _click_through(rates: list[float], propensities: "Propensities | None") -> tuple[str, str, str]:
    """Click-through by position, and what position bias alone would make of the first rate."""
    positions = np.arange(1, len(rates) + 1)
    with svg_axes(_SIZE) as ((axes,), drawn):
        axes.plot(positions, rates, marker="o", color=COLOURS[0], label="click-through")
        if propensities is not None:
            seen: Any = np.array(propensities.values[: len(rates)])
            axes.plot(positions[: seen.size], rates[0] * seen / seen[0], linestyle="--",
                      color=COLOURS[1], label="equal documents, by position bias")  # fmt: skip
            axes.legend(frameon=False)
        axes.set_ylim(0, None)
        use_whole_numbers(axes.xaxis)
        axes.set_xlabel("position")
    shown = ", ".join(f"{rate:.3f}" for rate in rates[:10])
    about = f"The share of displays with a click, from position 1: {shown}."
    return "Click-through by position", drawn.svg, about
