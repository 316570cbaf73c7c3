"""Learning from simulated clicks as a method of studies: `Clicks(learner=ips)`."""

import time
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator

from twinrank.core.measures import Measure, measure
from twinrank.data.dataset import Dataset
from twinrank.evaluation.evaluate import evaluate
from twinrank.experiments.study.click_learners import ClickSetting, check_learner, learn
from twinrank.support.errors import check_number
from twinrank.support.versions import versions


class ClickMethod(BaseEstimator):  # type: ignore[misc]
    """Trees or nets that learn from clicks, which are simulated on the graded training queries.

    The grades choose only what users click; test queries are measured by their grades. All
    learners get the same log. Training does not stop early, because what to stop on would differ.
    """

    def __init__(
        self,
        learner: str = "ips",
        model: str = "trees",
        impressions: int = 100_000,
        eta: float = 1.0,
        share: float = 0.1,
        temperature: float = 0.3,
        n_estimators: int = 100,
        num_leaves: int = 15,
        learning_rate: float = 0.05,
        validation_measure: str | Measure = "nDCG@5",
        n_jobs: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.learner = learner
        self.model = model
        self.impressions = impressions
        self.eta = eta
        self.share = share
        self.temperature = temperature
        self.n_estimators = n_estimators
        self.num_leaves = num_leaves
        self.learning_rate = learning_rate
        self.validation_measure = validation_measure
        self.n_jobs = n_jobs
        self.random_state = random_state

    @classmethod
    def iteration_name(cls) -> str:
        """What one iteration is called."""
        return "fit"

    @classmethod
    def iterations_parameter(cls) -> str:
        """The parameter for the number of rounds."""
        return "n_estimators"

    def _parameters(self) -> dict[str, Any]:
        """The parameters, as other estimators give them."""
        return dict(self.get_params(deep=False))

    def check_parameters(self) -> None:
        """Raise InputError if a parameter cannot be used."""
        check_learner(self.learner, self.model)
        for name in ("impressions", "n_estimators"):
            check_number(name, getattr(self, name), whole=True, least=1)
        check_number("num_leaves", self.num_leaves, whole=True, least=2)
        check_number("eta", self.eta, least=0)
        check_number("temperature", self.temperature, least=0)
        check_number("share", self.share)
        check_number("learning_rate", self.learning_rate)
        measure(self.validation_measure)

    def fit(
        self, data: Dataset, eval_set: Mapping[str, Dataset], callbacks: Sequence[Any] = ()
    ) -> Self:
        """Simulate the log, and learn from it."""
        self.check_parameters()
        for callback in callbacks:
            callback.on_train_begin(SimpleNamespace(plan=SimpleNamespace(iterations=1)))
        began = time.perf_counter()
        setting = ClickSetting(
            self.impressions, self.eta, self.share, self.temperature, self.n_estimators,
            self.num_leaves, self.learning_rate, self.random_state, self.model,
        )  # fmt: skip
        self._model = learn(self.learner, setting.log(data), setting)
        record: dict[str, Any] = {
            "iteration": 1,
            "seconds": time.perf_counter() - began,
        }
        for callback in callbacks:
            callback.on_iteration_end(None, record)
        name = str(measure(self.validation_measure))
        for part, other in eval_set.items():
            value = evaluate(self.predict(other), other.y, other.lists, [name])[name]
            record[part] = float(value) if np.isfinite(value) else None
        self.history_ = [record]
        self.best_iteration_, self.best_score_ = 1, record.get("validation")
        self.model_ = SimpleNamespace(
            provenance={"versions": versions("lightgbm", "torch", "xgboost")}
        )
        return self

    def predict(self, data: Dataset) -> npt.NDArray[np.float32]:
        """The scores of the documents."""
        return np.asarray(self._model.predict(data), np.float32)
