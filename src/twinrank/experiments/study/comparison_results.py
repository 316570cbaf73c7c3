"""The results of a comparison of methods: the table, files, and the content of the report."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from twinrank.evaluation.comparison import Comparison
from twinrank.evaluation.evaluate import evaluate_data
from twinrank.evaluation.evaluation_values import systems_csv
from twinrank.experiments.report.query_rankings import choice_note, chosen_queries, ranked_query
from twinrank.experiments.report.report_content import ReportContent
from twinrank.experiments.study.methods import method
from twinrank.experiments.study.study import Results
from twinrank.experiments.study.units import UnitResult
from twinrank.support.arrays import Floats
from twinrank.support.files import write_text
from twinrank.support.notation import parse
from twinrank.support.quantities import counted
from twinrank.support.tables import Cell, ResultTable, csv_text, write_tables

CUTOFFS = (1, 3, 5, 10, 20)
QUERIES = 200
"""The number of queries in a report by default."""


def table_of(results: Results, comparison: Comparison) -> ResultTable:
    """Methods by measures, with the number of epochs or rounds and the time of training.

    With several seeds, a cell has the standard deviation of the mean over the seeds, too.
    """
    plain, seeds = comparison.table(), len(results.study.seeds)
    notes = list(plain.notes)
    if seeds > 1:
        notes.append(f"±: the standard deviation over {seeds} seeds; tests use their mean.")
    rows = []
    for row in plain.rows:
        name = row[0].text
        if seeds > 1:
            spreads = [_spread(values) for values in results.seed_values(name).values()]
            cells = zip(row[1:], spreads, strict=True)
            row = [row[0], *(replace(c, text=f"{c.text} ± {spread:.4f}") for c, spread in cells)]
        iterations = [len(result.history) for result in results.units_of(name)]
        rows.append([*row, Cell(_range(iterations)), Cell(f"{results.seconds(name):.1f} s")])
    names = {f"{method(name).kind.iteration}s" for name in comparison.values}
    length = names.pop() if len(names) == 1 else "iterations"
    return replace(plain, columns=[*plain.columns, length, "time"], rows=rows, notes=notes)


def _spread(values: Floats) -> float:
    """The standard deviation over seeds of the mean over queries; values are [seeds, queries]."""
    known = values[:, ~np.isnan(values).any(axis=0)]
    return float(known.mean(axis=1).std(ddof=1)) if known.size else float("nan")


def _range(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low}–{high}"


def headline(comparison: Comparison, name: str) -> str:
    """The best method in a measure, and the methods that it differs from significantly."""
    best, means = comparison.best(name), comparison.means
    others = [system for system in comparison.values if system != best]
    text = f"{best} has the best {name}: {means[best][name]:.4f}"
    if not others:
        return f"{text}."
    p_values = comparison.p_values[name]
    beaten = [system for system in others if p_values[system] < comparison.level]
    if len(beaten) == len(others):
        against = "all others" if len(others) > 1 else others[0]
        return f"{text}. It differs significantly from {against} (p < {comparison.level:g})."
    close = [system for system in others if system not in beaten]
    listed = close[0] if len(close) == 1 else f"{', '.join(close[:-1])} and {close[-1]}"
    verb = "does" if len(close) == 1 else "do"
    return f"{text}. {listed} {verb} not differ significantly from it (p ≥ {comparison.level:g})."


def main_measure(results: Results) -> str:
    """The measure that chooses epochs, if it is among those compared; else the first."""
    study = results.study
    chosen = study.validation_measure
    return chosen if chosen in study.measures else str(study.measures[0])


def write_comparison(results: Results, comparison: Comparison, out: Path) -> None:
    """Write the table, the comparison as JSON, and the values of every query as CSV."""
    write_tables(out, "table", [table_of(results, comparison)])
    write_text(out / "queries.csv", _queries_csv(results))
    comparison.save(out / "comparison.json")


def _queries_csv(results: Results) -> str:
    """The values of every query; with several seeds, a row per query and seed."""
    evaluations, seeds = results.evaluations(), results.study.seeds
    if len(seeds) == 1:
        return systems_csv(evaluations, per_list=True)
    rows: list[list[Any]] = []
    for name, evaluation in evaluations.items():
        for position, seed in enumerate(seeds):
            values = {m: v[position] for m, v in results.seed_values(name).items()}
            header, *lines = replace(evaluation, values=values).lines()
            rows = rows or [["system", "seed", *header]]
            rows += [[name, seed, *line] for line in lines]
    return csv_text(rows)


def report_content(
    results: Results, comparison: Comparison, command: str, queries: int = QUERIES
) -> ReportContent:
    """The content of the HTML report, with at most `queries` single queries."""
    study, names = results.study, results.methods
    return ReportContent(
        title=f"{counted(len(names), 'method')} on {study.source.name}",
        headline=headline(comparison, main_measure(results)),
        data_summary=_data_summary(results),
        settings=_settings(results),
        command=command,
        versions={name: ", ".join(values) for name, values in _versions(results).items()},
        comparison=comparison,
        evaluations=results.evaluations(at_cutoffs(study.measures)),
        list_sizes=results.list_sizes,
        list_grades=results.list_grades,
        notes=_notes(results),
        measure=main_measure(results),
        validation_measure=study.validation_measure,
        **training_fields({name: results.units_of(name) for name in names}),
        **query_details(results, main_measure(results), queries),
    )


def training_fields(units: Mapping[str, Sequence[UnitResult]]) -> dict[str, Any]:
    """Fields of `ReportContent`: curves, time and peak memory of the units of each method."""
    return {
        "curves": {name: [unit.history for unit in own] for name, own in units.items()},
        "seconds": {name: sum(unit.seconds for unit in own) for name, own in units.items()},
        "memory": {
            name: float(max(u.peak_memory_bytes for u in own)) for name, own in units.items()
        },
    }


def _versions(results: Results) -> dict[str, list[str]]:
    """The versions of packages that units were trained with; several after an update."""
    versions: dict[str, list[str]] = {}
    for unit in results.units:
        for name, version in unit.versions.items():
            known = versions.setdefault(name, [])
            known += [version] if version not in known else []
    return versions


def _notes(results: Results) -> list[str]:
    mixed = [name for name, versions in _versions(results).items() if len(versions) > 1]
    notes = [f"Failed: {failure}" for failure in results.failures]
    if mixed:
        notes.append(f"Units were trained with different versions of {', '.join(mixed)}.")
    return notes


def at_cutoffs(measures: Sequence[str]) -> list[str]:
    """The measures, and those with a cutoff also at other cutoffs.

    >>> at_cutoffs(["nDCG@5"])
    ['nDCG@5', 'nDCG@1', 'nDCG@3', 'nDCG@10', 'nDCG@20']
    """
    names = [str(name) for name in measures]
    for term in map(parse, measures):
        if term.cutoff is not None:
            names += [str(replace(term, cutoff=k)) for k in CUTOFFS]
    return list(dict.fromkeys(names))


def _data_summary(results: Results) -> list[tuple[str, str]]:
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
    selecting = {str(unit.parameters.get("validation_measure")) for unit in study.units}
    selected_by = "the objective of each method" if len(selecting) > 1 else selecting.pop()
    lines = [
        ("Epoch or round selected by", f"{selected_by} on the validation queries"),
        ("Seeds", ", ".join(map(str, study.seeds))),
    ]
    parameters = {unit.method: unit.parameters for unit in study.units}
    return lines + [(name, _changed(name, parameters[name])) for name in study.method_names]


def _changed(name: str, parameters: Mapping[str, Any]) -> str:
    """The parameters that differ from the estimator's defaults."""
    chosen = method(name)
    default = chosen.estimator().get_params(deep=False)
    named = chosen.parameters()  # the name of the method shows them
    shown = [f"{k} = {v}" for k, v in parameters.items() if k not in named and default[k] != v]
    return ", ".join(shown) or "defaults"


def query_details(results: Results, measure: str, count: int) -> dict[str, Any]:
    """Fields of `ReportContent`: the queries on which methods differ most, at most `count`.

    Several seeds give several rankings; the first seed's are shown.
    """
    if count < 1 or len(results.methods) < 2:
        return {}
    scores = {name: _first_seed(results, name) for name in results.methods}
    tests = results.tests
    values = {
        name: np.concatenate(
            [
                evaluate_data(part, test, [measure]).values[measure]
                for part, test in zip(parts, tests, strict=True)
            ]
        )
        for name, parts in scores.items()
    }
    folds = np.repeat(np.arange(len(tests)), [test.queries for test in tests])
    numbers = np.concatenate([np.arange(test.queries) for test in tests])
    queries = [
        ranked_query(
            tests[folds[i]],
            int(numbers[i]),
            {name: parts[folds[i]] for name, parts in scores.items()},
            {name: by_query[i] for name, by_query in values.items()},
        )
        for i in chosen_queries(values, count).tolist()
    ]
    seeds = results.study.seeds
    note = choice_note(len(queries), numbers.size)
    if len(seeds) > 1:
        note += f" The rankings are those of seed {seeds[0]}."
    names = tests[0].feature_names or ()
    return {"queries": queries, "feature_names": names, "queries_note": note}


def _first_seed(results: Results, method: str) -> Sequence[Any]:
    """The scores of the first seed on each fold."""
    first = results.study.seeds[0]
    by_fold = {u.unit.fold: u.scores for u in results.units_of(method) if u.unit.seed == first}
    return [by_fold[fold] for fold in results.study.chosen_folds]
