"""An estimate of training times, from a few real steps of each method on a sample of the data.

Times are of the processor, which are those of the clock if other programs leave a core free.
"""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from twinrank.data.dataset import Dataset
from twinrank.experiments.study.methods import NET, TREES
from twinrank.experiments.study.methods import method as method_of
from twinrank.experiments.study.study_source import Source
from twinrank.experiments.study.units import Unit, one_thread
from twinrank.learning.training.callbacks import Callback
from twinrank.learning.training.settings import resolve
from twinrank.support.errors import TwinRankError
from twinrank.support.quantities import duration
from twinrank.support.tables import Cell, ResultTable

_SCORED = 12_000  # documents that are scored, as many as a training scores at a time
_ITERATIONS = 3  # the first, which loads and compiles, does not count


class _Cost(NamedTuple):
    """How the time of an iteration of one kind of model is measured."""

    size: str
    """The attribute of the data that the time is proportional to."""
    sample: int
    """The size of the sample that is timed."""
    evaluates: bool
    """True if an iteration is timed with its evaluation, as where each iteration has one."""


_COSTS = {
    NET.name: _Cost("queries", sample=24, evaluates=False),
    TREES.name: _Cost("documents", sample=50_000, evaluates=True),
}


def expected_seconds(units: Sequence[Unit], source: Source) -> dict[str, float]:
    """Seconds of training by the key of the unit.

    Units with the same objective, and equal parameters that affect the time of a step, are timed
    once. A training that can stop early is expected to last twice as long as its patience.
    """
    timed: dict[Any, tuple[float, float]] = {}
    expected = {}
    for unit in units:
        sets, kind = source.sets(unit.fold), unit.kind
        cost = _COSTS[kind.name]
        group = (kind, unit.parameters["objective"], unit.parameters.get("batch_documents"))
        if group not in timed:
            timed[group] = _time(unit, sets)
        per_size, per_document = timed[group]
        iterations = _iterations(unit)
        seconds = iterations * per_size * getattr(sets["train"], cost.size)
        if not cost.evaluates:
            evaluations = math.ceil(iterations / _parameter(unit, "validate_every"))
            seconds += evaluations * per_document * sum(sets[p].documents for p in unit.watch)
        expected[unit.key] = seconds
    return expected


def in_parallel(seconds: Sequence[float], jobs: int) -> float:
    """The time of several units, at least that of the longest."""
    return max(sum(seconds) / max(jobs, 1), max(seconds, default=0.0))


def time_table(title: str, units: Sequence[Unit], seconds: Mapping[str, float]) -> ResultTable:
    """The expected time of a training of each method, and of all its trainings."""
    by_method: dict[str, list[float]] = {}
    for unit in units:
        chosen = method_of(unit.method)
        name = "-".join(filter(None, (chosen.objective, chosen.strategy)))
        trees = unit.kind is TREES and chosen.strategy
        by_method.setdefault(f"{name} (trees)" if trees else name, []).append(seconds[unit.key])
    rows = [(name, len(own), sum(own) / len(own), sum(own)) for name, own in by_method.items()]
    total = sum(row[3] for row in rows)
    rows.append(("all", len(units), total / max(len(units), 1), total))
    cells = [[Cell(n), Cell(f"{c:,}"), Cell(duration(e)), Cell(duration(a))] for n, c, e, a in rows]
    return ResultTable(title, ["", "trainings", "one training", "in all"], cells)


def _time(unit: Unit, sets: Mapping[str, Dataset]) -> tuple[float, float]:
    """Seconds per query (trees: per document) and iteration, and per document that is scored."""
    kind, cost, train = unit.kind, _COSTS[unit.kind.name], sets["train"]
    share = min(cost.sample / max(getattr(train, cost.size), 1), 1.0)
    queries = max(1, int(train.queries * share))
    sample = _sample(train, queries)
    share = queries / train.queries
    watched = {part: _sample(sets[part], int(sets[part].queries * share)) for part in unit.watch}
    own = {"random_state": unit.seed, kind.iterations_parameter: _ITERATIONS}
    with one_thread():
        ranker = kind.estimator(**{**unit.parameters, **own})
        try:
            clock = _Clock()
            ranker.fit(sample, eval_set=watched if cost.evaluates else None, callbacks=[clock])
        except TwinRankError:  # the study will report it
            return 0.0, 0.0
        scored = _sample(train, _queries_with(train, _SCORED))
        begun = time.process_time()
        ranker.predict(scored)
        scoring = time.process_time() - begun
    spent = (clock.ends[-1] - clock.ends[0]) / max(len(clock.ends) - 1, 1)
    return spent / getattr(sample, cost.size), scoring / scored.documents


class _Clock(Callback):
    """The time of the processor at the end of each iteration."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_iteration_end(self, trainer: Any, record: dict[str, Any]) -> None:  # noqa: ARG002
        """Note the time."""
        self.ends.append(time.process_time())


def _queries_with(data: Dataset, documents: int) -> int:
    """The number of queries that have this number of documents together."""
    return max(1, data.queries * documents // max(data.documents, 1))


def _sample(data: Dataset, queries: int) -> Dataset:
    """Trainable queries, evenly spread over the lengths of lists."""
    trainable = data.filter(min_documents=2, min_relevant=1)
    order = np.argsort(trainable.lists.sizes, kind="stable")
    count = max(1, min(queries, order.size))
    places = (np.arange(count) + 0.5) / count * order.size
    return trainable.select(np.sort(order[places.astype(np.int64)]))


def _iterations(unit: Unit) -> int:
    """The expected number of epochs or rounds.

    LambdaMART(L) had its best round after 132 of 332 rounds on MQ2008, and after about 300 in the
    paper's Figure 2. Twice the patience of 200 is within a factor of 1.3 of both.
    """
    most = _parameter(unit, unit.kind.iterations_parameter)
    patience = resolve(unit.kind.name, unit.parameters)["early_stopping"]
    return most if patience is None else min(most, 2 * int(patience))


def _parameter(unit: Unit, name: str) -> int:
    """A parameter, or the value of "auto" in the unit's mode."""
    return int(resolve(unit.kind.name, unit.parameters)[name])
