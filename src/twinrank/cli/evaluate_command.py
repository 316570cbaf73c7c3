"""twinrank evaluate: evaluate and compare models, scores and TREC runs."""

import sys
from dataclasses import replace
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinrank.cli.command_signatures import Count
from twinrank.cli.data_options import takes_data
from twinrank.cli.evaluated_systems import evaluate_runs, evaluate_scores
from twinrank.cli.output_options import (
    is_quiet,
    print_json,
    show,
    show_csv,
    show_drawn,
    takes_output,
    wants_json,
)
from twinrank.support.errors import InputError, unknown

if TYPE_CHECKING:
    from twinrank.cli.calibration_results import Calibrations
    from twinrank.cli.evaluated_systems import ScoredSystems
    from twinrank.evaluation.comparison import Comparison
    from twinrank.evaluation.evaluation_values import Evaluation

_OUTPUTS = ("table", "json", "csv", "trec", "markdown", "latex", "html")
PANELS = {
    "Options for comparing systems": (
        *("test", "significance", "correction", "intervals", "plot", "report", "queries"),
    )
}
_Name = Annotated[str | None, typer.Option(metavar="NAME")]
_File = Annotated[Path | None, typer.Option(metavar="FILE")]
_Files = Annotated[list[Path] | None, typer.Option(metavar="FILE")]


@takes_output
@takes_data()
def evaluate(
    paths: Annotated[list[Path] | None, typer.Argument(metavar="MODEL... DATA")] = None,
    *,
    run: _Files = None,
    qrels: _File = None,
    scores: _Files = None,
    clicks: _File = None,
    propensities: _File = None,
    estimator: _Name = None,
    min_overlap: Annotated[float, typer.Option(min=0, max=1)] = 0.5,
    measure: Annotated[list[str] | None, typer.Option("-m", "--measure", metavar="NAME")] = None,
    convention: _Name = None,
    empty: _Name = None,
    ties: _Name = None,
    level: Annotated[float, typer.Option("-l", "--level")] = 1,
    per_query: Annotated[bool, typer.Option("-q", "--per-query")] = False,
    complete: Annotated[bool, typer.Option("-c", "--complete")] = False,
    output: Annotated[str, typer.Option("-o", "--output")] = "table",
    test: str = "wilcoxon",
    significance: float = 0.01,
    correction: str | None = None,
    intervals: bool = False,
    plot: _File = None,
    report: _File = None,
    queries: Count = 200,
    seed: Count = 0,
    architecture: str | None = None,
    reading: dict[str, Any] | None = None,
) -> None:
    """Evaluate models, scores or TREC runs, and compare several.

    Models score DATA as twinrank predict does. Scores from files are in the
    order of DATA's documents. A run is joined with DATA by query and document
    id. Models, scores and runs can be compared with each other. With --qrels,
    runs give the same values as trec_eval; its measure names and its options -l,
    -q and -c work here too.

    Examples:
    twinrank evaluate runs/ap test.txt -m nDCG@5 -m AP

    twinrank evaluate runs/ap runs/ndcg test.txt --scores trees.txt --correction holm

    twinrank evaluate runs/ap runs/ndcg test.txt --report compared.html

    twinrank evaluate runs/new test.txt --clicks log.parquet

    twinrank evaluate runs/ap test.txt --run production.run

    twinrank evaluate --run a.run --qrels qrels.txt -m ndcg_cut_10 -m map

    twinrank evaluate --run a.run --run b.run --qrels qrels.txt --plot a.png

    twinrank evaluate test.txt --scores trees.txt --convention lightgbm

    Parameters
    ----------
    paths
        Folders of models (from twinrank train, or from save() in Python), then the data on
        which to evaluate them: LETOR text, CSV, Parquet, Feather, or a folder.
    run
        TREC run (query Q0 document rank score tag), or a table with columns of queries,
        documents (recognised by name) and score; with DATA or --qrels; may be repeated. If
        DATA has no document ids, the id of a document is its number within its query, from 1.
    qrels
        Judgements of --run (query 0 document grade), instead of MODEL and DATA.
    scores
        Scores of DATA, one line per document; may be repeated.
    clicks
        A log of clicks on DATA (.csv, .tsv, .parquet, or a folder as for inspect): estimate
        measures from clicks instead of labels.
    propensities
        Propensities for --clicks, from inspect --save-propensities (default: those of the log, or
        estimates).
    estimator
        For --clicks: ips (default), snips or dr.
    min_overlap
        For --clicks: the least share of a measure on documents that were shown.
    measure
        Measure such as nDCG@10 or AP(rel=2), or its name in trec_eval such as ndcg_cut_10, map
        or P.5,10; may be repeated (default: nDCG, AP and others; for --run those of
        trec_eval).
    convention
        Definitions of measures: twinrank, all-lists, letor, letor3, trec, lightgbm, paper or
        ptranking (default: trec for --run, otherwise twinrank).
    empty
        Queries with no relevant document: skip, zero, one or error (default: from the
        convention).
    ties
        Order of equal scores: random, stable, docid, average or relevant (default: from the
        convention).
    level
        Lowest relevant grade of binary measures.
    per_query
        Also show the values of every query.
    complete
        Count judged queries that a run lacks as 0.
    output
        Output format: table, json, csv, trec, markdown, latex, html.
    test
        Significance test: wilcoxon, t, permutation or bootstrap.
    significance
        Mark differences with p below this.
    correction
        Correction of the p-values for the number of systems: holm, bh or none (default: none).
    intervals
        Show 95 % bootstrap intervals of means.
    plot
        Draw the wins and losses of two systems by query, or the reliability diagram of one
        calibrated model, to a .png, .svg or .pdf file (default: no plot).
    report
        Write an HTML report, where rankings of single queries can be compared, with the
        features that make the difference; for --clicks, estimates beside click-through by position
        (default: no report).
    queries
        Number of queries in --report.
    seed
        Seed of random ties and resamples.
    architecture
        Your own net as package.module:name, if a model was trained with it.
    """
    output = "json" if wants_json() else output
    if output not in _OUTPUTS:
        raise InputError(unknown("output", output, _OUTPUTS))
    if clicks is not None:
        _evaluate_log(
            clicks, paths, scores, measure, propensities, estimator, architecture, seed,
            min_overlap, reading, output, report,
        )  # fmt: skip
        return
    testing = {"test": test, "level": significance, "correction": correction}
    *models, data = paths or (None,)
    _check(testing, plot, report, len([*models, *(scores or ()), *(run or ())]), len(models))
    systems = None
    policy: dict[str, Any] = {"empty": empty, "ties": ties, "random_state": seed}
    if run and data is None and not scores:
        if qrels is None:
            raise InputError("--run needs --qrels or DATA.")
        if report is not None:
            raise InputError("--report needs DATA with features; --run has none.")
        policy["convention"] = convention or "trec"
        results = evaluate_runs(run, qrels, measure, level, complete, policy)
    elif data is not None and (models or scores or run):
        if qrels is not None:
            raise InputError("--qrels needs --run without DATA, which has its own labels.")
        policy["convention"] = convention or "twinrank"
        systems = evaluate_scores(
            data,
            models,
            scores or [],
            run or [],
            measure,
            level,
            policy,
            reading,
            architecture,
        )
        results = systems.results
    else:
        raise _nothing_to_evaluate(data, bool(scores))
    calibrations = _calibrations(systems)
    if len(results) == 1:
        if plot is not None:
            _draw_reliability(next(iter(results)), calibrations, plot)
        _show(next(iter(results.values())), output, per_query, calibrations)
        return
    testing |= {"intervals": intervals, "random_state": seed}
    comparison = _compare(results, output, per_query, testing, plot, calibrations)
    if report is not None and systems is not None:
        from twinrank.cli.evaluation_report import write_evaluation_report

        write_evaluation_report(report, systems, comparison, queries, calibrations)
        _show_report(report)


def _evaluate_log(
    clicks: Path,
    paths: list[Path] | None,
    scores: list[Path] | None,
    measures: list[str] | None,
    propensities: Path | None,
    estimator: str | None,
    architecture: str | None,
    seed: int,
    min_overlap: float,
    reading: dict[str, Any] | None,
    output: str,
    report: Path | None,
) -> None:
    """Print what models are worth by the clicks of a log, and write the report."""
    from twinrank.cli.click_evaluation import evaluate_clicks

    *models, data = paths or (None,)
    if data is None or not (models or scores):
        raise InputError("--clicks needs MODEL DATA, or DATA --scores FILE.")
    if output in ("csv", "trec"):
        raise InputError(f"--clicks has no output {output}; choose table, json or markdown.")
    files = scores or []
    options = (measures, propensities, estimator, architecture, seed, min_overlap, reading or {})
    _check_report(report)
    result, log, found = evaluate_clicks(clicks, data, models, files, *options)
    if output == "json":
        print_json(result.to_json())
    else:
        show(_rendered(result.table(), output))
    if report is not None:
        from twinrank.cli.click_report import write_click_report

        write_click_report(report, result, log, found)
        _show_report(report)


def _check_report(report: Path | None) -> None:
    if report is not None and report.suffix.lower() != ".html":
        raise InputError(f"Can't write {report}. Choose a name with .html.")


def _show_report(report: Path) -> None:
    if not is_quiet():
        show(f"Report: {report}", err=True)


def _check(
    testing: dict[str, Any], plot: Path | None, report: Path | None, systems: int, models: int
) -> None:
    """Check the options for comparing systems before anything is read."""
    from twinrank.evaluation.comparison import check_testing
    from twinrank.support.plots import check_drawable

    check_testing(**testing)
    if report is not None and systems < 2:
        raise InputError(f"--report compares systems: it needs two or more, not {systems}.")
    _check_report(report)
    if plot is None:
        return
    if systems > 2 or (systems == 1 and not models):
        raise InputError("--plot needs two systems, or one calibrated model.")
    check_drawable(plot)


def _nothing_to_evaluate(data: Path | None, has_scores: bool) -> InputError:
    """The error for a command that names nothing to evaluate."""
    if has_scores:
        return InputError("--scores needs DATA: twinrank evaluate DATA --scores FILE.")
    only = "" if data is None else f" on {data}"
    return InputError(
        f"Nothing to evaluate{only}: give MODEL DATA, DATA --scores FILE, DATA --run FILE, or "
        f"--run and --qrels."
    )


def _calibrations(systems: "ScoredSystems | None") -> "Calibrations":
    """How well the predictions of calibrated models hold, by model and target."""
    if systems is None or not any(r and r.model_.calibration for r in systems.rankers.values()):
        return {}
    from twinrank.cli.calibration_results import calibrations_of

    return calibrations_of(systems)


def _draw_reliability(name: str, calibrations: "Calibrations", plot: Path) -> None:
    """Draw the reliability diagram of one model."""
    if not calibrations:
        raise InputError(
            f"--plot needs two systems, or one calibrated model, and {name} is not calibrated: "
            f"use twinrank calibrate."
        )
    from twinrank.cli.calibration_results import draw_calibrations

    draw_calibrations(calibrations, plot)
    show_drawn(plot)


def _calibration_json(calibrations: "Calibrations") -> dict[str, Any]:
    """The calibrations as JSON; nothing without calibrated models."""
    if not calibrations:
        return {}
    content = {
        name: {target: own.to_json() for target, own in by_target.items()}
        for name, by_target in calibrations.items()
    }
    return {"calibration": content}


def _calibration_tables(calibrations: "Calibrations") -> list[Any]:
    if not calibrations:
        return []
    from twinrank.cli.calibration_results import calibration_table

    return [calibration_table(calibrations)]


def _show(
    result: "Evaluation", output: str, per_query: bool, calibrations: "Calibrations | None" = None
) -> None:
    if output == "json":
        print_json({**result.to_json(per_query), **_calibration_json(calibrations or {})})
    elif output == "csv":
        show_csv(result.to_csv(per_query))
    elif output == "trec":
        show("\n".join(result.trec_lines(per_query)))
    else:
        tables = [result.per_list_table()] if per_query else []
        tables += [result.table(), *_calibration_tables(calibrations or {})]
        show("\n\n".join(_rendered(table, output) for table in tables))


def _rendered(table: Any, output: str) -> str:
    if output == "table":
        width = get_terminal_size().columns if sys.stdout.isatty() else None
        return str(table.to_text(colour=sys.stdout.isatty(), width=width))
    return str(getattr(table, f"to_{output}")())


def _compare(
    results: "dict[str, Evaluation]",
    output: str,
    per_query: bool,
    testing: dict[str, Any],
    plot: Path | None,
    calibrations: "Calibrations",
) -> "Comparison":
    """Print the comparison, and draw the plot."""
    from twinrank.evaluation.comparison import compare
    from twinrank.evaluation.evaluation_values import systems_csv

    comparison = compare(results, **testing)
    if output == "csv":
        show_csv(systems_csv(results, per_query))
    elif output == "trec":
        for name, result in results.items():
            _show(replace(result, run=result.run or name), output, per_query)
    elif output == "json":
        content = {**comparison.to_json(), **_calibration_json(calibrations)}
        if per_query:
            content["systems"] = {name: result.to_json() for name, result in results.items()}
        print_json(content)
    else:
        if per_query:
            for name, result in results.items():
                show(f"{name}\n{_rendered(result.per_list_table(), output)}\n")
        tables = [comparison.table(), *_calibration_tables(calibrations)]
        show("\n\n".join(_rendered(table, output) for table in tables))
    if plot is not None:
        name = comparison.measures[0]
        first, second = results
        comparison.draw(plot, first, second, name)
        if not is_quiet():
            show(f"{name} drawn to {plot}", err=True)
    return comparison
