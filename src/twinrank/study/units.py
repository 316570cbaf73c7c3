"""A unit of a study: one method on one fold with one seed, trained on one thread."""

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.data.dataset import Dataset
from twinrank.estimators.plain import checked_parameters, saved_parameters
from twinrank.lists import Lists
from twinrank.study.methods import Method, method
from twinrank.study.source import Source
from twinrank.support.errors import InputError, unknown
from twinrank.support.memory import PeakMemory

PROTOCOL = 2
"""Raised when a unit of the same settings would give other results than before."""

Scores = npt.NDArray[np.float32]
_NOT_RESULTS = ("verbose", "n_jobs", "random_state")  # parameters that a unit sets itself


@dataclass(frozen=True)
class Unit:
    """What is trained, with all that its result depends on.

    `parameters` are all of the estimator's, `data` is the fingerprint of the fold, and `watch`
    names the parts of it that are measured every epoch, "validation" among them.
    """

    method: str
    fold: int
    seed: int
    parameters: Mapping[str, Any] = field(default_factory=dict)
    data: str = ""
    watch: tuple[str, ...] = ("validation",)

    @classmethod
    def of(
        cls,
        name: str | Method,
        fold: int,
        seed: int,
        source: Source,
        parameters: Mapping[str, Any] | None = None,
        watch: Sequence[str] = ("validation",),
    ) -> "Unit":
        """A unit with all of its estimator's parameters: those given, else the defaults."""
        full = full_parameters(name, parameters)
        return cls(str(method(name)), fold, seed, full, source.fingerprint(fold), tuple(watch))

    @property
    def key(self) -> str:
        """A hash of all that the result depends on."""
        text = json.dumps({**self.to_json(), "protocol": PROTOCOL}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """As JSON has it."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> "Unit":
        """The inverse of `to_json`."""
        return cls(**{**plain, "watch": tuple(plain["watch"])})

    def __str__(self) -> str:
        return f"{self.method}, fold {self.fold}, seed {self.seed}"


@dataclass(frozen=True, eq=False)
class UnitResult:
    """What a unit gave: how training went, and the scores of the test data in its own order."""

    unit: Unit
    history: list[dict[str, Any]]
    """A record per epoch or round, as the estimator's `history_` has it."""
    best_epoch: int | None
    best_value: float | None
    seconds: float
    """Spent in training."""
    peak_memory_bytes: int
    """The most that the process held at a time, data that is mapped into memory included."""
    tied_pairs: float
    """The share of the test documents' pairs, within queries, that have equal scores."""
    versions: dict[str, str]
    features: int
    scores: Scores


def full_parameters(name: str | Method, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """All parameters of a method's estimator in JSON types, checked before anything is trained."""
    chosen = method(name)
    kind = chosen.estimator
    known = kind._get_param_names()
    for key in given or {}:
        if key not in known:
            raise InputError(unknown(f"parameter of {kind.__name__}", key, known))
    found = kind(**{**(given or {}), **chosen.parameters()}).get_params(deep=False)
    _check(chosen, found)
    plain: dict[str, Any] = json.loads(json.dumps(saved_parameters(found)))
    return {key: value for key, value in plain.items() if key not in _NOT_RESULTS}


def _check(chosen: Method, parameters: dict[str, Any]) -> None:
    if chosen.boosted:
        from twinrank.boosting.session import Session as Boosting

        Boosting.of(checked_parameters(parameters))
        return
    from twinrank.training.session import Session

    session = Session(checked_parameters(parameters))
    session.plan()
    session.loss()


def train_unit(unit: Unit, source: Source, callbacks: Sequence[Any] = ()) -> UnitResult:
    """Train a unit on one thread, and score its test data.

    The number of threads changes the last bits of a net: with one, a unit's result is the same
    wherever it runs, whatever else runs beside it.
    """
    sets = source.sets(unit.fold)
    chosen = method(unit.method)
    own: dict[str, Any] = {"random_state": unit.seed}
    own |= {"n_jobs": 1} if chosen.boosted else {}
    with one_thread(), PeakMemory() as memory:
        ranker: Any = chosen.estimator(**{**unit.parameters, **own})
        _check(chosen, ranker.get_params(deep=False))  # loads what takes long to load, untimed
        begun = time.perf_counter()
        ranker.fit(
            sets["train"], eval_set={part: sets[part] for part in unit.watch}, callbacks=callbacks
        )
        seconds = time.perf_counter() - begun
        scores = np.asarray(ranker.predict(sets["test"]), np.float32)
    best = ranker.best_iteration_ if chosen.boosted else ranker.best_epoch_
    return UnitResult(
        unit,
        ranker.history_,
        best,
        ranker.best_score_,
        seconds,
        memory.bytes,
        tied_pairs(scores, sets["test"]),
        dict(ranker.model_.provenance["versions"]),
        sets["train"].features,
        scores,
    )


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for torch, compiled loops and linear algebra; afterwards as before."""
    from threadpoolctl import threadpool_limits

    from twinrank.models.threads import one_torch_thread

    with one_torch_thread(), threadpool_limits(1):
        yield


def tied_pairs(scores: Scores, data: Dataset) -> float:
    """The share of pairs of documents of one query that have equal scores; 0 without pairs.

    >>> data = Dataset.from_arrays([[0.0]] * 5, [0, 1, 0, 1, 0], group=[3, 2])
    >>> tied_pairs(np.array([1, 1, 2, 3, 3], np.float32), data)
    0.5
    """
    lists: Lists = data.lists
    owner = np.repeat(np.arange(len(lists)), lists.sizes)
    order = np.lexsort((scores, owner))
    new = np.flatnonzero((np.diff(scores[order]) != 0) | (np.diff(owner[order]) != 0)) + 1
    groups = np.diff(np.concatenate([[0], new, [scores.size]]))
    pairs = _pairs(np.asarray(lists.sizes))
    return float(_pairs(groups) / pairs) if pairs else 0.0


def _pairs(sizes: npt.NDArray[np.int64]) -> int:
    return int((sizes * (sizes - 1) // 2).sum())
