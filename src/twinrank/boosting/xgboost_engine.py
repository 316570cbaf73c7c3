"""Trees by XGBoost (Chen & Guestrin, KDD 2016)."""

import json
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.boosting.engine import Growth, Rows, in_words
from twinrank.boosting.functions import XGBoostMetric, XGBoostObjective
from twinrank.measures import Measure
from twinrank.support.errors import InputError

try:
    import xgboost as xgb
except ImportError as missing:
    raise InputError("this needs XGBoost: pip install 'twinrank[xgboost]'") from missing

OBJECTIVES = ("rank:ndcg",)
FILE = "model.json"

Objective = XGBoostObjective

_UNUSED = "are not used"


class XGBoostTrees:
    """Trees apart from the data that they were grown on."""

    file = FILE

    def __init__(self, booster: Any, features: int, categorical: tuple[int, ...]) -> None:
        self.booster = booster
        self._features, self._categorical = features, categorical

    @property
    def count(self) -> int:
        """How many there are."""
        return int(self.booster.num_boosted_rounds())

    def predict(self, X: Any, n_jobs: int | None) -> npt.NDArray[np.float32]:
        """The score of every row."""
        return np.asarray(self._predict(X, n_jobs, output_margin=True), np.float32)

    def contributions(self, X: Any, n_jobs: int | None) -> npt.NDArray[np.float64]:
        """SHAP values, a column per feature, and what they add to in the last."""
        return np.asarray(self._predict(X, n_jobs, pred_contribs=True), np.float64)

    def gains(self) -> npt.NDArray[np.float64]:
        """What the splits by each feature gained in all."""
        found = self.booster.get_score(importance_type="total_gain")
        return np.array([found.get(f"f{i}", 0.0) for i in range(self._features)])

    def to_bytes(self) -> bytes:
        """XGBoost's own JSON."""
        return bytes(self.booster.save_raw("json"))

    def _predict(self, X: Any, n_jobs: int | None, **what: bool) -> Any:
        if not len(X):
            return np.empty((0, X.shape[1] + 1) if "pred_contribs" in what else 0)
        with in_words("XGBoost", xgb.core.XGBoostError):
            self.booster.set_param({"nthread": _threads(n_jobs)})
            return self.booster.predict(_matrix(X, self._categorical, n_jobs), **what)


class Grower:
    """XGBoost at work, one round at a time."""

    def __init__(
        self, growth: Growth, objective: Any, data: Rows, sets: Mapping[str, Rows]
    ) -> None:
        self._objective, self._growth, self._grown = objective, growth, 0
        with in_words("XGBoost", xgb.core.XGBoostError):
            self._train = _labelled(data, growth)
            self._sets = {name: _labelled(rows, growth) for name, rows in sets.items()}
            matrices = [self._train, *self._sets.values()]
            self._booster = xgb.Booster(settings_of(growth), matrices)

    def grow(self) -> bool:
        """Add a tree for every member, which may be a single leaf: XGBoost doesn't say."""
        with in_words("XGBoost", xgb.core.XGBoostError), warnings.catch_warnings(record=True) as w:
            warnings.simplefilter("always")
            self._booster.update(self._train, self._grown, fobj=self._objective)
        for warning in w:
            if _UNUSED in str(warning.message):
                raise InputError(f"XGBoost: {_plain(str(warning.message))}")
        self._grown += 1
        return True

    def values(self, measure: Measure) -> dict[str, float]:
        """The mean of a measure on every evaluation set, by its name."""
        metric = XGBoostMetric(measure)
        return {
            name: metric(self._booster.predict(data, output_margin=True), data)[1]
            for name, data in self._sets.items()
        }

    def trees(self, rounds: int) -> XGBoostTrees:
        """Those of the first so many rounds, free of the data, which all add to one score."""
        return grown(self._booster[:rounds], int(self._train.num_col()), self._growth)


def grown(booster: Any, features: int, growth: Growth) -> XGBoostTrees:
    """The trees of a booster; those of several members, which it keeps apart, are put together."""
    if growth.members > 1:
        found = json.loads(booster.save_raw("json"))
        learner = found["learner"]
        learner["learner_model_param"].update(num_class="0", base_score="0E0")
        learner["objective"] = {"name": "reg:squarederror", "reg_loss_param": {}}
        model = learner["gradient_booster"]["model"]
        count, step = len(model["trees"]), int(model["gbtree_model_param"]["num_parallel_tree"])
        model.update(tree_info=[0] * count, iteration_indptr=list(range(0, count + 1, step)))
        booster = _loaded(json.dumps(found).encode())
    return XGBoostTrees(booster, features, growth.categorical)


def from_bytes(content: bytes, features: int, categorical: tuple[int, ...]) -> XGBoostTrees:
    """What `to_bytes` wrote, if it is for so many features."""
    if not content.startswith(b"{"):
        raise InputError(f"{FILE} is not a model of XGBoost's")
    booster = _loaded(content)
    if booster.num_features() != features:
        raise InputError(f"{FILE} is for {booster.num_features()} features, not {features}")
    return XGBoostTrees(booster, features, categorical)


def _loaded(content: bytes) -> Any:
    booster = xgb.Booster()
    with in_words("XGBoost", xgb.core.XGBoostError):
        booster.load_model(bytearray(content))
    return booster


def settings_of(growth: Growth) -> dict[str, Any]:
    """XGBoost's own settings."""
    own = {"base_score": 0.0} if growth.objective is None else {"objective": growth.objective}
    return {
        **own,
        "disable_default_eval_metric": True,
        "tree_method": "hist",
        "grow_policy": "lossguide",
        "max_leaves": growth.num_leaves,
        "max_depth": 0,
        "learning_rate": growth.learning_rate / growth.members,
        **({"num_class": growth.members} if growth.members > 1 else {}),
        "nthread": _threads(growth.n_jobs),
        "seed": growth.seed % 2**31,
        **growth.more,
    }


def _labelled(rows: Rows, growth: Growth) -> Any:
    data = _matrix(rows.X, growth.categorical, growth.n_jobs)
    data.set_info(label=rows.y, group=rows.lists.sizes)
    if rows.weights is not None:
        data.set_info(weight=rows.weights)
    return data


def kinds_of(features: int, categorical: tuple[int, ...]) -> list[str] | None:
    """What XGBoost calls each feature; None where all are numbers."""
    if not categorical:
        return None
    return ["c" if i in categorical else "float" for i in range(features)]


def _matrix(X: Any, categorical: tuple[int, ...], n_jobs: int | None) -> Any:
    return xgb.DMatrix(
        X,
        nthread=_threads(n_jobs) or -1,
        feature_types=kinds_of(X.shape[1], categorical),
        enable_categorical=bool(categorical),
    )


def _plain(message: str) -> str:
    """What a warning says, without the place in XGBoost's source."""
    lines = [line.strip() for line in message.splitlines() if _UNUSED in line]
    return lines[0][lines[0].find("Parameters") :] if lines else message


def _threads(n_jobs: int | None) -> int:
    return 0 if n_jobs is None or n_jobs < 0 else n_jobs
