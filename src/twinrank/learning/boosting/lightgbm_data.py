"""Rows as LightGBM's binned data, block by block: no copy of the transformed features exists."""

from collections.abc import Mapping
from typing import Any

import lightgbm as lgb
import numpy as np

from twinrank.learning.boosting.engines import Rows, whole_setting
from twinrank.learning.boosting.tree_features import StreamedFeatures

BIN_DOCUMENTS = 100_000
"""Documents that determine the bins, unless `bin_construct_sample_cnt` is set.

LightGBM's own default is 200,000. The default transforms have two columns per feature, so that
half the documents are as many values, which LightGBM needs as float64.
"""
_PER_DOCUMENT = 100  # bytes of scores, labels, gradients, and of the rows of leaves
_PER_SAMPLED = 9  # bytes of a value as float64, and of the places of values that are not 0
_BLOCKS, _OTHER = 80_000_000, 30_000_000  # bytes of a few blocks of features, and of all else
_ZERO = 1e-35  # LightGBM counts values up to this as zeros, which are left out of a sample


def memory_of(params: Mapping[str, Any], documents: int, others: int, columns: int) -> float:
    """The bytes that training needs at its peak: bins, and the sample for them or histograms.

    `others` is the number of documents of evaluation sets. `params` are those of one model.
    """
    most = whole_setting(params, "max_bin", 255, 2)
    width = 0.5 if most < 16 else 1 if most < 256 else 2
    sample = min(documents, whole_setting(params, "bin_construct_sample_cnt", BIN_DOCUMENTS))
    histograms = int(params["num_leaves"]) * columns * most * 16
    return (
        (documents + others) * (columns * width + _PER_DOCUMENT)
        + max(sample * columns * _PER_SAMPLED, histograms + _BLOCKS)
        + _OTHER
    )


class _Dataset(lgb.Dataset):
    """A Dataset whose bins depend on all parameters, as for a matrix.

    For blocks, LightGBM's own leaves out some, such as `min_data_in_leaf`, which decides what
    features can be split.
    """

    def get_params(self) -> dict[str, Any]:
        """All parameters."""
        return dict(self.params or {})


def binned(
    rows: Rows,
    params: Mapping[str, Any],
    categorical: tuple[int, ...],
    train: lgb.Dataset | None = None,
) -> lgb.Dataset:
    """Bins of the rows; those of an evaluation set are the bins of the training data.

    With few documents, all determine the bins, as in a Dataset of LightGBM from a matrix. With
    more, the documents of random queries do: the other queries are then read only once.
    """
    own = dict(params)
    if categorical:
        own["categorical_column"] = list(categorical)
    data = _Dataset(None, params=own)
    documents = len(rows.y)
    if train is None:
        _init_from_sample(data, rows.X, own, documents)
    else:
        assert train._handle is not None
        data._init_from_ref_dataset(documents, train._handle)
    for X in rows.X:
        data._push_rows(X)
    data.params = lgb.Dataset.get_params(data)  # the others are those of a booster
    data.set_label(rows.y)
    data.set_group(rows.lists.sizes)
    if rows.weights is not None:
        data.set_weight(rows.lists.spread(rows.weights))
    return data


def _init_from_sample(
    data: lgb.Dataset, features: StreamedFeatures, params: Mapping[str, Any], documents: int
) -> None:
    """Find the bins: LightGBM takes the non-zero values of each column, and their rows."""
    most = whole_setting(params, "bin_construct_sample_cnt", BIN_DOCUMENTS)
    seed = whole_setting(params, "data_random_seed", params["seed"], -(2**31)) % 2**31
    columns = features.sample(most, seed)
    every = np.arange(columns.shape[1], dtype=np.int32)
    values, places = [], []
    for column in columns:
        own = every[~(np.abs(column) <= _ZERO)]  # missing values are not zeros
        column[: own.size] = column[own]
        values.append(column[: own.size])
        places.append(own if own.size < every.size else every)
    data._init_from_sample(values, places, every.size, documents)
