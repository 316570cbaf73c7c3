"""twinrank evaluate: TREC runs against qrels, or scores against a data set's labels."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinrank.cli.options import load_data, show_notes, takes_data
from twinrank.support.errors import InputError
from twinrank.support.suggest import unknown

if TYPE_CHECKING:
    from twinrank.data.trec import Run
    from twinrank.evaluation.result import Evaluation

_OUTPUTS = ("table", "json", "csv", "trec", "markdown", "latex", "html")


@takes_data()
def evaluate(
    data: Annotated[
        Path | None,
        typer.Argument(help="With --scores: the data that was scored, in any form."),
    ] = None,
    run: Annotated[
        list[Path] | None,
        typer.Option(help="A TREC run (query Q0 document rank score tag); repeat it to compare."),
    ] = None,
    qrels: Annotated[
        Path | None, typer.Option(help="Judgements (query 0 document grade) for --run.")
    ] = None,
    scores: Annotated[
        list[Path] | None,
        typer.Option(help="Scores of DATA's documents, one a line; repeat it to compare."),
    ] = None,
    measure: Annotated[
        list[str] | None,
        typer.Option(
            "-m",
            "--measure",
            help="nDCG@10, AP(rel=2), …, or trec_eval's ndcg_cut_10, map, P.5,10; may be repeated.",
        ),
    ] = None,
    convention: Annotated[
        str | None,
        typer.Option(help="twinrank, letor, trec, lightgbm or paper; trec for --run."),
    ] = None,
    empty: Annotated[
        str | None, typer.Option(help="Lists with nothing relevant: skip, zero, one or error.")
    ] = None,
    ties: Annotated[
        str | None, typer.Option(help="Equal scores: random, stable, docid or average.")
    ] = None,
    level: Annotated[
        float, typer.Option("-l", "--level", help="Relevant from this grade on (trec_eval's -l).")
    ] = 1,
    per_query: Annotated[
        bool, typer.Option("-q", "--per-query", help="Show every query as well.")
    ] = False,
    complete: Annotated[
        bool,
        typer.Option("-c", "--complete", help="Judged queries that a run leaves out count as 0."),
    ] = False,
    output: Annotated[
        str, typer.Option("-o", "--output", help=f"{', '.join(_OUTPUTS[:-1])} or {_OUTPUTS[-1]}.")
    ] = "table",
    test: Annotated[str, typer.Option(help="To compare: wilcoxon, t or permutation.")] = "wilcoxon",
    significance: Annotated[float, typer.Option(help="To compare: mark p below this.")] = 0.01,
    holm: Annotated[
        bool, typer.Option("--holm", help="To compare: Holm's correction for several systems.")
    ] = False,
    intervals: Annotated[
        bool, typer.Option("--intervals", help="To compare: 95 % bootstrap intervals of means.")
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option(help="To compare two: draw wins and losses by query, to .png, .svg or .pdf."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of ties and resamples.", min=0)] = 0,
    reading: dict[str, Any] | None = None,
) -> None:
    """Measure rankings, and compare several, with the convention stated.

    Runs are measured exactly as trec_eval does it; its names and its -l, -q and -c work here too.
    Scores are one a line, in the order of DATA's documents.

    Examples:
    twinrank evaluate --run bm25.run --qrels qrels.txt -m ndcg_cut_10 -m map

    twinrank evaluate --run a.run --run b.run --qrels qrels.txt -m nDCG@10 --plot wins.png

    twinrank evaluate test.txt --scores lambdamart.txt -m nDCG@10 --convention lightgbm
    """
    if output not in _OUTPUTS:
        raise InputError(unknown("output", output, _OUTPUTS))
    testing = {"test": test, "level": significance, "correction": "holm" if holm else None}
    _check(testing, plot, len(run or scores or ()))
    policy: dict[str, Any] = {"empty": empty, "ties": ties, "random_state": seed}
    if run:
        if qrels is None or scores or data is not None:
            raise InputError("--run needs --qrels, and goes without DATA and --scores")
        policy["convention"] = convention or "trec"
        found = _runs(run, qrels, measure, level, complete, policy)
    elif scores:
        if data is None or qrels is not None:
            raise InputError("--scores needs DATA, and goes without --qrels")
        policy["convention"] = convention or "twinrank"
        found = _scores(data, scores, measure, level, policy, reading or {})
    else:
        raise InputError(
            "nothing to evaluate: give --run RUN --qrels QRELS, or DATA --scores SCORES"
        )
    if len(found) == 1:
        _show(next(iter(found.values())), output, per_query)
        return
    testing |= {"intervals": intervals, "random_state": seed}
    _compare(found, output, per_query, testing, plot)


def _check(testing: dict[str, Any], plot: Path | None, systems: int) -> None:
    """Refuse what can't be tested or drawn before anything is read."""
    from twinrank.display.plots import FORMATS
    from twinrank.evaluation.comparison import check_testing

    check_testing(**testing)
    if plot is None:
        return
    if systems != 2:
        raise InputError(f"--plot draws two systems against each other, not {systems}")
    if plot.suffix.lower() not in FORMATS:
        raise InputError(f"can't draw to {plot}: choose a name with {', '.join(FORMATS)}")


def _runs(
    paths: list[Path],
    qrels: Path,
    measures: list[str] | None,
    level: float,
    complete: bool,
    policy: dict[str, Any],
) -> "dict[str, Evaluation]":
    from twinrank.data.trec import read_qrels, read_run
    from twinrank.evaluation.conventions import convention_of
    from twinrank.evaluation.trec import OFFICIAL, asked_for, evaluate_run

    wanted = measures or OFFICIAL
    chosen = convention_of(policy["convention"], policy["empty"], policy["ties"])
    asked_for(wanted, chosen, level)  # mistakes are told before anything is read
    runs = dict(zip(_names(paths), map(read_run, paths), strict=True))
    judged = read_qrels(qrels)
    if len(runs) > 1:
        wanted = ["runid", *wanted]  # tells whose lines they are
    options = {"level": level, "complete": complete, **policy}
    common = judged if complete or len(runs) == 1 else _shared(runs, judged)
    found = {n: evaluate_run(run, common, wanted, **options) for n, run in runs.items()}
    for name, run in runs.items():
        _tell(name, run, judged, qrels, complete)
    if any(run.scores.keys() & judged.keys() > common.keys() for run in runs.values()):
        typer.echo(f"Note: compared on {len(common):,} queries that all runs have", err=True)
    return found


def _tell(name: str, run: "Run", judged: Mapping[str, Any], qrels: Path, complete: bool) -> None:
    """Report queries that are missing from one side."""
    if unjudged := run.scores.keys() - judged.keys():
        typer.echo(f"Note: {name}: {_queries(unjudged)} without judgements, ignored", err=True)
    if absent := judged.keys() - run.scores.keys():
        treated = "counted as 0" if complete else "left out; -c counts them as 0"
        typer.echo(f"Note: {name}: {_queries(absent)} of {qrels.name} absent, {treated}", err=True)


def _shared(runs: "Mapping[str, Run]", judged: Mapping[str, Any]) -> Mapping[str, Any]:
    """The judgements of queries that all runs have, so that they are compared on the same ones."""
    shared = set.intersection(*({*run.scores} for run in runs.values())) & judged.keys()
    if not shared:
        raise InputError("no judged query is in all runs; -c counts absent ones as 0")
    return {query: judged[query] for query in judged if query in shared}


def _queries(queries: "set[str]") -> str:
    first = ", ".join(sorted(queries)[:3])
    count = len(queries)
    return f"{count:,} {'query' if count == 1 else 'queries'} ({first}{', …' if count > 3 else ''})"


def _names(paths: Sequence[Path]) -> list[str]:
    """Files by their names, or in full where names repeat."""
    short = [path.name for path in paths]
    full = [str(path) for path in paths]
    for name in full:
        if full.count(name) > 1:
            raise InputError(f"{name} is given twice")
    return short if len(set(short)) == len(short) else full


def _scores(
    data: Path,
    paths: list[Path],
    measures: list[str] | None,
    level: float,
    policy: dict[str, Any],
    reading: dict[str, Any],
) -> "dict[str, Evaluation]":
    from twinrank.evaluation.conventions import convention_of
    from twinrank.evaluation.evaluating import DEFAULT
    from twinrank.evaluation.evaluating import evaluate as measured
    from twinrank.evaluation.trec import named_measures

    names = _names(paths)
    convention = convention_of(policy.pop("convention"), policy.pop("empty"), policy.pop("ties"))
    wanted = named_measures(measures or DEFAULT, convention, level)
    loaded = load_data(data, reading)
    show_notes(loaded)
    if convention.ties == "docid" and loaded.docids is None:
        raise InputError(f"{data} has no document ids to order ties by; choose --ties stable")
    return {
        name: measured(
            loaded.from_source_order(_read_scores(path, loaded.documents)),
            loaded.y,
            loaded.lists,
            wanted,
            convention=convention,
            docids=loaded.docids,
            query_ids=loaded.query_ids,
            **policy,
        )
        for name, path in zip(names, paths, strict=True)
    }


def _read_scores(path: Path, documents: int) -> Any:
    import numpy as np

    from twinrank.data.trec import read_scores

    values = np.frombuffer(read_scores(path))
    if values.size != documents:
        raise InputError(f"{path} has {values.size:,} scores, but the data {documents:,} documents")
    return values


def _show(result: "Evaluation", output: str, per_query: bool) -> None:
    if output == "json":
        typer.echo(json.dumps(result.to_json(per_query), indent=1, ensure_ascii=False))
    elif output == "csv":
        typer.echo(result.to_csv(per_query), nl=False)
    elif output == "trec":
        typer.echo("\n".join(result.trec_lines(per_query)))
    else:
        tables = [result.per_list_table()] if per_query else []
        typer.echo("\n\n".join(_rendered(t, output) for t in [*tables, result.table()]))


def _rendered(table: Any, output: str) -> str:
    if output == "table":
        return str(table.to_text(colour=sys.stdout.isatty()))
    return str(getattr(table, f"to_{output}")())


def _compare(
    found: "dict[str, Evaluation]",
    output: str,
    per_query: bool,
    testing: dict[str, Any],
    plot: Path | None,
) -> None:
    from twinrank.evaluation.comparison import compare
    from twinrank.evaluation.result import systems_csv

    compared = compare(found, **testing)
    if output == "csv":
        typer.echo(systems_csv(found, per_query), nl=False)
    elif output == "trec":
        for name, result in found.items():
            _show(replace(result, run=result.run or name), output, per_query)
    elif output == "json":
        plain = compared.to_json()
        if per_query:
            plain["systems"] = {name: result.to_json() for name, result in found.items()}
        typer.echo(json.dumps(plain, indent=1, ensure_ascii=False))
    else:
        if per_query:
            for name, result in found.items():
                typer.echo(f"{name}\n{_rendered(result.per_list_table(), output)}\n")
        typer.echo(_rendered(compared.table(), output))
    if plot is not None:
        name = compared.measures[0]
        first, second = found
        compared.draw(plot, first, second, name)
        typer.echo(f"{name} drawn to {plot}", err=True)
