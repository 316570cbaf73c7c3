"""twinrank compare: a cross-validated comparison of methods."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from twinrank.cli.command_signatures import AtLeastOne, Count, Folds, Force, Jobs, Ray, Settings
from twinrank.cli.data_options import (
    as_option,
    names,
    numbers,
    show_notes,
    source_of,
    takes_data,
)
from twinrank.cli.output_options import (
    command_line,
    is_quiet,
    resumable,
    show,
    show_done,
    show_failures,
    show_json,
    show_note,
    show_paragraph,
    show_table,
    takes_output,
)
from twinrank.support.errors import InputError, rendered

if TYPE_CHECKING:
    from twinrank.experiments.study.goal_sweep import Sweep
    from twinrank.experiments.study.study import Results, Study


@takes_output
@takes_data()
def compare(
    data: Path | None = None,
    *,
    methods: str | None = None,
    measures: str | None = None,
    goals: str | None = None,
    goal_weights: str | None = None,
    folds: Folds = None,
    cut: AtLeastOne = None,
    seeds: str | None = None,
    epochs: AtLeastOne = None,
    settings: Settings = None,
    quick: bool = False,
    test: str | None = None,
    significance: float | None = None,
    correction: str | None = None,
    queries: Count = 200,
    jobs: Jobs = None,
    ray: Ray = None,
    shard: str | None = None,
    out: Path | None = None,
    force: Force = False,
    reading: dict[str, Any] | None = None,
) -> None:
    """Train methods on the same data and compare them, with significance tests.

    On every fold each method is trained on the training queries. The validation
    queries choose its epoch or round, and the test queries measure it. The
    best value of each column is bold; an asterisk marks values that differ from
    it significantly. Every training is saved when it ends: the same command
    continues after an interruption, and trains only what has changed.

    With --goals, weighted sums of two measures are trained, and the Pareto front
    of the two goals is drawn (front.png).

    Example: twinrank compare MQ2008 --methods "AP-type3; LambdaMART"

    Parameters
    ----------
    data
        A folder with folds, a file (its queries are split into folds), or a TOML study file
        (default: the built-in synthetic data).
    methods
        Methods, separated by ';': 'AP-type3; nDCG-type2 (R4.L); nDCG-type3 (Boosted);
        LambdaMART; ListNet; CatBoost'. Parameters are in brackets: 'LambdaMART(num_leaves=31);
        nDCG-type3 (Small(ensemble_size=5))'. 'Clicks(learner=ips)' learns from simulated clicks.
    measures
        Measures, separated by ';': 'nDCG@5; AP; nERR@10'.
    goals
        Two measures, separated by ';': 'nDCG@10; nDCG(label=order)@10'. Their weighted sums are
        trained instead of --methods, which then names models: 'Boosted; Small' (default: Boosted).
    goal_weights
        With --goals, the weights of the second measure (default: 0,0.1,0.3,0.5,0.7,0.9,1).
    cut
        Number of folds for data without folds; 1 is a single split (default: 5, or 3 for the
        built-in data).
    seeds
        Seeds: 0,1,2. Every method is trained with each (default: 0).
    epochs
        Maximum number of epochs for nets (default: 100).
    settings
        A parameter for all methods that have it, as key=value. Repeatable.
    quick
        One fold and few epochs, as a first test.
    test
        Significance test: wilcoxon, t, permutation or bootstrap (default: wilcoxon).
    significance
        Significance level (default: 0.01).
    correction
        Correction of p-values for the number of methods: holm, bh (Benjamini and Hochberg) or
        none (default: none).
    queries
        Number of queries to explore in the report, those on which methods differ most; 0 for
        none.
    shard
        Train one part of the trainings, such as 7/40, the seventh of forty. Many processes or
        machines can train their shards in the same folder at once; the command without --shard
        then trains what is missing and writes the results.
    out
        Folder for the results (default: comparison, or comparison-NAME of the data).
    """
    chosen: dict[str, Any] = {"methods": names(methods), "measures": names(measures), "cut": cut}
    chosen["folds"] = None if folds is None else numbers(folds, "--folds", 1)
    chosen["seeds"] = None if seeds is None else numbers(seeds, "--seeds", 0)
    chosen |= {"test": test, "significance": significance, "correction": correction}
    from twinrank.experiments.study.method_comparison import note_on_left_out

    sweep = _sweep(goals, goal_weights, chosen, quick, data)
    folder = (out or _default_folder(data, quick, goals is not None)).expanduser()
    study = _study(data, chosen, _shared(settings, epochs), quick, reading or {}, sweep)
    training = study.source.sets(study.chosen_folds[0])["train"]
    show_notes(training)
    if sweep is not None:
        sweep.check(training)
    if note := note_on_left_out(study):
        show_note(rendered(note, as_option))
    part = None if shard is None else _shard(shard)
    with resumable(folder):
        results = study.run(folder, jobs, ray, progress=not is_quiet(), force=force, shard=part)
    if part is not None:
        _finish_shard(results, part)
        return
    _finish(results, folder, queries, sweep)


def _sweep(
    goals: str | None, weights: str | None, chosen: dict[str, Any], quick: bool, data: Path | None
) -> "Sweep | None":
    """The goals to sweep, if there are any; its models take the place of methods."""
    if goals is None:
        if weights is not None:
            raise InputError("--goal-weights needs --goals.")
        return None
    if data is not None and data.suffix == ".toml":
        raise InputError("--goals takes data, not a study file.")
    from twinrank.experiments.study.goal_sweep import Sweep

    try:
        numbers = None if weights is None else [float(part) for part in weights.split(",")]
    except ValueError:
        raise InputError(f"--goal-weights {weights}: write numbers, such as 0,0.5,1.") from None
    return Sweep.of(names(goals) or [], numbers, chosen.pop("methods"), quick)


def _study(
    data: Path | None,
    options: dict[str, Any],
    shared: dict[str, Any],
    quick: bool,
    reading: dict[str, Any],
    sweep: "Sweep | None",
) -> "Study":
    """The study to run; options replace the values of a study file."""
    from twinrank.experiments.study import method_comparison as defaults

    file: dict[str, Any] = {}
    if data is not None and data.suffix == ".toml":
        file = defaults.read_study_file(data)
        data = Path(file["data"]) if "data" in file else None
        # An option for reading cannot be distinguished from its default.
        reading = {**reading, **file.get("reading", {})}
    chosen = {name: file[name] for name in options if name in file}
    chosen |= {name: value for name, value in options.items() if value is not None}
    cut = {"cut": chosen.pop("cut")} if "cut" in chosen else {}
    names_here = {"test": "test", "significance": "level", "correction": "correction"}
    testing = {own: chosen.pop(name) for name, own in names_here.items() if name in chosen}
    if data is None:
        queries = defaults.QUICK_QUERIES if quick else defaults.BUILT_IN_QUERIES
        cut = {"cut": defaults.BUILT_IN_FOLDS, "queries": queries, **cut}
    source = source_of(data, reading, **cut)
    if sweep is not None:
        return sweep.study(source, **chosen, shared=shared, quick=quick, testing=testing)
    return defaults.comparison_study(
        source,
        **chosen,
        shared={**file.get("parameters", {}), **shared},
        own=file.get("method"),
        quick=quick,
        testing=testing,
    )


def _shared(settings: list[str] | None, epochs: int | None) -> dict[str, Any]:
    """Parameters for all methods that have them."""
    from twinrank.learning.estimators.parameters import settings_of

    return settings_of(settings or []) | ({} if epochs is None else {"epochs": epochs})


def _shard(text: str) -> tuple[int, int]:
    """A shard, written 7/40."""
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal()):
        raise InputError(f"--shard {text}: write 7/40, the seventh of forty.")
    from twinrank.experiments.study.study import check_shard

    return check_shard((int(number), int(count)))


def _finish_shard(results: "Results", part: tuple[int, int]) -> None:
    """Say what is done; exit with code 1 if trainings of this shard failed."""
    number, count = part
    own = {unit.key for unit in results.study.units[number - 1 :: count]}
    done = {result.unit.key for result in results.units}
    show_done(
        f"Shard {number} of {count}: {len(own & done)} of {len(own)} trainings are done; "
        f"{len(done)} of {len(results.study.units)} in all. The same command without --shard "
        f"writes the results."
    )
    failures = [str(failure) for failure in results.failures if failure.unit.key in own]
    show_json({"shard": [number, count], "done": len(own & done), "failures": failures})
    show_failures(failures)
    if failures:
        raise typer.Exit(1)


def _default_folder(data: Path | None, quick: bool, goals: bool = False) -> Path:
    """A folder in the current one, named after the data."""
    parts = ["goals" if goals else "comparison"]
    if data is not None:
        parts.append(data.absolute().name.partition(".")[0])
    return Path("-".join([*parts, *(["quick"] if quick else [])]))


def _finish(results: "Results", folder: Path, queries: int, sweep: "Sweep | None") -> None:
    """Print the table, write files and the report; exit with code 1 if trainings failed."""
    from twinrank.experiments.report.report_page import write_report
    from twinrank.experiments.study.comparison_results import (
        headline,
        main_measure,
        report_content,
        table_of,
        write_comparison,
    )
    from twinrank.experiments.study.method_comparison import note_on_missing

    comparison, swept = results.comparison(), {}
    write_comparison(results, comparison, folder)
    content = report_content(results, comparison, command_line(), queries)
    if sweep is None:
        show_table(table_of(results, comparison))
        show_paragraph(headline(comparison, main_measure(results)))
    else:
        from twinrank.experiments.study.goal_sweep import front_figure, write_front

        table, points = write_front(folder, sweep, comparison)
        show_table(table)
        show_done(f"Plot: {folder / 'front.png'}")
        figures, tables = [front_figure(sweep, points)], [("Pareto front", table)]
        content = replace(content, figures=figures, tables=tables)
        swept = {"front": [asdict(point) for point in points]}
    write_report(folder / "report.html", content)
    if note := note_on_missing(results.study):
        show_paragraph(note)
    show_done(f"Report: {folder / 'report.html'}")
    failures = [str(failure) for failure in results.failures]
    show_json(
        {**comparison.to_json(), **swept, "report": folder / "report.html", "failures": failures}
    )
    show_failures(failures)
    if failures:
        missing = [name for name in results.study.method_names if name not in results.methods]
        show(
            f"Not in the table: {', '.join(missing)}. The same command trains them again; "
            f"{folder / 'failures'} has the details.",
            err=True,
        )
        raise typer.Exit(1)
