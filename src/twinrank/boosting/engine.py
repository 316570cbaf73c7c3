"""What the rest of the room asks of LightGBM and XGBoost."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from twinrank.lists import Lists
from twinrank.measures import Measure
from twinrank.support.errors import InputError, unknown

ENGINES = ("lightgbm", "xgboost")
NO_TREE = (
    "no tree could be grown: no feature splits the documents in a way that helps; see "
    "min_data_in_leaf and its kin in engine_params"
)

_NAMES = {
    "objective": "objective objective_type application app loss",
    "validation_measure": "metric metrics metric_types eval_metric",
    "num_leaves": "num_leaves num_leaf max_leaves max_leaf max_leaf_nodes",
    "learning_rate": "learning_rate eta shrinkage_rate",
    "n_estimators": "n_estimators num_iterations num_iteration n_iter max_iter nrounds "
    "num_boost_round num_round num_rounds num_tree num_trees",
    "early_stopping": "early_stopping early_stopping_round early_stopping_rounds n_iter_no_change",
    "n_jobs": "n_jobs num_threads num_thread nthread nthreads",
    "random_state": "random_state seed random_seed",
    "members": "num_class num_classes multi_strategy",
    "categorical_features": "categorical_features categorical_feature categorical_column "
    "cat_feature cat_column feature_types",
}
_OURS = {name: ours for ours, names in _NAMES.items() for name in names.split()}
"""What the engines call the ranker's own parameters."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Documents as an engine takes them: features, labels from 0 on, lists, weights per list."""

    X: npt.NDArray[np.float32]
    y: npt.NDArray[np.float32]
    lists: Lists
    weights: Any = None


@dataclass(frozen=True, kw_only=True)
class Growth:
    """How trees are grown; `more` are the engine's own settings, by its own names."""

    objective: str | None = None
    """One of the engine's own objectives; None where gradients are given to it."""
    learning_rate: float
    num_leaves: int
    members: int = 1
    """How many trees a round has, each of a member of its own."""
    categorical: tuple[int, ...] = ()
    n_jobs: int | None = None
    seed: int = 0
    more: Mapping[str, Any] = field(default_factory=dict)


class Trees(Protocol):
    """Grown trees: what scores documents, and what is saved."""

    file: str
    """The name of the file that `to_bytes` is the content of."""

    booster: Any
    """The engine's own object."""

    @property
    def count(self) -> int:
        """How many there are."""

    def predict(self, X: Any, n_jobs: int | None) -> npt.NDArray[np.float32]:
        """The score of every row."""

    def contributions(self, X: Any, n_jobs: int | None) -> npt.NDArray[np.float64]:
        """SHAP values, a column per feature, and what they add to in the last."""

    def gains(self) -> npt.NDArray[np.float64]:
        """What the splits by each feature gained in all."""

    def to_bytes(self) -> bytes:
        """The engine's own file."""


class Grower(Protocol):
    """An engine at work on some data."""

    def grow(self) -> bool:
        """Add a tree for every member; False if there was none to add."""

    def values(self, measure: Measure) -> dict[str, float]:
        """The mean of a measure on every evaluation set, by its name."""

    def trees(self, rounds: int) -> Trees:
        """Those of the first so many rounds, free of the data, which all add to one score."""


def engine(name: str) -> Any:
    """The module for an engine.

    Both have `OBJECTIVES`, `Objective`, `Grower`, `FILE` and `from_bytes`.
    """
    if name not in ENGINES:
        raise InputError(unknown("engine", str(name), ENGINES))
    module: ModuleType
    if name == "lightgbm":
        from twinrank.boosting import lightgbm_engine as module
    else:
        from twinrank.boosting import xgboost_engine as module
    return module


def check_settings(more: Any) -> dict[str, Any]:
    """Refuse settings of the engine that a ranker has a parameter for."""
    if more is None:
        return {}
    if not isinstance(more, Mapping) or not all(isinstance(key, str) for key in more):
        raise InputError(f"engine_params must be a dict of settings by name, not {more!r}")
    for key in more:
        if key in _OURS:
            raise InputError(f"engine_params can't set {key}: set {_OURS[key]} of the ranker")
    return dict(more)


@contextmanager
def in_words(name: str, kind: type[Exception]) -> Iterator[None]:
    """Turn an engine's own errors into ours."""
    try:
        yield
    except kind as error:
        if isinstance(error, InputError):
            raise
        text = str(error).strip().splitlines()
        said = next((line for line in text if line.strip()), type(error).__name__)
        raise InputError(f"{name}: {said}") from error
