"""Out-of-fold scores: each query is scored by a copy of a ranker that was trained without it."""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from twinrank.data.batches import rows_of
from twinrank.data.dataset import Dataset
from twinrank.learning.training.callbacks import Callback
from twinrank.support.errors import Argument, InputError, check_number

VALIDATION = 0.2
"""The share of the queries that selects the iteration, if there is no evaluation set."""


def out_of_fold_scores(
    ranker: Any,
    data: Dataset,
    argument: str,
    folds: int,
    random_state: int,
    weights: Any = None,
    validation: Dataset | None = None,
    callbacks: Sequence[Callback] = (),
) -> npt.NDArray[np.float32]:
    """The score of every document by a copy of a ranker that was trained without its query.

    Each copy has its own seed. `validation` selects its iteration; without it, a part of the
    queries does, if one has selected that of the ranker. `argument` is the name of `folds` in
    errors, and `weights` are those of the queries. `callbacks` show the progress of each copy.
    """
    check_number(argument, folds, whole=True, least=2)
    if folds > data.queries:
        raise InputError(
            Argument(argument, folds), f" needs as many queries, but there are {data.queries}."
        )
    if any(check.current is not None for check in ranker.constraints_):
        raise InputError(
            Argument(argument),
            " trains copies of the ranker without the current one, with which its constraints "
            "compare: use queries that it has not learned from, without ",
            Argument(argument),
            ".",
        )
    fold_of = np.random.default_rng(random_state).permutation(data.queries) % folds
    own_weights = data.weights is None and weights is not None
    scores = np.empty(data.documents, np.float32)
    for fold in range(folds):
        kept, held = np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)
        more: dict[str, Any] = {"sample_weight": weights[kept]} if own_weights else {}
        if validation is not None:
            more["eval_set"] = validation
        elif ranker.best_score_ is not None:  # its iteration was selected
            more["eval_fraction"] = VALIDATION
        # The evaluation set of a copy has another name than that of the ranker.
        own = {"random_state": ranker.random_state + fold, "select": None}
        if callbacks:
            print(f"Copy {fold + 1} of {folds}", file=sys.stderr, flush=True)
        copy = clone(ranker).set_params(**own).fit(data.select(kept), callbacks=callbacks, **more)
        scores[rows_of(data.lists, held)] = copy.predict(data.select(held))
    return scores
