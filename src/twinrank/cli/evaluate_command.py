"""twinrank evaluate: TREC runs against qrels; models and scores against a data set's labels."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinrank.cli.options import takes_data
from twinrank.cli.systems import measured_runs, measured_scores
from twinrank.support.errors import InputError, unknown

if TYPE_CHECKING:
    from twinrank.evaluation.result import Evaluation

_OUTPUTS = ("table", "json", "csv", "trec", "markdown", "latex", "html")


@takes_data()
def evaluate(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="MODEL... DATA",
            help="Models to measure (a run's folder, or one that save wrote), and, last, the data "
            "to measure them on, in any form.",
            readable=False,
        ),
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
    """Measure models or rankings, and compare several, with the convention stated.

    Models score DATA as twinrank predict does; --scores are one a line, in the order of DATA's
    documents; both may be compared with each other.
    Runs are measured exactly as trec_eval does it; its names and its -l, -q and -c work here too.

    Examples:
    twinrank evaluate runs/ap test.txt -m nDCG@5 -m AP

    twinrank evaluate runs/ap runs/ndcg test.txt --scores lambdamart.txt --holm

    twinrank evaluate --run bm25.run --qrels qrels.txt -m ndcg_cut_10 -m map

    twinrank evaluate --run a.run --run b.run --qrels qrels.txt -m nDCG@10 --plot wins.png

    twinrank evaluate test.txt --scores lambdamart.txt -m nDCG@10 --convention lightgbm
    """
    if output not in _OUTPUTS:
        raise InputError(unknown("output", output, _OUTPUTS))
    testing = {"test": test, "level": significance, "correction": "holm" if holm else None}
    *models, data = paths or (None,)
    _check(testing, plot, len(run or [*models, *(scores or ())]))
    policy: dict[str, Any] = {"empty": empty, "ties": ties, "random_state": seed}
    if run:
        if qrels is None or scores or data is not None:
            raise InputError("--run needs --qrels, and goes without MODEL, DATA and --scores")
        policy["convention"] = convention or "trec"
        found = measured_runs(run, qrels, measure, level, complete, policy)
    elif data is not None and (models or scores):
        if qrels is not None:
            raise InputError("--qrels goes with --run; DATA has its own labels")
        policy["convention"] = convention or "twinrank"
        found = measured_scores(data, models, scores or [], measure, level, policy, reading or {})
    else:
        raise InputError(_nothing(data, bool(scores)))
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


def _nothing(data: Path | None, scores: bool) -> str:
    """Why there is nothing to evaluate."""
    if scores:
        return "--scores needs DATA: twinrank evaluate DATA --scores SCORES"
    what = "nothing to evaluate" if data is None else f"nothing to evaluate but {data}"
    return f"{what}: give MODEL DATA, DATA --scores SCORES, or --run RUN --qrels QRELS"


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
