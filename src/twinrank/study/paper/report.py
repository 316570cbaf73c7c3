"""The report of a reproduction: the paper's tables and figures on one page."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinrank.display.tables import Table
from twinrank.evaluation.comparison import compare
from twinrank.report.content import ReportContent
from twinrank.study.paper.files import data_summary, notes_of
from twinrank.study.paper.published import LEVEL, VALIDATION
from twinrank.study.paper.reproducing import Found
from twinrank.study.paper.tables import Measured, signed

_ALT_1 = (
    "Three panels: the sigmoid for three steepnesses; its derivative, higher and narrower the "
    "steeper it is; the twin-sigmoid, a step, with the gradients of type1, type2 and type3."
)
_ALT_2 = (
    "A panel per method: what is optimised on the training data and nDCG@5 on validation and test "
    "data, by epoch or tree. The table of rank correlations says how far they agree."
)


def report_of(
    found: Found, out: Path, tables: Sequence[tuple[str, Sequence[Table]]], about: Mapping[str, Any]
) -> ReportContent:
    """The page's content; `about` is what `write_settings` wrote, `tables` what is shown."""
    chosen = {one.system: one for one in found.chosen.values()}
    names = {_trained(one): system for system, one in chosen.items()}
    evaluations = {system: one.evaluation for system, one in chosen.items()}
    units = {system: found.units_of(name) for name, system in names.items()}
    last = found.results[-1]
    asked = found.asked
    return ReportContent(
        title="Optimize What You Evaluate With (Yu 2020), reproduced",
        headline=headline(found),
        data_summary=list(data_summary(found).items()),
        settings=[
            ("tables", ", ".join(map(str, asked.tables)) or "none"),
            ("folds", ", ".join(map(str, asked.chosen_folds))),
            ("epochs", str(asked.epochs)),
            ("architectures", str(about["architectures"])),
            ("seed", str(asked.seed)),
            ("mode", "paper"),
        ],
        command=str(about["command"]),
        versions=about["versions"],
        comparison=compare(evaluations, level=LEVEL) if evaluations else None,
        evaluations=evaluations,
        curves={system: [unit.history for unit in of] for system, of in units.items()},
        list_sizes=last.list_sizes if evaluations else None,
        list_grades=last.list_grades if evaluations else None,
        seconds={system: sum(unit.seconds for unit in of) for system, of in units.items()},
        memory={
            system: float(max(unit.peak_memory_bytes for unit in of))
            for system, of in units.items()
        },
        notes=notes_of(found),
        figures=_figures(out),
        tables=[(table.title or title, table) for title, several in tables for table in several],
        measure=VALIDATION if evaluations else "",
        validation_measure=VALIDATION,
    )


def _trained(one: Measured) -> str:
    """The name that it was trained under."""
    return "LambdaMART" if one.architecture is None else one.system


def headline(found: Found) -> str:
    """What came out, in a sentence or two."""
    if not found.tables:
        return "How training goes, method by method."
    best = max(found.chosen.values(), key=lambda one: one.evaluation[VALIDATION])
    said = f"Best in {VALIDATION}: {best.system}, {best.evaluation[VALIDATION]:.4f}."
    if not found.asked.on_mslr:
        return said
    off = float(np.mean([one.distance() for one in found.tables]))
    return f"{said} On average {signed(off)[1:]} from the published numbers."


def _figures(out: Path) -> list[tuple[str, str, str]]:
    """Pictures as they are in the folder."""
    known = (
        ("Figure 1: sigmoid and twin-sigmoid", "figure-1", _ALT_1),
        ("Figure 2: how training goes", "figure-2", _ALT_2),
    )
    paths = [(title, out / "figures" / f"{name}.svg", alt) for title, name, alt in known]
    return [(title, p.read_text("utf-8"), alt) for title, p, alt in paths if p.is_file()]
