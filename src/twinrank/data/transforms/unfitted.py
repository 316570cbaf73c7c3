"""Transforms that need no fitting: of single values, and with the statistics of each list."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from twinrank.core.lists import Lists
from twinrank.data.transforms.transform_base import Floats, Transform, by_list, by_tile
from twinrank.support.errors import InputError

_TILE = 16_384
"""Values of a tile, which fit into the processor's cache."""


@dataclass(frozen=True)
class SignedLog1p(Transform):
    """sign(x) · log(1 + |x|): compresses counts and lengths, keeps order, zero and sign.

    Missing values stay missing.

    >>> SignedLog1p()(np.array([[0.0, 1.0, -1.0]]), Lists.from_sizes([1])).round(3)
    array([[ 0.   ,  0.693, -0.693]], dtype=float32)
    """

    keeps_missing: ClassVar[bool] = True

    def apply(self, x: Floats, lists: Lists, out: Floats) -> None:  # noqa: ARG002
        """Apply the formula with NumPy, whose logarithm is vectorised."""
        by_tile(_signed_log1p, x.size, _TILE, 4, x.reshape(-1), out.reshape(-1))


@dataclass(frozen=True, kw_only=True)
class Clip(Transform):
    """min(max(x, low), high); the default bounds are ± the largest finite float32.

    `Clip()` without bounds makes infinities finite, as the statistics of other transforms need.
    Missing values stay missing.

    >>> Clip(low=-5)(np.array([[-7.0, 2.0, np.inf]]), Lists.from_sizes([1]))
    array([[-5.0000000e+00,  2.0000000e+00,  3.4028235e+38]], dtype=float32)
    """

    keeps_missing: ClassVar[bool] = True

    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            value = getattr(self, name)
            if isinstance(value, np.number):
                value = value.item()
                object.__setattr__(self, name, value)
            if value is not None and not _is_float32(value):
                raise InputError(f"{name} of Clip must be a finite float32, not {value!r}.")
        low, high = self.bounds()
        if not low < high:
            raise InputError(f"low of Clip must be below high, but low is {low:g}, high {high:g}.")

    def bounds(self) -> tuple[np.float32, np.float32]:
        """Return both bounds as float32."""
        largest = np.finfo(np.float32).max
        low = -largest if self.low is None else np.float32(self.low)
        return low, largest if self.high is None else np.float32(self.high)

    def apply(self, x: Floats, lists: Lists, out: Floats) -> None:  # noqa: ARG002
        """Clip with NumPy."""
        by_tile(_clip, x.size, _TILE, 1, x.reshape(-1), *self.bounds(), out.reshape(-1))


def _signed_log1p(start: int, stop: int, height: int, x: Any, out: Any) -> None:
    """Transform tile by tile; a buffer keeps the magnitudes, because `out` may be `x`."""
    buffer = np.empty(height, np.float32)
    for first in range(start * height, min(stop * height, x.size), height):
        tile = x[first : first + height]
        magnitude = buffer[: tile.size]
        np.log1p(np.abs(tile, out=magnitude), out=magnitude)
        np.copysign(magnitude, tile, out=out[first : first + height])


def _clip(start: int, stop: int, height: int, x: Any, low: Any, high: Any, out: Any) -> None:
    rows = slice(start * height, stop * height)
    np.clip(x[rows], low, high, out=out[rows])


def _is_float32(value: object) -> bool:
    """Return True for a number within the range of float32."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= float(np.finfo(np.float32).max)


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
        from twinrank.data.transforms.compiled_transforms import zscore_cells

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
        from twinrank.data.transforms.compiled_transforms import minmax_cells

        by_list(self, minmax_cells, x, lists, out)
