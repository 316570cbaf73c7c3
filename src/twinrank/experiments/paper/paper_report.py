"""The results of a reproduction: tables, figures, values per query, settings and the report.

OUT/tables/   table-4.txt, .md, .tex and .csv, …; architectures.*, correlations.*, claims.*
OUT/tables.md the command, the data, and the tables of the report in Markdown
OUT/figures/  figure-1.svg, .pdf and .png, …
OUT/per-query.npz, reproduction.json, report.html
OUT/study/    the finished trainings (see `study_folder.py`)
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from twinrank.evaluation.comparison import compare
from twinrank.experiments.paper.paper_claims import claim_csv, claim_table, claims_of
from twinrank.experiments.paper.paper_figures import (
    correlation_csv,
    correlation_table,
    draw_figure_1,
    draw_figure_2,
)
from twinrank.experiments.paper.paper_tables import architecture_csv, architecture_table, signed
from twinrank.experiments.paper.published import (
    AUTHORS_COST,
    EPOCHS,
    FEWEST_DOCUMENTS,
    FEWEST_RELEVANT,
    LEAST_HESSIAN,
    MSLR,
    PAPER_MEASURES,
    SIGNIFICANCE,
    VALIDATION,
    WASSRANK,
)
from twinrank.experiments.paper.rank_error import RankError
from twinrank.experiments.paper.reproduction import AUTHOR, CONVENTION, ReproductionResults
from twinrank.experiments.report.report_content import ReportContent
from twinrank.experiments.study.comparison_results import training_fields
from twinrank.support.files import replacing, write_json, write_text
from twinrank.support.quantities import counted
from twinrank.support.tables import Cell, ResultTable, csv_text, write_tables

_TITLES = {2: "Table 2: ranks by a sigmoid", 3: "Table 3: ranks by the twin-sigmoid"}
_OLD_LIGHTGBM = (
    "LambdaMART(L) cannot be repeated exactly: LightGBM of 2020 cut the ideal DCG at 20 documents, "
    "which cannot be set today."
)
_AUTHORS_CODE = (
    "Published numbers may follow the author's code (the rows ptranking) where it differs from the "
    "paper's text: in the columns @20, and in rows of R5, whose scores tie."
)
_HESSIAN = (
    "The direct objectives of Table 8 have the same trees as LambdaMART(L), also in the least "
    "hessian of a leaf. Their hessians are scaled differently, to a mean of 1, so the same limit "
    "has another effect than in LambdaMART(L)."
)
_ALT_1 = (
    "Three panels: the sigmoid for three slopes; its derivative, higher and narrower for steeper "
    "slopes; the twin-sigmoid, a step, with the gradients of type1, type2 and type3."
)
_ALT_2 = (
    "A panel per method: the objective on the training data and nDCG@5 on validation and test "
    "data, by epoch or tree. The table of rank correlations shows how well they agree."
)


@dataclass(frozen=True)
class Section:
    """Tables of the results that are shown together, and their data as CSV."""

    name: str
    """The name of their files."""
    title: str
    tables: Sequence[ResultTable]
    data: str

    def write(self, out: Path) -> None:
        """Write the tables in all formats."""
        write_tables(out / "tables", self.name, self.tables, self.data)


def rank_error_section(number: int, cells: Sequence[RankError]) -> Section:
    """Table 2 or 3, with measured and published values."""
    own = [cell for cell in cells if cell.table == number]
    rows = [
        [
            Cell(cell.method),
            Cell(f"{cell.documents:,}"),
            *(Cell(f"{x:,.2f}") for x in (cell.measured, cell.standard_error, cell.published)),
        ]
        for cell in own
    ]
    title, columns = _TITLES[number], ["method", "documents", "measured L1", "± s.e.", "published"]
    head = ["method", "documents", "measured", "standard_error", "published"]
    data = csv_text([head, *([getattr(cell, name) for name in head] for cell in own)])
    return Section(f"table-{number}", title, [ResultTable(title, columns, rows)], data)


def write_figure_1(out: Path) -> list[Path]:
    """Write Figure 1 in all formats."""
    return draw_figure_1(_figures_folder(out) / "figure-1")


def sections_of(results: ReproductionResults) -> list[Section]:
    """All tables of the results, with the architectures, claims and correlations."""
    sections = [
        Section(f"table-{table.number}", table.title, table.tables(), table.to_csv())
        for table in results.tables
    ]
    if any(row.architecture for row in results.measured):
        rows = results.measured, results.chosen
        table, data = architecture_table(*rows), architecture_csv(*rows)
        sections.append(Section("architectures", "Architectures", [table], data))
    if claims := claims_of(results):
        sections.append(Section("claims", "Claims", [claim_table(claims)], claim_csv(claims)))
    if panels := results.panels:
        title, table = "Figure 2: rank correlations", correlation_table(panels)
        sections.append(Section("correlations", title, [table], correlation_csv(panels)))
    return sections


def write_results(
    out: Path, results: ReproductionResults, sections: Sequence[Section], command: str
) -> None:
    """Write the tables, Figure 2, the values of each query, and tables.md.

    tables.md has the command, the data and the tables without nERR. Architectures are listed if
    validation chose among them.
    """
    page = [f"```sh\n{command}\n```", _sentence(results)]
    for section in sections:
        section.write(out)
        if section.name != "architectures" or len(results.measured) > len(results.chosen):
            page += [table.to_markdown() for table in section.tables[:2]]
    write_text(out / "tables.md", "\n\n".join([*page, *notes_of(results)]))
    if results.panels:
        draw_figure_2(_figures_folder(out) / "figure-2", results.panels)
    if results.measured:
        _write_values(out / "per-query.npz", results)


def _sentence(results: ReproductionResults) -> str:
    """The data and the extent of the experiment."""
    reproduction = results.reproduction
    queries, documents, features = reproduction.size
    chosen = reproduction.architectures
    models = "the published architectures"
    if chosen is not None:
        models = f"the best of {counted(len(chosen), 'architecture')} by validation"
    extent = [
        counted(reproduction.epochs, "epoch"),
        models,
        counted(len(reproduction.chosen_folds), "fold"),
        counted(len(reproduction.seeds), "seed"),
    ]
    return (
        f"{reproduction.source.name}: {counted(queries, 'query')}, "
        f"{counted(documents, 'document')}, {features} features after the paper's filter; "
        f"{', '.join(extent)}."
    )


def _figures_folder(out: Path) -> Path:
    folder = out / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _write_values(path: Path, results: ReproductionResults) -> None:
    """Write the values of all methods, [systems, measures, queries], with the names of each."""
    query_ids = results.measured[0].evaluation.query_ids
    assert query_ids is not None
    numbers, source = results.reproduction.chosen_folds, results.reproduction.source
    folds = [np.full(source.sets(number)["test"].queries, number) for number in numbers]
    values = np.stack(
        [[row.evaluation.values[m] for m in PAPER_MEASURES] for row in results.measured]
    )
    with replacing(path) as partial, partial.open("wb") as file:
        np.savez_compressed(
            file,
            allow_pickle=False,
            systems=np.array([row.system for row in results.measured]),
            measures=np.array(PAPER_MEASURES),
            queries=np.array([str(query) for query in query_ids]),
            folds=np.concatenate(folds),
            values=values,
        )


def notes_of(results: ReproductionResults, failures: bool = True) -> list[str]:
    """Notes on how the results differ from the paper's experiment, and on failed trainings."""
    reproduction = results.reproduction
    notes = []
    if reproduction.on_mslr:
        epochs, folds = reproduction.epochs, len(reproduction.chosen_folds)
        less = [f"{epochs} epochs instead of {EPOCHS}"] if epochs < EPOCHS else []
        less += [f"{counted(folds, 'fold')} of 5"]
        if epochs < EPOCHS or folds < 5:
            notes.append(f"Less was run than for the published numbers: {', '.join(less)}.")
        notes.append(_AUTHORS_CODE)
        own, papers = (f"{n:,} queries, {d:,} documents" for n, d, _ in (reproduction.size, MSLR))
        notes.append(f"After the paper's filter, the data has {own}; the paper has {papers}.")
        if 4 in reproduction.tables:
            notes.append(_OLD_LIGHTGBM)
    elif reproduction.tables:
        notes.append(
            "The data is not MSLR-WEB30K: the protocol is the paper's, but the published numbers "
            "are not comparable."
        )
    least = reproduction.least_hessian
    has_trees = {4, 8}.intersection(reproduction.tables) or reproduction.figure_2
    if least < LEAST_HESSIAN and has_trees:
        notes.append(
            f"Trees: the least hessian of a leaf is {least:.3g} instead of the paper's "
            f"{LEAST_HESSIAN:g}, in proportion to the smaller data."
        )
    if reproduction.wassrank_cost != AUTHORS_COST and (
        reproduction.figure_2 or WASSRANK in reproduction.methods
    ):
        notes.append(
            f"WassRank has cost={reproduction.wassrank_cost}; the author's code has "
            f"cost={AUTHORS_COST}."
        )
    notes += [_HESSIAN] if 8 in reproduction.tables else []
    incomplete = []
    if reproduction.methods:
        last = results.results[-1]
        incomplete = [name for name in last.study.method_names if name not in last.methods]
    if incomplete:
        notes.append(f"Left out, because a training failed: {', '.join(incomplete)}.")
    return notes + [f"Failed: {failure}" for failure in results.failures if failures]


def write_settings(out: Path, results: ReproductionResults, command: str) -> dict[str, Any]:
    """Write the settings, versions and means to reproduction.json, and return them."""
    reproduction = results.reproduction
    units = [unit for study in results.results for unit in study.units]
    versions: dict[str, str] = {}
    for unit in units:
        versions |= unit.versions
    architectures = reproduction.architectures
    about: dict[str, Any] = {
        "command": command,
        "source": asdict(reproduction.source),
        "data": data_summary(results),
        "mslr_web30k": reproduction.on_mslr,
        "tables": list(reproduction.tables),
        "figure_2": reproduction.figure_2,
        "folds": list(reproduction.chosen_folds),
        "epochs": reproduction.epochs,
        "architectures": "paper" if architectures is None else list(architectures),
        "seeds": list(reproduction.seeds),
        "convention": CONVENTION,
        "average": "folds",
        "level": SIGNIFICANCE,
        "wassrank_cost": reproduction.wassrank_cost,
        "versions": versions,
        "parameters": {unit.unit.method: dict(unit.unit.parameters) for unit in units},
        "systems": [
            {
                "system": row.system,
                "chosen": results.chosen[row.method] is row,
                "validation": row.validation,
                "tied_pairs": row.tied_pairs,
                "means": {name: row.mean(name) for name in PAPER_MEASURES},
                "spread": {name: row.spread(name) for name in PAPER_MEASURES},
                "pooled": row.evaluation.means,
                AUTHOR: {name: float(row.author_means[name].mean()) for name in PAPER_MEASURES},
            }
            for row in results.measured
        ],
        "correlations": {panel.system: panel.correlations for panel in results.panels},
        "roughness": {panel.system: panel.roughness for panel in results.panels},
        "notes": notes_of(results),
    }
    write_json(out / "reproduction.json", about)
    return about


def data_summary(results: ReproductionResults) -> dict[str, str]:
    """The name and size of the data after the paper's filter."""
    source, fold = results.reproduction.source, results.reproduction.chosen_folds[0]
    sets = source.sets(fold)
    sizes = {
        f"{part}, fold {fold}": f"{counted(data.queries, 'query')}, "
        f"{counted(data.documents, 'document')}"
        for part, data in sets.items()
    }
    return {
        "name": source.name,
        "features": _beside(results, 2),
        "queries": _beside(results, 0),
        "documents": _beside(results, 1),
        **sizes,
        "queries kept": f"those with {FEWEST_DOCUMENTS} documents and {FEWEST_RELEVANT} relevant "
        "or more",
    }


def _beside(results: ReproductionResults, position: int) -> str:
    """A number of `Reproduction.size`, beside the paper's if the data is the paper's."""
    own = f"{results.reproduction.size[position]:,}"
    return f"{own} (paper: {MSLR[position]:,})" if results.reproduction.on_mslr else own


def report_of(
    results: ReproductionResults,
    out: Path,
    sections: Sequence[Section],
    about: Mapping[str, Any],
) -> ReportContent:
    """The content of the report; `about` is the result of `write_settings`."""
    chosen = list(results.chosen.values())
    evaluations = {row.system: row.evaluation for row in chosen}
    reproduction = results.reproduction
    units = {
        row.system: results.units_of(reproduction.system(row.method, row.architecture))
        for row in chosen
    }
    last = results.results[-1]
    return ReportContent(
        title="Optimize What You Evaluate With (Yu 2020), reproduced",
        headline=headline(results),
        data_summary=list(data_summary(results).items()),
        settings=[
            ("tables", ", ".join(map(str, reproduction.tables)) or "none"),
            ("folds", ", ".join(map(str, reproduction.chosen_folds))),
            ("epochs", str(reproduction.epochs)),
            ("architectures", str(about["architectures"])),
            ("seeds", ", ".join(map(str, reproduction.seeds))),
            ("mode", "paper"),
        ],
        command=str(about["command"]),
        versions=about["versions"],
        comparison=compare(evaluations, level=SIGNIFICANCE) if evaluations else None,
        evaluations=evaluations,
        list_sizes=last.list_sizes if evaluations else None,
        list_grades=last.list_grades if evaluations else None,
        notes=notes_of(results),
        figures=_figures(out),
        tables=[(table.title, table) for section in sections for table in section.tables],
        measure=VALIDATION if evaluations else "",
        validation_measure=VALIDATION,
        **training_fields(units),
    )


def headline(results: ReproductionResults) -> str:
    """The main result in a sentence or two."""
    if not results.tables:
        return "The course of training, method by method."
    best = max(results.chosen.values(), key=lambda row: row.mean(VALIDATION))
    text = f"Best in {VALIDATION}: {best.system}, {best.mean(VALIDATION):.4f}."
    published = [table for table in results.tables if table.published]
    if not published or not results.reproduction.on_mslr:
        return text
    distance = float(np.mean([table.distance() for table in published]))
    return f"{text} On average {signed(distance)[1:]} from the published numbers."


def _figures(out: Path) -> list[tuple[str, str, str]]:
    """The figures in the folder: title, SVG and description."""
    known = (
        ("Figure 1: sigmoid and twin-sigmoid", "figure-1", _ALT_1),
        ("Figure 2: the course of training", "figure-2", _ALT_2),
    )
    paths = [(title, out / "figures" / f"{name}.svg", alt) for title, name, alt in known]
    return [(title, p.read_text("utf-8"), alt) for title, p, alt in paths if p.is_file()]
