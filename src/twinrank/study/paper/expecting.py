"""How long units will take, from a few real steps of each kind on some of the real data."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from twinrank.boosting.session import MODES as TREES
from twinrank.data.dataset import Dataset
from twinrank.study.methods import method
from twinrank.study.source import Source
from twinrank.study.units import Unit, one_thread
from twinrank.support.errors import TwinRankError
from twinrank.training.plan import MODES as NETS

_QUERIES = 24  # of a net's steps: as long and as short as all of them
_PASSES = 3  # the first, which loads and compiles, doesn't count
_DOCUMENTS = 50_000  # that trees are tried on
_SCORED = 12_000  # documents that are scored, as many as a training scores together


def expected_seconds(units: Sequence[Unit], source: Source) -> dict[str, float]:
    """Seconds of training by the unit's key.

    Units that share an objective and the parameters that a step's time depends on are tried once.
    """
    tried: dict[Any, tuple[float, float]] = {}
    found = {}
    for unit in units:
        sets = source.sets(unit.fold)
        kind = _kind(unit)
        if kind not in tried:
            tried[kind] = _try(unit, sets["train"])
        per_pass, per_document = tried[kind]
        train = sets["train"]
        if method(unit.method).boosted:
            rounds = _of_mode(unit, "n_estimators", TREES)
            found[unit.key] = rounds * per_pass * train.documents
            continue
        epochs = int(unit.parameters["epochs"])
        watched = sum(sets[part].documents for part in unit.watch)
        every = _of_mode(unit, "validate_every", NETS)
        found[unit.key] = epochs * (per_pass * train.queries + watched * per_document / every)
    return found


def in_parallel(seconds: Sequence[float], jobs: int) -> float:
    """The time of several units, at least that of the longest."""
    return max(sum(seconds) / max(jobs, 1), max(seconds, default=0.0))


def spoken(seconds: float) -> str:
    """A duration as one would say it.

    >>> spoken(40), spoken(200), spoken(9000), spoken(1e6)
    ('40 seconds', '3 minutes', '2.5 hours', '11.6 days')
    """
    if seconds < 90:
        return f"{max(round(seconds), 1)} second{'' if round(seconds) <= 1 else 's'}"
    if seconds < 5400:
        return f"{round(seconds / 60)} minutes"
    return f"{seconds / 3600:.1f} hours" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"


def _kind(unit: Unit) -> tuple[Any, ...]:
    given = unit.parameters
    return (method(unit.method).boosted, given["objective"], given.get("batch_documents"))


def _try(unit: Unit, train: Dataset) -> tuple[float, float]:
    """Seconds per query (trees: per document) and pass; and per document that is scored."""
    chosen = method(unit.method)
    own: dict[str, Any] = {"random_state": unit.seed}
    if chosen.boosted:
        own |= {"n_jobs": 1, "n_estimators": _PASSES}
        sample = _sample(train, _queries_with(train, _DOCUMENTS))
        size = sample.documents
    else:
        own |= {"epochs": _PASSES}
        sample = _sample(train, _QUERIES)
        size = sample.queries
    with one_thread():
        ranker: Any = chosen.estimator(**{**unit.parameters, **own})
        try:
            ranker.fit(sample)
        except TwinRankError:  # what can't be trained takes no time; the study will say why
            return 0.0, 0.0
        history = ranker.history_
        spent = history[-1]["seconds"] - (history[0]["seconds"] if len(history) > 1 else 0.0)
        scored = _sample(train, _queries_with(train, _SCORED))
        begun = time.perf_counter()
        ranker.predict(scored)
        scoring = time.perf_counter() - begun
    return spent / max(len(history) - 1, 1) / size, scoring / scored.documents


def _queries_with(data: Dataset, documents: int) -> int:
    """How many queries have so many documents together."""
    return max(1, data.queries * documents // max(data.documents, 1))


def _sample(data: Dataset, queries: int) -> Dataset:
    """Queries evenly spread over the lengths of lists."""
    teaching = data.filter(min_documents=2, min_relevant=1)
    order = np.argsort(teaching.lists.sizes, kind="stable")
    places = (np.arange(min(queries, order.size)) + 0.5) / min(queries, order.size) * order.size
    return teaching.select(np.sort(order[places.astype(np.int64)]))


def _of_mode(unit: Unit, name: str, modes: Mapping[str, Mapping[str, Any]]) -> int:
    """A parameter, or what the unit's mode has for "auto"."""
    value = unit.parameters[name]
    return int(modes[unit.parameters["mode"]][name] if value == "auto" else value)
