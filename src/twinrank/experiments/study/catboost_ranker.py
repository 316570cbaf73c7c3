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
    "StochasticRank": "StochasticRank:metric=NDCG;type=Exp;top={top}",
    "LambdaMart": "LambdaMart",
    "PairLogit": "PairLogit",
    "QueryRMSE": "QueryRMSE",
    "QuerySoftMax": "QuerySoftMax",
}
"""Ranking losses of CatBoost by name, with the settings that it needs."""
INSTALL = "pip install 'twinrank[catboost]'"
_EARLY_STOPPING = 50  # as for the other trees


def is_installed() -> bool:
    """True if CatBoost can be imported."""
    return find_spec("catboost") is not None


class CatBoostMethod(BaseEstimator):  # type: ignore[misc]
    """CatBoost as it ships, for comparison: symmetric trees of depth 6, automatic learning rate.

    YetiRank is by Gulin et al. (2011), StochasticRank by Ustimenko & Prokhorenkova (2020).
    Training ends `early_stopping` rounds after the best by CatBoost's own nDCG, at the cutoff of
    the validation measure. The round with the best `validation_measure` up to there is kept.
    Labels of -1 (unjudged) count as 0. The model cannot be saved.
    """

    def __init__(
        self,
        loss: str = "YetiRank",
        n_estimators: int = 1_000,
        learning_rate: float | str = "auto",
        depth: int = 6,
        validation_measure: str | Measure = "nDCG@5",
        early_stopping: int | str | None = "auto",
        n_jobs: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.loss = loss
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.depth = depth
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
            callback.on_train_begin(SimpleNamespace(plan=SimpleNamespace(iterations=self._rounds)))
        self._booster = CatBoost(self._settings())
        pool = _pool(eval_set["validation"])
        self._booster.fit(_pool(data), eval_set=pool, callbacks=[watch])
        values = {name: self._values(other) for name, other in eval_set.items()}
        chosen = values["validation"]
        if not np.isfinite(chosen).all():
            raise InputError(
                f"The validation queries cannot select the best round: {self.validation_measure} "
                f"has no value on any of them. Add queries with relevant documents."
            )
        best = int(np.argmax(chosen))
        self.best_iteration_, self.best_score_ = best + 1, float(chosen[best])
        self.history_: list[dict[str, Any]] = [
            {"iteration": i + 1, "seconds": watch.seconds[i]}
            | {n: float(v[i]) if np.isfinite(v[i]) else None for n, v in values.items()}
            for i in range(len(chosen))
        ]
        self.model_ = SimpleNamespace(provenance={"versions": versions("catboost")})
        return self

    def predict(self, data: Dataset) -> npt.NDArray[np.float32]:
        """The scores of the documents."""
        scores = self._booster.predict(data.X, ntree_end=self.best_iteration_)
        return np.asarray(scores, np.float32)

    @property
    def _rounds(self) -> int:
        return int(self.n_estimators)

    def _settings(self) -> dict[str, Any]:
        """The parameters by CatBoost's names."""
        top = measure(self.validation_measure).cutoff or -1
        patience = _EARLY_STOPPING if self.early_stopping == "auto" else self.early_stopping
        own = {
            "loss_function": CATBOOST_LOSSES[self.loss].format(top=top),
            "eval_metric": f"NDCG:top={top};type=Exp",
            "iterations": self._rounds,
            "learning_rate": None if self.learning_rate == "auto" else float(self.learning_rate),
            "depth": int(self.depth),
            "early_stopping_rounds": patience,
            "random_seed": int(self.random_state),
            "thread_count": limit_of_threads(self.n_jobs),
        }
        given = {name: value for name, value in own.items() if value is not None}
        return {**given, "use_best_model": False, "allow_writing_files": False, "verbose": False}

    def _values(self, data: Dataset) -> Floats:
        """The mean of the validation measure after each round."""
        name = str(measure(self.validation_measure))
        scores = self._booster.staged_predict(data.X)
        return np.array([evaluate(s, data.y, data.lists, [name])[name] for s in scores])


class _Watch:
    """A callback of CatBoost that keeps the time after each round and reports progress."""

    def __init__(self, callbacks: Sequence[Any]) -> None:
        self.seconds: list[float] = []
        self._callbacks, self._began = callbacks, time.perf_counter()

    def after_iteration(self, info: Any) -> bool:
        """Keep the time, and continue."""
        self.seconds.append(time.perf_counter() - self._began)
        for callback in self._callbacks:
            callback.on_iteration_end(None, {"iteration": info.iteration})
        return True


def _pool(data: Dataset) -> Any:
    from catboost import Pool

    groups = np.repeat(np.arange(data.queries), data.lists.sizes)
    return Pool(data.X, np.maximum(data.y, 0), group_id=groups)
