"""The estimator interface that all rankers share: fit, predict, rank, score, save, load, export."""

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from twinrank.clicks.click_measures import check_click_objective
from twinrank.core.measures import Measure
from twinrank.core.measures.constraints import constrained
from twinrank.data.dataset import Dataset
from twinrank.data.sources import is_source, is_stream
from twinrank.evaluation.constraint_check import ConstraintCheck, checks_from_json
from twinrank.learning.estimators.calibration import Calibration, CalibrationOptions
from twinrank.learning.estimators.data_warnings import warn_about_training
from twinrank.learning.estimators.parameters import loaded_parameters, own_net, saved_parameters
from twinrank.learning.estimators.saved_ranker import estimator_class
from twinrank.learning.estimators.training_data import (
    FitArguments,
    encoded_data,
    opened_run,
    papers_data,
    training_data,
)
from twinrank.learning.estimators.warm_start import (
    check_same_training,
    continued_parameters,
    initial_model,
)
from twinrank.learning.models.kinds import KINDS
from twinrank.learning.models.saved_model import CONFIG, Model, read_model, save_model
from twinrank.learning.training.callbacks import Callback
from twinrank.learning.training.console import console
from twinrank.learning.training.fit_arguments import (
    KnownColumns,
    TrainingSet,
    as_dataset,
    as_evaluation_sets,
    has_query_column,
    known_columns,
    labelled,
)
from twinrank.learning.training.fitting import check_parameters, train_model
from twinrank.learning.training.learner import learner_class
from twinrank.learning.training.matched_data import (
    check_callbacks,
    check_has_queries,
    checked_scores,
    matched,
    trainable_part,
)
from twinrank.learning.training.run_folder import Run
from twinrank.support.errors import InputError

if TYPE_CHECKING:
    from twinrank.deployment.model_export import Export
    from twinrank.learning.estimators.boosted import BoostedRanker
    from twinrank.learning.estimators.pair_explanation import PairExplanation


class BaseRanker(Calibration, BaseEstimator, ABC):  # type: ignore[misc]
    """A ranker with scikit-learn's interface; subclasses have the parameters of one learner.

    Attributes
    ----------
    model_ : Model
        The fitted model.
    history_ : list of dict
        One record per iteration: `iteration`, `seconds`, and the value on each evaluation set.
    best_iteration_ : int or None
        The epoch or round that was kept; the last one without an evaluation set. None for a net
        that was saved in format 1.
    best_score_ : float or None
        The validation measure of the kept model; None without an evaluation set.
    n_features_in_ : int
        The number of features.
    feature_names_in_ : array of str
        Their names, if the training data had names.
    constraints_ : list of ConstraintCheck
        Whether the constraints of the objective hold on each evaluation set.
    """

    kind: ClassVar[str]
    """The name in `KINDS`."""
    validation_measure: Any
    verbose: Any
    random_state: Any

    @classmethod
    def iteration_name(cls) -> str:
        """What one iteration is called: "epoch" or "round"."""
        return learner_class(cls.kind).iteration_name

    @classmethod
    def iterations_parameter(cls) -> str:
        """The parameter for the number of iterations: "epochs" or "n_estimators"."""
        return learner_class(cls.kind).iterations_parameter

    def check_parameters(self, documents: int = 0) -> dict[str, Any]:
        """The parameters with "auto" resolved for this many documents.

        Raises
        ------
        InputError
            If a parameter cannot be used.
        """
        return check_parameters(self.kind, self._parameters(), documents)

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
    ) -> Self:
        """Train on features, labels and queries, or on a Dataset.

        Queries with a single document, nothing relevant or weight 0 are ignored in training.
        `BoostedRanker` also trains on a Dask cluster: Dask arrays or frames X, y, qid and
        `sample_weight` (one per row) need the same partitions, cut between queries. The current
        client's workers train on them. Evaluation sets are (X, y, qid) on Dask.

        Parameters
        ----------
        X : array, sparse matrix, frame or Dataset, shape (n_documents, n_features)
            The features. A Dataset brings its own labels and queries.
        y : array, shape (n_documents,)
            Labels: at least 0. A `Dataset` may also have unjudged documents, which count as 0.
        qid : array, shape (n_documents,)
            The query of each document; rows of a query may be scattered.
        group : array, shape (n_queries,)
            Instead of `qid`: the number of documents of each query, in order.
        sample_weight : array, shape (n_queries,) or (n_documents,), optional
            Weights of queries, in the order in which queries first appear; or of documents. A query
            has the mean weight of its rows. If they differ, the gain of a document is multiplied
            by its weight relative to that mean; see `docs/training.md`.
        eval_set : optional
            Evaluation sets: (X, y, qid), a Dataset, a dict of these by name, or [(X, y)] with
            `eval_qid=[qid]` or `eval_group`. They are evaluated after every epoch or round. The
            set "validation", or else the first, selects the one that is kept.
        eval_qid, eval_group : list, optional
            The queries of each set in a list `eval_set`.
        eval_fraction : float, optional
            Use this fraction of the queries as evaluation set instead.
        callbacks : sequence of Callback, default ()
            See `twinrank.training.Callback`.
        run : path, optional
            A folder for the history, checkpoints, curves and the model. Ctrl-C and SIGTERM then
            finish the current step and save a checkpoint. Under torchrun, all processes train one
            net together.
        resume : bool, default False
            Continue the training in the folder `run`, to the very same model. Parameters and data
            must be those that it was started with.
        init_model : fitted ranker, or path of a saved one, optional
            Continue from this model: trees get further trees, a net starts from its weights, a
            blend continues each of its rankers. The features, the objective, the transforms and
            the codes of categories stay as they are; new categories are unknown ones.
        calibrate : str or dict, optional
            Learn on the evaluation set what scores mean: "probability", "grade", or with options
            "probability(relevant=2, query_features=true)"; see `calibrate`.
        current : fitted ranker, path of a saved one, or array, optional
            The current ranker of constraints such as "… subject to nDCG@10 >= current - 0.002";
            or its scores, one per row of the evaluation set, by name if there are several sets.

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
        return self._fit(call)

    def _fit(self, call: FitArguments) -> Self:
        """Read the arguments of `fit`, and train."""
        check_callbacks(call.callbacks)
        calibration = CalibrationOptions.of(call.calibrate)
        previous = initial_model(call.init_model, self.kind, own_net(self))
        train, sets = training_data(self, call, previous)
        if calibration is not None:
            self._check_calibration(sets, calibration)
        folder = opened_run(call.run, call.resume)
        if folder is not None and calibration is not None:
            folder = replace(folder, calibrated=calibration.target)
        warn_about_training(self, train.data, sets)
        with nullcontext() if folder is None else folder.locked():
            self._train(train, sets, call.callbacks, folder, previous)
            if calibration is not None:
                self._calibrate_fitted(sets, calibration, folder)
        return self

    def _check_continues(self, previous: Model, data: Dataset) -> None:
        """Raise InputError if a training with these parameters cannot continue from a model."""
        own = self._parameters()
        check_same_training(own, saved_parameters(own), previous, data)

    @property
    def constraints_(self) -> list[ConstraintCheck]:
        """Whether the constraints of the objective hold on each evaluation set."""
        self._check_fitted()
        return checks_from_json(self.model_.provenance.get("constraints", ()))

    @property
    def selected_by(self) -> str:
        """The measure of `best_score_`: `validation_measure`, or the goal that constraints have."""
        parameters = self.get_params()
        found = [constrained(parameters[name]) for name in self._named("objective")]
        own = next(filter(None, found), None)
        return str(self.validation_measure if own is None else own.goal)

    def _known_columns(self) -> KnownColumns:
        """The columns that the fitted model knows as categories or text, by name if possible."""
        self._check_fitted()
        return known_columns(self.model_)

    def predict(
        self, X: Any, qid: Any = None, group: Any = None, *, output: str = "score"
    ) -> npt.NDArray[Any]:
        """Score documents.

        A score depends on the document and, if the model or its transform works per query, on the
        other documents of the query.

        Parameters
        ----------
        X : array, sparse matrix, frame or Dataset, shape (n_documents, n_features)
            The features, as in `fit`.
        qid, group : array, optional
            The queries, as in `fit`; required if scores depend on them.
        output : {"score", "grade", "probability"}, default "score"
            After `calibrate`: the expected grade, or the probability of relevance, instead of the
            score. Documents have the same order.

        Returns
        -------
        array of float32, shape (n_documents,)
            One score per row, in the order of the rows; higher is better. Grades and probabilities
            are float64.
        """
        calibration = self._calibration(output)
        of_query = calibration is not None and calibration.per_query
        data = self._query_data(X, qid, group, of_query)
        values: npt.NDArray[Any] = self._scores(data)
        if calibration is not None:
            values = calibration(values, data.lists)
        return values if data is X else np.asarray(data.in_source_order(values), values.dtype)

    def rank(self, X: Any, qid: Any = None, group: Any = None) -> npt.NDArray[np.int64]:
        """Rank documents within their queries.

        Parameters
        ----------
        X : array, sparse matrix, frame or Dataset, shape (n_documents, n_features)
            The features, as in `fit`.
        qid, group : array
            The queries, as in `fit`.

        Returns
        -------
        array of int, shape (n_documents,)
            Ranks from 1 for the best; equal scores are ranked in row order.
        """
        from twinrank.core.ranks.exact import exact_ranks

        data = as_dataset(X, qid=qid, group=group, known=self._known_columns())
        ranks = exact_ranks(self._scores(data), data.lists, ties="stable")
        return np.asarray(ranks if data is X else data.in_source_order(ranks), np.int64)

    def score(
        self,
        X: Any,
        y: Any = None,
        qid: Any = None,
        group: Any = None,
        sample_weight: Any = None,
        measure: str | Measure | None = None,
    ) -> float:
        """The mean of a measure over queries.

        Parameters
        ----------
        X, y, qid, group, sample_weight
            As in `fit`.
        measure : str or Measure, optional
            The measure; by default `validation_measure`.

        Returns
        -------
        float
            The (weighted) mean over the queries with something relevant; NaN if there is none.
        """
        from twinrank.evaluation.evaluate import evaluate_data

        known = self._known_columns()
        check_has_queries(X, y, qid, group)
        data, weights = labelled(X, y, qid, group, sample_weight, known)
        chosen = self.validation_measure if measure is None else measure
        if data.from_clicks:
            check_click_objective(chosen, "measure")
        evaluation = evaluate_data(self._scores(data), data, [chosen])
        name = str(chosen)
        if weights is None:
            return evaluation[name]
        counts = ~np.isnan(evaluation.values[name]) & (weights > 0)
        values, weights = evaluation.values[name][counts], weights[counts]
        return float(np.average(values, weights=weights)) if values.size else float("nan")

    def explain(
        self, X: Any, a: int | str, b: int | str, qid: Any = None, group: Any = None
    ) -> "PairExplanation":
        """Why document a of a query is above (or below) document b, feature by feature.

        The contributions of the features add up to the difference of the two scores. They are
        differences of SHAP values for trees, integrated gradients from b to a for nets
        (Sundararajan et al. 2017), and the weighted sum of both for a blend.

        Parameters
        ----------
        X : array, sparse matrix, frame or Dataset, shape (n_documents, n_features)
            All documents of one query, as in `predict`.
        a, b : int or str
            The two documents: row numbers from 0, or docids of a Dataset.
        qid, group : array, optional
            The query; not needed, since there is only one.

        Returns
        -------
        PairExplanation
            With `contributions`, `features`, `values`, `scores` and `ranks`; `str` is a table,
            `draw(path)` a plot and `to_json()` a dictionary.

        Raises
        ------
        InputError
            If X has several queries, or a document is unknown.

        Examples
        --------
        >>> import twinrank as tr
        >>> data = tr.synthetic_web_search(queries=30)
        >>> ranker = tr.BoostedRanker(n_estimators=5).fit(data)
        >>> found = ranker.explain(data.select([0]), 3, 8)
        >>> bool(abs(found.contributions.sum() - found.difference) < 1e-6)
        True
        """
        from twinrank.learning.estimators.pair_explanation import explained_pair

        data = as_dataset(X, qid=qid, group=group, one_query=True, known=self._known_columns())
        return explained_pair(self, self._matched(data), (a, b))

    @abstractmethod
    def _pair_contributions(self, data: Dataset, a: int, b: int) -> npt.NDArray[np.float64]:
        """What each feature adds to the score of row a minus that of row b."""

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the fitted model as a folder, which `load` reads.

        Parameters and the history are saved too, but not an objective that is a callable.

        Parameters
        ----------
        folder : path
            Where the model goes; an earlier model there is replaced.
        """
        self._check_fitted()
        save_model(self.model_, Path(folder).expanduser())

    def export(
        self, path: str | os.PathLike[str], format: str | None = None, data: Any = None
    ) -> "Export":
        """Write the fitted model for other software, checked against `predict`.

        An ONNX file contains the transforms. Formats of search engines are folders: the model, a
        description of its features, and the commands that upload them. They hold trees that score
        each document alone, on raw features.

        Parameters
        ----------
        path : path
            The file or folder to write; an earlier export there is replaced.
        format : str, optional
            "elasticsearch-ltr", "opensearch-ltr", "elasticsearch", "solr", "vespa", "ranklib",
            "lightgbm", "xgboost" or "onnx". By default the ending of a file names it: .onnx;
            for trees also .txt (LightGBM), .json or .ubj (XGBoost).
        data : array, frame, path or Dataset, optional
            Rows on which the scores are compared too, besides generated ones.

        Returns
        -------
        Export
            With `trees`, `leaves`, `bytes`, `microseconds`, `difference`, `rows` and `notes`.

        Raises
        ------
        InputError
            If the format cannot hold the model, or scores would differ; nothing is written.
        """
        from twinrank.deployment.model_export import export_model

        self._check_fitted()
        rows = None if data is None else self._matched(self._query_data(data, None, None))
        return export_model(self.model_, Path(path).expanduser(), format, rows)

    def distill(
        self,
        data: Any,
        eval_set: Any = None,
        *,
        max_trees: int | None = None,
        max_leaves: int | None = None,
        engine: str | None = None,
        cv: int | None = None,
        random_state: int = 0,
        callbacks: Sequence[Callback] = (),
    ) -> "BoostedRanker":
        """Train boosted trees that score each document alone, on the scores of this ranker.

        Search engines can use them where they cannot use this ranker: a net, a blend, or trees
        with z-scores within the query. The trees learn labels to which the scores of this ranker
        are added, standardised within each query; without labels, they learn from the scores alone.

        Parameters
        ----------
        data : path or Dataset
            Queries with the features of this ranker. Labels are optional.
        eval_set : Dataset or tuple (X, y, qid), optional
            Judged queries that select the round, and on which both rankers are compared; this
            ranker should not have seen them. By default a fifth of the queries of `data`.
        max_trees : int, optional
            The maximum number of trees, for a limit of time or size. The default is an ensemble,
            as in `BoostedRanker`; with this limit, the trees are a single model.
        max_leaves : int, optional
            The maximum number of leaves of a tree.
        engine : {"lightgbm", "xgboost"}, optional
            What grows the trees. The default is the engine of this ranker, or LightGBM.
        cv : int, optional
            Take the scores of each query from a copy of this ranker that was trained without it,
            with this number of folds; 3 is usual. By default the scores are those of this ranker,
            which fits the queries of its training too closely.
        random_state : int, default 0
            The seed.
        callbacks : sequence of Callback, optional
            As in `fit`, for the trees, and with `cv` for the copies before.

        Returns
        -------
        BoostedRanker
            Fitted. Its attribute `distillation_` is the `Comparison` of "teacher" and "student"
            on the evaluation set, with a paired test.

        Raises
        ------
        InputError
            If the evaluation set has no relevant document, or with `cv` the data.

        Examples
        --------
        >>> import twinrank as tr
        >>> data = tr.synthetic_web_search(queries=40)
        >>> teacher = tr.BoostedRanker(n_estimators=10).fit(data)
        >>> student = teacher.distill(data, max_trees=20, max_leaves=7)
        >>> student.booster_.num_trees() <= 20
        True
        """
        from twinrank.learning.estimators.distill import Student, distilled

        sets = as_evaluation_sets(eval_set, None, None, self._known_columns())
        validation = next(iter(sets.values()), None)
        rows = self._query_data(data, None, None)
        check_callbacks(callbacks)
        options = Student(max_trees, max_leaves, engine, cv, random_state, callbacks)
        return distilled(self, rows, validation, options)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], architecture: Any = None) -> Self:
        """Read a fitted ranker from a folder that `save`, `fit(run=…)` or `twinrank train` wrote.

        Loading never executes code from the folder. If a net is your own, pass it.

        Parameters
        ----------
        folder : path
            The folder of the model or of the run.
        architecture : torch.nn.Module, callable or str, optional
            Your own net, as in the constructor of `Ranker`, if the model was trained with one.

        Returns
        -------
        ranker
            With the saved parameters, `history_`, `best_iteration_` and `best_score_`.
        """
        model = read_model(Path(folder).expanduser(), architecture)
        own = {} if architecture is None else {"architecture": architecture}
        return cls._from_model(model, folder, **own)

    @classmethod
    def _from_model(cls, model: Model, folder: Any, **parameters: Any) -> Self:
        if model.kind != cls.kind:
            raise InputError(
                f"{folder} holds {KINDS[model.kind].noun}, not {KINDS[cls.kind].noun}: use "
                f"{estimator_class(model.kind).__name__}.load, or twinrank.load_model for any kind."
            )
        try:
            known = loaded_parameters(model.provenance, cls)
        except InputError as error:
            raise InputError(
                f"Cannot load {folder}: {CONFIG} is damaged: ", *error.parts
            ) from error
        ranker = cls(**{**known, **parameters})
        ranker._adopt(model)
        return ranker

    def _train(
        self,
        train: TrainingSet,
        sets: dict[str, Dataset],
        callbacks: Sequence[Callback] = (),
        run: Run | None = None,
        previous: Model | None = None,
    ) -> None:
        """Check the data, train and keep the model."""
        own = self._parameters()
        parameters = own if previous is None else continued_parameters(own, previous, sets)
        if parameters["mode"] == "paper":
            check_parameters(self.kind, parameters)  # before the data
            train, sets = papers_data(train, sets)
        names = train.data.feature_names
        part = trainable_part(train, learner_class(self.kind).needs_relevant(parameters))
        train, sets, encoding = encoded_data(self, part, sets, previous)
        shown = console() if self.verbose and (run is None or run.group.is_main) else []
        model = train_model(
            self.kind,
            parameters,
            saved_parameters(own),
            train,
            sets,
            encoding,
            callbacks=[*shown, *callbacks],
            run=run,
            previous=previous,
        )
        if names is None and previous is not None:
            names = previous.feature_names
        self._adopt(replace(model, feature_names=names))

    def _check_values(
        self, data: Dataset, model: Model | None, categorical: tuple[int, ...] = ()
    ) -> None:
        """Refuse feature values that the learner, or a fitted model, cannot take."""

    def _parameters(self) -> dict[str, Any]:
        """The parameters of the ranker itself; subclasses of users may have more."""
        own = next(c for c in type(self).__mro__ if "kind" in vars(c))
        return {name: getattr(self, name) for name in own._get_param_names()}  # type: ignore[attr-defined]

    def _named(self, name: str) -> list[str]:
        """The parameters with a name: the ranker's own, or in a blend those of its rankers."""
        known = self.get_params()
        return [name] if name in known else [key for key in known if key.partition("__")[2] == name]

    def _adopt(self, model: Model) -> None:
        """Keep a model, and set the fitted attributes."""
        self.model_: Any = model
        self.history_: list[dict[str, Any]] = model.history
        self.best_iteration_: int | None = model.best_iteration
        self.best_score_: float | None = model.best_score
        self.n_features_in_ = model.features
        names = model.feature_names
        if names is not None and names != tuple(map(str, range(len(names)))):  # a frame's numbers
            self.feature_names_in_ = np.array(names, object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _query_data(self, X: Any, qid: Any, group: Any, per_query: bool = False) -> Dataset:
        """The data to score; queries are needed if scores depend on them."""
        self._check_fitted()
        has_queries = isinstance(X, Dataset) or qid is not None or group is not None
        has_queries = has_queries or has_query_column(X) or (is_source(X) and not is_stream(X))
        if per_query and not has_queries:
            raise InputError(
                "The calibration was learned with query_features, so that values depend on the "
                "other documents of a query: pass qid or group."
            )
        if self.model_.per_query and not has_queries:
            raise InputError(
                "Scores depend on the other documents of a query: pass qid or group. A model with "
                'mode="per-document" scores each row alone, and twinrank.pyterrier passes the '
                "queries of a PyTerrier pipeline."
            )
        return as_dataset(X, qid=qid, group=group, one_query=True, known=self._known_columns())

    def _scores(self, data: Dataset) -> npt.NDArray[np.float32]:
        data = self._matched(data)
        self._check_values(data, self.model_)
        return checked_scores(self.model_.score(data, getattr(self, "n_jobs", None)))

    def _matched(self, data: Dataset) -> Dataset:
        """The data with the features of the model, found by name if both have names."""
        names = self.model_.feature_names
        return matched(data, self.n_features_in_, names, type(self).__name__)

    def _check_fitted(self) -> None:
        if not hasattr(self, "model_"):
            raise NotFittedError(
                f"This {type(self).__name__} instance is not fitted yet; call fit first."
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        tags.target_tags.positive_only = True
        return tags
