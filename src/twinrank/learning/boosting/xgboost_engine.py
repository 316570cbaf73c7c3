"""Trees by XGBoost (Chen & Guestrin, KDD 2016)."""

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.learning.boosting.engine_objectives import XGBoostObjective
from twinrank.learning.boosting.engines import (
    Rows,
    TreeSettings,
    draw_columns,
    draw_queries,
    explained_by,
    sample_size,
    thread_count,
    whole_setting,
)
from twinrank.learning.boosting.tree_check import check_xgboost
from twinrank.learning.boosting.tree_features import STREAMED
from twinrank.support.errors import InputError, needing

with needing("This", "XGBoost", "xgboost"):
    import xgboost as xgb

NAME, FILE, SUFFIXES = "XGBoost", "model.json", (".json", ".ubj")
SHARES_DATA = False  # its data changes while a booster grows
Objective = XGBoostObjective

_CERTAIN = 1e30  # the weight of a column that is drawn
_UNUSED = "are not used"
_BINNED, _WHOLE = 4, 14  # bytes per value, of data in blocks and of a matrix
_OTHER = 150_000_000
_BINS = 256  # XGBoost's default
# Settings with which training continues exactly. Samples of rows or columns, and some objectives,
# depend on a state that XGBoost does not save.
_EXACT = {
    "alpha", "gamma", "grow_policy", "interaction_constraints", "lambda",
    "lambdarank_normalization", "lambdarank_num_pair_per_sample", "max_bin", "max_cat_threshold",
    "max_cat_to_onehot", "max_delta_step", "max_depth", "min_child_weight", "min_split_loss",
    "monotone_constraints", "ndcg_exp_gain", "num_parallel_tree", "reg_alpha", "reg_lambda",
    "verbosity",
}  # fmt: skip


def rescales(engine_params: Mapping[str, Any]) -> bool:
    """True if later rounds change earlier trees."""
    return bool(engine_params.get("booster") == "dart")


def memory_of(settings: TreeSettings, documents: int, others: int, columns: int) -> float:  # noqa: ARG001
    """The bytes that training needs at its peak, as measured with 136 columns."""
    values = (documents + others) * columns
    return values * (_BINNED if 4 * values > STREAMED else _WHOLE) + _OTHER


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

    def scaled(self, factor: float) -> bytes:
        """The state from which a `Grower` continues these trees, with all scores multiplied."""
        return merged_trees([self.booster], [factor], self._features, self._categorical).to_bytes()

    def _predict(self, X: Any, n_jobs: int | None, **kind: bool) -> Any:
        if not len(X):
            return np.empty((0, X.shape[1] + 1) if "pred_contribs" in kind else 0)
        with explained_by(NAME, xgb.core.XGBoostError):
            self.booster.set_param({"nthread": thread_count(n_jobs)})
            return self.booster.predict(_matrix(X, self._categorical, n_jobs), **kind)


class Data:
    """Rows as XGBoost's matrices, which all models of an ensemble share."""

    def __init__(self, settings: TreeSettings, rows: Rows, sets: Mapping[str, Rows]) -> None:
        self.rows = rows = _in_memory(rows)
        sets = {name: _in_memory(other) for name, other in sets.items()}
        with explained_by(NAME, xgb.core.XGBoostError):
            # Data in blocks has bins for values: those of the training data, which needs them too.
            binned = any(not isinstance(other.X, np.ndarray) for other in (rows, *sets.values()))
            self.train = (_binned if binned else _labelled)(rows, settings)
            self.sets = {
                name: _labelled(other, settings)
                if isinstance(other.X, np.ndarray)
                else _binned(other, settings, self.train)
                for name, other in sets.items()
            }


class Grower:
    """XGBoost in training, one round at a time."""

    def __init__(
        self, settings: TreeSettings, objective: Any, data: Data, state: bytes | None = None
    ) -> None:
        self._settings, self.objective, self._data = settings, objective, data
        # XGBoost chooses bins by the weights, and so the sample, of the first round it sees.
        resamples = objective is None and settings.subsample < 1 and settings.subsample_freq > 0
        self.exact = _EXACT.issuperset(settings.engine_params) and not resamples
        params = params_of(settings, data.rows.X.shape[1])
        earlier = None if state is None else bytearray(state)
        with explained_by(NAME, xgb.core.XGBoostError):
            self._booster = xgb.Booster(params, [data.train, *data.sets.values()], earlier)

    @property
    def count(self) -> int:
        """The number of rounds, all of which add a tree."""
        return int(self._booster.num_boosted_rounds())

    def grow(self, round_number: int) -> bool:
        """Add a tree, perhaps of a single leaf."""
        train = self._data.train
        with (
            explained_by(NAME, xgb.core.XGBoostError),
            warnings.catch_warnings(record=True) as caught,
        ):
            warnings.simplefilter("always")
            self._sample_columns(round_number)
            objective = self._sample_queries(round_number)
            self._booster.update(train, round_number, fobj=objective)
        for warning in caught:
            if _UNUSED in str(warning.message):
                raise InputError(f"XGBoost: {_plain(str(warning.message))}.")
        return True

    def _sample_columns(self, round_number: int) -> None:
        """Give weight to the columns of this round: XGBoost cannot continue its own draws."""
        if self._settings.colsample_bytree == 1:
            return
        features = self._data.rows.X.shape[1]
        weights = np.zeros(features, np.float32)
        weights[draw_columns(self._settings, features, round_number)] = _CERTAIN
        self._data.train.set_info(feature_weights=weights)

    def _sample_queries(self, round_number: int) -> Any:
        """The objective on the queries of this round; XGBoost's own gets weights of 0."""
        lists, weights = self._data.rows.lists, self._data.rows.weights
        queries = draw_queries(self._settings, len(lists), round_number)
        if self.objective is not None:
            return replace(self.objective, queries=queries)
        if queries is not None:
            own = np.zeros(len(lists))
            own[queries] = 1.0 if weights is None else np.asarray(weights)[queries]
            # XGBoost divides by the mean weight of the first round it sees.
            self._data.train.set_info(weight=own / own.mean())
        return None

    def scores(self, name: str | None = None) -> npt.NDArray[np.float32]:
        """The scores of an evaluation set, or of the training data."""
        data = self._data.train if name is None else self._data.sets[name]
        return np.asarray(self._booster.predict(data, output_margin=True))

    def state(self) -> bytes:
        """All trees grown so far."""
        return bytes(self._booster.save_raw("ubj"))

    def model(self, count: int) -> Any:
        """The trees of the first rounds, for `merged_trees`."""
        return self._booster[:count]


def merged_trees(
    models: Sequence[Any], factors: Sequence[float], features: int, categorical: tuple[int, ...]
) -> XGBoostTrees:
    """The trees of several models as one, whose score is the sum of factor · score."""
    if len(models) == 1 and factors[0] == 1:
        return XGBoostTrees(models[0], features, categorical)
    contents = [json.loads(model.save_raw("json")) for model in models]
    trees: list[dict[str, Any]] = []
    for content, factor in zip(contents, factors, strict=True):
        own = content["learner"]["gradient_booster"]["model"]["trees"]
        trees += [_scaled(tree, factor) for tree in own]
    for number, tree in enumerate(trees):
        tree["id"] = number
    learner = contents[0]["learner"]
    model, count = learner["gradient_booster"]["model"], len(trees)
    step = int(model["gbtree_model_param"]["num_parallel_tree"])
    model["gbtree_model_param"]["num_trees"] = str(count)
    model.update(
        trees=trees, tree_info=[0] * count, iteration_indptr=list(range(0, count + 1, step))
    )
    return XGBoostTrees(_loaded(json.dumps(contents[0]).encode()), features, categorical)


def first_rounds(model: Any, rounds: int) -> Any:
    """The trees of the first rounds."""
    return model[:rounds]


def later_rounds(model: Any, first: int) -> Any:
    """The trees without those of the first rounds."""
    return model[first:]


def staged_scores(model: Any, X: Any, first: int, last: int) -> Iterator[Any]:
    """The scores after the rounds first + 1 to last."""
    data = xgb.DMatrix(X, feature_types=model.feature_types, enable_categorical=True)
    for number in range(first, last):
        yield model.predict(data, output_margin=True, iteration_range=(0, number + 1))


def _scaled(tree: dict[str, Any], factor: float) -> dict[str, Any]:
    """A tree with all its values multiplied; a leaf has its value in place of a condition."""
    leaf = np.asarray(tree["left_children"]) == -1
    conditions = np.asarray(tree["split_conditions"], np.float64)
    weights = np.asarray(tree["base_weights"], np.float64) * factor
    conditions[leaf] *= factor
    return {**tree, "split_conditions": conditions.tolist(), "base_weights": weights.tolist()}


def from_bytes(content: bytes, features: int, categorical: tuple[int, ...]) -> XGBoostTrees:
    """Read what `to_bytes` wrote, if it has this many features."""
    if not content.startswith(b"{"):
        raise InputError(f"{FILE} is not an XGBoost model.")
    actual = check_xgboost(content, FILE)
    if actual != features:
        raise InputError(f"{FILE} is for {actual} features, not {features}.")
    return XGBoostTrees(_loaded(content), features, categorical)


def _loaded(content: bytes) -> Any:
    booster = xgb.Booster()
    with explained_by(NAME, xgb.core.XGBoostError):
        booster.load_model(bytearray(content))
    return booster


def params_of(settings: TreeSettings, features: int) -> dict[str, Any]:
    """XGBoost's parameters for this many columns."""
    own: dict[str, Any] = {} if settings.objective is None else {"objective": settings.objective}
    if settings.objective is None or settings.ensemble_size > 1:
        own["base_score"] = 0.0
    if settings.colsample_bytree < 1:
        # XGBoost rounds down. A half more protects the number from its single precision.
        drawn = sample_size(settings.colsample_bytree, features)
        own["colsample_bytree"] = min(1.0, (drawn + 0.5) / features)
    return {
        **own,
        "disable_default_eval_metric": True,
        "tree_method": "hist",
        "grow_policy": "lossguide",
        "max_leaves": settings.num_leaves,
        "max_depth": 0,
        "learning_rate": settings.learning_rate,
        "nthread": thread_count(settings.n_jobs),
        "seed": settings.model_seed % 2**31,
        **settings.engine_params,
    }


def _in_memory(rows: Rows) -> Rows:
    """Rows with a matrix of features, unless it would be large."""
    return rows if rows.X.is_large else replace(rows, X=rows.X.matrix())


class _Chunks(xgb.DataIter):
    """Chunks of features, which XGBoost reads once for the bins and once for the rows."""

    def __init__(self, rows: Rows, categorical: tuple[int, ...]) -> None:
        super().__init__()
        self._rows, self._number = rows, 0
        self._types = feature_types(rows.X.shape[1], categorical)

    def reset(self) -> None:
        """Begin again."""
        self._number = 0

    def next(self, input_data: Any) -> bool:
        """Pass on the next chunk; False at the end."""
        if self._number == len(self._rows.X):
            return False
        place, queries = self._rows.X.rows(self._number), self._rows.X.queries(self._number)
        weights, lists = self._rows.weights, self._rows.lists
        input_data(
            data=self._rows.X.chunk(self._number),
            label=self._rows.y[place],
            qid=np.repeat(queries, lists.sizes[queries]),
            weight=None if weights is None else np.asarray(weights)[queries],
            feature_types=self._types,
        )
        self._number += 1
        return True


def _binned(rows: Rows, settings: TreeSettings, train: Any = None) -> Any:
    """Bins instead of values, in a fraction of the memory."""
    choices = {
        "nthread": thread_count(settings.n_jobs) or -1,
        "max_bin": whole_setting(settings.engine_params, "max_bin", _BINS, 2),
        "ref": train,
        "enable_categorical": bool(settings.categorical),
    }
    if isinstance(rows.X, np.ndarray):
        types = feature_types(rows.X.shape[1], settings.categorical)
        sizes = rows.lists.sizes
        about = {"label": rows.y, "group": sizes, "weight": rows.weights, "feature_types": types}
        return xgb.QuantileDMatrix(rows.X, **about, **choices)
    return xgb.QuantileDMatrix(_Chunks(rows, settings.categorical), **choices)


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
