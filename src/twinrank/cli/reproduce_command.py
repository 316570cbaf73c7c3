"""twinrank reproduce: what the paper reports, beside the paper's numbers."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinrank.cli.data_options import in_words_of_options, numbers, source_of, takes_data
from twinrank.support.errors import InputError

if TYPE_CHECKING:
    from twinrank.display.tables import Table
    from twinrank.study.paper.reproducing import Reproduction

_TABLES, _FIGURES = (2, 3, 4, 5, 6, 7), (1, 2)
_QUICK_EPOCHS, _QUICK_FOLDS, _QUICK_QUERIES = 6, 2, 500
_THE_REST = """\
Tables 4 to 7 and Figure 2 are trainings:
  twinrank reproduce --quick         a small version on built-in data, in minutes
  twinrank reproduce MSLR-WEB30K     all of it on the paper's data; says first how long it will take
  twinrank reproduce --table 7 …     one table (2 to 7) or figure (--figure 1 or 2)"""


@takes_data()
def reproduce(
    data: Annotated[
        Path | None,
        typer.Argument(
            help="MSLR-WEB30K's folder, any other folder with folds, or a file; "
            "without it, the built-in synthetic data.",
            readable=False,
        ),
    ] = None,
    table: Annotated[
        list[int] | None,
        typer.Option("--table", help="Only this table of the paper, 2 to 7 (may be repeated)."),
    ] = None,
    figure: Annotated[
        list[int] | None,
        typer.Option("--figure", help="Only this figure, 1 or 2 (may be repeated)."),
    ] = None,
    folds: Annotated[
        str | None, typer.Option(help="Which folds, such as 1,2; without it, all.")
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(help="Epochs of nets (100 in the paper); trees, ten times as many.", min=1),
    ] = None,
    architectures: Annotated[
        str | None,
        typer.Option(
            help="all (each method's best is chosen by validation), paper (only the published "
            "choice, a quarter of the work), or names such as R5,CE4.L."
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Two folds, six epochs, published architectures: ends in minutes."
        ),
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="All tables and figures.")] = False,
    jobs: Annotated[
        int | None, typer.Option(help="Trainings at a time; by default, one per core.", min=1)
    ] = None,
    ray: Annotated[
        str | None, typer.Option(help="Address of a Ray cluster to train on (auto, ray://…).")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random.", min=0, max=2**63 - 1)] = 0,
    out: Annotated[
        Path, typer.Option(help="Folder for tables, figures, values and the report.")
    ] = Path("reproduction"),
    force: Annotated[
        bool, typer.Option("--force", help="Use the folder though it holds other results.")
    ] = False,
    reading: dict[str, Any] | None = None,
) -> None:
    """Reproduce the tables and figures of "Optimize What You Evaluate With" (Yu 2020).

    Without arguments: Tables 2 and 3 (how far approximate ranks are from the true ones) and
    Figure 1, which need no data and take seconds. With data, --full or --quick: everything, in the
    paper's settings. What is finished is kept in --out; the same command goes on where it was.

    Example: twinrank reproduce MSLR-WEB30K --table 7 --architectures paper --out mslr
    """
    if quick and full:
        raise InputError("--quick and --full exclude each other")
    if full and (table or figure):
        raise InputError("--full is all tables and figures: leave it out, or --table and --figure")
    everything = quick or full or data is not None
    tables = _chosen("table", table, figure, _TABLES, _TABLES if everything else (2, 3))
    figures = _chosen("figure", figure, table, _FIGURES, _FIGURES if everything else (1,))
    asked = None
    if 2 in figures or any(number > 3 for number in tables):
        asked = _asked(data, tables, figures, folds, epochs, architectures, quick, seed, reading)
    shown = _without_data([n for n in tables if n <= 3], 1 in figures, seed, out)
    if asked is not None:
        _with_data(asked, out, jobs, ray, force, shown)
    elif not (table or figure):
        typer.echo(_THE_REST)


def _chosen(
    what: str, given: list[int] | None, other: list[int] | None, known: Any, default: Any
) -> list[int]:
    """The tables or figures asked for; where only the others are, none."""
    for number in given or ():
        if number not in known:
            listed = f"{known[0]} to {known[-1]}" if len(known) > 2 else "1 and 2"
            raise InputError(f"{what} {number} is not available; choose from {listed}")
    return sorted(set(given or (() if other else default)))


def _asked(
    data: Path | None,
    tables: list[int],
    figures: list[int],
    folds: str | None,
    epochs: int | None,
    architectures: str | None,
    quick: bool,
    seed: int,
    reading: dict[str, Any] | None,
) -> "Reproduction":
    """What is to be trained, checked before anything takes long."""
    from twinrank.study.paper.published import EPOCHS, FEWEST_DOCUMENTS, FEWEST_RELEVANT
    from twinrank.study.paper.published import architectures as named
    from twinrank.study.paper.reproducing import Reproduction

    names = named(architectures or ("paper" if quick else "all"))
    wanted = None if folds is None else numbers(folds, "--folds", 1)
    few: dict[str, Any] = {"queries": _QUICK_QUERIES} if quick else {}
    least = {"min_documents": FEWEST_DOCUMENTS, "min_relevant": FEWEST_RELEVANT}
    with in_words_of_options():
        source = source_of(data, reading, **least, **few)
        chosen = source.check(wanted)
        if quick and wanted is None:
            chosen = chosen[:_QUICK_FOLDS]
        asked = Reproduction(
            source,
            [number for number in tables if number > 3],
            2 in figures,
            chosen,
            names,
            epochs or (_QUICK_EPOCHS if quick else EPOCHS),
            seed,
            1 if quick else "auto",
        )
        asked.check()
    return asked


def _without_data(
    tables: list[int], figure_1: bool, seed: int, out: Path
) -> "list[tuple[str, list[Table]]]":
    """Tables 2 and 3, and Figure 1: shown, written, and given for the report."""
    from twinrank.study.paper.files import write_figure_1, write_rank_errors
    from twinrank.study.paper.rank_error import rank_errors

    cells = list(rank_errors(tables, seed=seed)) if tables else []
    shown = []
    for number in tables:
        one = write_rank_errors(out, number, cells)
        typer.echo(one.to_text(sys.stdout.isatty()) + "\n")
        shown.append((one.title, [one]))
    if figure_1:
        typer.echo(f"Figure 1: {write_figure_1(out)[1]}\n")
    return shown


def _with_data(
    asked: "Reproduction",
    out: Path,
    jobs: int | None,
    ray: str | None,
    force: bool,
    before: "list[tuple[str, list[Table]]]",
) -> None:
    """Train, then show and write what came out."""
    from twinrank.report.page import write_report
    from twinrank.study.paper.files import notes_of, write_found, write_settings
    from twinrank.study.paper.report import headline, report_of

    _say_how_long(asked, out, jobs, ray)
    found = asked.run(out, jobs=jobs, ray=ray, force=force)
    tables = write_found(out, found)
    command = shlex.join(["twinrank", *sys.argv[1:]])
    about = write_settings(out, found, command)
    for _, several in tables:
        for one in several:
            typer.echo(one.to_text(sys.stdout.isatty()) + "\n")
    if found.panels:
        typer.echo(f"Figure 2: {out / 'figures' / 'figure-2.svg'}\n")
    typer.echo(headline(found))
    for note in notes_of(found):
        typer.echo(f"Note: {note}", err=True)
    write_report(out / "report.html", report_of(found, out, [*before, *tables], about))
    typer.echo(f"Report: {out / 'report.html'}")


def _say_how_long(asked: "Reproduction", out: Path, jobs: int | None, ray: str | None) -> None:
    """How long the training that is left will take, from a few steps of each method."""
    from joblib import cpu_count

    from twinrank.study.paper.expecting import expected_seconds, in_parallel, spoken
    from twinrank.support.plurals import counted

    lacking = asked.lacking(out)
    if not lacking:
        return
    typer.echo(f"Timing a few steps on {asked.source.name} …", err=True)
    seconds = list(expected_seconds(lacking, asked.source).values())
    trainings = counted(len(lacking), "training")
    if ray is not None:
        typer.echo(f"{trainings} to do, {spoken(sum(seconds))} of work in all", err=True)
        return
    together = min(jobs or cpu_count(), len(lacking))
    about = spoken(in_parallel(seconds, together))
    typer.echo(f"{trainings} to do, {together} at a time: expected to take {about}", err=True)
