"""CatBoost's ranking losses as a method of studies, with early stopping on validation queries."""

import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator

from twinrank.core.measures import Measure, measure
from twinrank.data.dataset import Dataset
from twinrank.evaluation.evaluate import evaluate
from twinrank.support.arrays import Floats
from twinrank.support.compiled import limit_of_threads
from twinrank.support.errors import InputError, check_number, unknown
from twinrank.support.versions import versions

CATBOOST_LOSSES = {
    "YetiRank": "YetiRank",
    "YetiLoss": "YetiRank:mode={metric}",
    "StochasticRank": "StochasticRank:metric=NDCG;type=Exp;top={top}",
    "LambdaMart": "LambdaMart:metric={metric}",
    "PairLogit": "PairLogit",
    "QueryRMSE": "QueryRMSE",
    "QuerySoftMax": "QuerySoftMax",
}
"""Ranking losses of CatBoost by name, with the settings that it needs.

YetiLoss is its YetiRank with a mode."""
METRICS = {"nDCG": "NDCG", "DCG": "NDCG", "AP": "MAP", "RR": "MRR", "ERR": "ERR", "nERR": "ERR"}
"""What YetiLoss and LambdaMart optimise for a validation measure."""
_EXTRA = {
    "YetiLoss": {"NDCG": ";dcg_type=Exp;top={top}"},
    "LambdaMart": {"NDCG": ";top={top};type=Exp"},
}
_EVALUATED = {"NDCG": "NDCG:top={top};type=Exp", "MAP": "MAP:top={top}", "MRR": "MRR:top={top}",
              "ERR": "ERR:top={top}"}  # fmt: skip
INSTALL = "pip install 'twinrank[catboost]'"
_EARLY_STOPPING = 50  # as for the other trees


def is_installed() -> bool:
    """True if CatBoost can be imported."""
    return find_spec("catboost") is not None


class CatBoostMethod(BaseEstimator):  # type: ignore[misc]
    """CatBoost as it ships, for comparison: symmetric trees of depth 6, automatic learning rate.

    YetiRank is by Gulin et al. (2011), StochasticRank by Ustimenko & Prokhorenkova (2020). YetiLoss
    and LambdaMart optimise a `metric`, by default that of the validation measure: Lyzhin,
    Ustimenko, Gulin & Prokhorenkova, "Which tricks are important for learning to rank?" (ICML
    2023). MAP and MRR get labels of 0 and 1, ERR the probabilities (2ʸ − 1) / 2ᵐᵃˣ. Training ends
    `early_stopping` rounds after the best by CatBoost's own nDCG (or metric), at the cutoff of the
    validation measure. The round with the best `validation_measure` up to there is kept, in each
    model of an ensemble. An ensemble ranks by the mean score of models with different seeds. Labels
    of -1 (unjudged) count as 0. The model cannot be saved.
    """

    def __init__(
        self,
        loss: str = "YetiRank",
        n_estimators: int = 1_000,
        learning_rate: float | str = "auto",
        depth: int = 6,
        metric: str = "auto",
        ensemble_size: int = 1,
        validation_measure: str | Measure = "nDCG@5",
        early_stopping: int | str | None = "auto",
        n_jobs: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.loss = loss
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.depth = depth
        self.metric = metric
        self.ensemble_size = ensemble_size
        self.validation_measure = validation_measure
        self.early_stopping = early_stopping
        self.n_jobs = n_jobs
        self.random_state = random_state

    @classmethod
    def iteration_name(cls) -> str:
        """What one iteration is called."""
        return "round"

    @classmethod
    def iterations_parameter(cls) -> str:
        """The parameter for the number of rounds."""
        return "n_estimators"

    def _parameters(self) -> dict[str, Any]:
        """The parameters, as other estimators give them."""
        return dict(self.get_params(deep=False))

    def check_parameters(self) -> None:
        """Raise InputError if a parameter cannot be used, or if CatBoost is not installed."""
        if self.loss not in CATBOOST_LOSSES:
            raise InputError(unknown("loss of CatBoost", str(self.loss), CATBOOST_LOSSES))
        check_number("n_estimators", self.n_estimators, whole=True, least=1)
        check_number("depth", self.depth, whole=True, least=1)
        check_number("ensemble_size", self.ensemble_size, whole=True, least=1)
        if self.metric not in ("auto", *_EVALUATED):
            raise InputError(argument="metric", value=self.metric, choices=["auto", *_EVALUATED])
        if self.metric != "auto" and self.loss not in _EXTRA:
            raise InputError(
                f"The loss {self.loss} has no metric; use YetiLoss or LambdaMart, or leave it out."
            )
        if self.learning_rate != "auto":
            check_number("learning_rate", self.learning_rate)
        if self.early_stopping not in ("auto", None):
            check_number("early_stopping", self.early_stopping, whole=True, least=1)
        measure(self.validation_measure)
        if not is_installed():
            raise InputError(f"CatBoost is not installed; install it with {INSTALL}.")

    def fit(
        self,
        data: Dataset,
        eval_set: Mapping[str, Dataset],
        callbacks: Sequence[Any] = (),
    ) -> Self:
        """Grow trees, and keep the round that is best on the evaluation set "validation"."""
        from catboost import CatBoost

        self.check_parameters()
        if data.categories:
            raise InputError("CatBoost is compared on numbers only, but the data has text columns.")
        watch = _Watch(callbacks)
        for callback in callbacks:
            rounds = self._rounds * self.ensemble_size
            callback.on_train_begin(SimpleNamespace(plan=SimpleNamespace(iterations=rounds)))
        self._boosters = []
        metric = self._metric
        highest = float(data.y.max(initial=0))
        pools = [_pool(part, metric, highest) for part in (data, eval_set["validation"])]
        for model in range(self.ensemble_size):
            watch.begin(model * self._rounds)
            booster = CatBoost(self._settings(model))
            booster.fit(pools[0], eval_set=pools[1], callbacks=[watch])
            chosen = self._values(booster, eval_set["validation"])
            if not np.isfinite(chosen).all():
                raise InputError(
                    f"The validation queries cannot select the best round: "
                    f"{self.validation_measure} has no value on any of them. Add queries with "
                    f"relevant documents."
                )
            self._boosters.append((booster, int(np.argmax(chosen)) + 1))
        # The history is that of the first model.
        first, self.best_iteration_ = self._boosters[0]
        values = {name: self._values(first, other) for name, other in eval_set.items()}
        self.best_score_ = self._value(self.predict(eval_set["validation"]), eval_set["validation"])
        chosen = values["validation"]
        self.history_: list[dict[str, Any]] = [
            {"iteration": i + 1, "seconds": watch.seconds[i]}
            | {n: float(v[i]) if np.isfinite(v[i]) else None for n, v in values.items()}
            for i in range(len(chosen))
        ]
        self.model_ = SimpleNamespace(provenance={"versions": versions("catboost")})
        return self

    def predict(self, data: Dataset) -> npt.NDArray[np.float32]:
        """The scores of the documents."""
        scores = [b.predict(data.X, ntree_end=best) for b, best in self._boosters]
        return np.asarray(np.mean(scores, axis=0), np.float32)

    @property
    def _metric(self) -> str:
        """What YetiLoss and LambdaMart optimise; nDCG is what the other losses are watched by."""
        if self.loss not in _EXTRA:
            return "NDCG"
        return self.metric if self.metric != "auto" else METRICS.get(self._measure.name, "NDCG")

    @property
    def _measure(self) -> Measure:
        return measure(self.validation_measure)

    @property
    def _rounds(self) -> int:
        return int(self.n_estimators)

    def _settings(self, model: int = 0) -> dict[str, Any]:
        """The parameters by CatBoost's names; each model of an ensemble has its own seed."""
        top, metric = self._measure.cutoff or -1, self._metric
        loss = CATBOOST_LOSSES[self.loss] + _EXTRA.get(self.loss, {}).get(metric, "")
        patience = _EARLY_STOPPING if self.early_stopping == "auto" else self.early_stopping
        own = {
            "loss_function": loss.format(top=top, metric=metric),
            "eval_metric": _EVALUATED[metric].format(top=top),
            "iterations": self._rounds,
            "learning_rate": None if self.learning_rate == "auto" else float(self.learning_rate),
            "depth": int(self.depth),
            "early_stopping_rounds": patience,
            "random_seed": int(self.random_state) + 10_000 * model,
            "thread_count": limit_of_threads(self.n_jobs),
        }
        given = {name: value for name, value in own.items() if value is not None}
        return {**given, "use_best_model": False, "allow_writing_files": False, "verbose": False}

    def _values(self, booster: Any, data: Dataset) -> Floats:
        """The mean of the validation measure after each round."""
        return np.array([self._value(scores, data) for scores in booster.staged_predict(data.X)])

    def _value(self, scores: Any, data: Dataset) -> float:
        name = str(self._measure)
        return float(evaluate(scores, data.y, data.lists, [name])[name])


class _Watch:
    """A callback of CatBoost that keeps the time after each round and reports progress."""

    def __init__(self, callbacks: Sequence[Any]) -> None:
        self.seconds: list[float] = []
        self._callbacks, self._began, self._before = callbacks, time.perf_counter(), 0

    def begin(self, before: int) -> None:
        """Count rounds from here on; those of earlier models come before."""
        self._before = before

    def after_iteration(self, info: Any) -> bool:
        """Keep the time, and continue."""
        self.seconds.append(time.perf_counter() - self._began)
        for callback in self._callbacks:
            callback.on_iteration_end(None, {"iteration": self._before + info.iteration})
        return True


def _pool(data: Dataset, metric: str, highest: float) -> Any:
    """The data with labels as the metric expects them; `highest` is that of the training data."""
    from catboost import Pool

    groups, labels = np.repeat(np.arange(data.queries), data.lists.sizes), np.maximum(data.y, 0)
    if metric in ("MAP", "MRR"):
        labels = (labels >= 1).astype(np.float32)
    elif metric == "ERR":
        labels = np.minimum((np.exp2(labels) - 1) / np.exp2(max(highest, 1.0)), 1.0)
    return Pool(data.X, labels, group_id=groups)
