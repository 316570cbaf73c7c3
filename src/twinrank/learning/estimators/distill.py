"""Distillation of any ranker into boosted trees that score each document alone."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from twinrank.core.lists import Lists
from twinrank.data.dataset import Dataset, with_labels
from twinrank.evaluation.comparison import compare
from twinrank.learning.estimators.out_of_fold import VALIDATION, out_of_fold_scores
from twinrank.learning.training.callbacks import Callback
from twinrank.learning.training.fit_arguments import split_queries
from twinrank.learning.training.settings import PER_DOCUMENT
from twinrank.support.errors import Argument, InputError

if TYPE_CHECKING:
    from twinrank.learning.estimators.base_ranker import BaseRanker
    from twinrank.learning.estimators.boosted import BoostedRanker

TEACHER, STUDENT = "teacher", "student"
_GRADES = 4  # teacher's labels are between 0 and this


@dataclass(frozen=True)
class Student:
    """The options of `distill`."""

    max_trees: int | None = None
    max_leaves: int | None = None
    engine: str | None = None
    cv: int | None = None
    random_state: int = 0
    callbacks: Sequence[Callback] = ()


def distilled(
    teacher: "BaseRanker", data: Dataset, validation: Dataset | None, student: Student
) -> "BoostedRanker":
    """Trees that learn from a teacher's scores, compared with it in `distillation_`."""
    from twinrank.learning.estimators.boosted import BoostedRanker

    seed = student.random_state
    if validation is None:
        kept, held = split_queries(data, VALIDATION, seed)
        data, validation = data.select(kept), data.select(held)
    if not (validation.y > 0).any():
        raise InputError(
            "The validation data has no relevant document, so that the loss cannot be measured. "
            "Pass judged queries as eval_set."
        )
    engine = student.engine or engine_of(teacher)
    settings: dict[str, Any] = {"engine": engine, "random_state": seed}
    if student.max_trees is not None:
        settings |= {"ensemble_size": 1, "n_estimators": student.max_trees}
    if student.max_leaves is not None:
        settings["num_leaves"] = student.max_leaves
    if student.cv is None:
        learned = teacher.predict(data)
    elif (data.y > 0).any():
        more: dict[str, Any] = {"validation": validation, "callbacks": student.callbacks}
        learned = out_of_fold_scores(teacher, data, "cv", student.cv, seed, **more)
    else:
        raise InputError(
            Argument("cv"),
            " trains copies of the ranker, but the data has no relevant document. Pass judged "
            "queries, or leave it out.",
        )
    labels = soft_labels(learned, data.y, data.lists)
    ranker = BoostedRanker(mode=PER_DOCUMENT, **settings)
    if student.callbacks and student.cv is not None:
        print("Distilled trees", file=sys.stderr, flush=True)
    ranker.fit(with_labels(data, labels), eval_set=validation, callbacks=student.callbacks)
    scores = {TEACHER: teacher.predict(validation), STUDENT: ranker.predict(validation)}
    ranker.distillation_ = compare(
        scores, validation.y, validation.lists, weights=validation.row_weights
    )
    return ranker


def engine_of(teacher: "BaseRanker") -> str:
    """What grows the trees that learn from a teacher, unless the caller chooses."""
    return str(getattr(teacher, "engine", "lightgbm"))


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
