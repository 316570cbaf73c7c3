"""`Ranker`: a neural ranker that is trained on the measure it is judged by."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from twinrank.data.dataset import Dataset
from twinrank.data.folds import cut
from twinrank.data.table import counted
from twinrank.data.transforms import transform
from twinrank.estimators.checks import (
    check_evaluation,
    check_features,
    check_values,
    keeps_missing,
)
from twinrank.estimators.inputs import as_dataset, as_evaluation_sets, list_weights, teaching
from twinrank.estimators.plain import checked_parameters, loaded_parameters, saved_parameters
from twinrank.support.errors import InputError

if TYPE_CHECKING:
    from twinrank.models.folder import Model

_SCORED = 12_000  # documents that are scored together at least, as in training


class Ranker(BaseEstimator):  # type: ignore[misc]
    """A feed-forward ranker with scikit-learn's face.

    `objective` is a measure ("nDCG", "AP", "P@5", …), which is then optimised itself, through the
    gradient `strategy` with steepness `alpha`, on ranks perturbed by `perturbation` and averaged
    over `samples`; or any callable (scores, labels, lists). `architecture` is one of the paper's
    ("R5", "CE5", "R4.L", "CE4.L"), "Linear", or "MLP(width=64, depth=3)"; `mode="paper"` takes the
    paper's settings: statistics of the query at hand in batch norm, one query a step, Adam with
    coupled weight decay 1e-3, the learning rate halved every 20 epochs.

    A label is a number from 0 on, or −1, unjudged, which counts as 0. Missing features (NaN) are
    what `transforms` make of them: the mean with QueryZScore and Standardise, the least value with
    QueryMinMax, an error where no statistics are taken. `random_state` is a whole number: the same
    one gives the same weights, bit for bit, for the same number of threads.

    >>> import twinrank as tr
    >>> data = tr.synthetic_web_search(queries=30)
    >>> ranker = tr.Ranker(objective="AP", epochs=1, random_state=0).fit(data)
    >>> ranker.predict(data).shape
    (3029,)
    """

    def __init__(
        self,
        objective: str | Callable[..., Any] = "nDCG",
        strategy: str = "type3",
        alpha: float = 1.0,
        perturbation: float = 0.0,
        samples: int = 1,
        architecture: str = "CE4.L",
        mode: str = "default",
        transforms: str | Sequence[str] = "QueryZScore",
        categories: dict[int, int] | None = None,
        epochs: int = 100,
        batch_documents: int = 12_000,
        learning_rate: float = 1e-3,
        optimiser: str = "adam",
        weight_decay: float = 0.0,
        schedule: str = "constant",
        clip: float | None = None,
        validation_measure: str = "nDCG@5",
        early_stopping: int | None = 10,
        device: str = "auto",
        verbose: bool = False,
        random_state: int = 0,
    ) -> None:
        self.objective = objective
        self.strategy = strategy
        self.alpha = alpha
        self.perturbation = perturbation
        self.samples = samples
        self.architecture = architecture
        self.mode = mode
        self.transforms = transforms
        self.categories = categories
        self.epochs = epochs
        self.batch_documents = batch_documents
        self.learning_rate = learning_rate
        self.optimiser = optimiser
        self.weight_decay = weight_decay
        self.schedule = schedule
        self.clip = clip
        self.validation_measure = validation_measure
        self.early_stopping = early_stopping
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

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
        callbacks: Sequence[Any] = (),
    ) -> Self:
        """Train on features, labels and queries, or on a Dataset.

        `qid` has one id per row, in any order, `group` the number of rows of each query. Queries
        that can't teach, with fewer than two documents, nothing relevant or weight 0, are left out.
        `sample_weight` has one entry per query, in the order in which queries first appear, or per
        row. `eval_set` is measured every epoch, and its first part (or "validation") selects the
        best epoch: (X, y, qid), a Dataset, a dict of these, or [(X, y)] with `eval_qid=[qid]` or
        `eval_group`; `eval_fraction` sets that share of the queries aside for it instead.
        """
        data = as_dataset(X, y, qid=qid, group=group, labelled=True)
        weights = list_weights(sample_weight, data, own_order=data is X)
        sets = as_evaluation_sets(eval_set, eval_qid, eval_group)
        if eval_fraction is not None:
            if sets:
                raise InputError("give eval_set or eval_fraction, not both")
            kept, held = self._cut(data, eval_fraction)
            sets, data = {"validation": data.select(held)}, data.select(kept)
            weights = None if weights is None else weights[kept]
        self._train(data, weights, sets, callbacks, None)
        return self

    def partial_fit(
        self, X: Any, y: Any = None, qid: Any = None, group: Any = None, sample_weight: Any = None
    ) -> Self:
        """Train on from the weights at hand, for `epochs` epochs, with the transform as fitted.

        The first call is a `fit`. The optimiser and the history begin anew with every call.
        """
        data = as_dataset(X, y, qid=qid, group=group, labelled=True)
        weights = list_weights(sample_weight, data, own_order=data is X)
        before = getattr(self, "model_", None)
        if before is not None:
            self._check(data)
        self._train(data, weights, {}, (), before)
        return self

    def _cut(self, data: Dataset, fraction: float) -> list[npt.NDArray[np.int64]]:
        """The numbers of the queries that train, and of those that validate."""
        if isinstance(fraction, bool) or not 0 < fraction < 1:
            raise InputError(f"eval_fraction must lie between 0 and 1, not {fraction!r}")
        if data.queries < 2:
            raise InputError("eval_fraction needs two queries or more, but there is one")
        return cut(data.queries, [1 - fraction], self.random_state)

    def _train(
        self,
        data: Dataset,
        weights: Any,
        sets: dict[str, Dataset],
        callbacks: Sequence[Any],
        before: "Model | None",
    ) -> None:
        from twinrank.training.reporting import reporter
        from twinrank.training.session import Session

        own = {name: getattr(self, name) for name in Ranker._get_param_names()}
        parameters = checked_parameters(own)
        good = _teaching(data, weights)
        usable, used = data.select(good), None if weights is None else weights[good]
        chosen = transform(parameters["transforms"]) if before is None else before.transform
        check_values(usable, chosen, parameters["categories"])
        check_evaluation(sets, data, chosen, parameters["categories"], type(self).__name__)
        if before is not None:  # a failure leaves the model as it is
            before = replace(before, scorer=deepcopy(before.scorer))
        told = [*(reporter() if self.verbose else ()), *callbacks]
        result = Session(parameters, before).train(usable, used, sets, told)
        names = data.feature_names
        if names is None and before is not None:
            names = before.feature_names
        provenance = {**result.model.provenance, "parameters": saved_parameters(parameters)}
        self._adopt(replace(result.model, feature_names=names, provenance=provenance))
        self.history_ = result.history
        self.best_epoch_ = result.best_epoch
        self.best_score_ = result.best_value

    def _adopt(self, model: "Model") -> None:
        self.model_, self.n_features_in_ = model, model.scorer.features
        if model.feature_names is not None:
            self.feature_names_in_ = np.array(model.feature_names, object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def predict(self, X: Any, qid: Any = None, group: Any = None) -> npt.NDArray[np.float32]:
        """One score per row, in the order of the rows (of a Dataset: its own); higher is better.

        A score depends on the document and, where the transform or the net is one per query, on
        the other documents of its query; then queries must be given.
        """
        self._check_fitted()
        told = isinstance(X, Dataset) or qid is not None or group is not None
        if self.model_.per_query and not told:
            raise InputError("scores depend on the other documents of a query: pass qid or group")
        data = as_dataset(X, qid=qid, group=group, one_query=True)
        scores = self._scores(data)
        return scores if data is X else np.asarray(data.in_source_order(scores), np.float32)

    def rank(self, X: Any, qid: Any = None, group: Any = None) -> npt.NDArray[np.int64]:
        """The rank of every row within its query, 1 for the best; equal scores in row order."""
        from twinrank.ranks.exact import exact_ranks

        self._check_fitted()
        data = as_dataset(X, qid=qid, group=group)
        ranks = exact_ranks(self._scores(data), data.lists, ties="stable")
        return np.asarray(ranks if data is X else data.in_source_order(ranks), np.int64)

    def score(
        self, X: Any, y: Any = None, qid: Any = None, group: Any = None, sample_weight: Any = None
    ) -> float:
        """The mean validation measure over queries; NaN where none has anything relevant."""
        from twinrank.evaluation.evaluating import evaluate

        self._check_fitted()
        data = as_dataset(X, y, qid=qid, group=group, labelled=True)
        weights = list_weights(sample_weight, data, own_order=data is X)
        name = str(self.validation_measure)
        found = evaluate(self._scores(data), data.y, data.lists, [name])
        if weights is None:
            return found[name]
        counts = ~np.isnan(found.values[name]) & (weights > 0)
        values, weights = found.values[name][counts], weights[counts]
        return float(np.average(values, weights=weights)) if values.size else float("nan")

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the fitted model as a folder; `Ranker.load` reads it.

        Parameters are saved too, but for an objective that is a callable.
        """
        self._check_fitted()
        from twinrank.models.folder import save_model

        save_model(self.model_, Path(folder).expanduser())

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """A fitted ranker from a folder that `save` or `twinrank train` wrote."""
        from twinrank.models.folder import load_model

        model = load_model(Path(folder).expanduser())
        ranker = cls(**loaded_parameters(model.provenance, cls._get_param_names()))
        ranker._adopt(model)
        return ranker

    def _scores(self, data: Dataset) -> npt.NDArray[np.float32]:
        self._check(data)
        model = self.model_
        check_values(data, model.transform, model.scorer.categories)
        return model.score(data, max(self.batch_documents, _SCORED))

    def _check(self, data: Dataset) -> None:
        names = getattr(self, "feature_names_in_", None)
        check_features(data, self.n_features_in_, names, type(self).__name__)

    def _check_fitted(self) -> None:
        if not hasattr(self, "model_"):
            raise NotFittedError(
                f"This {type(self).__name__} instance is not fitted yet; call fit first"
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        with suppress(InputError):  # parameters are checked by fit only
            tags.input_tags.allow_nan = not keeps_missing(transform(self.transforms))
        tags.target_tags.required = True
        tags.target_tags.positive_only = True
        return tags


def _teaching(data: Dataset, weights: Any) -> Any:
    """The numbers of the queries that can teach, of which there must be one."""
    good = teaching(data, weights)
    if good.size:
        return good
    if data.documents == 1:
        raise InputError("one sample can't teach: a query needs two documents or more")
    why = "each has a single document, nothing relevant, or weight 0"
    if data.queries == 1:
        raise InputError("the one query can't teach: it has nothing relevant, or weight 0")
    raise InputError(f"none of {counted(data.queries, 'query')} can teach: {why}")
