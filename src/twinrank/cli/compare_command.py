"""twinrank compare: methods side by side, cross-validated."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinrank.cli.data_options import (
    in_words_of_options,
    names,
    numbers,
    show_notes,
    source_of,
    takes_data,
)

if TYPE_CHECKING:
    from twinrank.study.results import Results
    from twinrank.study.running import Study


@takes_data()
def compare(
    data: Annotated[
        Path | None,
        typer.Argument(
            help="A folder with folds, a file (its queries are cut into folds), or a study file "
            "(.toml); without it, the built-in synthetic data.",
            readable=False,
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Separated by ';': 'AP-type3; nDCG-type2 (R4.L); nDCG-type3 (Boosted); "
            "LambdaMART; ListNet'."
        ),
    ] = None,
    measures: Annotated[
        str | None, typer.Option(help="Separated by ';': 'nDCG@5; AP; nERR@10'.")
    ] = None,
    folds: Annotated[
        str | None, typer.Option(help="Which folds: 1,2 or 1-3. By default all.")
    ] = None,
    cut: Annotated[
        int | None,
        typer.Option(
            help="How many folds to cut data into that has none: 5 by default, 3 of the built-in "
            "data; 1 is a single split.",
            min=1,
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(help="Seeds, each of which trains every method anew: 0,1,2. By default 0."),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Epochs of nets at most; 30 by default.", min=1)
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="A parameter of every method that has it, as key=value (may be repeated).",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="One fold and few epochs, to see that all is well.")
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(help="Trainings at a time; by default one per core.", min=1)
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(help="Train on the Ray cluster at this address ('auto': the one around)."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The folder of the results; by default comparison, or comparison-NAME of the data."
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Use a folder that holds something else.")
    ] = False,
    reading: dict[str, Any] | None = None,
) -> None:
    """Train methods on the same data and set them side by side, with significance.

    On every fold each is trained on the training queries, its best epoch (of trees: round) chosen
    on the validation queries, and measured on the test queries. The best of each column is bold; an
    asterisk marks what differs from it significantly. Every training that has ended is kept: the
    same command goes on where it was stopped, and what has changed since is trained anew.

    Example: twinrank compare MQ2008 --methods "AP-type3; nDCG-type3 (Boosted); LambdaMART"
    """
    given: dict[str, Any] = {"methods": names(methods), "measures": names(measures), "cut": cut}
    given["folds"] = None if folds is None else numbers(folds, "--folds", 1)
    given["seeds"] = None if seeds is None else numbers(seeds, "--seeds", 0)
    shared = _settings(settings or []) | ({} if epochs is None else {"epochs": epochs})
    with in_words_of_options():
        study = _study(data, given, shared, quick, reading or {})
        show_notes(study.source.sets(study.chosen_folds[0])["train"])
        folder = out or _default_folder(data, quick)
        results = _run(study, folder, jobs, ray, force)
    _finish(results, folder)


def _study(
    data: Path | None,
    given: dict[str, Any],
    shared: dict[str, Any],
    quick: bool,
    reading: dict[str, Any],
) -> "Study":
    """The study that is asked for; options win over a study file."""
    from twinrank.study import comparing
    from twinrank.study.files import StudyFile, read_study_file
    from twinrank.study.running import MEASURES

    said = StudyFile()
    if data is not None and data.suffix == ".toml":
        said = read_study_file(data)
        data = None if said.data is None else Path(said.data)
        reading = {**reading, **said.reading}  # options of their own can't be told from defaults
    chosen = {n: getattr(said, n) if value is None else value for n, value in given.items()}
    built_in: dict[str, Any] = {"cut": comparing.BUILT_IN_FOLDS} if data is None else {}
    if data is None and quick:
        built_in |= {"queries": comparing.QUICK_QUERIES}
    cut = {} if chosen["cut"] is None else {"cut": chosen["cut"]}
    return comparing.comparison_study(
        source_of(data, reading, **{**built_in, **cut}),
        comparing.METHODS if chosen["methods"] is None else chosen["methods"],
        MEASURES if chosen["measures"] is None else chosen["measures"],
        chosen["folds"],
        (0,) if chosen["seeds"] is None else chosen["seeds"],
        {**said.parameters, **shared},
        said.method,
        quick,
    )


def _settings(settings: list[str]) -> dict[str, Any]:
    """key=value as parameters; the methods say which they have."""
    from twinrank.estimators.parameters import settings_of

    return settings_of(settings)


def _default_folder(data: Path | None, quick: bool) -> Path:
    """A folder in the current one, named after the data."""
    parts = ["comparison"]
    if data is not None:
        parts.append(data.absolute().name.partition(".")[0])
    return Path("-".join([*parts, *(["quick"] if quick else [])]))


def _run(study: "Study", folder: Path, jobs: int | None, ray: str | None, force: bool) -> "Results":
    try:
        return study.run(folder, jobs, ray, force=force)
    except KeyboardInterrupt:
        typer.echo(
            f"Stopped. What is finished is kept in {folder}; the same command goes on from there.",
            err=True,
        )
        raise typer.Exit(130) from None


def _finish(results: "Results", folder: Path) -> None:
    """Show the table, write files and the report; exit code 1 if some trainings failed."""
    from twinrank.report.page import write_report
    from twinrank.study.compared import (
        headline,
        main_measure,
        report_content,
        table_of,
        write_files,
    )

    comparison = results.comparison()
    typer.echo(table_of(results, comparison).to_text(colour=sys.stdout.isatty()))
    typer.echo(headline(comparison, main_measure(results)))
    write_files(results, comparison, folder)
    command = shlex.join(["twinrank", *sys.argv[1:]])
    write_report(folder / "report.html", report_content(results, comparison, command))
    typer.echo(f"Report: {folder / 'report.html'}")
    for failure in results.failures:
        typer.echo(f"Failed: {failure}", err=True)
    if results.failures:
        lost = [name for name in results.study.method_names if name not in results.methods]
        typer.echo(
            f"Not in the table: {', '.join(lost)}. The same command tries again; "
            f"{folder / 'failures'} has the details.",
            err=True,
        )
        raise typer.Exit(1)
