"""Random draws of queries and columns, and the spread of a model's scores.

A draw depends on the seed of a model and the number of the round alone, not on earlier draws or
threads. So a resumed training has the same draws.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from twinrank.core.lists import Lists
from twinrank.learning.boosting.engines import TreeSettings

_QUERIES, _COLUMNS = 1, 2  # separate streams of random numbers


def draw_queries(
    settings: TreeSettings, count: int, round_number: int
) -> npt.NDArray[np.int64] | None:
    """The numbers of the queries that a round learns from; None for all."""
    if settings.subsample >= 1:
        return None
    draw = round_number // settings.subsample_freq if settings.subsample_freq else 0
    return _draw(count, settings.subsample, settings.model_seed, _QUERIES, draw)


def draw_columns(settings: TreeSettings, count: int, round_number: int) -> npt.NDArray[np.int64]:
    """The numbers of the columns that a tree may split on."""
    return _draw(count, settings.colsample_bytree, settings.model_seed, _COLUMNS, round_number)


def sample_size(share: float, count: int) -> int:
    """The size of a sample without replacement, at least 1.

    >>> sample_size(0.5, 46), sample_size(0.01, 46)
    (23, 1)
    """
    return max(1, round(share * count))


def _draw(count: int, share: float, *seeds: int) -> npt.NDArray[np.int64]:
    generator = np.random.default_rng(seeds)
    return np.sort(generator.choice(count, sample_size(share, count), replace=False))


def deviation(scores: Any, lists: Lists) -> float:
    """The standard deviation of scores within lists; 1 if it is 0.

    >>> deviation([1.0, 3.0, 7.0, 9.0], Lists.from_sizes([2, 2]))
    1.0
    """
    values = np.asarray(scores, np.float64)
    means = lists.sum(values) / np.maximum(lists.sizes, 1)
    found = float(np.sqrt(np.mean((values - lists.spread(means)) ** 2)))
    return found if found > 0 else 1.0
