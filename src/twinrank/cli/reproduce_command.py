"""twinrank reproduce: the paper's tables and figures, next to the published numbers."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinrank.cli.command_signatures import AtLeastOne, Folds, Force, Jobs, Ray, Seed
from twinrank.cli.data_options import numbers, source_of, takes_data
from twinrank.cli.output_options import (
    command_line,
    is_quiet,
    resumable,
    show,
    show_done,
    show_failures,
    show_json,
    show_note,
    show_table,
    takes_output,
)
from twinrank.support.errors import InputError

if TYPE_CHECKING:
    from twinrank.experiments.paper.paper_report import Section
    from twinrank.experiments.paper.reproduction import Reproduction
    from twinrank.support.tables import ResultTable

_TABLES, _FIGURES = (2, 3, 4, 5, 6, 7, 8), (1, 2)
_QUICK_EPOCHS, _QUICK_FOLDS, _QUICK_QUERIES = 6, 2, 500
_TIMED_QUERIES = 1_000  # of the built-in data, in place of MSLR-WEB30K
_HINT = """\
Tables 4 to 8 and Figure 2 need trainings:
  twinrank reproduce --estimate      the time of the experiment on MSLR-WEB30K, by method
  twinrank reproduce --quick         a small version on built-in data, in minutes
  twinrank reproduce MSLR-WEB30K     everything on the paper's data, with an estimate of the time
  twinrank reproduce --table 7 …     one table (2 to 8) or figure (--figure 1 or 2)"""


@takes_output
@takes_data()
def reproduce(
    data: Path | None = None,
    *,
    table: list[int] | None = None,
    figure: list[int] | None = None,
    folds: Folds = None,
    epochs: AtLeastOne = None,
    rounds: AtLeastOne = None,
    architectures: str | None = None,
    seeds: Annotated[int, typer.Option(min=1)] = 1,
    wassrank_cost: str = "gain",
    published: Annotated[bool | None, typer.Option("--published/--no-published")] = None,
    quick: bool = False,
    full: bool = False,
    estimate: bool = False,
    jobs: Jobs = None,
    ray: Ray = None,
    seed: Seed = 0,
    out: Path = Path("reproduction"),
    force: Force = False,
    reading: dict[str, Any] | None = None,
) -> None:
    """Reproduce the paper "Optimize What You Evaluate With" (Yu 2020).

    Without arguments: Tables 2 and 3 (errors of approximate ranks) and Figure 1,
    which need no data and take seconds. With data, --full or --quick: everything,
    with the paper's settings. Every training is saved when it ends: the same
    command continues after an interruption, and more --seeds add trainings.

    Example: twinrank reproduce MSLR-WEB30K --table 7 --architectures paper

    Parameters
    ----------
    data
        The folder of MSLR-WEB30K, another folder with folds, or a file (default: the built-in
        synthetic data).
    table
        Only this table, 2 to 7; 8: direct objectives on trees. Repeatable.
    figure
        Only this figure, 1 or 2. Repeatable.
    epochs
        Number of epochs for nets (default: 100).
    rounds
        Maximum number of rounds for trees (default: ten times as many as epochs).
    architectures
        all (validation chooses the best of each method), paper (only the published choices, a
        quarter of the work), or names such as R5,CE4.L (default: all; with --quick, paper).
    seeds
        Number of seeds; tables show the spread over them (default: 1).
    wassrank_cost
        Costs of WassRank: gain, as in the author's code, or label, our reading of its paper
        (default: gain).
    published
        Show the published numbers, also beside results on other data (default: if the data has
        folds, and the queries, documents and features of MSLR-WEB30K within 1 %).
    quick
        Two folds, six epochs, published architectures: takes minutes.
    full
        All tables and figures.
    estimate
        Print the expected time of each method, and train nothing. Without data: on MSLR-WEB30K,
        from a few steps on built-in data of its shape.
    out
        Folder for tables, figures, values and the report (default: reproduction).
    """
    if quick and full:
        raise InputError("--quick and --full exclude each other.")
    if full and (table or figure):
        raise InputError("--full makes all tables and figures; remove it, or --table and --figure.")
    out = out.expanduser()
    everything = quick or full or estimate or data is not None
    tables = _chosen("table", table, figure, _TABLES, _TABLES if everything else (2, 3))
    figures = _chosen("figure", figure, table, _FIGURES, _FIGURES if everything else (1,))
    like_mslr = estimate and data is None and not (quick or full)
    reproduction = None
    training = {"folds": folds, "epochs": epochs, "rounds": rounds, "architectures": architectures}
    if 2 in figures or any(number > 3 for number in tables):
        reproduction = _reproduction(
            data, tables, figures, folds, epochs, architectures, quick, reading, like_mslr,
            seeds=tuple(range(seed, seed + seeds)), published=published, rounds=rounds,
            wassrank_cost=wassrank_cost,
        )  # fmt: skip
    elif option := next((name for name, value in training.items() if value), None):
        raise InputError(
            f"--{option} needs data, --quick or --full: without them nothing is trained."
        )
    if estimate:
        _show_estimate(reproduction, out, jobs, like_mslr)
        return
    shown = _without_data([n for n in tables if n <= 3], 1 in figures, seed, out)
    failures: list[str] = []
    if reproduction is not None:
        added, failures = _with_data(reproduction, out, jobs, ray, force, shown)
        shown += added
    elif not (table or figure):
        show_done(_HINT)
    content = [{"title": each.title, "tables": list(map(_content, each.tables))} for each in shown]
    report = None if reproduction is None else out / "report.html"
    show_json({"tables": content, "folder": out, "report": report, "failures": failures})
    show_failures(failures)
    if failures:
        raise typer.Exit(1)


def _content(table: "ResultTable") -> dict[str, Any]:
    """A table as JSON: its columns, and its rows as text."""
    rows = [[cell.text for cell in row] for row in table.rows]
    return {"title": table.title, "columns": list(table.columns), "rows": rows}


def _chosen(
    kind: str, chosen: list[int] | None, others: list[int] | None, known: Any, default: Any
) -> list[int]:
    """The tables or figures to make: none if only numbers of the other kind are chosen."""
    for number in chosen or ():
        if number not in known:
            listed = f"{known[0]} to {known[-1]}" if len(known) > 2 else "1 and 2"
            raise InputError(
                f"{kind.capitalize()} {number} is not available; choose from {listed}."
            )
    return sorted(set(chosen or (() if others else default)))


def _reproduction(
    data: Path | None,
    tables: list[int],
    figures: list[int],
    folds: str | None,
    epochs: int | None,
    architectures: str | None,
    quick: bool,
    reading: dict[str, Any] | None,
    like_mslr: bool,
    **choices: Any,
) -> "Reproduction":
    """The reproduction, checked before any training."""
    from twinrank.experiments.paper.published import (
        EPOCHS,
        FEWEST_DOCUMENTS,
        FEWEST_RELEVANT,
        FOLDS,
    )
    from twinrank.experiments.paper.published import architectures as named
    from twinrank.experiments.paper.reproduction import Reproduction

    names = named(architectures or ("paper" if quick else "all"))
    chosen_folds = None if folds is None else numbers(folds, "--folds", 1)
    few: dict[str, Any] = {"queries": _QUICK_QUERIES} if quick else {}
    few = {"queries": _TIMED_QUERIES, "cut": FOLDS} if like_mslr else few
    least = {"min_documents": FEWEST_DOCUMENTS, "min_relevant": FEWEST_RELEVANT}
    source = source_of(data, reading, **least, **few)
    checked = source.check(chosen_folds)
    reproduction = Reproduction(
        source,
        [number for number in tables if number > 3],
        2 in figures,
        checked[:_QUICK_FOLDS] if quick and folds is None else checked,
        names,
        epochs or (_QUICK_EPOCHS if quick else EPOCHS),
        validate_every=1 if quick else "auto",
        **choices,
    )
    reproduction.check()
    return reproduction


def _without_data(tables: list[int], figure_1: bool, seed: int, out: Path) -> "list[Section]":
    """Print and write Tables 2 and 3 and Figure 1. Return the tables for the report."""
    from twinrank.experiments.paper.paper_report import rank_error_section, write_figure_1
    from twinrank.experiments.paper.rank_error import rank_errors

    cells = list(rank_errors(tables, seed=seed)) if tables else []
    sections = [rank_error_section(number, cells) for number in tables]
    for section in sections:
        section.write(out)
        show_table(section.tables[0], "\n")
    if figure_1:
        show(f"Figure 1: {write_figure_1(out)[1]}\n")
    return sections


def _with_data(
    reproduction: "Reproduction",
    out: Path,
    jobs: int | None,
    ray: str | None,
    force: bool,
    shown: "list[Section]",
) -> "tuple[list[Section], list[str]]":
    """Train, then print and write the results. Return the tables, and the failed trainings."""
    from twinrank.experiments.paper import paper_report
    from twinrank.experiments.report.report_page import write_report

    with resumable(out):
        if not is_quiet():
            _print_expected_time(reproduction, out, jobs, ray)
        results = reproduction.run(out, jobs=jobs, ray=ray, progress=not is_quiet(), force=force)
    sections = paper_report.sections_of(results)
    paper_report.write_results(out, results, sections, command_line())
    about = paper_report.write_settings(out, results, command_line())
    for table in (table for section in sections for table in section.tables):
        show_table(table, "\n")
    if results.panels:
        show(f"Figure 2: {out / 'figures' / 'figure-2.svg'}\n")
    show(paper_report.headline(results))
    for note in paper_report.notes_of(results, failures=False):
        show_note(note)
    content = paper_report.report_of(results, out, [*shown, *sections], about)
    write_report(out / "report.html", content)
    show_done(f"Report: {out / 'report.html'}")
    return sections, results.failures


def _print_expected_time(
    reproduction: "Reproduction", out: Path, jobs: int | None, ray: str | None
) -> None:
    """Print the expected time of the trainings that are lacking, from a few steps of each."""
    from twinrank.experiments.paper.time_estimate import expected_seconds
    from twinrank.support.quantities import counted, duration

    lacking = reproduction.lacking(out)
    if not lacking:
        return
    show(f"Timing a few steps on {reproduction.source.name} …", err=True)
    seconds = list(expected_seconds(lacking, reproduction.source).values())
    if ray is not None:
        trainings = counted(len(lacking), "training")
        show(f"{trainings} to do, {duration(sum(seconds))} of work in all", err=True)
        return
    show(_expectation(seconds, jobs)[1], err=True)


def _expectation(seconds: list[float], jobs: int | None) -> tuple[float, str]:
    """The seconds that trainings take together, and a sentence on it."""
    from twinrank.experiments.paper.time_estimate import in_parallel
    from twinrank.experiments.study.scheduler import cores
    from twinrank.support.quantities import counted, duration

    together = max(1, min(jobs or cores(), len(seconds)))
    expected = in_parallel(seconds, together)
    trainings = counted(len(seconds), "training")
    words = f"{trainings} to do, {together} at a time: expected to take {duration(expected)}"
    return expected, words


def _show_estimate(
    reproduction: "Reproduction | None", out: Path, jobs: int | None, like_mslr: bool
) -> None:
    """Print the expected time of each method; `like_mslr` scales it to MSLR-WEB30K."""
    from twinrank.experiments.paper.published import MSLR
    from twinrank.experiments.paper.time_estimate import expected_seconds, time_table

    if reproduction is None:
        raise InputError("--estimate is about trainings: Tables 4 to 8 and Figure 2.")
    units = reproduction.lacking(out)
    share = MSLR[1] / reproduction.size[1] if like_mslr else 1.0
    name = "MSLR-WEB30K" if like_mslr else reproduction.source.name
    if not is_quiet():
        show(f"Timing a few steps on {reproduction.source.name} …", err=True)
    timed = expected_seconds(units, reproduction.source)
    seconds = {key: share * value for key, value in timed.items()}
    expected, words = _expectation(list(seconds.values()), jobs)
    show_table(time_table(f"Expected time on {name}, one training at a time", units, seconds), "\n")
    show(words)
    if like_mslr:
        show_note(
            "The steps were timed on built-in data, which has the features and the lengths of "
            "lists of MSLR-WEB30K."
        )
    each = [{"training": str(unit), "seconds": seconds[unit.key]} for unit in units]
    show_json({"data": name, "seconds": expected, "expected": each})
