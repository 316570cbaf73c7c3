"""`evaluate_run`: a TREC run evaluated against judgements, as by trec_eval."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

import numpy as np

from twinrank.core.measures import Measure
from twinrank.core.measures import names as measure_names
from twinrank.core.measures.measure_base import BinaryMeasure
from twinrank.evaluation.conventions import Convention, convention_of, read_name
from twinrank.evaluation.evaluate import evaluate
from twinrank.evaluation.evaluation_values import Evaluation
from twinrank.evaluation.retrieved_lists import RetrievedLists
from twinrank.evaluation.trec_files import Run, read_qrels, read_run
from twinrank.support.errors import InputError

_WITHOUT_CUTOFF = {
    "map": "AP(divisor=R)",
    "ndcg": "nDCG(gain=linear)",
    "recip_rank": "RR",
    "set_P": "P",
    "set_recall": "Recall",
}
_WITH_CUTOFF = {
    "ndcg_cut": "nDCG(gain=linear)",
    "map_cut": "AP(divisor=R)",
    "P": "P",
    "recall": "Recall",
    "success": "Success",
}
_CUTOFFS = {"success": (1, 5, 10)}
_USUAL_CUTOFFS = (5, 10, 15, 20, 30, 100, 200, 500, 1000)
_RUNID = "runid"
COUNTS = ("num_q", "num_ret", "num_rel", "num_rel_ret")
OFFICIAL = (_RUNID, *COUNTS, "map", "Rprec", "recip_rank", "P_5", "P_10", "P_15", "P_20", "P_30",
            "P_100", "ndcg", "ndcg_cut_10")  # fmt: skip


def trec_names(name: str) -> dict[str, str]:
    """The measures of a trec_eval name such as `P_5`, `P.5,10`, `ndcg_cut` or `map`.

    The result maps names of trec_eval to our notation. It is empty for other names.

    >>> trec_names("ndcg_cut.5,10")
    {'ndcg_cut_5': 'nDCG(gain=linear)@5', 'ndcg_cut_10': 'nDCG(gain=linear)@10'}
    >>> trec_names("nDCG@10")
    {}
    """
    if name in _WITHOUT_CUTOFF:
        return {name: _WITHOUT_CUTOFF[name]}
    match = re.fullmatch(r"([A-Za-z_]+?)(?:_(\d+)|\.(\d+(?:,\d+)*))?", name)
    if (
        match is None or match[1] not in _WITH_CUTOFF or name == "P"
    ):  # P without a cutoff is our own name
        return {}
    family, cutoff, cutoffs = match.groups()
    if cutoff or cutoffs:
        ks: Sequence[int] = [int(k) for k in (cutoff or cutoffs).split(",")]
    else:
        ks = _CUTOFFS.get(family, _USUAL_CUTOFFS)
    return {f"{family}_{k}": f"{_WITH_CUTOFF[family]}@{k}" for k in ks}


def named_measures(
    names: Sequence[str | Measure], convention: Convention, level: float = 1
) -> dict[str, Measure]:
    """Measures by name, where names are those of trec_eval or ours.

    `level` is the lowest grade of a relevant document, for names without the option `rel`.
    """
    if not level > 0:
        raise InputError(f"The relevance level must be a positive number, not {level}.")
    measures: dict[str, Measure] = {}
    for name in names:
        if isinstance(name, Measure):
            measures[str(name)] = name
            continue
        notations, options = trec_names(name), {}
        if not notations:
            options = read_name(name, [*measure_names(), *_WITHOUT_CUTOFF, *_WITH_CUTOFF]).options
            notations = {name: name}
        for key, notation in notations.items():
            measure = convention.measure(notation)
            if isinstance(measure, BinaryMeasure) and "rel" not in options:
                measure = replace(measure, rel=level)
            measures[key] = measure
    return measures


def parse_measures(
    measures: str | Measure | Sequence[str | Measure], convention: Convention, level: float
) -> tuple[dict[str, Measure], list[str]]:
    """Measures by name, and the requested names among runid and the counts of trec_eval."""
    names = (measures,) if isinstance(measures, str | Measure) else measures
    counts = [name for name in (_RUNID, *COUNTS) if name in names]
    rest = [name for name in names if name not in counts]
    if not rest:
        besides = f" besides {', '.join(counts)}" if counts else ""
        raise InputError(f"Give at least one measure{besides}.")
    return named_measures(rest, convention, level), counts


def evaluate_run(
    run: Any,
    qrels: Any,
    measures: str | Measure | Sequence[str | Measure] = OFFICIAL,
    *,
    level: float = 1,
    complete: bool = False,
    convention: str | Convention = "trec",
    empty: str | None = None,
    ties: str | None = None,
    random_state: int = 0,
) -> Evaluation:
    """Evaluate a run against judgements, by default with the rules of trec_eval.

    Documents without a judgement are not relevant. Relevant documents that were not retrieved lower
    the values. Queries of the run without judgements are left out.

    Parameters
    ----------
    run : str, path or mapping
        A run file, or scores by query and document: `{"q1": {"doc7": 1.5}}`.
    qrels : str, path or mapping
        A file of judgements, or grades by query and document: `{"q1": {"doc7": 2}}`.
    measures : str, Measure or sequence of them
        Names of trec_eval or ours. The default is the main output of trec_eval.
    level : float, default 1
        The lowest grade of a relevant document (option -l of trec_eval).
    complete : bool, default False
        Count judged queries that the run does not contain as 0 (option -c of trec_eval). Otherwise
        they are left out.
    convention : str, default "trec"
        The rules of the evaluation, as in `evaluate`.
    empty : {"skip", "zero", "one", "error"}, optional
        The value of a query without relevant documents.
    ties : {"docid", "random", "stable", "average", "relevant"}, optional
        How documents with equal scores are ordered.
    random_state : int, default 0
        The seed of `ties="random"`.

    Returns
    -------
    Evaluation
        One value per measure and query, and their means.

    Raises
    ------
    InputError
        If the run and the judgements have no query in common, or a name is unknown.
    FileError
        If a file cannot be read.

    Examples
    --------
    >>> run = {"q1": {"a": 0.9, "b": 0.8, "c": 0.7}}
    >>> evaluate_run(run, {"q1": {"b": 1, "d": 1}}, ["map", "nDCG@10"]).means["map"]
    0.25
    """
    rules = convention_of(convention, empty, ties)
    by_name, requested = parse_measures(measures, rules, level)
    run = Run("", run) if isinstance(run, Mapping) else run
    run = run if isinstance(run, Run) else read_run(run)
    judged = qrels if isinstance(qrels, Mapping) else read_qrels(qrels)
    queries = sorted(judged if complete else judged.keys() & run.scores.keys())
    if not queries:
        raise InputError(
            f"The run and the judgements have no query in common. The first query of the run is "
            f"{_first(run.scores)}; the first of the judgements is {_first(judged)}."
        )
    ids, scores, labels, lists = _flat(queries, run.scores, judged)
    result = evaluate(
        scores,
        labels,
        lists,
        by_name,
        convention=rules,
        docids=ids,
        query_ids=queries,
        random_state=random_state,
    )
    counts = _counts(scores, labels, lists, level)
    return replace(
        result,
        documents=int(counts["num_ret"].sum()),
        counts={name: counts[name] for name in COUNTS if name in requested},
        run=run.name if _RUNID in requested else "",
        absent=np.array([query not in run.scores for query in queries]),
    )


def _counts(scores: Any, labels: Any, lists: RetrievedLists, level: float) -> dict[str, Any]:
    """The counts of trec_eval by query.

    As in trec_eval, a query that the run does not contain counts in num_q only.
    """
    ranked, relevant = scores > -np.inf, labels >= level
    num_ret = lists.sum(ranked)
    num_rel = lists.sum(relevant) * (num_ret > 0)
    counts = (num_ret >= 0, num_ret, num_rel, lists.sum(ranked & relevant))
    return {name: count.astype(np.int64) for name, count in zip(COUNTS, counts, strict=True)}


def _flat(
    queries: list[str], retrieved: Mapping[str, Any], judged: Mapping[str, Any]
) -> tuple[Any, Any, Any, RetrievedLists]:
    """Document ids, scores, labels and lists; documents that were not retrieved come last."""
    ids: list[str] = []
    scores: list[float] = []
    labels: list[float] = []
    sizes, ranked = [], []
    for query in queries:
        documents, grades = retrieved.get(query, {}), judged[query]
        missed = [d for d, grade in grades.items() if grade > 0 and d not in documents]
        ids += [*documents, *missed]
        scores += [*_finite(query, documents), *[-np.inf] * len(missed)]
        labels += [max(grades[d], 0) if d in grades else -1 for d in documents]
        labels += [grades[d] for d in missed]
        sizes.append(len(documents) + len(missed))
        ranked.append(len(documents))
    offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    lists = RetrievedLists(offsets, np.array(ranked, np.int64))
    return np.array(ids, object), np.array(scores, np.float64), np.array(labels, np.float64), lists


def _finite(query: str, scores: Mapping[str, float]) -> Iterable[float]:
    """The scores of a query, checked to be finite."""
    if not all(map(isfinite, scores.values())):
        document = next(d for d, score in scores.items() if not isfinite(score))
        raise InputError(
            f"The score of document {document!r} for query {query!r} must be a finite number, "
            f"not {scores[document]}."
        )
    return scores.values()


def _first(queries: Mapping[str, Any]) -> str:
    return repr(min(queries)) if queries else "none"
