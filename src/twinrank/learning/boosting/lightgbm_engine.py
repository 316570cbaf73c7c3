"""Trees by LightGBM (Ke et al., NeurIPS 2017)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import lightgbm as lgb
import numpy as np
import numpy.typing as npt

from twinrank.learning.boosting import lightgbm_data
from twinrank.learning.boosting.engine_objectives import LightGBMObjective
from twinrank.learning.boosting.engines import (
    NO_TREE,
    Rows,
    TreeSettings,
    draw_queries,
    explained_by,
    thread_count,
)
from twinrank.learning.boosting.lightgbm_data import binned
from twinrank.learning.boosting.tree_check import check_lightgbm
from twinrank.support.errors import InputError, unknown

NAME, FILE, SUFFIXES = "LightGBM", "model.txt", (".txt",)
SHARES_DATA = True  # several boosters can grow on the same data at once
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
_SEEDS = ("bagging_seed", "feature_fraction_seed", "extra_seed", "objective_seed", "drop_seed")
_ONCE = 2**31 - 1  # rounds between two draws
_END = "end of trees"
_SAMPLES_COLUMNS = ("feature_fraction", "feature_fraction_bynode", "extra_trees")


def rescales(engine_params: Mapping[str, Any]) -> bool:
    """True if later rounds change earlier trees."""
    return bool(_canonical(engine_params).get("boosting") == "dart")


def begin_thread() -> None:
    """Make LightGBM quiet in a new thread: each has its own level of messages."""
    lgb.Dataset(np.zeros((2, 1)), params={"verbosity": -1}).construct()


def memory_of(settings: TreeSettings, documents: int, others: int, columns: int) -> float:
    """The bytes that training needs at its peak, with this many documents of evaluation sets."""
    own = lightgbm_data.memory_of(params_of(settings), documents, others, columns)
    return own + (settings.ensemble_size - 1) * 30 * (documents + others)


class LightGBMTrees:
    """Trained trees without their training data."""

    file = FILE

    def __init__(self, text: str) -> None:
        # Without the parameters after the trees: scores need none, and damaged ones crash LightGBM.
        header, trees, _ = _parsed(text)
        with explained_by(NAME, lgb.basic.LightGBMError):
            self.booster = lgb.Booster(model_str=_joined(header, trees, _END))
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

    def scaled(self, factor: float) -> bytes:
        """The state from which a `Grower` continues these trees, with all scores multiplied."""
        header, trees, _ = _parsed(self._text)
        if factor != 1:
            trees = [_scaled(tree, factor) for tree in trees]
        return _joined(header, trees, _END).encode()

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


class Data:
    """Rows as LightGBM's Datasets, which all models of an ensemble share."""

    def __init__(self, settings: TreeSettings, rows: Rows, sets: Mapping[str, Rows]) -> None:
        self.rows, self.sets = rows, dict(sets)
        self._settings, self._params = settings, params_of(settings)
        with explained_by(NAME, lgb.basic.LightGBMError):
            categorical = settings.categorical
            self.train = binned(rows, self._params, categorical)
            if not any(self.train.feature_num_bin(i) for i in range(rows.X.shape[1])):
                raise InputError(NO_TREE)  # all features are constant, or nearly so
            self._valid = [
                binned(other, self._params, categorical, self.train) for other in sets.values()
            ]

    def booster(self, params: dict[str, Any], start: lgb.Booster | None) -> lgb.Booster:
        """A booster that continues from the scores of other trees, or from nothing."""
        # A booster copies the initial scores when it is made, so that each has its own.
        self._set_scores(self.train, self.rows, start)
        booster = lgb.Booster(params, self.train)
        for (name, rows), valid in zip(self.sets.items(), self._valid, strict=True):
            self._set_scores(valid, rows, start)
            booster.add_valid(valid, name)
        return booster

    def _set_scores(self, data: lgb.Dataset, rows: Rows, start: lgb.Booster | None) -> None:
        if start is None:
            data.set_init_score(None)
            return
        threads = thread_count(self._settings.n_jobs)
        # The sums of the same leaves in the same order have the same bits.
        parts = [start.predict(X, raw_score=True, num_threads=threads) for X in rows.X]
        data.set_init_score(np.concatenate(parts))


class Grower:
    """LightGBM in training, one round at a time."""

    def __init__(
        self, settings: TreeSettings, objective: Any, data: Data, state: bytes | None = None
    ) -> None:
        self._settings, self.objective, self._data = settings, objective, data
        self._earlier = "" if state is None else state.decode()
        self.count = len(_parsed(self._earlier)[1])
        params = params_of(settings)
        self.exact = _continues_exactly(params)
        self._reseeds = self.exact and any(name in params for name in _SAMPLES_COLUMNS)
        self._grown = 0  # rounds of this booster
        self._scores: dict[str, npt.NDArray[np.float64]] = {}
        with explained_by(NAME, lgb.basic.LightGBMError):
            start = lgb.Booster(model_str=self._earlier) if self._earlier else None
            self._booster = data.booster(params, start)
        if objective is not None and params.get("boosting") == "dart":
            # DART does not initialise whether it has dropped trees for the current round. Reading
            # the training scores does; the first round then starts its random numbers anew.
            self.scores()

    def grow(self, round_number: int) -> bool:
        """Add a tree; False if no split helps."""
        self._scores.clear()
        objective = self.objective
        if objective is not None:
            queries = draw_queries(self._settings, len(self._data.rows.lists), round_number)
            objective = replace(objective, queries=queries)
        with explained_by(NAME, lgb.basic.LightGBMError):
            if self._reseeds:
                self._seed_round(round_number)
            grew = not self._booster.update(fobj=objective)
        self._grown += 1
        self.count += grew
        return grew

    def scores(self, name: str | None = None) -> npt.NDArray[np.float64]:
        """The scores of an evaluation set, or of the training data, kept up to date by LightGBM."""
        if name is None:
            self._booster.eval_train(self._keep(iter(["training"])))
            return self._scores.pop("training")
        if not self._scores:
            self._booster.eval_valid(self._keep(iter(self._data.sets)))
        return self._scores[name]

    def _keep(self, names: Iterator[str]) -> Any:
        """A metric that keeps the scores it is called with."""

        def keep(scores: Any, _: Any) -> tuple[str, float, bool]:
            self._scores[next(names)] = np.array(scores)
            return "kept", 0.0, True

        return keep

    def state(self) -> bytes:
        """All trees grown so far, those of an earlier booster first."""
        return self._text().encode()

    def model(self, count: int) -> str:
        """The first trees, for `merged_trees`."""
        return first_rounds(self._text(), count)

    def _text(self) -> str:
        if self._earlier and not self._grown:
            return self._earlier  # with the seeds of its last round
        # If the first round of a booster has no split, LightGBM adds a tree of one leaf.
        header, trees, tail = _parsed(self._booster.model_to_string(num_iteration=-1))
        return _joined(header, [*_parsed(self._earlier)[1], *filter(_has_split, trees)], tail)

    def _seed_round(self, round_number: int) -> None:
        """Draw columns by the number of the round, so that training can continue anywhere.

        Setting a new seed draws columns once. In the first round with our own objective, LightGBM's
        `update` resets a parameter, which draws once more, so that later rounds do so too.
        """
        seeds = [self._settings.model_seed, round_number]
        words = np.random.SeedSequence(seeds).generate_state(2) >> 1
        names = ("feature_fraction_seed", "extra_seed")
        self._booster.reset_parameter(dict(zip(names, words.tolist(), strict=True)))
        if self._grown and self.objective is not None:
            self._booster.reset_parameter({"verbosity": -1})


def merged_trees(
    models: Sequence[str],
    factors: Sequence[float],
    features: int,  # noqa: ARG001
    categorical: tuple[int, ...],  # noqa: ARG001
) -> LightGBMTrees:
    """The trees of several models as one, whose score is the sum of factor · score."""
    header, _, tail = _parsed(models[0])
    trees = [
        tree if factor == 1 else _scaled(tree, factor)
        for model, factor in zip(models, factors, strict=True)
        for tree in _parsed(model)[1]
    ]
    with explained_by(NAME, lgb.basic.LightGBMError):
        text = lgb.Booster(model_str=_joined(header, trees, tail)).model_to_string(num_iteration=-1)
        return LightGBMTrees(text)


def _has_split(tree: str) -> bool:
    return not tree.startswith("num_leaves=1\n")


def first_rounds(model: str, rounds: int) -> str:
    """The trees of the first rounds."""
    header, trees, tail = _parsed(model)
    return _joined(header, trees[:rounds], tail)


def later_rounds(model: str, first: int) -> str:
    """The trees without those of the first rounds."""
    header, trees, tail = _parsed(model)
    return _joined(header, trees[first:], tail)


def staged_scores(model: str, X: Any, first: int, last: int) -> Iterator[Any]:
    """The scores after the rounds first + 1 to last."""
    booster = lgb.Booster(model_str=model)
    scores = np.zeros(len(X))
    if first:
        scores += booster.predict(X, raw_score=True, num_iteration=first)
    for number in range(first, last):
        scores += booster.predict(X, raw_score=True, start_iteration=number, num_iteration=1)
        yield scores


_VALUES = re.compile(
    r"^(leaf_value|internal_value|leaf_const|leaf_coeff|shrinkage)=(.*)$", re.MULTILINE
)


def _scaled(tree: str, factor: float) -> str:
    """The text of a tree with all its values multiplied."""

    def scaled(line: re.Match[str]) -> str:
        values = re.sub(r"[^ ]+", lambda value: repr(float(value[0]) * factor), line[2])
        return f"{line[1]}={values}"

    return _VALUES.sub(scaled, tree)


def _parsed(text: str) -> tuple[str, list[str], str]:
    """LightGBM's text as the lines before the trees, the trees, and the lines after them."""
    trees, end, tail = text.partition(_END)
    header, *blocks = re.split(r"^Tree=\d+\n", trees, flags=re.MULTILINE)
    return header, blocks, end + tail


def _joined(header: str, trees: list[str], tail: str) -> str:
    """The inverse of `_parsed`: trees are numbered, and their sizes are in the header."""
    blocks = [f"Tree={i}\n{tree}" for i, tree in enumerate(trees)]
    sizes = " ".join(str(len(block.encode())) for block in blocks)
    header = re.sub(r"^tree_sizes=.*$", f"tree_sizes={sizes}", header, flags=re.MULTILINE)
    return header + "".join(blocks) + tail


def from_bytes(content: bytes, features: int, _: tuple[int, ...]) -> LightGBMTrees:
    """Read what `to_bytes` wrote, if it has this many features."""
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{FILE} is damaged ({error}).") from error
    if not text.startswith("tree\n"):
        raise InputError(f"{FILE} is not a LightGBM model.")
    header, trees, tail = _parsed(text)
    if _joined(header, trees, tail) != text or not tail:
        raise InputError(f"{FILE} is damaged: its trees are not those that its header names.")
    actual = check_lightgbm(header, trees, FILE)
    if actual != features:
        raise InputError(f"{FILE} is for {actual} features, not {features}.")
    return LightGBMTrees(text)


def params_of(settings: TreeSettings) -> dict[str, Any]:
    """LightGBM's parameters."""
    own = _canonical({**_bagging(settings), **settings.engine_params})
    # One thread builds the histogram of a feature, so that trees do not depend on their number.
    layout = {} if any(name in own for name in _LAYOUTS) else {_LAYOUTS[0]: True}
    share = settings.colsample_bytree
    return {
        "objective": settings.objective or "none",
        "metric": "None",
        "num_leaves": settings.num_leaves,
        "learning_rate": settings.learning_rate,
        **({} if share == 1 else {"feature_fraction": share}),
        "num_threads": thread_count(settings.n_jobs),
        **_seeds(settings),
        "deterministic": True,
        "verbosity": -1,
        **layout,
        **own,
    }


def _seeds(settings: TreeSettings) -> dict[str, int]:
    """The seeds of a model; the seed of the bins, which models share, is that of all."""
    if not settings.model:
        return {"seed": settings.seed % 2**31}
    words = np.random.SeedSequence(settings.model_seed).generate_state(len(_SEEDS)) >> 1
    return {"seed": settings.seed % 2**31, **dict(zip(_SEEDS, words.tolist(), strict=True))}


def _bagging(settings: TreeSettings) -> dict[str, Any]:
    """Samples of queries by LightGBM itself, if the objective is its own."""
    if settings.objective is None or settings.subsample == 1:
        return {}
    return {
        "bagging_fraction": settings.subsample,
        "bagging_by_query": True,
        "bagging_freq": settings.subsample_freq or _ONCE,
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
