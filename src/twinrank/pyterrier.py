"""PyTerrier: rankers as transformers of a pipeline.

PyTerrier's own `pt.ltr.apply_learned_model` calls `predict(X)` without queries, which only suits
models that score each document alone. The transformer here passes the queries.
"""

from typing import Any

import numpy as np

from twinrank.learning.estimators.base_ranker import BaseRanker
from twinrank.support.errors import InputError

try:
    import pyterrier as pt
except ImportError as error:
    raise ImportError(
        "twinrank.pyterrier needs PyTerrier; install it with pip install pyterrier."
    ) from error

__all__ = ["LearnedRanker"]


class LearnedRanker(pt.Estimator):  # type: ignore[misc]
    """A ranker as the last stage of a PyTerrier pipeline.

    It reads the columns qid and features, and writes score and rank.

    Parameters
    ----------
    ranker : Ranker, BoostedRanker or Blend
        A ranker, fitted or not; `fit` fits it, as does the `fit` of a pipeline.
    **fit_options
        Further arguments of the ranker's `fit`, such as `eval_fraction=0.2` or `run="folder"`.

    Examples
    --------
    >>> pipeline = bm25 >> features >> LearnedRanker(BoostedRanker())        # doctest: +SKIP
    >>> pipeline.fit(train_topics, qrels, valid_topics, qrels)               # doctest: +SKIP
    >>> pt.Experiment([bm25, pipeline], topics, qrels, ["ndcg_cut_10"])      # doctest: +SKIP
    """

    def __init__(self, ranker: BaseRanker, **fit_options: Any) -> None:
        super().__init__()
        if not isinstance(ranker, BaseRanker):
            raise InputError(
                f"LearnedRanker takes a Ranker, BoostedRanker or Blend, not "
                f"{type(ranker).__name__}; for other models use pt.ltr.apply_learned_model."
            )
        self.ranker, self.fit_options = ranker, fit_options

    def fit(
        self,
        topics_or_res_tr: Any,
        qrels_tr: Any,
        topics_or_res_va: Any = None,
        qrels_va: Any = None,
    ) -> "LearnedRanker":
        """Fit the ranker on retrieved documents; documents without a judgement have the label 0.

        Parameters
        ----------
        topics_or_res_tr : pandas.DataFrame
            The documents to train on, with columns qid, docno and features.
        qrels_tr : pandas.DataFrame
            Judgements, with columns qid, docno and label.
        topics_or_res_va, qrels_va : pandas.DataFrame, optional
            The same for validation, by which early stopping chooses the model.
        """
        X, y, qid = self._examples(topics_or_res_tr, qrels_tr)
        options = dict(self.fit_options)
        if topics_or_res_va is not None and len(topics_or_res_va):
            options["eval_set"] = self._examples(topics_or_res_va, qrels_va)
        self.ranker.fit(X, y, qid=qid, **options)
        return self

    def transform(self, inp: Any) -> Any:
        """Score and rank the documents of each query, and sort them.

        Parameters
        ----------
        inp : pandas.DataFrame
            Documents with columns qid, docno and features.

        Returns
        -------
        pandas.DataFrame
            The same documents with the columns score and rank; the best has rank 0.
        """
        self._check(inp)
        result = inp.drop(columns=["score", "rank"], errors="ignore")
        if not len(inp):
            return result.assign(score=np.empty(0), rank=np.empty(0, np.int64))
        scores = self.ranker.predict(_features(inp), qid=inp["qid"].to_numpy())
        result = result.assign(score=scores.astype(np.float64))
        places = result.groupby("qid")["score"].rank(ascending=False, method="first")
        return result.assign(rank=places.astype(np.int64) - 1).sort_values(["qid", "rank"])

    def transform_outputs(self, inp_cols: list[str]) -> list[str]:
        """The columns of the result, for PyTerrier's inspection of pipelines."""
        return [*(name for name in inp_cols if name not in ("score", "rank")), "score", "rank"]

    def _check(self, frame: Any) -> None:
        pt.validate.result_frame(frame, extra_columns=["features"], context=self)

    def _examples(self, documents: Any, qrels: Any) -> tuple[Any, Any, Any]:
        """Features, labels and query ids."""
        self._check(documents)
        if not len(documents):
            raise InputError("There are no retrieved documents to fit on.")
        if qrels is None:
            raise InputError("Validation needs judgements: pass qrels_va.")
        keys = ["qid", "docno"]
        if missing := [name for name in (*keys, "label") if name not in qrels]:
            raise InputError(f"The judgements have no column {' and no column '.join(missing)}.")
        judged = documents[keys].merge(qrels[[*keys, "label"]], on=keys, how="left")
        if len(judged) != len(documents):
            raise InputError("The judgements have a document twice for the same query.")
        labels = judged["label"].fillna(0).clip(lower=0).to_numpy()
        return _features(documents), labels, documents["qid"].to_numpy()


def _features(frame: Any) -> Any:
    """The column of feature vectors as one array."""
    try:
        return np.stack(frame["features"].to_numpy()).astype(np.float32)
    except ValueError as error:
        raise InputError(
            f"The column features must have arrays of one length ({error}); the pipeline's "
            f"features may have changed between its stages."
        ) from error
