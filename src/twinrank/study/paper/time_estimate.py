"""An estimate of training times, from a few real steps of each method on a sample of the data."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from twinrank.data.dataset import Dataset
from twinrank.study.methods import NET, ModelKind
from twinrank.study.source import Source
from twinrank.study.units import Unit, one_thread
from twinrank.support.errors import TwinRankError
from twinrank.training.settings import resolve

_QUERIES = 24  # queries that a net is timed on, spread over all lengths
_DOCUMENTS = 50_000  # documents that trees are timed on
_SCORED = 12_000  # documents that are scored, as many as a training scores at a time
_ITERATIONS = 3  # the first, which loads and compiles, doesn't count


def expected_seconds(units: Sequence[Unit], source: Source) -> dict[str, float]:
    """Seconds of training by the key of the unit.

    Units with the same objective, and equal parameters that affect the time of a step, are timed
    once.
    """
    timed: dict[Any, tuple[float, float]] = {}
    expected = {}
    for unit in units:
        sets, kind = source.sets(unit.fold), unit.kind
        group = (kind, unit.parameters["objective"], unit.parameters.get("batch_documents"))
        if group not in timed:
            timed[group] = _time(unit, sets["train"])
        per_size, per_document = timed[group]
        seconds = per_size * _size(kind, sets["train"])
        if kind is NET:  # the time of evaluation matters
            watched = sum(sets[part].documents for part in unit.watch)
            seconds += watched * per_document / _parameter(unit, "validate_every")
        expected[unit.key] = _parameter(unit, kind.iterations_parameter) * seconds
    return expected


def in_parallel(seconds: Sequence[float], jobs: int) -> float:
    """The time of several units, at least that of the longest."""
    return max(sum(seconds) / max(jobs, 1), max(seconds, default=0.0))


def _time(unit: Unit, train: Dataset) -> tuple[float, float]:
    """Seconds per query (trees: per document) and iteration, and per document that is scored."""
    kind = unit.kind
    sample = _sample(train, _QUERIES if kind is NET else _queries_with(train, _DOCUMENTS))
    own = {"random_state": unit.seed, kind.iterations_parameter: _ITERATIONS}
    with one_thread():
        ranker = kind.estimator(**{**unit.parameters, **own})
        try:
            ranker.fit(sample)
        except TwinRankError:  # the study will report it
            return 0.0, 0.0
        history = ranker.history_
        spent = history[-1]["seconds"] - (history[0]["seconds"] if len(history) > 1 else 0.0)
        scored = _sample(train, _queries_with(train, _SCORED))
        begun = time.perf_counter()
        ranker.predict(scored)
        scoring = time.perf_counter() - begun
    iterations = max(len(history) - 1, 1)
    return spent / iterations / _size(kind, sample), scoring / scored.documents


def _size(kind: ModelKind, data: Dataset) -> int:
    """The number that the time of an iteration is proportional to."""
    return data.queries if kind is NET else data.documents


def _queries_with(data: Dataset, documents: int) -> int:
    """The number of queries that have so many documents together."""
    return max(1, data.queries * documents // max(data.documents, 1))


def _sample(data: Dataset, queries: int) -> Dataset:
    """Trainable queries, evenly spread over the lengths of lists."""
    trainable = data.filter(min_documents=2, min_relevant=1)
    order = np.argsort(trainable.lists.sizes, kind="stable")
    places = (np.arange(min(queries, order.size)) + 0.5) / min(queries, order.size) * order.size
    return trainable.select(np.sort(order[places.astype(np.int64)]))


def _parameter(unit: Unit, name: str) -> int:
    """A parameter, or the value of "auto" in the unit's mode."""
    return int(resolve(unit.kind.name, unit.parameters)[name])
