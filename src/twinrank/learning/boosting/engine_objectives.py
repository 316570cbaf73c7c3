"""Objectives and metrics for `lgb.train` and `xgb.train`."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from twinrank.core.lists import Lists
from twinrank.core.lists.row_weights import query_and_document_weights
from twinrank.core.measures import Measure
from twinrank.core.measures import measure as as_measure
from twinrank.evaluation.evaluate import evaluate
from twinrank.learning.boosting.newton import PERTURBATION, SAMPLES, Floats, Newton
from twinrank.support.arrays import as_float
from twinrank.support.errors import InputError


def lightgbm_objective(
    measure: str | Measure,
    strategy: str = "type3",
    perturbation: float = PERTURBATION,
    samples: int = SAMPLES,
    random_state: int = 0,
) -> "LightGBMObjective":
    """A measure as an objective of LightGBM: `LGBMRanker(objective=this)`, or for `lgb.train`.

    The data needs `group`. The objective applies its weights, if any, as `BoostedRanker.fit` does:
    they may differ within a query if the measure adds up gains.

    Parameters
    ----------
    measure : str or Measure
        The measure, such as "nDCG", "AP" or "nERR@10".
    strategy : {"type1", "type2", "type3", "swap"}, default "type3"
        How the measure passes its gradient to the scores.
    perturbation : float, default 2.0
        The scale of the Gumbel noise that is added to the scores before they are ranked.
    samples : int, default 5
        The number of perturbed rankings that a gradient is averaged over.
    random_state : int, default 0
        The seed of the noise.

    Returns
    -------
    callable
        Takes (scores, dataset), or (labels, scores, weights, group sizes) from LGBMRanker, and
        returns the gradient and the hessian.

    Examples
    --------
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

    The DMatrix needs `group` or `qid`. Its `weight`, if any, has one entry per query.

    Parameters
    ----------
    measure : str or Measure
        The measure, such as "nDCG", "AP" or "nERR@10".
    strategy : {"type1", "type2", "type3", "swap"}, default "type3"
        How the measure passes its gradient to the scores.
    perturbation : float, default 2.0
        The scale of the Gumbel noise that is added to the scores before they are ranked.
    samples : int, default 5
        The number of perturbed rankings that a gradient is averaged over.
    random_state : int, default 0
        The seed of the noise.

    Returns
    -------
    callable
        Takes (scores, dmatrix), and returns the gradient and the hessian.
    """
    return XGBoostObjective(Newton.of(measure, strategy, perturbation, samples, random_state))


def lightgbm_metric(measure: str | Measure) -> "LightGBMMetric":
    """The mean of a measure over queries, for LightGBM's `feval` or `eval_metric`.

    Parameters
    ----------
    measure : str or Measure
        The measure, such as "nDCG@10".

    Returns
    -------
    callable
        Takes (scores, dataset), and returns (name, value, True).
    """
    return LightGBMMetric(as_measure(measure))


def xgboost_metric(measure: str | Measure) -> "XGBoostMetric":
    """The mean of a measure over queries, for XGBoost's `custom_metric`.

    Tell early stopping that higher is better: `EarlyStopping(50, maximize=True)`.

    Parameters
    ----------
    measure : str or Measure
        The measure, such as "nDCG@10".

    Returns
    -------
    callable
        Takes (scores, dmatrix), and returns (name, value).
    """
    return XGBoostMetric(as_measure(measure))


@dataclass(frozen=True)
class LightGBMObjective:
    """Called by LightGBM in every round; made by `lightgbm_objective`."""

    newton: Newton
    queries: Any = None
    """The numbers of the queries that count; None for all."""

    def __call__(
        self, scores: Any, data: Any, weight: Any = None, group: Any = None
    ) -> tuple[Floats, Floats]:
        """Gradient and hessian of every row.

        `lgb.train` passes the scores and a Dataset; LGBMRanker passes the labels, the scores, and
        the weights and sizes of queries.
        """
        scores, labels, lists, rows = _lightgbm_data(scores, data, weight, group)
        weights, documents = None, None
        if rows is not None:
            weights, documents = query_and_document_weights(rows, lists)
        newton = self.newton
        if documents is not None:
            measure, labels = newton.measure.weighted(as_float(labels), documents)
            newton = replace(newton, measure=measure)
        return newton(scores, labels, lists, weights, self.queries)


@dataclass(frozen=True)
class XGBoostObjective:
    """Called by XGBoost in every round; made by `xgboost_objective`."""

    newton: Newton
    queries: Any = None
    """The numbers of the queries that count; None for all."""

    def __call__(self, scores: Any, data: Any) -> tuple[Floats, Floats]:
        """Gradient and hessian of every row."""
        lists = _xgboost_lists(data)
        weights = _xgboost_weights(data, lists)
        return self.newton(scores, data.get_label(), lists, weights, self.queries)


@dataclass(frozen=True)
class LightGBMMetric:
    """Called by LightGBM after every round; made by `lightgbm_metric`."""

    measure: Measure

    def __call__(
        self, scores: Any, data: Any, weight: Any = None, group: Any = None
    ) -> tuple[str, float, bool]:
        """Name, value, and that higher is better; arguments as in `LightGBMObjective`."""
        scores, labels, lists, rows = _lightgbm_data(scores, data, weight, group)
        weights = None if rows is None else query_and_document_weights(rows, lists)[0]
        return str(self.measure), mean(self.measure, scores, labels, lists, weights, rows), True


@dataclass(frozen=True)
class XGBoostMetric:
    """Called by XGBoost after every round; made by `xgboost_metric`."""

    measure: Measure

    def __call__(self, scores: Any, data: Any) -> tuple[str, float]:
        """Name and value."""
        lists = _xgboost_lists(data)
        weights = _xgboost_weights(data, lists)
        return str(self.measure), mean(self.measure, scores, data.get_label(), lists, weights)


def mean(
    measure: Measure, scores: Any, labels: Any, lists: Lists, weights: Any = None, rows: Any = None
) -> float:
    """The mean over the lists with a relevant document, Σ w·M / Σ w, or NaN.

    `weights` are those of lists, `rows` those of documents.
    """
    values = evaluate(scores, labels, lists, {"value": measure}, weights=rows).values["value"]
    counts = ~np.isnan(values)
    if weights is None:
        weights = np.ones(len(lists))
    total = float(weights[counts].sum())
    return float((weights * values)[counts].sum()) / total if total > 0 else float("nan")


def _lightgbm_data(scores: Any, data: Any, weight: Any, group: Any) -> tuple[Any, Any, Lists, Any]:
    """Scores, labels, lists and weights of rows, as `lgb.train` or LGBMRanker pass them."""
    if hasattr(data, "get_label"):
        labels, weight, group = data.get_label(), data.get_weight(), data.get_group()
        remedy = "lgb.Dataset(X, y, group=sizes)"
    else:
        labels, scores, remedy = scores, data, "LGBMRanker.fit(X, y, group=sizes)"
    if group is None:
        raise InputError(f"There are no queries. Pass the number of rows of each: {remedy}.")
    lists = Lists.from_sizes(np.asarray(group))
    return scores, labels, lists, None if weight is None else np.asarray(weight, np.float64)


def _xgboost_lists(data: Any) -> Lists:
    offsets = data.get_uint_info("group_ptr")
    if offsets.size == 0:
        raise InputError(
            "The DMatrix has no queries. Pass the query of each row: xgb.DMatrix(X, y, qid=qid)."
        )
    return Lists.from_offsets(offsets.astype(np.int64))


def _xgboost_weights(data: Any, lists: Lists) -> Any:
    weights = data.get_weight()
    if weights.size == 0:
        return None
    if weights.size != len(lists):
        raise InputError(
            f"The DMatrix has {weights.size} weights for {len(lists)} queries; pass one per query."
        )
    return weights.astype(np.float64)
