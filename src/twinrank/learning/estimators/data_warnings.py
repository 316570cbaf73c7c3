"""Warnings about training data that is valid but probably wrong: leaks, shared queries, labels."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from twinrank.clicks.click_measures import check_click_objective
from twinrank.core.measures import Measure, MeasureSum, measure
from twinrank.core.measures.dcg import GainMeasure
from twinrank.core.measures.measure_sum import Goal
from twinrank.core.measures.variety import VarietyMeasure
from twinrank.data.dataset import Dataset
from twinrank.learning.training.validation import selecting_set
from twinrank.support.errors import Argument, DataWarning, InputError, warn
from twinrank.support.quantities import counted

if TYPE_CHECKING:
    from twinrank.learning.estimators.base_ranker import BaseRanker

PERFECT = 0.995
"""A feature that alone reaches this mean nDCG probably knows the labels."""
_SAMPLE = 1000  # queries
_FEWEST = 20  # queries; with fewer, chance can order all of them
_HIGHEST_LABEL = 20
_SHOWN = 5  # features in a message


def warn_about_training(ranker: "BaseRanker", data: Dataset, sets: Mapping[str, Dataset]) -> None:
    """Warn about data that is valid but looks wrong; refuse labels that a measure cannot take."""
    own = ranker.get_params()
    validation = sets[str(selecting_set(own["select"], sets))] if sets else None
    objectives = []
    for name, part in (("objective", data), ("validation_measure", validation)):
        for key in ranker._named(name):
            objectives.append(own[key])
            if part is not None and part.from_clicks:
                check_click_objective(own[key], key)
            if part is not None and isinstance(known := _measure_of(own[key]), GainMeasure):
                known.gains(np.unique(part.y))  # an error for labels without a gain
    found = [_leaks(data), _gains(data, objectives)]
    for key in ranker._named("objective"):
        strategy = own.get(key.removesuffix("objective") + "strategy")
        found.append(_variety(own[key], strategy))
    if validation is not None:
        found.append(_shared(data, validation))
    for warning in filter(None, found):
        warn(warning)


def _leaks(data: Dataset) -> DataWarning | None:
    names = data.feature_names
    leaks = leaking_features(data)
    shown = [str(i + 1) if names is None else repr(names[i]) for i in leaks[:_SHOWN]]
    if not leaks:
        return None
    listed = ", ".join(shown) + (", …" if len(leaks) > _SHOWN else "")
    subject = f"Feature {listed}" if len(leaks) == 1 else f"Each of the features {listed}"
    return DataWarning(
        f"{subject} ranks the training data alone, with a mean nDCG of at least {PERFECT}. If it "
        f"was made from the labels, leave it out."
    )


def leaking_features(data: Dataset) -> list[int]:
    """The features that alone, ascending or descending, rank sampled queries almost perfectly.

    Documents with equal values share the mean of their discounts. A feature is given up as soon as
    it can no longer reach the mean.
    """
    labels = np.maximum(data.y, 0)
    mixed = np.flatnonzero(data.lists.min(labels) < data.lists.max(labels))
    queries = np.random.default_rng(0).permutation(mixed)[:_SAMPLE]
    if queries.size < _FEWEST:
        return []
    exponential = labels.max() <= _HIGHEST_LABEL
    lost = np.zeros((2, data.features))  # descending, ascending
    most = (1 - PERFECT) * queries.size
    for query in queries.tolist():
        alive = np.flatnonzero(lost.min(axis=0) <= most)
        if not alive.size:
            return []
        X = data.take(np.array([query]))[:, alive]
        own = labels[data.lists.offsets[query] : data.lists.offsets[query + 1]].astype(np.float64)
        gains = np.exp2(own) - 1 if exponential else own
        ideal = np.sort(gains)[::-1] @ _discounts(gains.size)
        for side, values in enumerate((X, -X)):
            lost[side, alive] += 1 - gains @ _mean_discounts(values) / ideal
    return np.flatnonzero(lost.min(axis=0) <= most).tolist()


def _discounts(size: int) -> npt.NDArray[np.float64]:
    return 1 / np.log2(np.arange(size) + 2)


def _mean_discounts(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """The discount of each document in each column, the mean over equal values; NaN comes last."""
    keys = np.where(np.isnan(values), np.inf, -values)
    order = np.argsort(keys, axis=0)
    ranked = np.take_along_axis(keys, order, axis=0)
    places = np.arange(len(values))[:, None]
    first = np.ones(values.shape, np.bool_)
    first[1:] = ranked[1:] != ranked[:-1]
    last = np.roll(first, -1, axis=0)
    last[-1] = True
    starts = np.maximum.accumulate(np.where(first, places, 0), axis=0)
    ends = np.minimum.accumulate(np.where(last, places, len(values))[::-1], axis=0)[::-1]
    total = np.append(0, np.cumsum(_discounts(len(values))))
    means = np.empty(values.shape)
    np.put_along_axis(means, order, (total[ends + 1] - total[starts]) / (ends + 1 - starts), axis=0)
    return means


def _shared(data: Dataset, validation: Dataset) -> DataWarning | None:
    """The warning if validation queries share ids and rows with the training data."""
    if data.feature_names != validation.feature_names or data.features != validation.features:
        return None
    places = {str(name): i for i, name in enumerate(data.query_ids.tolist())}
    pairs = [(places.get(str(name)), i) for i, name in enumerate(validation.query_ids.tolist())]
    both = [(i, j) for i, j in pairs if i is not None][:_SAMPLE]
    shared = sum(not _rows(data, i).isdisjoint(_rows(validation, j)) for i, j in both)
    if not shared:
        return None
    return DataWarning(
        f"{counted(shared, 'query')} of the validation data {'is' if shared == 1 else 'are'} also "
        f"in the training data, with the same id and rows. Measures on it are too good, and the "
        f"choice of the model too late. Remove the queries from one of them."
    )


def _variety(objective: Any, strategy: Any) -> DataWarning | None:
    """The warning if a measure of variety is optimised by a strategy that compares relevance."""
    known = _measure_of(objective)
    if known is None or strategy == "swap":
        return None
    goals = known.goals if isinstance(known, MeasureSum) else (Goal(1.0, known),)
    found = [str(goal) for goal in goals if isinstance(goal.measure, VarietyMeasure)]
    if not found:
        return None
    return DataWarning(
        f"{found[0]} with ",
        Argument("strategy", strategy),
        " has no effect on variety, because the strategy compares the relevance of documents; use ",
        Argument("strategy", "swap"),
        ".",
    )


def _measure_of(objective: Any) -> Measure | None:
    """The measure; None for a loss, an objective of an engine, or a function."""
    try:
        return measure(objective)
    except (InputError, TypeError):
        return None


def _rows(data: Dataset, query: int) -> set[bytes]:
    return {row.tobytes() for row in data.take(np.array([query]))}


def _gains(data: Dataset, objectives: Iterable[Any]) -> DataWarning | None:
    highest = float(data.y.max(initial=0))
    if highest <= _HIGHEST_LABEL:
        return None
    for known in map(_measure_of, objectives):
        if isinstance(known, GainMeasure) and known.gain == "exponential":
            return DataWarning(
                f"The highest label is {highest:g}, and {known} has an exponential gain: 2ʸ − 1 "
                f"makes documents with the highest labels count alone. Use gain=linear, such as "
                f"{known.name}(gain=linear), or grades such as 0 to 4."
            )
    return None
