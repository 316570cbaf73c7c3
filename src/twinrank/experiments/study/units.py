"""A unit of a study: one method on one fold with one seed, trained on one thread."""

import hashlib
import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from twinrank.core.lists import Lists
from twinrank.data.dataset import Dataset
from twinrank.experiments.study.methods import Method, ModelKind, method
from twinrank.experiments.study.study_source import Source
from twinrank.learning.estimators.parameters import saved_parameters
from twinrank.learning.training.own_code import identities
from twinrank.support.arrays import Ints
from twinrank.support.compiled import threads_at_most
from twinrank.support.errors import DataWarning, InputError, unknown
from twinrank.support.memory import PeakMemory

if TYPE_CHECKING:
    pass

PROTOCOL = 3
"""Increased when a unit with the same settings would give other results than before."""

Scores = npt.NDArray[np.float32]
_NOT_IN_KEY = ("verbose", "n_jobs", "random_state")  # parameters that a unit sets itself


@dataclass(frozen=True)
class Unit:
    """A training with everything that its result depends on.

    `parameters` are all of the estimator's, `data` is the fingerprint of the fold, and `watch`
    names the parts of the fold that are evaluated every epoch, "validation" among them. `own` has
    fingerprints of the user's own losses, nets and measures: changed code is another training.
    """

    method: str
    fold: int
    seed: int
    parameters: Mapping[str, Any] = field(default_factory=dict)
    data: str = ""
    watch: tuple[str, ...] = ("validation",)
    own: Mapping[str, str] = field(default_factory=dict)

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
        """A unit with all parameters of its estimator: those given, or the defaults."""
        full = full_parameters(name, parameters)
        own, data = identities(full), source.fingerprint(fold)
        return cls(str(method(name)), fold, seed, full, data, tuple(watch), own)

    @cached_property
    def key(self) -> str:
        """A hash of everything that the result depends on."""
        text = json.dumps({**self.to_json(), "protocol": PROTOCOL}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def kind(self) -> ModelKind:
        """Whether a net or trees are trained."""
        return method(self.method).kind

    def to_json(self) -> dict[str, Any]:
        """The unit in JSON types."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain

    def __str__(self) -> str:
        return f"{self.method}, fold {self.fold}, seed {self.seed}"


@dataclass(frozen=True, eq=False)
class UnitResult:
    """The result of a unit: the history of its training, and the scores of the test data."""

    unit: Unit
    history: list[dict[str, Any]]
    """A record per epoch or round, as in the estimator's `history_`."""
    best_iteration: int | None
    """The epoch or round that was kept."""
    best_score: float | None
    seconds: float
    """The time of training."""
    peak_memory_bytes: int
    """The memory that training and scoring needed above that of the worker before: without the
    libraries, the data that is mapped into memory and other units. 0 if it is unknown."""
    tied_pairs: float
    """The share of the pairs of test documents of one query that have equal scores."""
    versions: dict[str, str]
    features: int
    read_scores: Callable[[], Scores]
    """Reads the scores of the test data, which are in a file after the training."""

    @property
    def scores(self) -> Scores:
        """The scores of the test data."""
        return self.read_scores()


def full_parameters(
    name: str | Method, parameters: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """All parameters of a method's estimator in JSON types, checked before anything is trained."""
    chosen, parameters = method(name), parameters or {}
    estimator = chosen.estimator
    known = list(estimator().get_params())
    for key in parameters:
        if key not in known:
            raise InputError(unknown(f"parameter of {estimator.__name__}", key, known))
    ranker = estimator().set_params(**{**parameters, **chosen.parameters()})
    # The machine that trains may have devices that this one lacks.
    devices = [key for key in known if key.rpartition("__")[2] == "device"]
    clone(ranker).set_params(**dict.fromkeys(devices, "auto")).check_parameters()
    saved = saved_parameters(ranker._parameters())
    plain: dict[str, Any] = json.loads(json.dumps(saved))
    return {key: value for key, value in plain.items() if key not in _NOT_IN_KEY}


def train_unit(unit: Unit, source: Source, callbacks: Sequence[Any] = ()) -> UnitResult:
    """Train a unit on one thread, and score its test data.

    The number of threads changes the last bits of a net. With one thread, the result of a unit does
    not depend on the machine or on other units that run at the same time.
    """
    sets = source.sets(unit.fold)
    ranker = unit.kind.estimator(**unit.parameters, random_state=unit.seed)
    ranker.check_parameters()  # slow imports happen here, untimed
    with one_thread(), PeakMemory() as memory:
        begun = time.perf_counter()
        watched = {part: sets[part] for part in unit.watch}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # the command says it once
            ranker.fit(sets["train"], eval_set=watched, callbacks=callbacks)
        seconds = time.perf_counter() - begun
        scores = np.asarray(ranker.predict(sets["test"]), np.float32)
    return UnitResult(
        unit,
        ranker.history_,
        ranker.best_iteration_,
        ranker.best_score_,
        seconds,
        memory.added,
        tied_pairs(scores, sets["test"]),
        dict(ranker.model_.provenance["versions"]),
        sets["train"].features,
        lambda: scores,
    )


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch, compiled loops and linear algebra to one thread within a block."""
    from threadpoolctl import threadpool_limits

    try:
        from twinrank.learning.models.devices import one_torch_thread
    except ImportError:  # then no method needs it
        one_torch_thread = nullcontext  # type: ignore[assignment]
    with one_torch_thread(), threads_at_most(1), threadpool_limits(1):
        yield


def tied_pairs(scores: Scores, data: Dataset) -> float:
    """The share of pairs of documents of one query with equal scores, 0 if there are no pairs.

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


def _pairs(sizes: Ints) -> int:
    return int((sizes * (sizes - 1) // 2).sum())
