"""`BoostedRanker`: gradient-boosted trees that are trained on the measure they are judged by."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from twinrank.core.measures import Measure
from twinrank.data.dataset import Dataset
from twinrank.learning.distributed.on_dask import train_on_dask
from twinrank.learning.distributed.on_spark import (
    Columns,
    needs_spark,
    predict_on_spark,
    train_on_spark,
)
from twinrank.learning.distributed.worker import Job, check_available
from twinrank.learning.estimators.base_ranker import BaseRanker
from twinrank.learning.estimators.parameters import saved_parameters
from twinrank.learning.estimators.training_data import FitArguments
from twinrank.learning.training.callbacks import Callback
from twinrank.learning.training.fit_arguments import named_sets
from twinrank.learning.training.run_folder import Run
from twinrank.support.arrays import is_dask, is_spark
from twinrank.support.errors import InputError


class BoostedRanker(BaseRanker):
    """Boosted trees with scikit-learn's interface, grown by LightGBM or XGBoost.

    Parameters that are "auto" have a default for each mode, shown as "default / paper". The mode
    "paper" has the settings of Yu (2020) for LambdaMART: in `engine_params` 50 documents and a
    hessian of 200 per leaf, and no truncation. (The paper's LightGBM also cut the ideal DCG at 20
    documents, which cannot be set today.) With a measure as objective, the same trees are grown on
    the paper's objective, without noise. As in the paper, queries with fewer than 10 documents or
    without a relevant one are left out of training and evaluation sets; a `DataWarning` says how
    many. Explicit values override these defaults.

    The mode "per-document" is for search engines, which score each document alone: its trees see
    raw features only, so `export` can write them in the formats of all engines. Its other defaults
    are those of the mode "default".

    Parameters
    ----------
    objective : str, Measure or callable, default "nDCG"
        What is optimised: a measure ("nDCG", "AP", "P@5", …); one of the engine's own objectives:
        "LambdaMART" and "rank_xendcg" (LightGBM), "rank:ndcg" (XGBoost); or your own function of
        (scores, labels, lists), tensors of float64, that returns a loss, or a gradient and a
        positive hessian per document. See `register_loss`.
    strategy : {"type1", "type2", "type3", "swap"}, default "type3"
        How a measure passes its gradient to the scores.
    perturbation : float or "auto" (2.0 / 0.0)
        The scale of the Gumbel noise that is added to the scores before they are ranked.
    samples : int or "auto" (5 / 1)
        The number of perturbed rankings that a gradient is averaged over.
    ensemble_size : int or "auto" (5 to 1 / 1)
        The number of models, each with its own random draws and kept at a round of its own. The
        mean of their standardised scores ranks. Training takes that many times as long. The default
        is 5 on up to 60,000 documents, 4 on 100,000, 2 on 300,000 and 1 on a million; it is 1 for
        the engine's own objectives. All trees are in one booster.
    engine : {"lightgbm", "xgboost"}, default "lightgbm"
        The library that grows the trees. XGBoost is an optional dependency.
    mode : {"default", "paper", "per-document"}, default "default"
        The defaults of all parameters that are "auto".
    n_estimators : int or "auto" (300 to 1,000 / 1,000)
        The maximum number of rounds. The default is 300 on up to 60,000 documents, 606 on a
        million.
    learning_rate : float or "auto" (0.05 or more / 0.05)
        The shrinkage of each tree. The default is 0.05 on up to 60,000 documents, 0.066 on a
        million.
    num_leaves : int or "auto" (15 to 255 / 400)
        The maximum number of leaves of a tree, for both engines. The default is 15 on up to
        60,000 documents, 39 on 300,000, 81 on a million and at most 255.
    colsample_bytree : float or "auto" (0.5 / 1.0)
        The share of the features, drawn for each tree, that it may split on. The default is 1 for
        the engine's own objectives.
    subsample : float or "auto" (1.0 / 1.0)
        The share of the queries that a model learns from. Each model of an ensemble draws its own.
    subsample_freq : int or "auto" (0 / 0)
        Draw the queries again after this many rounds; 0 draws them once for each model.
    transforms : str or sequence of str, or "auto" ("none | QueryZScore" / "QueryZScore")
        Transforms of the features. The default "auto" is "none | QueryZScore", raw values beside
        z-scores within the query. With 240,000 documents or more, `fit` trains two small models on
        a sample of the queries first, and takes "none" if raw features alone rank other queries
        better. "auto" is "none" in the mode "per-document", for the engines' own objectives, such
        as LambdaMART, and if `engine_params` has values for each column (`monotone_constraints`).
        Missing values (NaN) that stay missing are left to the engine.
    categorical_features : sequence of int or str, optional
        Columns, by number or name, with the number of a category; columns of text, and of a
        frame's type for categories, are always categorical. The 255 most frequent categories of a
        column have codes of their own; the others share that of unknown ones. NaN, −1 and empty
        text are missing.
    validation_measure : str or Measure, default "nDCG@5"
        The measure on evaluation sets and in `score`.
    validate_every : int, default 1
        The number of rounds between evaluations.
    select : str, optional
        The name of the evaluation set that selects the round; by default "validation", or
        else the first.
    early_stopping : int, None or "auto" (50 / 200)
        Stop after this many rounds without improvement; None grows all rounds.
    tolerance : float or "auto" (1 / 0)
        Keep the last round that is less than this many standard errors of the difference, paired
        by query, below the best; 0 keeps the best round. The default is 0 for the
        engine's own objectives.
    n_jobs : int, optional
        The number of threads; -1 is all cores. The default is 1 for small data, else all cores.
    verbose : bool, default False
        Show progress on standard error.
    random_state : int, default 0
        The seed. LightGBM grows the same trees for it with any `n_jobs`, XGBoost with the same.
    engine_params : dict, optional
        Any other settings of the engine, by its own names.

    Attributes
    ----------
    booster_ : lightgbm.Booster or xgboost.Booster
        The engine's own object, with the trees of the kept rounds.
    feature_importances_ : array of float, shape (n_features,)
        The share of each feature in the total gain of all splits.

    Examples
    --------
    >>> import twinrank as tr
    >>> data = tr.synthetic_web_search(queries=30)
    >>> ranker = tr.BoostedRanker(objective="AP", n_estimators=3, num_leaves=7).fit(data)
    >>> ranker.predict(data).shape
    (3029,)
    """

    kind: ClassVar[str] = "trees"

    def __init__(
        self,
        objective: str | Measure = "nDCG",
        strategy: str = "type3",
        perturbation: float | str = "auto",
        samples: int | str = "auto",
        ensemble_size: int | str = "auto",
        engine: str = "lightgbm",
        mode: str = "default",
        n_estimators: int | str = "auto",
        learning_rate: float | str = "auto",
        num_leaves: int | str = "auto",
        colsample_bytree: float | str = "auto",
        subsample: float | str = "auto",
        subsample_freq: int | str = "auto",
        transforms: str | Sequence[str] = "auto",
        categorical_features: Sequence[int | str] | None = None,
        validation_measure: str | Measure = "nDCG@5",
        validate_every: int = 1,
        select: str | None = None,
        early_stopping: int | str | None = "auto",
        tolerance: float | str = "auto",
        n_jobs: int | None = None,
        verbose: bool = False,
        random_state: int = 0,
        engine_params: Mapping[str, Any] | None = None,
    ) -> None:
        self.objective = objective
        self.strategy = strategy
        self.perturbation = perturbation
        self.samples = samples
        self.ensemble_size = ensemble_size
        self.engine = engine
        self.mode = mode
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.num_leaves = num_leaves
        self.colsample_bytree = colsample_bytree
        self.subsample = subsample
        self.subsample_freq = subsample_freq
        self.transforms = transforms
        self.categorical_features = categorical_features
        self.validation_measure = validation_measure
        self.validate_every = validate_every
        self.select = select
        self.early_stopping = early_stopping
        self.tolerance = tolerance
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state
        self.engine_params = engine_params

    def fit(
        self,
        X: Any,
        y: Any = None,
        qid: Any = None,
        group: Any = None,
        sample_weight: Any = None,
        eval_set: Any = None,
        eval_qid: Any = None,
        eval_group: Any = None,
        eval_fraction: float | None = None,
        callbacks: Sequence[Callback] = (),
        run: str | os.PathLike[str] | Run | None = None,
        resume: bool = False,
        init_model: Any = None,
        calibrate: Any = None,
        current: Any = None,
        *,
        label: str | None = None,
        query: str | None = None,
        features: Sequence[str] | None = None,
        weight: str | None = None,
        workers: int | None = None,
    ) -> Self:
        """Train on features, labels and queries, on a Dataset, or on a Spark DataFrame.

        On Spark, pass the frame as X, evaluation sets as frames with the same columns (one, or a
        dict of them by name), and the names of the columns. Rows of a query go to the same worker.

        Parameters
        ----------
        X, y, qid, group, sample_weight, eval_set, eval_qid, eval_group, eval_fraction
            As in `Ranker.fit`; X, y, qid and sample_weight may be on Dask.
        callbacks, run, resume, init_model, calibrate, current
            As in `Ranker.fit`; not available on a cluster.
        label, query : str, optional
            On Spark: the columns of labels and of query ids.
        features : list of str, optional
            On Spark: the columns of features; by default all others.
        weight : str, optional
            On Spark: the column of weights, equal within a query.
        workers : int, optional
            On Spark: the number of tasks that train together; by default all slots.

        Returns
        -------
        self

        Raises
        ------
        InputError
            If parameters or data cannot be used.
        """
        call = FitArguments(
            X, y, qid, group, sample_weight, eval_set, eval_qid, eval_group, eval_fraction,
            callbacks, run, resume, init_model, calibrate, current,
        )  # fmt: skip
        if is_spark(X):
            return self._fit_on_spark(call, Columns(label, query, features, weight), workers)
        if any(v is not None for v in (label, query, features, weight, workers)):
            raise needs_spark(X)
        return self._fit_on_dask(call) if is_dask(X) else self._fit(call)

    def _fit_on_spark(self, call: FitArguments, columns: Columns, workers: int | None) -> Self:
        if call.passes_more_than("X", "eval_set"):
            raise InputError(
                "On Spark, fit takes a frame, label=, query=, features=, weight=, workers= and "
                "eval_set. Run folders, callbacks, init_model, calibrate and current are not "
                "available there."
            )
        eval_set = call.eval_set
        sets = {"validation": eval_set} if is_spark(eval_set) else eval_set
        if not isinstance(sets, Mapping | None):
            raise InputError("On Spark, eval_set is a frame, or a dict of frames by name.")
        self._adopt(train_on_spark(self._job(), call.X, columns, sets or {}, workers))
        return self

    def _fit_on_dask(self, call: FitArguments) -> Self:
        if call.passes_more_than("X", "y", "qid", "sample_weight", "eval_set", "eval_qid"):
            raise InputError(
                "On a Dask cluster, fit takes X, y, qid, sample_weight and eval_set, as Dask "
                "arrays or frames. Run folders, callbacks, init_model, calibrate and current are "
                "not available there."
            )
        named = named_sets(call.eval_set, call.eval_qid)
        sets = {name: _dask_set(*own) for name, own in named.items()}
        training = (call.X, call.y, call.qid, call.sample_weight)
        self._adopt(train_on_dask(self._job(), training, sets))
        return self

    def predict(
        self,
        X: Any,
        qid: Any = None,
        group: Any = None,
        *,
        output: str = "score",
        query: str | None = None,
    ) -> Any:
        """Score documents; on Spark, the frame with a further column.

        Parameters
        ----------
        X, qid, group, output
            As in `Ranker.predict`. A Spark DataFrame needs the columns of training; the new
            column has the name of `output`.
        query : str, optional
            On Spark: the column of query ids; required if scores depend on them.

        Returns
        -------
        array of float32, shape (n_documents,), or Spark DataFrame
            One score per row, in the order of the rows; higher is better.
        """
        if not is_spark(X):
            if query is not None:
                raise needs_spark(X)
            return super().predict(X, qid, group, output=output)
        self._check_fitted()
        if qid is not None or group is not None:
            raise InputError("On Spark, pass query=, the name of a column, not qid or group.")
        calibration = self._calibration(output)
        per_query = self.model_.per_query or (calibration is not None and calibration.per_query)
        return predict_on_spark(self, X, query, output, per_query)

    def _job(self) -> Job:
        """The training of this ranker on a cluster."""
        check_available(self.check_parameters())
        return Job(self._parameters(), saved_parameters(self._parameters()))

    def contributions(self, X: Any, qid: Any = None, group: Any = None) -> npt.NDArray[np.float64]:
        """SHAP values: what each feature adds to each score (Lundberg & Lee 2017).

        Parameters
        ----------
        X, qid, group
            As in `predict`.

        Returns
        -------
        array of float, shape (n_documents, n_features + 1)
            A column per feature, and the common base value in the last. A row adds up to its score.
        """
        data = self._query_data(X, qid, group)
        values = self.model_.contributions(self._matched(data), self.n_jobs)
        return values if data is X else np.asarray(data.in_source_order(values))

    def _pair_contributions(self, data: Dataset, a: int, b: int) -> npt.NDArray[np.float64]:
        """Differences of SHAP values; the common base value cancels."""
        values = self.model_.contributions(data, self.n_jobs)[:, :-1]
        return np.asarray(values[a] - values[b])

    @property
    def booster_(self) -> Any:
        """The engine's own object, with the trees of the kept rounds."""
        self._check_fitted()
        return self.model_.trees.booster

    @property
    def feature_importances_(self) -> npt.NDArray[np.float64]:
        """The share of each feature in the total gain of all splits."""
        self._check_fitted()
        gains: npt.NDArray[np.float64] = self.model_.gains()
        return gains / gains.sum() if gains.sum() > 0 else gains

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _dask_set(values: Any, qid: Any, _: Any) -> tuple[Any, Any, Any]:
    """X, y and qid of an evaluation set on Dask."""
    own = (*values, qid) if isinstance(values, tuple | list) and qid is not None else values
    if not isinstance(own, tuple | list) or len(own) != 3:
        raise InputError("On a Dask cluster, an evaluation set is (X, y, qid), all on Dask.")
    return own[0], own[1], own[2]
