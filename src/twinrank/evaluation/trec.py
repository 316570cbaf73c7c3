"""Runs against judgements, as trec_eval measures them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

import numpy as np

from twinrank.data.trec import Run, read_qrels, read_run
from twinrank.evaluation.conventions import Convention, convention_of, read_name
from twinrank.evaluation.evaluate import evaluate
from twinrank.evaluation.ranked import RankedLists
from twinrank.evaluation.result import Evaluation
from twinrank.measures import NAMES, Measure
from twinrank.measures.measure_base import BinaryMeasure
from twinrank.support.errors import InputError

_ALONE = {
    "map": "AP(divisor=R)",
    "ndcg": "nDCG(gain=linear)",
    "recip_rank": "RR",
    "set_P": "P",
    "set_recall": "Recall",
}
_FAMILIES = {
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
    """What a name of trec_eval's means here, or nothing: `P_5`, `P.5,10`, `ndcg_cut`, `map`.

    >>> trec_names("ndcg_cut.5,10")
    {'ndcg_cut_5': 'nDCG(gain=linear)@5', 'ndcg_cut_10': 'nDCG(gain=linear)@10'}
    >>> trec_names("nDCG@10")
    {}
    """
    if name in _ALONE:
        return {name: _ALONE[name]}
    match = re.fullmatch(r"([A-Za-z_]+?)(?:_(\d+)|\.(\d+(?:,\d+)*))?", name)
    if match is None or match[1] not in _FAMILIES or name == "P":  # P alone is a measure of ours
        return {}
    family, one, several = match.groups()
    if one or several:
        cutoffs: Sequence[int] = [int(k) for k in (one or several).split(",")]
    else:
        cutoffs = _CUTOFFS.get(family, _USUAL_CUTOFFS)
    return {f"{family}_{k}": f"{_FAMILIES[family]}@{k}" for k in cutoffs}


def named_measures(
    names: Sequence[str | Measure], convention: Convention, level: float = 1
) -> dict[str, Measure]:
    """Measures by the names that they are asked for, trec_eval's or ours.

    `level` is the grade from which a document counts as relevant, where a name doesn't say.
    """
    if not level > 0:
        raise InputError(f"the level of relevance must be a positive number, not {level}")
    found: dict[str, Measure] = {}
    for name in names:
        if isinstance(name, Measure):
            found[str(name)] = name
            continue
        known = trec_names(name)
        said = set() if known else set(read_name(name, [*NAMES, *_ALONE, *_FAMILIES]).options)
        for shown, notation in (known or {name: name}).items():
            one = convention.measure(notation)
            if isinstance(one, BinaryMeasure) and "rel" not in said:
                one = replace(one, rel=level)
            found[shown] = one
    return found


def asked_for(
    measures: str | Measure | Sequence[str | Measure], convention: Convention, level: float
) -> tuple[dict[str, Measure], list[str]]:
    """Measures by name, and which of runid and trec_eval's counts are asked for."""
    names = (measures,) if isinstance(measures, str | Measure) else measures
    plain = [name for name in (_RUNID, *COUNTS) if name in names]
    rest = [name for name in names if name not in plain]
    if not rest:
        raise InputError(f"name at least one measure{' besides ' * bool(plain)}{', '.join(plain)}")
    return named_measures(rest, convention, level), plain


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
    """Measure a run against judgements, by trec_eval's conventions unless told otherwise.

    Both are files, or scores and grades by query and document: `{"q1": {"doc7": 1.5}}`. Documents
    without a judgement aren't relevant; relevant ones that weren't retrieved count against the run.
    Queries of the run that have no judgements don't count; judged queries that the run leaves out
    count as 0 if `complete` (trec_eval's -c), else not at all. `level` is trec_eval's -l.

    >>> run = {"q1": {"a": 0.9, "b": 0.8, "c": 0.7}}
    >>> evaluate_run(run, {"q1": {"b": 1, "d": 1}}, ["map", "nDCG@10"]).means["map"]
    0.25
    """
    chosen = convention_of(convention, empty, ties)
    wanted, plain = asked_for(measures, chosen, level)
    run = Run("", run) if isinstance(run, Mapping) else run
    run = run if isinstance(run, Run) else read_run(run)
    judged = qrels if isinstance(qrels, Mapping) else read_qrels(qrels)
    queries = sorted(judged if complete else judged.keys() & run.scores.keys())
    if not queries:
        raise InputError(
            f"the run and the judgements have no query in common "
            f"(the run's first: {_first(run.scores)}; the judgements' first: {_first(judged)})"
        )
    ids, scores, labels, lists = _flat(queries, run.scores, judged)
    result = evaluate(
        scores,
        labels,
        lists,
        wanted,
        convention=chosen,
        docids=ids,
        query_ids=queries,
        random_state=random_state,
    )
    counts = _counts(scores, labels, lists, level)
    return replace(
        result,
        documents=int(counts["num_ret"].sum()),
        counts={name: counts[name] for name in COUNTS if name in plain},
        run=run.name if _RUNID in plain else "",
        absent=np.array([query not in run.scores for query in queries]),
    )


def _counts(scores: Any, labels: Any, lists: RankedLists, level: float) -> dict[str, Any]:
    """What trec_eval counts, by query; there too, a query that the run leaves out counts nothing.

    Only the number of queries is that of all that are averaged over.
    """
    ranked, relevant = scores > -np.inf, labels >= level
    found = lists.sum(ranked)
    counts = (found >= 0, found, lists.sum(relevant) * (found > 0), lists.sum(ranked & relevant))
    return {name: count.astype(np.int64) for name, count in zip(COUNTS, counts, strict=True)}


def _flat(
    queries: list[str], retrieved: Mapping[str, Any], judged: Mapping[str, Any]
) -> tuple[Any, Any, Any, RankedLists]:
    """Document ids, scores, labels and lists; relevant documents not retrieved come last."""
    ids: list[str] = []
    scores: list[float] = []
    labels: list[float] = []
    sizes, ranked = [], []
    for query in queries:
        found, grades = retrieved.get(query, {}), judged[query]
        unseen = [d for d, grade in grades.items() if grade > 0 and d not in found]
        ids += [*found, *unseen]
        scores += [*_finite(query, found), *[-np.inf] * len(unseen)]
        labels += [max(grades[d], 0) if d in grades else -1 for d in found]
        labels += [grades[d] for d in unseen]
        sizes.append(len(found) + len(unseen))
        ranked.append(len(found))
    offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    lists = RankedLists(offsets, np.array(ranked, np.int64))
    return np.array(ids, object), np.array(scores, np.float64), np.array(labels, np.float64), lists


def _finite(query: str, found: Mapping[str, float]) -> Iterable[float]:
    """The scores of one query, none of them NaN or infinite."""
    if not all(map(isfinite, found.values())):
        document = next(d for d, score in found.items() if not isfinite(score))
        raise InputError(
            f"the score of document {document!r} for query {query!r} must be a finite number, "
            f"not {found[document]}"
        )
    return found.values()


def _first(queries: Mapping[str, Any]) -> str:
    return repr(min(queries)) if queries else "none"
