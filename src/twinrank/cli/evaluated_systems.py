"""The systems that twinrank evaluate compares: TREC runs, models, and files of scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinrank.cli.data_options import load_data, show_notes
from twinrank.cli.output_options import show_note
from twinrank.cli.predict_command import scores_of
from twinrank.support.errors import Argument, InputError
from twinrank.support.quantities import counted

if TYPE_CHECKING:
    from twinrank.data.dataset import Dataset
    from twinrank.evaluation.evaluation_values import Evaluation
    from twinrank.evaluation.trec_files import Run
    from twinrank.learning.estimators.base_ranker import BaseRanker


def evaluate_runs(
    paths: list[Path],
    qrels: Path,
    measures: list[str] | None,
    level: float,
    complete: bool,
    policy: dict[str, Any],
) -> "dict[str, Evaluation]":
    """Evaluate TREC runs, by name, against the same judgements."""
    from twinrank.evaluation.conventions import convention_of
    from twinrank.evaluation.measure_names import MAIN
    from twinrank.evaluation.run_evaluation import evaluate_run, parse_measures
    from twinrank.evaluation.trec_files import read_qrels, read_run, read_subtopics

    measure_names = measures or list(MAIN)
    convention = convention_of(policy["convention"], policy["empty"], policy["ties"])
    asked = parse_measures(measure_names, convention, level)  # before any file is read
    runs = dict(zip(system_names(paths), map(read_run, paths), strict=True))
    judged: Mapping[str, Any] = read_subtopics(qrels) if asked.varied else read_qrels(qrels)
    if len(runs) > 1:
        measure_names = ["runid", *measure_names]  # identifies the runs in trec output
    options = {"level": level, "complete": complete, **policy}
    common = judged if complete or len(runs) == 1 else _common_queries(runs, judged)
    results = {n: evaluate_run(run, common, measure_names, **options) for n, run in runs.items()}
    for name, run in runs.items():
        _show_missing(name, run, judged, qrels, complete)
    if any(run.scores.keys() & judged.keys() > common.keys() for run in runs.values()):
        show_note(f"Compared on the {len(common):,} queries that all runs have.")
    return results


def _show_missing(
    name: str, run: "Run", judged: Mapping[str, Any], qrels: Path, complete: bool
) -> None:
    """Print the queries that only the run or only the qrels have."""
    if unjudged := run.scores.keys() - judged.keys():
        show_note(f"{name}: {_queries(unjudged)} without judgements, ignored.")
    if absent := judged.keys() - run.scores.keys():
        treated = "counted as 0" if complete else "left out; -c counts them as 0"
        show_note(f"{name}: {_queries(absent)} of {qrels.name} absent, {treated}.")


def _common_queries(runs: "Mapping[str, Run]", judged: Mapping[str, Any]) -> Mapping[str, Any]:
    """The judgements of the queries that all runs have."""
    common = set.intersection(*({*run.scores} for run in runs.values())) & judged.keys()
    if not common:
        raise InputError("No judged query is in all runs; -c counts absent ones as 0.")
    return {query: judged[query] for query in judged if query in common}


def _queries(queries: "set[str]") -> str:
    first = ", ".join(sorted(queries)[:3])
    count = len(queries)
    return f"{count:,} {'query' if count == 1 else 'queries'} ({first}{', …' if count > 3 else ''})"


def system_names(paths: Sequence[Path]) -> list[str]:
    """The names of files and folders, or their full paths if names repeat."""
    short = [path.name or str(path) for path in paths]
    full = [str(path) for path in paths]
    for name in full:
        if full.count(name) > 1:
            raise InputError(f"{name} appears twice. Name each system once.")
    return short if len(set(short)) == len(short) else full


@dataclass(frozen=True, eq=False)
class ScoredSystems:
    """Systems that scored the same data: evaluations, scores, and rankers or None, by name."""

    results: "dict[str, Evaluation]"
    data: "Dataset"
    scores: dict[str, Any]
    rankers: "dict[str, BaseRanker | None]"


def evaluate_scores(
    data: Path,
    models: "list[Path]",
    files: list[Path],
    runs: list[Path],
    measures: list[str] | None,
    level: float,
    policy: dict[str, Any],
    reading: dict[str, Any] | None,
    architecture: str | None = None,
) -> ScoredSystems:
    """Evaluate models, files of scores, and runs, by name, on the same data."""
    from twinrank.evaluation.conventions import convention_of
    from twinrank.evaluation.evaluate import DEFAULT, evaluate_data
    from twinrank.evaluation.run_evaluation import parse_measures

    names = system_names([*models, *files, *runs])
    convention = convention_of(policy.pop("convention"), policy.pop("empty"), policy.pop("ties"))
    asked = parse_measures(measures or DEFAULT, convention, level, expand=False)
    if asked.judged_only:
        raise InputError(
            f"{min(asked.judged_only)}: judged_only is for runs with --qrels. Leave it out, and "
            f"drop unjudged documents: ",
            Argument("unjudged", "drop"),
            ".",
        )
    if asked.counts:
        verb = "is" if len(asked.counts) == 1 else "are"
        show_note(f"{', '.join(asked.counts)} {verb} for runs with --qrels and left out here.")
    by_name: Any = asked.measures
    rankers = load_models(models, data, architecture)
    text = {name for ranker in rankers for name in ranker._known_columns().text}
    loaded = load_data(data, reading or {}, sorted(text))
    show_notes(loaded)
    if convention.ties == "docid" and loaded.comments is None:
        raise InputError(f"{data} has no document ids to order ties by; choose --ties stable.")
    docids = loaded.docids if convention.ties == "docid" else None
    if not measures and loaded.row_weights is not None:
        by_name = {name: own for name, own in by_name.items() if own.takes_weights}
        *others, last = [name for name in asked.measures if name not in by_name]
        without = f"{', '.join(others)} and {last}"
        show_note(f"{without} take no weights that differ within a query and are left out.")
    policy |= {"docids": docids, "query_ids": loaded.query_ids, "convention": convention}
    all_scores = [scores_of(ranker, loaded, data) for ranker in rankers]
    all_scores += [loaded.from_source_order(read_scores_of(p, loaded.documents)) for p in files]
    all_scores += [_run_scores(path, loaded, data) for path in runs]
    by_system = dict(zip(names, all_scores, strict=True))
    results = {
        name: evaluate_data(scores, loaded, by_name, **policy) for name, scores in by_system.items()
    }
    sources = [*rankers, *[None] * (len(files) + len(runs))]
    return ScoredSystems(results, loaded, by_system, dict(zip(names, sources, strict=True)))


def load_models(folders: "list[Path]", data: Path, architecture: str | None) -> list[Any]:
    """Load models before the data, which may take long; without models, torch isn't imported."""
    if not folders:
        return []
    from twinrank.learning.estimators.saved_ranker import load_model
    from twinrank.learning.models.saved_model import needs_architecture

    if (data / "config.json").is_file() or (data / "run.json").is_file():
        raise InputError(f"{data} is a model's folder; DATA comes last.")
    own = [architecture if needs_architecture(folder) else None for folder in folders]
    return [load_model(folder, net) for folder, net in zip(folders, own, strict=True)]


def read_scores_of(path: Path, documents: int) -> Any:
    """Read a file with one score per document."""
    import numpy as np

    from twinrank.evaluation.trec_files import read_scores

    values = np.frombuffer(read_scores(path))
    if values.size != documents:
        raise InputError(
            f"{path} has {values.size:,} scores, but DATA has {documents:,} documents; both need "
            f"one score per document."
        )
    return values


def _run_scores(path: Path, data: "Dataset", name: Path) -> Any:
    """The scores of a run, by query and document id; documents that it lacks come last."""
    import numpy as np

    from twinrank.evaluation.trec_files import read_run

    by_query = read_run(path).scores
    keys = list(zip(map(str, data.qid.tolist()), data.docids_or_numbers.tolist(), strict=True))
    if len(set(keys)) < len(keys):
        raise InputError(f"{name} has a document id twice in a query; --run needs different ids.")
    scores = np.array([by_query.get(query, {}).get(docid, np.nan) for query, docid in keys])
    absent = np.isnan(scores)
    if absent.all():
        query, docid = keys[0]
        advice = [] if data.docids is not None else [" If it has document ids, name them: --docid."]
        raise InputError(
            f"{path} has no document of {name}, whose first is {docid!r} of query {query!r}.",
            *advice,
        )
    if data.docids is None:
        show_note(
            f"{name} has no document ids: those of {path.name} are taken for the numbers of "
            f"documents within their query, from 1."
        )
    retrieved = sum(map(len, by_query.values()))
    if absent.any():
        whole = int(data.lists.min(absent.astype(np.float64)).sum())
        show_note(
            f"{path.name} lacks {absent.sum():,} of {counted(len(keys), 'document')} of {name}, "
            f"which rank last. It lacks {counted(whole, 'query')} completely."
        )
    if ignored := retrieved - int((~absent).sum()):
        show_note(f"{path.name}: {counted(ignored, 'document')} that {name} lacks, ignored.")
    lowest = np.nanmin(scores)
    return np.where(absent, min(lowest - 1, np.nextafter(lowest, -np.inf)), scores)
