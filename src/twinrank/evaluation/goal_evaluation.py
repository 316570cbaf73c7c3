"""Evaluation of sums of measures, and of data with several columns of labels."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from twinrank.core.measures import Measure, MeasureSum
from twinrank.core.measures.measure_sum import Goal, in_one
from twinrank.evaluation.evaluation_values import Evaluation
from twinrank.support.arrays import Floats, to_numpy
from twinrank.support.errors import InputError


def with_parts(measures: Mapping[str, Measure]) -> dict[str, Measure]:
    """The measures by name, and the terms of sums as measures of their own."""
    found = dict(measures)
    for own in measures.values():
        if isinstance(own, MeasureSum) and len(own.goals) > 1:
            found |= {name: part for name, part in own.parts().items() if name not in found}
    return found


def column_of(labels: Any, goal: Goal) -> Any:
    """The labels of a goal: its columns, or the first if it names none."""
    if not isinstance(labels, Mapping):
        labels = {None: labels}
    names = [next(iter(labels))] if goal.label is None else list(goal.columns)
    if missing := [name for name in names if name not in labels]:
        name = missing[0]
        known = [own for own in labels if own is not None]
        raise InputError(
            f"{goal} needs a column of labels called {name!r}, but the data has "
            f"{'only ' + ', '.join(map(repr, known)) if known else 'a single one without a name'}. "
            f"Name several: label=['click', {name!r}] of load, or labels={{…}} of "
            f"Dataset.from_arrays."
        )
    if goal.label is None or isinstance(goal.label, str):
        return labels[names[0]]
    return in_one(goal.measure, [np.asarray(to_numpy(labels[name])) for name in names])


def evaluate_goals(
    labels: Any,
    measures: Mapping[str, Measure],
    empty: str,
    of_column: Callable[[Any, dict[str, Measure]], Evaluation],
) -> Evaluation:
    """Evaluate each term on its column by `of_column`, whose empty lists are NaN, and add up."""
    goals = {
        name: own.goals if isinstance(own, MeasureSum) else (Goal(1.0, own),)
        for name, own in measures.items()
    }
    terms = {(g.label, str(g.measure)): g for listed in goals.values() for g in listed}
    results: dict[Any, Evaluation] = {}
    for label in dict.fromkeys(label for label, _ in terms):
        own = {name: g.measure for (place, name), g in terms.items() if place == label}
        goal = next(g for (place, _), g in terms.items() if place == label)
        results[label] = of_column(column_of(labels, goal), own)
    values, empty_lists = {}, {}
    fill = {"skip": np.nan, "zero": 0.0, "one": 1.0}
    for name, listed in goals.items():
        of_terms = np.array([results[g.label].values[str(g.measure)] for g in listed])
        weights = np.array([goal.weight for goal in listed])
        nothing = np.isnan(of_terms).all(axis=0)
        if empty == "error" and nothing.any():
            raise InputError(
                f"{int(nothing.sum())} of {nothing.size} lists have no relevant document for "
                f"{name}; the first is list {int(np.argmax(nothing))}."
            )
        total: Floats = weights @ np.nan_to_num(of_terms)
        values[name] = np.where(nothing, fill.get(empty, 0.0), total)
        empty_lists[name] = int(nothing.sum())
    first = next(iter(results.values()))
    return Evaluation(
        values,
        first.convention,
        documents=first.documents,
        empty_lists=empty_lists,
        query_ids=first.query_ids,
    )
