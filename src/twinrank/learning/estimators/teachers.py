"""Teachers of a net: the scores of a fitted ranker, of a saved one, or an array."""

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.data.dataset import Dataset
from twinrank.support.arrays import to_numpy
from twinrank.support.errors import Argument, InputError


def teacher_scores(
    teacher: Any, data: Dataset, own_order: bool = False
) -> npt.NDArray[np.float32] | None:
    """One score per document, in the order of the dataset; None without a teacher.

    Scores in an array are in the order of the source, or with `own_order` in that of the dataset.
    """
    if teacher is None:
        return None
    from twinrank.learning.estimators.base_ranker import BaseRanker
    from twinrank.learning.estimators.model_loading import load_model

    if isinstance(teacher, str | os.PathLike):
        teacher = load_model(teacher)
    if isinstance(teacher, BaseRanker):
        try:
            return teacher.predict(data)
        except InputError as error:
            raise InputError(
                "The teacher cannot score the training data: ", *error.parts
            ) from error
    try:
        scores = np.asarray(to_numpy(teacher), np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(
            Argument("teacher"),
            f" must be a fitted ranker, the path of a saved one, or scores, not "
            f"{type(teacher).__name__}.",
        ) from error
    if scores.shape != (data.documents,):
        raise InputError(
            Argument("teacher"),
            f" has shape {scores.shape} but the training data has {data.documents} "
            f"documents; it needs one score per document.",
        )
    if not np.isfinite(scores).all():
        row = int(np.argmin(np.isfinite(scores)))
        raise InputError(f"The teacher's score of row {row} is {scores[row]}; it must be finite.")
    return scores if own_order else np.asarray(data.from_source_order(scores), np.float32)
