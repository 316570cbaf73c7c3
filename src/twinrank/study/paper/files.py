"""The files that a reproduction leaves: tables, figures, values per query, settings, the report.

OUT/tables/   table-4.txt, .md, .tex and .csv, …; architectures.*, correlations.*
OUT/figures/  figure-1.svg, .pdf and .png, …
OUT/per-query.npz, reproduction.json, report.html
OUT/study/    what was trained (see `results.py`)
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinrank.display.tables import Cell, Table
from twinrank.study.paper.figures import (
    correlation_csv,
    correlation_table,
    draw_figure_1,
    draw_figure_2,
)
from twinrank.study.paper.published import (
    EPOCHS,
    FEWEST_DOCUMENTS,
    FEWEST_RELEVANT,
    LEAST_HESSIAN,
    LEVEL,
    MEASURES,
)
from twinrank.study.paper.rank_error import RankError
from twinrank.study.paper.reproducing import CONVENTION, Found
from twinrank.study.paper.tables import architecture_csv, architecture_table
from twinrank.study.paper.writing import csv_text, write_tables
from twinrank.support.files import replacing
from twinrank.support.plurals import counted

_TITLES = {2: "Table 2: ranks by a sigmoid", 3: "Table 3: ranks by the twin-sigmoid"}
_OLD_LIGHTGBM = (
    "LambdaMART(L) can't be repeated exactly: LightGBM of 2020 cut the ideal DCG at 20 documents, "
    "which can't be set today."
)


def rank_error_table(number: int, cells: Sequence[RankError]) -> Table:
    """Table 2 or 3: measured beside published."""
    rows = [
        [
            Cell(one.method),
            Cell(f"{one.documents:,}"),
            *(Cell(f"{x:,.2f}") for x in (one.measured, one.standard_error, one.published)),
        ]
        for one in cells
        if one.table == number
    ]
    return Table(
        _TITLES[number], ["method", "documents", "measured L1", "± s.e.", "published"], rows
    )


def write_rank_errors(out: Path, number: int, cells: Sequence[RankError]) -> Table:
    """Write Table 2 or 3; gives it to be shown."""
    table = rank_error_table(number, cells)
    head = ["method", "documents", "measured", "standard_error", "published"]
    rows = ([getattr(one, name) for name in head] for one in cells if one.table == number)
    write_tables(out / "tables", f"table-{number}", [table], csv_text(head, rows))
    return table


def write_figure_1(out: Path) -> list[Path]:
    """The pictures of Figure 1."""
    folder = out / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    return draw_figure_1(folder / "figure-1")


def write_found(out: Path, found: Found) -> list[tuple[str, list[Table]]]:
    """Everything but the report; gives the tables by title, for the terminal and the report."""
    shown: list[tuple[str, list[Table]]] = []
    for one in found.tables:
        tables = one.tables()
        write_tables(out / "tables", f"table-{one.number}", tables, one.to_csv())
        shown.append((one.title, tables))
    if any(one.architecture for one in found.measured):
        table = architecture_table(found.measured, found.chosen)
        data = architecture_csv(found.measured, found.chosen)
        write_tables(out / "tables", "architectures", [table], data)
        shown.append(("Architectures", [table]))
    if found.panels:
        (out / "figures").mkdir(parents=True, exist_ok=True)
        draw_figure_2(out / "figures" / "figure-2", found.panels)
        table = correlation_table(found.panels)
        write_tables(out / "tables", "correlations", [table], correlation_csv(found.panels))
        shown.append(("Figure 2: rank correlations", [table]))
    if found.measured:
        _write_values(out / "per-query.npz", found)
    return shown


def _write_values(path: Path, found: Found) -> None:
    """Every method's values: [systems, measures, queries], with the names of each."""
    first = found.measured[0].evaluation
    assert first.query_ids is not None
    sets = (found.asked.source.sets(fold)["test"] for fold in found.asked.chosen_folds)
    folds = [np.full(d.queries, f) for f, d in zip(found.asked.chosen_folds, sets, strict=True)]
    values = np.stack([[one.evaluation.values[m] for m in MEASURES] for one in found.measured])
    with replacing(path) as partial, partial.open("wb") as file:
        np.savez_compressed(
            file,
            allow_pickle=False,
            systems=np.array([one.system for one in found.measured]),
            measures=np.array(MEASURES),
            queries=np.array([str(q) for q in first.query_ids]),
            folds=np.concatenate(folds),
            values=values,
        )


def notes_of(found: Found) -> list[str]:
    """What a reader has to know of how it was done."""
    asked = found.asked
    notes = []
    if asked.on_mslr:
        less = [f"{asked.epochs} epochs instead of {EPOCHS}"] if asked.epochs != EPOCHS else []
        less += [f"{counted(len(asked.chosen_folds), 'fold')} of 5"]
        if asked.epochs != EPOCHS or len(asked.chosen_folds) < 5:
            notes.append(f"Less was run than for the published numbers: {', '.join(less)}.")
        if 4 in asked.tables:
            notes.append(_OLD_LIGHTGBM)
    elif asked.tables:
        notes.append(
            "The data isn't MSLR-WEB30K: the protocol is the paper's, but its numbers don't "
            "compare."
        )
    if asked.least_hessian < LEAST_HESSIAN and (4 in asked.tables or asked.figure_2):
        notes.append(
            f"LambdaMART: the least hessian of a leaf, {LEAST_HESSIAN:g} in the paper, is "
            f"{asked.least_hessian:.3g} here, smaller as the data is."
        )
    incomplete = [
        name
        for name in (found.results[-1].study.method_names if asked.methods else [])
        if name not in found.results[-1].methods
    ]
    if incomplete:
        notes.append(f"Left out, because a training failed: {', '.join(incomplete)}.")
    return notes + [f"Failed: {one}" for one in found.failures]


def write_settings(out: Path, found: Found, command: str) -> dict[str, Any]:
    """reproduction.json: what was run on what, with which versions, and what came out."""
    asked = found.asked
    units = [unit for results in found.results for unit in results.units]
    versions: dict[str, str] = {}
    for unit in units:
        versions |= unit.versions
    about: dict[str, Any] = {
        "command": command,
        "source": json.loads(asked.source.to_text()),
        "data": data_summary(found),
        "mslr_web30k": asked.on_mslr,
        "tables": list(asked.tables),
        "figure_2": asked.figure_2,
        "folds": list(asked.chosen_folds),
        "epochs": asked.epochs,
        "architectures": "paper" if asked.architectures is None else list(asked.architectures),
        "seeds": [asked.seed],
        "convention": CONVENTION,
        "level": LEVEL,
        "versions": versions,
        "parameters": {unit.unit.method: dict(unit.unit.parameters) for unit in units},
        "systems": [
            {
                "system": one.system,
                "chosen": found.chosen[one.method] is one,
                "validation": one.validation,
                "tied_pairs": one.tied_pairs,
                "means": one.evaluation.means,
            }
            for one in found.measured
        ],
        "correlations": {panel.system: _known(panel.correlations) for panel in found.panels},
        "notes": notes_of(found),
    }
    with replacing(out / "reproduction.json") as partial:
        partial.write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return about


def _known(values: dict[str, float]) -> dict[str, float | None]:
    return {name: None if np.isnan(value) else value for name, value in values.items()}


def data_summary(found: Found) -> dict[str, str]:
    """What the data is, after the filter."""
    asked = found.asked
    sets = asked.source.sets(asked.chosen_folds[0])
    sizes = {
        part: f"{counted(data.queries, 'query')}, {counted(data.documents, 'document')}"
        for part, data in sets.items()
    }
    return {
        "name": asked.source.name,
        "features": str(sets["train"].features),
        **{f"{part}, fold {asked.chosen_folds[0]}": text for part, text in sizes.items()},
        "queries kept": f"those with {FEWEST_DOCUMENTS} documents and {FEWEST_RELEVANT} relevant "
        "or more",
    }
