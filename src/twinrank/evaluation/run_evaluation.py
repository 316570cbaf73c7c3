"""`evaluate_run`: a TREC run evaluated against judgements, as by trec_eval."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any

import numpy as np

from twinrank.core.measures import Measure, MeasureSum
from twinrank.core.measures import names as measure_names
from twinrank.core.measures.variety import VarietyMeasure
from twinrank.evaluation.conventions import Convention, convention_of, read_name
from twinrank.evaluation.evaluate import evaluate
from twinrank.evaluation.evaluation_values import Evaluation
from twinrank.evaluation.measure_names import (
    COUNTS,
    GEOMETRIC,
    MAIN,
    RUNID,
    WITH_CUTOFF,
    WITHOUT_CUTOFF,
    requested,
    translated,
    trec_names,
)
from twinrank.evaluation.retrieved_lists import RetrievedLists
from twinrank.evaluation.run_sources import as_qrels, as_run, as_subtopics
from twinrank.support.errors import InputError
from twinrank.support.notation import summands


@dataclass(frozen=True)
class Requested:
    """What was asked for: measures by name, those on judged documents only, and counts."""

    measures: dict[str, Measure]
    judged_only: set[str] = field(default_factory=set)
    counts: list[str] = field(default_factory=list)

    @property
    def varied(self) -> list[str]:
        """The names of measures of variety, which need judgements of sub-topics."""
        return [name for name, own in self.measures.items() if isinstance(own, VarietyMeasure)]


def named_measures(
    names: Any, convention: Convention, level: float = 1, *, expand: bool = False
) -> Requested:
    """Measures by name, where names are those of trec_eval, of ir_measures, or ours.

    `level` is the lowest grade of a relevant document, for names without the option `rel`. With
    `expand`, `P` stands for the usual cutoffs, as in trec_eval, and not for the whole list.
    """
    if not level > 0:
        raise InputError(f"The relevance level must be a positive number, not {level}.")
    result = Requested({})
    for name in requested(names):
        if isinstance(name, str) and summands(name) != [(1.0, name.strip())]:
            own = convention.measure(name, level)
            if isinstance(own, MeasureSum) and any(
                isinstance(goal.measure, VarietyMeasure) for goal in own.goals
            ):
                raise InputError(
                    f"{own} has a measure of variety as a term, which cannot be evaluated on a "
                    f"run; name the terms one by one."
                )
            result.measures[name] = own
            continue
        asked = translated(name)
        if isinstance(asked.notation, Measure):
            result.measures[asked.name] = asked.notation
            continue
        if asked.notation in (RUNID, *COUNTS):
            result.counts.append(asked.notation)
            continue
        notations = trec_names(asked.name, expand=expand)
        if not notations:
            known = [*measure_names(), *WITHOUT_CUTOFF, *WITH_CUTOFF]
            read_name(asked.notation, known)
            notations = {asked.name: asked.notation}
        for key, notation in notations.items():
            result.measures[key] = convention.measure(notation, level)
            if asked.judged_only:
                result.judged_only.add(key)
    return result


def parse_measures(
    measures: Any, convention: Convention, level: float, *, expand: bool = True
) -> Requested:
    """As `named_measures`; an error if there are no measures besides runid and counts."""
    result = named_measures(measures, convention, level, expand=expand)
    if not result.measures:
        besides = f" besides {', '.join(result.counts)}" if result.counts else ""
        raise InputError(f"Give at least one measure{besides}.")
    return result


def evaluate_run(
    run: Any,
    qrels: Any,
    measures: Any = MAIN,
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
    run : str, path, mapping, frame or iterable
        A run file; scores by query and document, `{"q1": {"doc7": 1.5}}`; a frame with columns
        query_id, doc_id and score (or qid, docno and score); or named tuples with these fields, as
        those of ir_measures.
    qrels : str, path, mapping, frame or iterable
        The same for judgements: a file, `{"q1": {"doc7": 2}}`, or a frame or named tuples with
        query_id, doc_id and relevance (or label), as those of ir_datasets. Measures of variety,
        such as `alpha_nDCG@10`, need judgements of sub-topics: a file of `query subtopic document
        grade`, `{"q1": {"doc7": {"a": 1}}}`, or a column subtopic_id or iteration. Other measures
        then take the highest grade of a document.
    measures : str, Measure, measure of ir_measures, or sequence of them
        Names of trec_eval, such as `"ndcg_cut_10"`, `"P"` or `"official"`; measures of ir_measures,
        such as `nDCG(dcg='exp-log2')@10`, or their names; or ours. `judged_only=True` in a name
        leaves unjudged documents out of the ranking. The default is the main output of trec_eval.
    level : float, default 1
        The lowest grade of a relevant document (option -l of trec_eval).
    complete : bool, default False
        Count judged queries that the run does not contain as 0 (option -c of trec_eval), and their
        relevant documents in num_rel. Otherwise they are left out.
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
    asked = parse_measures(measures, rules, level)
    run = as_run(run)
    sets: dict[str, dict[str, int]] = {}
    if varied := asked.varied:
        by_subtopic = as_subtopics(qrels)
        sets, most = _sets_of(by_subtopic, level)
        judged: Mapping[str, Mapping[str, float]] = _highest(by_subtopic)
        for name in varied:
            asked.measures[name] = replace(asked.measures[name], subtopics=most)  # type: ignore[call-arg]
    else:
        judged = as_qrels(qrels)
    queries = sorted(judged if complete else judged.keys() & run.scores.keys())
    if not queries:
        raise InputError(
            f"The run and the judgements have no query in common. The first query of the run is "
            f"{_first(run.scores)}; the first of the judgements is {_first(judged)}."
        )

    parts: dict[tuple[bool, bool, bool], dict[str, Measure]] = {}
    for name, own in asked.measures.items():
        part = name in asked.judged_only, own.counts_not_relevant, name in varied
        parts.setdefault(part, {})[name] = own
    whole = _flat(queries, run.scores, judged, all_judged=False)
    results: dict[str, Evaluation] = {}
    for (judged_only, all_judged, as_sets), by_name in parts.items():
        flat = whole
        if judged_only or all_judged or as_sets:
            retrieved = _judged_part(run.scores, judged) if judged_only else run.scores
            flat = _flat(queries, retrieved, sets if as_sets else judged, all_judged)
        ids, scores, labels, lists = flat
        more: Any = {"convention": rules, "docids": ids, "query_ids": queries}
        part_result = evaluate(scores, labels, lists, by_name, **more, random_state=random_state)
        results |= dict.fromkeys(by_name, part_result)
        for name in part_result.values:  # the terms of sums
            results.setdefault(name, part_result)
    ordered = {name: results[name] for name in (*asked.measures, *results)}
    result = replace(
        part_result,
        values={name: own.values[name] for name, own in ordered.items()},
        empty_lists={name: own.empty_lists[name] for name, own in ordered.items()},
    )
    counts = _counts(*whole[1:], level)
    return replace(
        result,
        documents=int(counts["num_ret"].sum()),
        counts={name: counts[name] for name in COUNTS if name in asked.counts},
        run=run.name if RUNID in asked.counts else "",
        absent=np.array([query not in run.scores for query in queries]),
        geometric=frozenset({GEOMETRIC} & result.values.keys()),
    )


def _sets_of(
    judged: Mapping[str, Mapping[str, Mapping[str, float]]], level: float
) -> tuple[dict[str, dict[str, int]], int]:
    """The sub-topics of each document as a set, numbered in each query; the highest number."""
    sets: dict[str, dict[str, int]] = {}
    most = 1
    for query, documents in judged.items():
        known = sorted({t for own in documents.values() for t, g in own.items() if g >= level})
        place = {t: 1 << i for i, t in enumerate(known)}
        most = max(most, len(known))
        sets[query] = {
            document: sum(place[t] for t, g in own.items() if g >= level)
            for document, own in documents.items()
        }
    return sets, most


def _highest(
    judged: Mapping[str, Mapping[str, Mapping[str, float]]],
) -> dict[str, dict[str, float]]:
    """The highest grade of each document."""
    return {q: {d: max(own.values()) for d, own in docs.items()} for q, docs in judged.items()}


def _judged_part(run: Mapping[str, Any], judged: Mapping[str, Any]) -> dict[str, Any]:
    """A run without unjudged documents."""
    return {
        query: {doc: score for doc, score in scores.items() if judged[query].get(doc, -1) >= 0}
        for query, scores in run.items()
        if query in judged
    }


def _counts(scores: Any, labels: Any, lists: RetrievedLists, level: float) -> dict[str, Any]:
    """The counts of trec_eval by query.

    As in trec_eval 9.0.4 and later, num_rel includes the queries that the run does not contain.
    trec_eval then counts all grades above 0; here `level` applies.
    """
    ranked, relevant = scores > -np.inf, labels >= level
    num_ret = lists.sum(ranked)
    counts = (num_ret >= 0, num_ret, lists.sum(relevant), lists.sum(ranked & relevant))
    return {name: count.astype(np.int64) for name, count in zip(COUNTS, counts, strict=True)}


def _flat(
    queries: list[str], retrieved: Mapping[str, Any], judged: Mapping[str, Any], all_judged: bool
) -> tuple[Any, Any, Any, RetrievedLists]:
    """Document ids, scores, labels and lists; documents that were not retrieved come last.

    These are the relevant ones, or with `all_judged` all that are judged. trec_eval's bpref treats
    grades below 0 as unjudged; other measures treat them as 0.
    """
    least, lowest = (0, -1) if all_judged else (np.nextafter(0, 1), 0)
    ids: list[str] = []
    scores: list[float] = []
    labels: list[float] = []
    sizes, ranked = [], []
    for query in queries:
        documents, grades = retrieved.get(query, {}), judged[query]
        missed = [d for d, grade in grades.items() if grade >= least and d not in documents]
        ids += [*documents, *missed]
        scores += [*_finite(query, documents), *[-np.inf] * len(missed)]
        labels += [max(grades[d], lowest) if d in grades else -1 for d in documents]
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
