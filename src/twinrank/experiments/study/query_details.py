"""The queries of a study that its report shows one by one."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from twinrank.evaluation.evaluate import evaluate
from twinrank.experiments.report.query_rankings import RankedQuery, choice_note, chosen_queries
from twinrank.experiments.study.study_folder import Results

QUERIES = 200
"""The number of queries in a report by default."""


def query_details(results: Results, measure: str, count: int) -> dict[str, Any]:
    """Fields of `ReportContent`: the queries on which methods differ most, at most `count`.

    Several seeds give several rankings; the first seed's are shown.
    """
    if count < 1 or len(results.methods) < 2:
        return {}
    scores = {name: _first_seed(results, name) for name in results.methods}
    tests = results.tests
    values = {
        name: np.concatenate(
            [
                evaluate(part, test.y, test.lists, [measure]).values[measure]
                for part, test in zip(parts, tests, strict=True)
            ]
        )
        for name, parts in scores.items()
    }
    folds = np.repeat(np.arange(len(tests)), [test.queries for test in tests])
    numbers = np.concatenate([np.arange(test.queries) for test in tests])
    queries = []
    for i in chosen_queries(values, count).tolist():
        test, number = tests[folds[i]], int(numbers[i])
        first, last = test.lists.offsets[number : number + 2]
        queries.append(
            RankedQuery(
                str(test.query_ids[number]),
                np.asarray(test.y[first:last], np.float64),
                {name: parts[folds[i]][first:last] for name, parts in scores.items()},
                {name: by_query[i] for name, by_query in values.items()},
                test.take(np.array([number])),
                () if test.docids is None else test.docids[first:last].tolist(),
            )
        )
    seeds = results.study.seeds
    note = choice_note(len(queries), numbers.size)
    if len(seeds) > 1:
        note += f" The rankings are those of seed {seeds[0]}."
    names = tests[0].feature_names or ()
    return {"queries": queries, "feature_names": names, "queries_note": note}


def _first_seed(results: Results, method: str) -> Sequence[Any]:
    """The scores of the first seed on each fold."""
    first = results.study.seeds[0]
    by_fold = {u.unit.fold: u.scores for u in results.units_of(method) if u.unit.seed == first}
    return [by_fold[fold] for fold in results.study.chosen_folds]
