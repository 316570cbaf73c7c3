"""Trees by LightGBM (Ke et al., NeurIPS 2017)."""

from collections.abc import Mapping
from typing import Any

import lightgbm as lgb
import numpy as np
import numpy.typing as npt

from twinrank.boosting.engine import NO_TREE, Growth, Rows, in_words
from twinrank.boosting.functions import LightGBMMetric, LightGBMObjective
from twinrank.measures import Measure
from twinrank.support.errors import InputError, unknown

OBJECTIVES = ("lambdarank", "rank_xendcg")
FILE = "model.txt"

Objective = LightGBMObjective

_LAYOUTS = ("force_col_wise", "force_row_wise")


class LightGBMTrees:
    """Trees apart from the data that they were grown on."""

    file = FILE

    def __init__(self, text: str) -> None:
        with in_words("LightGBM", lgb.basic.LightGBMError):
            self.booster = lgb.Booster(model_str=text)
        self._text = text

    @property
    def count(self) -> int:
        """How many there are."""
        return int(self.booster.num_trees())

    def predict(self, X: Any, n_jobs: int | None) -> npt.NDArray[np.float32]:
        """The score of every row."""
        return self._predict(X, n_jobs, raw_score=True).astype(np.float32)

    def contributions(self, X: Any, n_jobs: int | None) -> npt.NDArray[np.float64]:
        """SHAP values, a column per feature, and what they add to in the last."""
        return self._predict(X, n_jobs, pred_contrib=True)

    def gains(self) -> npt.NDArray[np.float64]:
        """What the splits by each feature gained in all."""
        return np.asarray(self.booster.feature_importance("gain"), np.float64)

    def to_bytes(self) -> bytes:
        """LightGBM's own text."""
        return self._text.encode()

    def _predict(self, X: Any, n_jobs: int | None, **what: bool) -> npt.NDArray[np.float64]:
        if not len(X):
            return np.empty((0, X.shape[1] + 1) if "pred_contrib" in what else 0)
        with in_words("LightGBM", lgb.basic.LightGBMError):
            found = self.booster.predict(X, num_threads=_threads(n_jobs), **what)
        return np.asarray(found, np.float64)

    # A booster loses its file's trailing lines when it is pickled: the text is what counts.

    def __getstate__(self) -> dict[str, str]:
        return {"text": self._text}

    def __setstate__(self, state: dict[str, str]) -> None:
        self.__init__(state["text"])  # type: ignore[misc]


class Grower:
    """LightGBM at work, one round at a time."""

    def __init__(
        self, growth: Growth, objective: Any, data: Rows, sets: Mapping[str, Rows]
    ) -> None:
        settings = settings_of(growth)
        self._objective, self._members = objective, growth.members
        with in_words("LightGBM", lgb.basic.LightGBMError):
            train = _dataset(data, growth, settings)
            if not any(train.construct().feature_num_bin(i) for i in range(data.X.shape[1])):
                raise InputError(NO_TREE)  # all features are constant, or nearly so
            self._booster = lgb.Booster(settings, train)
            for name, rows in sets.items():
                self._booster.add_valid(_dataset(rows, growth, settings, train), name)

    def grow(self) -> bool:
        """Add a tree for every member; False if no split was worth making."""
        with in_words("LightGBM", lgb.basic.LightGBMError):
            return not self._booster.update(fobj=self._objective)

    def values(self, measure: Measure) -> dict[str, float]:
        """The mean of a measure on every evaluation set, by its name."""
        found = self._booster.eval_valid(LightGBMMetric(measure))
        return {result[0]: float(result[2]) for result in found}

    def trees(self, rounds: int) -> LightGBMTrees:
        """Those of the first so many rounds, free of the data, which all add to one score."""
        return grown(self._booster, self._members, rounds)


def grown(booster: lgb.Booster, members: int, rounds: int | None = None) -> LightGBMTrees:
    """The trees of a booster; those of several members, which it keeps apart, are put together."""
    text = booster.model_to_string(num_iteration=rounds)
    for part in ("num_class={}\n", "num_tree_per_iteration={}\n", "[num_class: {}]"):
        text = text.replace(part.format(members), part.format(1), 1)
    return LightGBMTrees(text)


def from_bytes(content: bytes, features: int, _: tuple[int, ...]) -> LightGBMTrees:
    """What `to_bytes` wrote, if it is for so many features."""
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{FILE} is damaged: {error}") from error
    if not text.startswith("tree\n"):
        raise InputError(f"{FILE} is not a model of LightGBM's")
    trees = LightGBMTrees(text)
    if trees.booster.num_feature() != features:
        raise InputError(f"{FILE} is for {trees.booster.num_feature()} features, not {features}")
    return trees


def settings_of(growth: Growth) -> dict[str, Any]:
    """LightGBM's own settings."""
    # One feature's histogram is made by one thread: so trees don't depend on their number.
    layout = {} if any(name in growth.more for name in _LAYOUTS) else {_LAYOUTS[0]: True}
    _check_names(growth.more)
    return {
        "objective": growth.objective or "none",
        "metric": "None",
        "num_leaves": growth.num_leaves,
        "learning_rate": growth.learning_rate / growth.members,
        **({"num_class": growth.members} if growth.members > 1 else {}),
        "num_threads": _threads(growth.n_jobs),
        "seed": growth.seed % 2**31,
        "deterministic": True,
        "verbosity": -1,
        **layout,
        **growth.more,
    }


def _check_names(more: Mapping[str, Any]) -> None:
    """Refuse a setting that LightGBM would pass over in silence."""
    table = getattr(lgb.basic, "_ConfigAliases", None)  # not public: without it, nothing is refused
    if table is None or not hasattr(table, "_get_all_param_aliases"):
        return
    aliases = table._get_all_param_aliases()
    known = {*aliases, *(name for others in aliases.values() for name in others)}
    for name in more:
        if name not in known:
            raise InputError(unknown("setting of LightGBM", name, sorted(known)))


def _dataset(
    rows: Rows, growth: Growth, settings: dict[str, Any], train: lgb.Dataset | None = None
) -> lgb.Dataset:
    weights = None if rows.weights is None else rows.lists.spread(rows.weights)
    return lgb.Dataset(
        rows.X,
        rows.y,
        reference=train,
        group=rows.lists.sizes,
        weight=weights,
        categorical_feature=list(growth.categorical) or "auto",
        params=settings,
    )


def _threads(n_jobs: int | None) -> int:
    return 0 if n_jobs is None or n_jobs < 0 else n_jobs
