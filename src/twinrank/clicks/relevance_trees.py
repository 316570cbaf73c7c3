"""Boosted trees that predict relevance from features, for estimates that need a prediction."""

from typing import Any

import numpy as np

from twinrank.data.dataset import Dataset
from twinrank.data.transforms import transform

TREES: dict[str, Any] = {
    "learning_rate": 0.05,
    "num_leaves": 8,
    "min_data_in_leaf": 50,
    "feature_fraction": 0.5,
    "num_threads": 1,
    "deterministic": True,
    "verbosity": -1,
}
"""Small trees: credits of single documents are noisy."""


def tree_features(data: Dataset) -> Any:
    """The features, and their z-scores within the query: the scale of many depends on the query."""
    scores = transform("QueryZScore")(data.X, data.lists)
    return np.concatenate([data.X, scores], axis=1)


def trees_for(documents: int) -> dict[str, Any]:
    """The parameters of trees for so many documents; leaves are smaller if there are few."""
    return {**TREES, "min_data_in_leaf": max(min(50, documents // 20), 1)}
