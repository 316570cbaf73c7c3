"""Trees by XGBoost (Chen & Guestrin, KDD 2016)."""

import json
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.boosting.engines import Rows, TreeSettings, explained_by, thread_count
from twinrank.boosting.functions import XGBoostObjective
from twinrank.support.errors import InputError

try:
    import xgboost as xgb
except ImportError as missing:
    raise InputError("This needs XGBoost: pip install 'twinrank[xgboost]'") from missing

NAME, FILE, SUFFIXES = "XGBoost", "model.json", (".json", ".ubj")
Objective = XGBoostObjective

_UNUSED = "are not used"
# Settings with which training continues exactly. Samples of rows or columns, and some objectives,
# depend on a state that XGBoost does not save.
_EXACT = {
    "alpha", "gamma", "grow_policy", "interaction_constraints", "lambda",
    "lambdarank_normalization", "lambdarank_num_pair_per_sample", "max_bin", "max_cat_threshold",
    "max_cat_to_onehot", "max_delta_step", "max_depth", "min_child_weight", "min_split_loss",
    "monotone_constraints", "ndcg_exp_gain", "num_parallel_tree", "reg_alpha", "reg_lambda",
    "verbosity",
}  # fmt: skip


class XGBoostTrees:
    """Trained trees without their training data."""

    file = FILE

    def __init__(self, booster: Any, features: int, categorical: tuple[int, ...]) -> None:
        self.booster = booster
        self._features, self._categorical = features, categorical

    @property
    def count(self) -> int:
        """The number of trees."""
        return int(self.booster.num_boosted_rounds())

    def predict(self, X: Any, n_jobs: int | None) -> npt.NDArray[np.float32]:
        """The score of every row."""
        return np.asarray(self._predict(X, n_jobs, output_margin=True), np.float32)

    def contributions(self, X: Any, n_jobs: int | None) -> npt.NDArray[np.float64]:
        """SHAP values: a column per feature, and the common base value in the last column."""
        return np.asarray(self._predict(X, n_jobs, pred_contribs=True), np.float64)

    def gains(self) -> npt.NDArray[np.float64]:
        """The total gain of the splits on each feature."""
        gains = self.booster.get_score(importance_type="total_gain")
        return np.array([gains.get(f"f{i}", 0.0) for i in range(self._features)])

    def to_bytes(self, suffix: str = ".json") -> bytes:
        """XGBoost's own JSON or UBJSON."""
        return bytes(self.booster.save_raw(suffix.removeprefix(".")))

    def _predict(self, X: Any, n_jobs: int | None, **kind: bool) -> Any:
        if not len(X):
            return np.empty((0, X.shape[1] + 1) if "pred_contribs" in kind else 0)
        with explained_by(NAME, xgb.core.XGBoostError):
            self.booster.set_param({"nthread": thread_count(n_jobs)})
            return self.booster.predict(_matrix(X, self._categorical, n_jobs), **kind)


class Grower:
    """XGBoost in training, one round at a time."""

    def __init__(
        self,
        settings: TreeSettings,
        objective: Any,
        data: Rows,
        sets: Mapping[str, Rows],
        state: bytes | None = None,
    ) -> None:
        self._objective, self._settings = objective, settings
        self.exact = _EXACT.issuperset(settings.engine_params)
        with explained_by(NAME, xgb.core.XGBoostError):
            self._train = _labelled(data, settings)
            self._sets = {name: _labelled(rows, settings) for name, rows in sets.items()}
            matrices = [self._train, *self._sets.values()]
            earlier = None if state is None else bytearray(state)
            self._booster = xgb.Booster(params_of(settings), matrices, earlier)

    def grow(self, round_number: int) -> bool:
        """Add a tree for every model of the ensemble, perhaps of a single leaf."""
        with (
            explained_by(NAME, xgb.core.XGBoostError),
            warnings.catch_warnings(record=True) as caught,
        ):
            warnings.simplefilter("always")
            self._booster.update(self._train, round_number, fobj=self._objective)
        for warning in caught:
            if _UNUSED in str(warning.message):
                raise InputError(f"XGBoost: {_plain(str(warning.message))}")
        return True

    def scores(self, name: str) -> npt.NDArray[np.float32]:
        """The scores of an evaluation set."""
        scores = np.asarray(self._booster.predict(self._sets[name], output_margin=True))
        return scores.sum(axis=1) if scores.ndim == 2 else scores

    def state(self) -> bytes:
        """All trees grown so far."""
        return bytes(self._booster.save_raw("ubj"))

    def trees(self, rounds: int) -> XGBoostTrees:
        """The trees of the first rounds; the models of an ensemble add up to one score."""
        return merged_trees(self._booster[:rounds], int(self._train.num_col()), self._settings)


def merged_trees(booster: Any, features: int, settings: TreeSettings) -> XGBoostTrees:
    """The trees of a booster as one model; those of an ensemble are XGBoost's classes."""
    if settings.ensemble_size > 1:
        content = json.loads(booster.save_raw("json"))
        learner = content["learner"]
        learner["learner_model_param"].update(num_class="0", base_score="0E0")
        learner["objective"] = {"name": "reg:squarederror", "reg_loss_param": {}}
        model = learner["gradient_booster"]["model"]
        count, step = len(model["trees"]), int(model["gbtree_model_param"]["num_parallel_tree"])
        model.update(tree_info=[0] * count, iteration_indptr=list(range(0, count + 1, step)))
        booster = _loaded(json.dumps(content).encode())
    return XGBoostTrees(booster, features, settings.categorical)


def from_bytes(content: bytes, features: int, categorical: tuple[int, ...]) -> XGBoostTrees:
    """Read what `to_bytes` wrote, if it has so many features."""
    if not content.startswith(b"{"):
        raise InputError(f"{FILE} is not an XGBoost model")
    booster = _loaded(content)
    if booster.num_features() != features:
        raise InputError(f"{FILE} is for {booster.num_features()} features, not {features}")
    return XGBoostTrees(booster, features, categorical)


def _loaded(content: bytes) -> Any:
    booster = xgb.Booster()
    with explained_by(NAME, xgb.core.XGBoostError):
        booster.load_model(bytearray(content))
    return booster


def params_of(settings: TreeSettings) -> dict[str, Any]:
    """XGBoost's parameters."""
    own = {"base_score": 0.0} if settings.objective is None else {"objective": settings.objective}
    size = settings.ensemble_size
    return {
        **own,
        "disable_default_eval_metric": True,
        "tree_method": "hist",
        "grow_policy": "lossguide",
        "max_leaves": settings.num_leaves,
        "max_depth": 0,
        "learning_rate": settings.learning_rate / size,
        **({"num_class": size} if size > 1 else {}),
        "nthread": thread_count(settings.n_jobs),
        "seed": settings.seed % 2**31,
        **settings.engine_params,
    }


def _labelled(rows: Rows, settings: TreeSettings) -> Any:
    data = _matrix(rows.X, settings.categorical, settings.n_jobs)
    data.set_info(label=rows.y, group=rows.lists.sizes)
    if rows.weights is not None:
        data.set_info(weight=rows.weights)
    return data


def feature_types(features: int, categorical: tuple[int, ...]) -> list[str] | None:
    """XGBoost's type of each feature; None if all are numbers."""
    if not categorical:
        return None
    return ["c" if i in categorical else "float" for i in range(features)]


def _matrix(X: Any, categorical: tuple[int, ...], n_jobs: int | None) -> Any:
    return xgb.DMatrix(
        X,
        nthread=thread_count(n_jobs) or -1,
        feature_types=feature_types(X.shape[1], categorical),
        enable_categorical=bool(categorical),
    )


def _plain(message: str) -> str:
    """The sentence of a warning, without the place in XGBoost's source."""
    lines = [line.strip() for line in message.splitlines() if _UNUSED in line]
    return lines[0][lines[0].find("Parameters") :] if lines else message
