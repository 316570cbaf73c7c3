"""Trees by LightGBM (Ke et al., NeurIPS 2017)."""

import re
from collections.abc import Mapping
from typing import Any

import lightgbm as lgb
import numpy as np
import numpy.typing as npt

from twinrank.boosting.engines import NO_TREE, Rows, TreeSettings, explained_by, thread_count
from twinrank.boosting.functions import LightGBMObjective
from twinrank.support.errors import InputError, unknown

NAME, FILE, SUFFIXES = "LightGBM", "model.txt", (".txt",)
Objective = LightGBMObjective

_LAYOUTS = ("force_col_wise", "force_row_wise")
# Random draws that LightGBM makes from a state of its own: training cannot continue exactly.
_INEXACT = {
    "bagging_fraction": 1.0,
    "pos_bagging_fraction": 1.0,
    "neg_bagging_fraction": 1.0,
    "data_sample_strategy": "bagging",
    "boosting": "gbdt",
    "linear_tree": False,
    "use_quantized_grad": False,
}
_SAMPLES_COLUMNS = ("feature_fraction", "feature_fraction_bynode", "extra_trees")


class LightGBMTrees:
    """Trained trees without their training data."""

    file = FILE

    def __init__(self, text: str) -> None:
        with explained_by(NAME, lgb.basic.LightGBMError):
            self.booster = lgb.Booster(model_str=text)
        self._text = text

    @property
    def count(self) -> int:
        """The number of trees."""
        return int(self.booster.num_trees())

    def predict(self, X: Any, n_jobs: int | None) -> npt.NDArray[np.float32]:
        """The score of every row."""
        return self._predict(X, n_jobs, raw_score=True).astype(np.float32)

    def contributions(self, X: Any, n_jobs: int | None) -> npt.NDArray[np.float64]:
        """SHAP values: a column per feature, and the common base value in the last column."""
        return self._predict(X, n_jobs, pred_contrib=True)

    def gains(self) -> npt.NDArray[np.float64]:
        """The total gain of the splits on each feature."""
        return np.asarray(self.booster.feature_importance("gain"), np.float64)

    def to_bytes(self, suffix: str = ".txt") -> bytes:  # noqa: ARG002
        """LightGBM's own text."""
        return self._text.encode()

    def _predict(self, X: Any, n_jobs: int | None, **kind: bool) -> npt.NDArray[np.float64]:
        if not len(X):
            return np.empty((0, X.shape[1] + 1) if "pred_contrib" in kind else 0)
        with explained_by(NAME, lgb.basic.LightGBMError):
            values = self.booster.predict(X, num_threads=thread_count(n_jobs), **kind)
        return np.asarray(values, np.float64)

    # A pickled booster loses the last lines of its text, so that we pickle the text.

    def __getstate__(self) -> dict[str, str]:
        return {"text": self._text}

    def __setstate__(self, state: dict[str, str]) -> None:
        self.__init__(state["text"])  # type: ignore[misc]


class Grower:
    """LightGBM in training, one round at a time."""

    def __init__(
        self,
        settings: TreeSettings,
        objective: Any,
        data: Rows,
        sets: Mapping[str, Rows],
        state: bytes | None = None,
    ) -> None:
        self._objective, self._size, self._seed = objective, settings.ensemble_size, settings.seed
        self._earlier = "" if state is None else state.decode()
        self._params = params_of(settings)
        self.exact = _continues_exactly(self._params)
        sampled = any(name in self._params for name in _SAMPLES_COLUMNS)
        self._reseeds = self.exact and sampled
        self._grown = 0  # rounds of this booster
        self._scores: dict[str, npt.NDArray[np.float64]] = {}
        with explained_by(NAME, lgb.basic.LightGBMError):
            self._start = lgb.Booster(model_str=self._earlier) if self._earlier else None
            train = self._dataset(data, settings)
            if not any(train.construct().feature_num_bin(i) for i in range(data.X.shape[1])):
                raise InputError(NO_TREE)  # all features are constant, or nearly so
            self._booster = lgb.Booster(self._params, train)
            self._names = list(sets)
            for name, rows in sets.items():
                self._booster.add_valid(self._dataset(rows, settings, train), name)

    def grow(self, round_number: int) -> bool:
        """Add a tree for every model of the ensemble; False if no split helps."""
        self._scores.clear()
        with explained_by(NAME, lgb.basic.LightGBMError):
            if self._reseeds:
                self._seed_round(round_number)
            grew = not self._booster.update(fobj=self._objective)
        self._grown += 1
        return grew

    def scores(self, name: str) -> npt.NDArray[np.float64]:
        """The scores of an evaluation set, kept up to date by LightGBM."""
        if not self._scores:
            names = iter(self._names)

            def keep(scores: Any, _: Any) -> tuple[str, float, bool]:
                columns = scores.sum(axis=1) if scores.ndim == 2 else np.array(scores)
                self._scores[next(names)] = columns
                return "kept", 0.0, True

            self._booster.eval_valid(keep)
        return self._scores[name]

    def state(self) -> bytes:
        """All trees grown so far, those of an earlier booster first."""
        return self._text().encode()

    def trees(self, rounds: int) -> LightGBMTrees:
        """The trees of the first rounds; the models of an ensemble add up to one score."""
        return merged_trees(self._text(), self._size, rounds)

    def _text(self) -> str:
        text = self._booster.model_to_string(num_iteration=-1)
        if not self._earlier:
            return text
        header, trees, tail = _parsed(text)
        return _joined(header, [*_parsed(self._earlier)[1], *trees], tail)

    def _dataset(
        self, rows: Rows, settings: TreeSettings, train: lgb.Dataset | None = None
    ) -> lgb.Dataset:
        start = None
        if self._start is not None:  # the sums of the same leaves in the same order: the same bits
            threads = thread_count(settings.n_jobs)
            start = self._start.predict(rows.X, raw_score=True, num_threads=threads)
        return lgb.Dataset(
            rows.X,
            rows.y,
            reference=train,
            group=rows.lists.sizes,
            weight=None if rows.weights is None else rows.lists.spread(rows.weights),
            init_score=start,
            categorical_feature=list(settings.categorical) or "auto",
            params=self._params,
        )

    def _seed_round(self, round_number: int) -> None:
        """Draw columns by the number of the round, so that training can continue anywhere.

        Setting a new seed draws columns once. In the first round with our own objective, LightGBM's
        `update` resets a parameter, which draws once more, so that later rounds do so too.
        """
        words = np.random.SeedSequence([self._seed, round_number]).generate_state(2) >> 1
        names = ("feature_fraction_seed", "extra_seed")
        self._booster.reset_parameter(dict(zip(names, words.tolist(), strict=True)))
        if self._grown and self._objective is not None:
            self._booster.reset_parameter({"verbosity": -1})


def merged_trees(text: str, ensemble_size: int, rounds: int | None = None) -> LightGBMTrees:
    """The trees of a booster as one model; those of an ensemble are LightGBM's classes."""
    header, trees, tail = _parsed(text)
    if rounds is not None:
        trees = trees[: rounds * ensemble_size]
    text = _joined(header, trees, tail)
    for part in ("num_class={}\n", "num_tree_per_iteration={}\n", "[num_class: {}]"):
        text = text.replace(part.format(ensemble_size), part.format(1), 1)
    with explained_by(NAME, lgb.basic.LightGBMError):
        return LightGBMTrees(lgb.Booster(model_str=text).model_to_string(num_iteration=-1))


def _parsed(text: str) -> tuple[str, list[str], str]:
    """LightGBM's text as the lines before the trees, the trees, and the lines after them."""
    trees, end, tail = text.partition("end of trees")
    header, *blocks = re.split(r"^Tree=\d+\n", trees, flags=re.MULTILINE)
    return header, blocks, end + tail


def _joined(header: str, trees: list[str], tail: str) -> str:
    """The inverse of `_parsed`: trees are numbered, and their sizes are in the header."""
    blocks = [f"Tree={i}\n{tree}" for i, tree in enumerate(trees)]
    sizes = " ".join(str(len(block.encode())) for block in blocks)
    header = re.sub(r"^tree_sizes=.*$", f"tree_sizes={sizes}", header, flags=re.MULTILINE)
    return header + "".join(blocks) + tail


def from_bytes(content: bytes, features: int, _: tuple[int, ...]) -> LightGBMTrees:
    """Read what `to_bytes` wrote, if it has so many features."""
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{FILE} is damaged: {error}") from error
    if not text.startswith("tree\n"):
        raise InputError(f"{FILE} is not a LightGBM model")
    trees = LightGBMTrees(text)
    if trees.booster.num_feature() != features:
        raise InputError(f"{FILE} is for {trees.booster.num_feature()} features, not {features}")
    return trees


def params_of(settings: TreeSettings) -> dict[str, Any]:
    """LightGBM's parameters."""
    own = _canonical(settings.engine_params)
    # One thread builds the histogram of a feature, so that trees do not depend on their number.
    layout = {} if any(name in own for name in _LAYOUTS) else {_LAYOUTS[0]: True}
    size = settings.ensemble_size
    return {
        "objective": settings.objective or "none",
        "metric": "None",
        "num_leaves": settings.num_leaves,
        "learning_rate": settings.learning_rate / size,
        **({"num_class": size} if size > 1 else {}),
        "num_threads": thread_count(settings.n_jobs),
        "seed": settings.seed % 2**31,
        "deterministic": True,
        "verbosity": -1,
        **layout,
        **own,
    }


def _canonical(engine_params: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by LightGBM's main names; it would ignore unknown ones silently."""
    table = getattr(lgb.basic, "_ConfigAliases", None)  # not public: without it, nothing is checked
    if table is None or not hasattr(table, "_get_all_param_aliases"):
        return dict(engine_params)
    aliases = table._get_all_param_aliases()
    main = {alias: name for name, others in aliases.items() for alias in (name, *others)}
    for name in engine_params:
        if name not in main:
            raise InputError(unknown("setting of LightGBM", name, sorted(main)))
    return {main[name]: value for name, value in engine_params.items()}


def _continues_exactly(params: Mapping[str, Any]) -> bool:
    """True if the only random draws are those of columns, which we seed in every round."""
    if params["objective"] == "rank_xendcg":  # it draws its labels in every round
        return False
    if any(name.startswith("cegb_") for name in params):  # it remembers the features of all trees
        return False
    return all(params.get(name, usual) == usual for name, usual in _INEXACT.items())
