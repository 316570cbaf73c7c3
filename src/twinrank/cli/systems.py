"""What twinrank evaluate measures: TREC runs, models, and scores in files."""

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from twinrank.cli.options import load_data, show_notes
from twinrank.cli.predict_command import scores_of
from twinrank.support.errors import InputError

if TYPE_CHECKING:
    from twinrank.data.trec import Run
    from twinrank.evaluation.result import Evaluation


def measured_runs(
    paths: list[Path],
    qrels: Path,
    measures: list[str] | None,
    level: float,
    complete: bool,
    policy: dict[str, Any],
) -> "dict[str, Evaluation]":
    """TREC runs by name, each measured against the same judgements."""
    from twinrank.data.trec import read_qrels, read_run
    from twinrank.evaluation.conventions import convention_of
    from twinrank.evaluation.run_evaluation import OFFICIAL, evaluate_run, parse_measures

    wanted = measures or OFFICIAL
    chosen = convention_of(policy["convention"], policy["empty"], policy["ties"])
    parse_measures(wanted, chosen, level)  # mistakes are told before anything is read
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
    """Files and folders by their names, or in full where names repeat."""
    short = [path.name or str(path) for path in paths]
    full = [str(path) for path in paths]
    for name in full:
        if full.count(name) > 1:
            raise InputError(f"{name} is given twice")
    return short if len(set(short)) == len(short) else full


def measured_scores(
    data: Path,
    models: "list[Path]",
    files: list[Path],
    measures: list[str] | None,
    level: float,
    policy: dict[str, Any],
    reading: dict[str, Any],
) -> "dict[str, Evaluation]":
    """Models, and scores in files, by name, each measured on the same data."""
    from twinrank.evaluation.conventions import convention_of
    from twinrank.evaluation.evaluate import DEFAULT
    from twinrank.evaluation.evaluate import evaluate as measured
    from twinrank.evaluation.run_evaluation import named_measures

    names = _names([*models, *files])
    convention = convention_of(policy.pop("convention"), policy.pop("empty"), policy.pop("ties"))
    wanted = named_measures(measures or DEFAULT, convention, level)
    rankers = _rankers(models, data)
    loaded = load_data(data, reading)
    show_notes(loaded)
    if convention.ties == "docid" and loaded.docids is None:
        raise InputError(f"{data} has no document ids to order ties by; choose --ties stable")
    scores = chain(
        (scores_of(ranker, loaded, data) for ranker in rankers),
        (loaded.from_source_order(_read_scores(path, loaded.documents)) for path in files),
    )
    return {
        name: measured(
            one,
            loaded.y,
            loaded.lists,
            wanted,
            convention=convention,
            docids=loaded.docids,
            query_ids=loaded.query_ids,
            **policy,
        )
        for name, one in zip(names, scores, strict=True)
    }


def _rankers(folders: "list[Path]", data: Path) -> list[Any]:
    """Models, loaded before the data, which may take long; without them, nothing is imported."""
    if not folders:
        return []
    from twinrank.estimators.models import model_in

    if (data / "config.json").is_file() or (data / "run.json").is_file():
        raise InputError(f"{data} is a model's folder; DATA comes last")
    return [model_in(folder) for folder in folders]


def _read_scores(path: Path, documents: int) -> Any:
    import numpy as np

    from twinrank.data.trec import read_scores

    values = np.frombuffer(read_scores(path))
    if values.size != documents:
        raise InputError(f"{path} has {values.size:,} scores, but the data {documents:,} documents")
    return values
