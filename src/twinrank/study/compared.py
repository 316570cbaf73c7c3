"""What a comparison found: the table, a headline, files, and the content of its report."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from twinrank.display.tables import Cell, Table
from twinrank.evaluation.comparison import Comparison
from twinrank.evaluation.result import systems_csv
from twinrank.report.content import ReportContent
from twinrank.study.methods import method
from twinrank.study.results import Results
from twinrank.support.files import replacing
from twinrank.support.notation import parse
from twinrank.support.plurals import counted

CUTOFFS = (1, 3, 5, 10, 20)


def table_of(results: Results, comparison: Comparison) -> Table:
    """Methods by measures, the best bold, with the epochs or rounds and seconds of training."""
    plain = comparison.table()
    rows = []
    for row in plain.rows:
        name = row[0].text
        passes = [len(one.history) for one in results.units_of(name)]
        rows.append([*row, Cell(_span(passes)), Cell(f"{results.seconds(name):.1f} s")])
    boosted = {method(name).boosted for name in comparison.values}
    column = "epochs or rounds" if len(boosted) > 1 else "rounds" if True in boosted else "epochs"
    return replace(plain, columns=[*plain.columns, column, "time"], rows=rows)


def _span(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low}–{high}"


def headline(comparison: Comparison, name: str) -> str:
    """Who is best in a measure, and against whom that is significant."""
    best, means = comparison.best(name), comparison.means
    others = [system for system in comparison.values if system != best]
    said = f"{best} has the best {name}: {means[best][name]:.4f}"
    if not others:
        return f"{said}."
    tested = comparison.p_values[name]
    beaten = [system for system in others if tested[system] < comparison.level]
    if len(beaten) == len(others):
        against = "all others" if len(others) > 1 else others[0]
        return f"{said}, significantly different from {against} (p < {comparison.level:g})."
    close = [system for system in others if system not in beaten]
    listed = close[0] if len(close) == 1 else f"{', '.join(close[:-1])} and {close[-1]}"
    verb = "isn't" if len(close) == 1 else "aren't"
    return f"{said}; {listed} {verb} significantly different from it (p < {comparison.level:g})."


def main_measure(results: Results) -> str:
    """The measure that epochs are chosen by, if it is among those compared; else the first."""
    study = results.study
    wanted = study.validation_measure
    return wanted if wanted in study.measures else str(study.measures[0])


def write_files(results: Results, comparison: Comparison, out: Path) -> None:
    """The table as text, Markdown and LaTeX, all of it as JSON, and every query's values as CSV."""
    table = table_of(results, comparison)
    texts = {"txt": table.to_text(), "md": table.to_markdown(), "tex": table.to_latex()}
    for suffix, text in texts.items():
        with replacing(out / f"table.{suffix}") as partial:
            partial.write_text(text + "\n", "utf-8")
    with replacing(out / "queries.csv") as partial:
        partial.write_text(systems_csv(results.evaluations(), per_list=True), "utf-8")
    comparison.save(out / "comparison.json")


def report_content(results: Results, comparison: Comparison, command: str) -> ReportContent:
    """The content of the HTML page."""
    study, names = results.study, results.methods
    return ReportContent(
        title=f"{counted(len(names), 'method')} on {study.source.name}",
        headline=headline(comparison, main_measure(results)),
        data_summary=_about_data(results),
        settings=_settings(results),
        command=command,
        versions={name: ", ".join(found) for name, found in _versions(results).items()},
        comparison=comparison,
        evaluations=results.evaluations(at_cutoffs(study.measures)),
        curves={name: [one.history for one in results.units_of(name)] for name in names},
        list_sizes=results.list_sizes,
        list_grades=results.list_grades,
        seconds={name: results.seconds(name) for name in names},
        memory={name: float(results.memory(name)) for name in names},
        notes=_notes(results),
        measure=main_measure(results),
        validation_measure=study.validation_measure,
    )


def _versions(results: Results) -> dict[str, list[str]]:
    """The versions that units were trained with: of each package one, unless it was updated."""
    found: dict[str, list[str]] = {}
    for one in results.units:
        for name, version in one.versions.items():
            known = found.setdefault(name, [])
            known += [version] if version not in known else []
    return found


def _notes(results: Results) -> list[str]:
    mixed = [name for name, found in _versions(results).items() if len(found) > 1]
    notes = [f"Failed: {one}" for one in results.failures]
    if mixed:
        notes.append(f"Units were trained with different versions of {', '.join(mixed)}.")
    return notes


def at_cutoffs(measures: Sequence[str]) -> list[str]:
    """The measures, and those with a cutoff at some more.

    >>> at_cutoffs(["nDCG@5"])
    ['nDCG@5', 'nDCG@1', 'nDCG@3', 'nDCG@10', 'nDCG@20']
    """
    found = [str(name) for name in measures]
    for term in map(parse, measures):
        if term.cutoff is not None:
            found += [str(replace(term, cutoff=k)) for k in CUTOFFS]
    return list(dict.fromkeys(found))


def _about_data(results: Results) -> list[tuple[str, str]]:
    study = results.study
    sizes, tests = results.list_sizes, results.tests
    labels = np.concatenate([test.y for test in tests])
    grades, counts = np.unique(labels, return_counts=True)
    lengths = f"{sizes.min():,} to {sizes.max():,}, {sizes.mean():.1f} on average"
    lines = [
        ("Data", study.source.path or study.source.name),
        ("Folds", ", ".join(map(str, study.chosen_folds))),
        ("Test queries", f"{sizes.size:,}"),
        ("Test documents", f"{labels.size:,}"),
        ("Features", f"{tests[0].features:,}"),
        ("Documents per query", lengths),
    ]
    if grades.size <= 12:
        shares = zip(grades.tolist(), (counts / labels.size).tolist(), strict=True)
        lines.append(("Labels", ", ".join(f"{grade:g}: {share:.1%}" for grade, share in shares)))
    return lines


def _settings(results: Results) -> list[tuple[str, str]]:
    study = results.study
    lines = [
        ("Best epoch or round by", f"{study.validation_measure} on the validation queries"),
        ("Seeds", ", ".join(map(str, study.seeds))),
    ]
    given = {unit.method: unit.parameters for unit in study.units()}
    return lines + [(name, _changed(name, given[name])) for name in study.method_names]


def _changed(name: str, parameters: Any) -> str:
    """The parameters that aren't the estimator's defaults."""
    chosen = method(name)
    default = chosen.estimator().get_params(deep=False)
    named = chosen.parameters()  # what the method's name says already
    shown = [f"{k} = {v}" for k, v in parameters.items() if k not in named and default[k] != v]
    return ", ".join(shown) or "defaults"
