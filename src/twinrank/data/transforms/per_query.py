"""Transforms with the statistics of each list; they need no fitting."""

from dataclasses import dataclass
from typing import ClassVar

from twinrank.data.transforms.transform_base import Floats, Transform, by_list
from twinrank.lists import Lists


@dataclass(frozen=True)
class QueryZScore(Transform):
    """(x − mean) / deviation, by feature within each list.

    The deviation is that of the population, √(Σ(x − mean)² / m). Statistics ignore missing values,
    which become 0, the mean. A feature that is constant in a list becomes 0.

    >>> import numpy as np
    >>> X = np.array([[1.0, 5.0], [3.0, 5.0], [8.0, 9.0]])
    >>> QueryZScore()(X, Lists.from_sizes([2, 1]))
    array([[-1.,  0.],
           [ 1.,  0.],
           [ 0.,  0.]], dtype=float32)
    """

    per_query: ClassVar[bool] = True

    def apply(self, x: Floats, lists: Lists, out: Floats) -> None:
        """Standardise each list, in double precision."""
        from twinrank.data.transforms.loops import zscore_cells

        by_list(self, zscore_cells, x, lists, out)


@dataclass(frozen=True)
class QueryMinMax(Transform):
    """(x − min) / (max − min), by feature within each list: from 0 to 1.

    Statistics ignore missing values, which become 0, the minimum. A feature that is constant in a
    list becomes 0.

    >>> import numpy as np
    >>> QueryMinMax()(np.array([[10.0], [30.0], [15.0], [7.0]]), Lists.from_sizes([3, 1])).ravel()
    array([0.  , 1.  , 0.25, 0.  ], dtype=float32)
    """

    per_query: ClassVar[bool] = True

    def apply(self, x: Floats, lists: Lists, out: Floats) -> None:
        """Rescale each list to 0 … 1."""
        from twinrank.data.transforms.loops import minmax_cells

        by_list(self, minmax_cells, x, lists, out)
