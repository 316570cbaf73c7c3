"""Distillation of any ranker into boosted trees that score each document alone."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from twinrank.core.lists import Lists
from twinrank.data.dataset import Dataset, with_labels
from twinrank.evaluation.comparison import compare
from twinrank.learning.training.fit_arguments import split_queries
from twinrank.support.errors import InputError

if TYPE_CHECKING:
    from twinrank.learning.estimators.base_ranker import BaseRanker
    from twinrank.learning.estimators.boosted import BoostedRanker

TEACHER, STUDENT = "teacher", "student"
_VALIDATION = 0.2  # the share of the queries, if there is no evaluation set
_GRADES = 4  # teacher's labels are between 0 and this


def distilled(
    teacher: "BaseRanker",
    data: Dataset,
    validation: Dataset | None,
    max_trees: int | None,
    max_leaves: int | None,
    random_state: int,
) -> "BoostedRanker":
    """Trees that learn from a teacher's scores, compared with it in `distillation_`."""
    from twinrank.learning.estimators.boosted import BoostedRanker

    if validation is None:
        kept, held = split_queries(data, _VALIDATION, random_state)
        data, validation = data.select(kept), data.select(held)
    if not (validation.y > 0).any():
        raise InputError(
            "The validation data has no relevant document, so that the loss cannot be measured. "
            "Pass judged queries as eval_set."
        )
    limits: dict[str, Any] = {}
    if max_trees is not None:
        limits |= {"ensemble_size": 1, "n_estimators": max_trees}
    if max_leaves is not None:
        limits["num_leaves"] = max_leaves
    student = BoostedRanker(mode="per-document", random_state=random_state, **limits)
    labels = soft_labels(teacher.predict(data), data.y, data.lists)
    student.fit(with_labels(data, labels), eval_set=validation)
    scores = {TEACHER: teacher.predict(validation), STUDENT: student.predict(validation)}
    student.distillation_ = compare(scores, validation.y, validation.lists)
    return student


def soft_labels(scores: Any, labels: Any, lists: Lists) -> npt.NDArray[np.float64]:
    """σ(z) added to the labels, or 4·σ(z) if there are none; z is the z-score within the query."""
    z = np.asarray(scores, np.float64)
    sizes = np.maximum(lists.sizes, 1)
    z = z - lists.spread(lists.sum(z) / sizes)
    deviation = np.sqrt(lists.sum(z**2) / sizes)
    z = z / lists.spread(np.where(deviation > 0, deviation, 1))
    shares: npt.NDArray[np.float64] = 1 / (1 + np.exp(-z))
    if not (labels > 0).any():
        return _GRADES * shares
    return shares + np.maximum(np.asarray(labels, np.float64), 0)
