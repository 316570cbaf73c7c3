"""What all rankers share: the input of `fit`, and predicting, ranking, scoring, saving."""

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from twinrank.data.dataset import Dataset
from twinrank.data.folds import cut
from twinrank.estimators.checks import check_features
from twinrank.estimators.inputs import as_dataset, as_evaluation_sets, list_weights
from twinrank.estimators.places import model_place
from twinrank.estimators.plain import loaded_parameters
from twinrank.support.errors import InputError


class FittedModel(Protocol):
    """What a ranker keeps of a training, as `model_`."""

    @property
    def features(self) -> int:
        """How many features it was trained on."""

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Their names, where the training data had some."""

    @property
    def per_query(self) -> bool:
        """Whether a score depends on the other documents of its query."""

    @property
    def provenance(self) -> dict[str, Any]:
        """How it was trained; "parameters" are the ranker's, as `saved_parameters` has them."""


class BaseRanker(BaseEstimator, ABC):  # type: ignore[misc]
    """A ranker with scikit-learn's face, but for how it learns and scores.

    A subclass has `validation_measure` and `random_state` among its parameters. Its `_train` ends
    with `_adopt`; `_scores`, `_write`, `_read` and `_export` do what `predict`, `save`, `load` and
    `export` need.
    """

    validation_measure: Any
    random_state: Any

    @abstractmethod
    def _train(
        self, data: Dataset, weights: Any, sets: dict[str, Dataset], callbacks: Sequence[Any]
    ) -> None:
        """Learn from a dataset, with a weight per query or None, and keep the model.

        The data is as the caller gave it: `checks` has what to refuse and what to leave out.
        """

    @abstractmethod
    def _scores(self, data: Dataset) -> npt.NDArray[np.float32]:
        """The scores of a dataset that has the model's features, in its own order."""

    @abstractmethod
    def _write(self, folder: Path) -> None:
        """Write the model as a folder."""

    @classmethod
    @abstractmethod
    def _read(cls, folder: Path) -> FittedModel:
        """Read what `_write` wrote."""

    @abstractmethod
    def _export(self, path: Path) -> None:
        """Write the model as a file that other programs read."""

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
        data, weights = labelled(X, y, qid, group, sample_weight)
        sets = as_evaluation_sets(eval_set, eval_qid, eval_group)
        if eval_fraction is not None:
            if sets:
                raise InputError("give eval_set or eval_fraction, not both")
            kept, held = _cut(data, eval_fraction, self.random_state)
            sets, data = {"validation": data.select(held)}, data.select(kept)
            weights = None if weights is None else weights[kept]
        self._train(data, weights, sets, callbacks)
        return self

    def predict(self, X: Any, qid: Any = None, group: Any = None) -> npt.NDArray[np.float32]:
        """One score per row, in the order of the rows (of a Dataset: its own); higher is better.

        A score depends on the document and, where the model is one per query, on the other
        documents of its query; then queries must be given. What else is in the call makes no
        difference but for rounding.
        """
        self._check_fitted()
        told = isinstance(X, Dataset) or qid is not None or group is not None
        if self.model_.per_query and not told:
            raise InputError("scores depend on the other documents of a query: pass qid or group")
        data = as_dataset(X, qid=qid, group=group, one_query=True)
        scores = self._checked_scores(data)
        return scores if data is X else np.asarray(data.in_source_order(scores), np.float32)

    def rank(self, X: Any, qid: Any = None, group: Any = None) -> npt.NDArray[np.int64]:
        """The rank of every row within its query, 1 for the best; equal scores in row order."""
        from twinrank.ranks.exact import exact_ranks

        self._check_fitted()
        data = as_dataset(X, qid=qid, group=group)
        ranks = exact_ranks(self._checked_scores(data), data.lists, ties="stable")
        return np.asarray(ranks if data is X else data.in_source_order(ranks), np.int64)

    def score(
        self, X: Any, y: Any = None, qid: Any = None, group: Any = None, sample_weight: Any = None
    ) -> float:
        """The mean validation measure over queries; NaN where none has anything relevant."""
        from twinrank.evaluation.evaluate import evaluate

        self._check_fitted()
        data, weights = labelled(X, y, qid, group, sample_weight)
        name = str(self.validation_measure)
        found = evaluate(self._checked_scores(data), data.y, data.lists, [name])
        if weights is None:
            return found[name]
        counts = ~np.isnan(found.values[name]) & (weights > 0)
        values, weights = found.values[name][counts], weights[counts]
        return float(np.average(values, weights=weights)) if values.size else float("nan")

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the fitted model as a folder; `load` reads it.

        Parameters are saved too, but for an objective that is a callable.
        """
        self._check_fitted()
        self._write(Path(folder).expanduser())

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model as one file that scores without TwinRank.

        A net becomes an ONNX file (.onnx), its transforms included; trees become their engine's
        own file (LightGBM: .txt, XGBoost: .json or .ubj), which holds no transforms.
        """
        self._check_fitted()
        self._export(Path(path).expanduser())

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """A fitted ranker from a folder that `save` or `twinrank train` wrote."""
        model = cls._read(model_place(Path(folder).expanduser()))
        ranker = cls(**loaded_parameters(model.provenance, cls._get_param_names()))
        ranker._adopt(model)
        return ranker

    def _adopt(self, model: FittedModel) -> None:
        """Keep a model, and what scikit-learn wants to know of its features."""
        self.model_: Any = model
        self.n_features_in_ = model.features
        if model.feature_names is not None:
            self.feature_names_in_ = np.array(model.feature_names, object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _checked_scores(self, data: Dataset) -> npt.NDArray[np.float32]:
        self._check(data)
        return self._scores(data)

    def _check(self, data: Dataset) -> None:
        """Refuse other features than those of the model."""
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
        tags.target_tags.required = True
        tags.target_tags.positive_only = True
        return tags


def labelled(X: Any, y: Any, qid: Any, group: Any, sample_weight: Any) -> tuple[Dataset, Any]:
    """Data with labels, and the weight of every query or None."""
    data = as_dataset(X, y, qid=qid, group=group, labelled=True)
    return data, list_weights(sample_weight, data, own_order=data is X)


def _cut(data: Dataset, fraction: float, seed: Any) -> list[npt.NDArray[np.int64]]:
    """The numbers of the queries that train, and of those that validate."""
    if isinstance(fraction, bool) or not 0 < fraction < 1:
        raise InputError(f"eval_fraction must lie between 0 and 1, not {fraction!r}")
    if data.queries < 2:
        raise InputError("eval_fraction needs two queries or more, but there is one")
    return cut(data.queries, [1 - fraction], seed)
