"""Scores of a dataset's documents, from an array or from a fitted ranker."""

from typing import Any

import numpy as np

from twinrank.clicks.click_log import Floats
from twinrank.data.dataset import Dataset
from twinrank.support.arrays import to_numpy
from twinrank.support.errors import InputError


def scores_of_documents(system: Any, data: Dataset | None, name: str, documents: int = 0) -> Floats:
    """One score per document; a ranker, which has the method `predict`, scores the data."""
    if hasattr(system, "predict"):
        if data is None:
            raise InputError(f"{name} is a ranker, but the log has no features; pass scores.")
        system = system.predict(data)
    documents = documents if data is None else data.documents
    try:
        scores = to_numpy(system).astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be scores or a fitted ranker: {error}.") from error
    if scores.shape != (documents,):
        raise InputError(
            f"{name} has shape {scores.shape}; it needs one score for each of {documents:,} "
            f"documents."
        )
    if np.isnan(scores).any():
        raise InputError(f"{name} is NaN for document {int(np.argmax(np.isnan(scores)))}.")
    return scores
