"""`write_report`: everything found, as one HTML file that opens anywhere and loads nothing."""

import base64
import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from twinrank.data.table import counted
from twinrank.display.plots import COLOURS
from twinrank.display.tables import Table
from twinrank.report import words
from twinrank.report.breakdowns import by_cutoff, by_grade, by_length
from twinrank.report.content import Record, ReportContent
from twinrank.report.query_gains import HEIGHT, WIDTH, gains_of
from twinrank.report.report_figures import Lines, draw_curves, draw_lines, limits, sets_of
from twinrank.report.result_table import standing_of
from twinrank.report.svg import inlined
from twinrank.support.files import replacing

if TYPE_CHECKING:
    from jinja2 import Template

_DASHES = ("", "6 3", "1.5 2")  # as figures.STYLES, for the lines of the legend


@dataclass(frozen=True)
class Panel:
    """A picture with its title, what it shows in words, and its figures."""

    title: str
    svg: str
    said: str
    lines: Lines | None = None


def write_report(path: str | os.PathLike[str], content: ReportContent) -> None:
    """Write a report as one self-contained HTML file, which appears whole or not at all."""
    page = render(content)
    with replacing(Path(path)) as partial:
        partial.write_bytes(page.encode("utf-8", "backslashreplace"))


def render(content: ReportContent) -> str:
    """The page as text. The same content gives the same page."""
    script = _file("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return _template().render(
        content=content,
        style=_file("page.css"),
        script=script,
        script_hash=f"sha256-{digest}",
        standing=standing_of(content),
        gains=gains_of(content),
        gain_size=(WIDTH, HEIGHT),
        cutoffs=list(_cutoff_panels(content)),
        kinds=list(_kind_panels(content)),
        curves=list(_curve_panels(content)),
        sets=sets_of(content.curves),
        losses=any("loss" in record for record in _records(content)),
        costs=_costs(content),
        tables=[_split(title, table) for title, table in content.tables],
        figures=[
            Panel(title, inlined(svg, f"extra-{i}-"), said)
            for i, (title, svg, said) in enumerate(content.figures)
        ],
        look=_look,
        words=words,
        counted=counted,
    )


@cache
def _file(name: str) -> str:
    """One of our own files, which holds nothing of the data."""
    return resources.files("twinrank.report").joinpath("templates", name).read_text("utf-8")


@cache
def _template() -> "Template":
    """The page; every value in it is escaped unless it is marked as safe there."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("twinrank.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return made.get_template("page.html.j2")


def _records(content: ReportContent) -> Iterator[Record]:
    """What was noted in any epoch or round of any training."""
    return (record for units in content.curves.values() for unit in units for record in unit)


def _cutoff_panels(content: ReportContent) -> Iterator[Panel]:
    for i, (name, lines) in enumerate(by_cutoff(content).items()):
        svg = draw_lines(lines, content.methods, f"cutoff-{i}-", cutoffs=True)
        yield Panel(name, svg, _said(f"Mean {name} by cutoff", lines), lines)


def _kind_panels(content: ReportContent) -> Iterator[Panel]:
    for i, (title, lines) in enumerate(
        (("By length of the list", by_length(content)), ("By highest label", by_grade(content)))
    ):
        if lines is not None:
            svg = draw_lines(lines, content.methods, f"kind-{i}-")
            yield Panel(title, svg, _said(f"Mean {content.main_measure}", lines), lines)


def _said(what: str, lines: Lines) -> str:
    """A picture of lines in a sentence: who leads, at the first and at the last place."""
    leaders = []
    for place in dict.fromkeys((0, len(lines.places) - 1)):
        known = {m: v[place] for m, v in lines.values.items() if not np.isnan(v[place])}
        if known:
            best = max(known, key=lambda method: known[method])
            at = " ".join(lines.places[place].split())
            leaders.append(f"at {at} {best} leads with {known[best]:.4f}")
    return f"{what}, {counted(len(lines.values), 'method')}: {'; '.join(leaders)}."


def _curve_panels(content: ReportContent) -> Iterator[Panel]:
    sets, bounds = sets_of(content.curves), limits(content.curves)
    for i, (method, units) in enumerate(content.curves.items()):
        if svg := draw_curves(units, sets, bounds, f"curve-{i}-"):
            told = [_course(method, units, name) for name in (*sets, "loss")]
            yield Panel(method, svg, ". ".join(filter(None, told)) + ".")


def _course(method: str, units: Sequence[Sequence[Record]], name: str) -> str:
    """From what to what a value went, on average over the trainings."""
    ends = []
    for unit in units:
        found = [record[name] for record in unit if record.get(name) is not None]
        if found:
            ends.append((found[0], found[-1]))
    if not ends:
        return ""
    first, last = np.mean(ends, axis=0)
    return f"{method}, {name}: from {first:.4f} to {last:.4f} ({counted(len(ends), 'training')})"


def _costs(content: ReportContent) -> list[dict[str, Any]]:
    """Time and memory by method, as words and as shares of the largest."""
    rows = []
    for method in content.methods:
        if method in content.seconds or method in content.memory:
            row: dict[str, Any] = {"method": method, "number": content.methods.index(method)}
            for key, source, word in (
                ("time", content.seconds, words.time),
                ("memory", content.memory, words.size),
            ):
                value = float(source.get(method, float("nan")))
                largest = max((v for v in source.values() if np.isfinite(v)), default=0.0)
                share = 100 * value / largest if largest > 0 and np.isfinite(value) else 0.0
                row[key] = {
                    "text": word(value),
                    "value": value if np.isfinite(value) else None,
                    "share": f"{share:.1f}",
                }
            rows.append(row)
    return rows


def _split(title: str, table: Table) -> dict[str, Any]:
    """A table and its notes apart, so that only the table scrolls; escaped by `to_html`."""
    from markupsafe import Markup

    shown = replace(table, title="") if table.title == title else table
    html, _, notes = shown.to_html().partition("</table>")
    return {"title": title, "table": Markup(html + "</table>"), "notes": Markup(notes)}


def _look(number: int) -> dict[str, Any]:
    """Colour and dashes of a method in the legend."""
    round_, colour = divmod(number, len(COLOURS))
    return {"colour": colour, "dashes": _DASHES[round_ % len(_DASHES)]}
