"""Objectives and metrics as LightGBM and XGBoost call them, for one's own `lgb.train`."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from twinrank.boosting.newton import PERTURBATION, SAMPLES, Floats, Newton
from twinrank.evaluation.evaluate import evaluate
from twinrank.lists import Lists
from twinrank.measures import Measure
from twinrank.measures import measure as as_measure
from twinrank.support.errors import InputError


def lightgbm_objective(
    measure: str | Measure,
    strategy: str = "type3",
    perturbation: float = PERTURBATION,
    samples: int = SAMPLES,
    random_state: int = 0,
) -> "LightGBMObjective":
    """A measure as an objective of LightGBM, for `lgb.train({"objective": this, …}, …)`.

    Gradient and hessian, their scale and their noise are those of `Newton`, whose docstring derives
    them. Lists are the Dataset's `group`, and weights, which must be equal within a list, its
    `weight` (LightGBM leaves it to an objective to apply them).

    >>> objective = lightgbm_objective("AP", strategy="type2", samples=1)
    >>> objective.newton.strategy
    'type2'
    """
    return LightGBMObjective(Newton.of(measure, strategy, perturbation, samples, random_state))


def xgboost_objective(
    measure: str | Measure,
    strategy: str = "type3",
    perturbation: float = PERTURBATION,
    samples: int = SAMPLES,
    random_state: int = 0,
) -> "XGBoostObjective":
    """A measure as an objective of XGBoost, for `xgb.train(…, obj=this)`.

    As `lightgbm_objective`; lists are the DMatrix's `group` or `qid`, and weights, one per list,
    its `weight`.
    """
    return XGBoostObjective(Newton.of(measure, strategy, perturbation, samples, random_state))


def lightgbm_metric(measure: str | Measure) -> "LightGBMMetric":
    """The mean of a measure over lists, for LightGBM's `feval`; higher is better."""
    return LightGBMMetric(as_measure(measure))


def xgboost_metric(measure: str | Measure) -> "XGBoostMetric":
    """The mean of a measure over lists, for XGBoost's `custom_metric`.

    Early stopping has to be told that higher is better: `EarlyStopping(50, maximize=True)`.
    """
    return XGBoostMetric(as_measure(measure))


@dataclass(frozen=True)
class LightGBMObjective:
    """What LightGBM calls in every round; made by `lightgbm_objective`."""

    newton: Newton

    def __call__(self, scores: Any, data: Any) -> tuple[Floats, Floats]:
        """Gradient and hessian of every row."""
        lists = _lightgbm_lists(data)
        return self.newton(scores, data.get_label(), lists, _lightgbm_weights(data, lists))


@dataclass(frozen=True)
class XGBoostObjective:
    """What XGBoost calls in every round; made by `xgboost_objective`."""

    newton: Newton

    def __call__(self, scores: Any, data: Any) -> tuple[Floats, Floats]:
        """Gradient and hessian of every row."""
        lists = _xgboost_lists(data)
        return self.newton(scores, data.get_label(), lists, _xgboost_weights(data, lists))


@dataclass(frozen=True)
class LightGBMMetric:
    """What LightGBM measures after every round; made by `lightgbm_metric`."""

    measure: Measure

    def __call__(self, scores: Any, data: Any) -> tuple[str, float, bool]:
        """Name, value, and that higher is better."""
        lists = _lightgbm_lists(data)
        weights = _lightgbm_weights(data, lists)
        return str(self.measure), mean(self.measure, scores, data.get_label(), lists, weights), True


@dataclass(frozen=True)
class XGBoostMetric:
    """What XGBoost measures after every round; made by `xgboost_metric`."""

    measure: Measure

    def __call__(self, scores: Any, data: Any) -> tuple[str, float]:
        """Name and value."""
        lists = _xgboost_lists(data)
        weights = _xgboost_weights(data, lists)
        return str(self.measure), mean(self.measure, scores, data.get_label(), lists, weights)


def mean(measure: Measure, scores: Any, labels: Any, lists: Lists, weights: Any = None) -> float:
    """The mean over the lists that have something relevant, Σ w·M / Σ w; NaN if none has.

    The columns of a matrix of scores, one for each member, add up to what ranks.
    """
    if np.ndim(scores) == 2:
        scores = scores.sum(axis=1)
    values = evaluate(scores, labels, lists, {"it": measure}).values["it"]
    counts = ~np.isnan(values)
    if weights is None:
        weights = np.ones(len(lists))
    total = float(weights[counts].sum())
    return float((weights * values)[counts].sum()) / total if total > 0 else float("nan")


def _lightgbm_lists(data: Any) -> Lists:
    sizes = data.get_group()
    if sizes is None:
        raise InputError(
            "the Dataset has no lists: say how many rows each query has, lgb.Dataset(X, y, "
            "group=sizes)"
        )
    return Lists.from_sizes(sizes)


def _lightgbm_weights(data: Any, lists: Lists) -> Any:
    weights = data.get_weight()
    if weights is None:
        return None
    low, high = lists.min(weights), lists.max(weights)
    if (low != high).any():
        raise InputError(
            f"weights must be the same for all rows of a list; they differ in list "
            f"{int(np.argmax(low != high))}"
        )
    return high


def _xgboost_lists(data: Any) -> Lists:
    offsets = data.get_uint_info("group_ptr")
    if offsets.size == 0:
        raise InputError(
            "the DMatrix has no lists: say which query each row belongs to, xgb.DMatrix(X, y, "
            "qid=qid)"
        )
    return Lists.from_offsets(offsets.astype(np.int64))


def _xgboost_weights(data: Any, lists: Lists) -> Any:
    weights = data.get_weight()
    if weights.size == 0:
        return None
    if weights.size != len(lists):
        raise InputError(
            f"weights ({weights.size}) must have one entry for each of {len(lists)} lists"
        )
    return weights.astype(np.float64)
