"""The common interface of LightGBM and XGBoost: settings, training in rounds, trained trees.

Random draws of queries and columns depend on the seed of a model and the number of the round alone,
not on earlier draws or threads. So a resumed training has the same draws.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from twinrank.core.lists import Lists
from twinrank.support.errors import InputError, check_number

ENGINES = ("lightgbm", "xgboost")
NO_TREE = (
    "No tree could be grown: no split of the documents reduces the loss. Lower min_data_in_leaf "
    "or min_sum_hessian_in_leaf in engine_params."
)

_QUERIES, _COLUMNS = 1, 2  # separate streams of random numbers
_THREADS = 64
"""The most threads that an engine starts on any machine; with a million it crashes."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Documents for an engine: labels are at least 0, weights are one per list or None.

    `X` is `StreamedFeatures`; of XGBoost, also a matrix of float32.
    """

    X: Any
    y: npt.NDArray[np.float32]
    lists: Lists
    weights: Any = None


@dataclass(frozen=True, kw_only=True)
class TreeSettings:
    """How trees are grown."""

    objective: str | None = None
    """One of the engine's own objectives; None if we compute the gradients."""
    learning_rate: float
    num_leaves: int
    ensemble_size: int = 1
    """The number of models, each with its own booster."""
    colsample_bytree: float = 1.0
    """The share of the columns that a tree may split on."""
    subsample: float = 1.0
    """The share of the queries that a model or a round learns from."""
    subsample_freq: int = 0
    """Draw queries anew after this many rounds; 0: draw once."""
    categorical: tuple[int, ...] = ()
    n_jobs: int | None = None
    seed: int = 0
    engine_params: Mapping[str, Any] = field(default_factory=dict)
    """The engine's own settings, by its own names."""

    model: int = 0
    """The number of the model in the ensemble."""

    @property
    def model_seed(self) -> int:
        """The seed of the model; the first has that of all."""
        if not self.model:
            return self.seed
        words = np.random.SeedSequence([self.seed, self.model]).generate_state(1, np.uint64)
        return int(words[0]) >> 1


class Trees(Protocol):
    """Trained trees."""

    file: str
    """The name of the file for `to_bytes`."""

    booster: Any
    """The engine's own object."""

    @property
    def count(self) -> int:
        """The number of trees."""

    def predict(self, X: Any, n_jobs: int | None) -> npt.NDArray[np.float32]:
        """The score of every row."""

    def contributions(self, X: Any, n_jobs: int | None) -> npt.NDArray[np.float64]:
        """SHAP values: a column per feature, and the common base value in the last column."""

    def gains(self) -> npt.NDArray[np.float64]:
        """The total gain of the splits on each feature."""

    def to_bytes(self, suffix: str = ...) -> bytes:
        """The engine's own file."""

    def scaled(self, factor: float) -> bytes:
        """The state from which a `Grower` continues these trees, with all scores multiplied."""


class Grower(Protocol):
    """One model in training.

    `Grower(settings, objective, data, state)` continues from `state`, which `state()` gave. `data`
    is the engine's `Data(settings, rows, sets)`, which all models of an ensemble share.
    """

    exact: bool
    """True if training continues from `state` with the same bits."""
    count: int
    """The number of rounds that added a tree, in all parts of the training."""
    objective: Any
    """What the next tree is grown on; None for the engine's own objective."""

    def grow(self, round_number: int) -> bool:
        """Add a tree; False, and no tree, if no split helps."""

    def scores(self, name: str | None = None) -> npt.NDArray[Any]:
        """The scores of an evaluation set, or of the training data."""

    def state(self) -> bytes:
        """All trees grown so far."""

    def model(self, count: int) -> Any:
        """The trees of the first rounds that added one, for `merged_trees`."""


def engine(name: str) -> Any:
    """The module of an engine.

    It has `Data`, `Grower`, `Objective`, `merged_trees`, `from_bytes`, `FILE`, `NAME`, `SUFFIXES`
    and `SHARES_DATA`; if that is true, `begin_thread`. If `rescales(engine_params)` is true, later
    rounds change earlier trees (DART), so that a model cannot be cut. `first_rounds` and
    `later_rounds` cut it. `memory_of` estimates what training needs.
    """
    if name not in ENGINES:
        raise InputError(argument="engine", value=name, choices=ENGINES)
    module: ModuleType
    if name == "lightgbm":
        from twinrank.learning.boosting import lightgbm_engine as module
    else:
        from twinrank.learning.boosting import xgboost_engine as module
    return module


def thread_count(n_jobs: int | None) -> int:
    """`n_jobs` as the engines count threads: 0 means all cores, and more are never used."""
    if n_jobs is None or n_jobs < 0:
        return 0
    return min(n_jobs, max(os.cpu_count() or 1, _THREADS))


@contextmanager
def explained_by(
    name: str, error_class: type[Exception] | tuple[type[Exception], ...]
) -> Iterator[None]:
    """Raise an engine's own errors as InputError, with the first line of their message."""
    try:
        yield
    except error_class as error:
        if isinstance(error, InputError):
            raise
        lines = str(error).strip().splitlines()
        message = next((line for line in lines if line.strip()), type(error).__name__)
        raise InputError(f"{name}: {message.rstrip('.')}.") from error


def whole_setting(params: Mapping[str, Any], name: str, default: int, least: int = 1) -> int:
    """A setting of `engine_params` that must be a whole number."""
    value = params.get(name, default)
    check_number(name, value, whole=True, least=least)
    return int(value)


def draw_queries(
    settings: TreeSettings, count: int, round_number: int
) -> npt.NDArray[np.int64] | None:
    """The numbers of the queries that a round learns from; None for all."""
    if settings.subsample >= 1:
        return None
    draw = round_number // settings.subsample_freq if settings.subsample_freq else 0
    return _draw(count, settings.subsample, settings.model_seed, _QUERIES, draw)


def draw_columns(settings: TreeSettings, count: int, round_number: int) -> npt.NDArray[np.int64]:
    """The numbers of the columns that a tree may split on."""
    return _draw(count, settings.colsample_bytree, settings.model_seed, _COLUMNS, round_number)


def sample_size(share: float, count: int) -> int:
    """The size of a sample without replacement, at least 1.

    >>> sample_size(0.5, 46), sample_size(0.01, 46)
    (23, 1)
    """
    return max(1, round(share * count))


def _draw(count: int, share: float, *seeds: int) -> npt.NDArray[np.int64]:
    generator = np.random.default_rng(seeds)
    return np.sort(generator.choice(count, sample_size(share, count), replace=False))
