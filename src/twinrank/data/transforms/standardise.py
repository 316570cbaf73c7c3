"""Standardisation with the mean and deviation of the training data, computed in blocks.

Statistics of tiles of some hundred rows are merged (Chan, Golub and LeVeque, 1979): with counts
n_a, n_b, n = n_a + n_b and δ = mean_b − mean_a,

    mean = mean_a + δ · n_b / n
    Σ(x − mean)² = Σ_a + Σ_b + δ² · n_a · n_b / n

Tiles and the order of merging depend only on the shape of the data.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from twinrank.core.lists import Lists
from twinrank.data.transforms.transform_base import (
    Floats,
    NotFiniteError,
    Transform,
    blocks_after,
    by_tile,
    located,
    outputs_of,
    read_only,
    rows_for,
)
from twinrank.support.errors import InputError

_TILE = 2**16
"""Values in a tile, which fits into the processor's cache."""


@dataclass(frozen=True)
class Standardise(Transform):
    """(x − mean) / deviation, by feature, over all documents of the training data.

    The deviation is that of the population. Statistics ignore missing values, which become 0, the
    mean. A feature that is constant or always missing in the training data becomes 0 in any data,
    because a model has learned nothing about its other values.

    >>> lists = Lists.from_sizes([2])
    >>> fitted = Standardise().fit(np.array([[1.0], [3.0]]), lists)
    >>> fitted(np.array([[2.0], [5.0]]), lists).ravel()
    array([0., 3.], dtype=float32)
    """

    mean_: tuple[float, ...] | None = field(default=None, repr=False)
    deviation_: tuple[float, ...] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        mean, deviation = _numbers("mean", self.mean_), _numbers("deviation", self.deviation_)
        lengths = [None if numbers is None else len(numbers) for numbers in (mean, deviation)]
        if lengths[0] != lengths[1]:
            raise InputError(
                f"The mean and the deviation of Standardise need one number per feature each, not "
                f"{lengths[0]} and {lengths[1]}."
            )
        if deviation and min(deviation) < 0:
            raise InputError(f"A deviation must be 0 or more, not {min(deviation)}.")
        object.__setattr__(self, "mean_", mean)
        object.__setattr__(self, "deviation_", deviation)

    def fit_after(self, before: Sequence[Transform], X: Any, lists: Lists) -> "Standardise":
        """Compute mean and deviation of each feature, after the transforms `before`."""
        if lists.documents == 0:
            raise InputError("Standardise needs at least one document to fit.")
        count, mean, squares = _moments(before, X, lists)
        deviation = np.sqrt(squares / np.maximum(count, 1))
        return Standardise(tuple(mean.tolist()), tuple(deviation.tolist()))

    def apply(self, x: Floats, lists: Lists, out: Floats) -> None:  # noqa: ARG002
        """Standardise each row, in double precision."""
        from twinrank.data.transforms.compiled_transforms import rescale_rows

        centre, deviation = np.array(self.mean_, np.float64), np.array(self.deviation_, np.float64)
        factor = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 0)
        bad = np.zeros(len(x), np.bool_)
        features = x.shape[1]
        height = rows_for(_TILE, features)
        by_tile(rescale_rows, len(x), height, features, x, centre, factor, out, bad)
        if bad.any():
            row = int(bad.argmax())
            with np.errstate(invalid="ignore", over="ignore"):
                scaled = ((x[row] - centre) * factor).astype(np.float32)
            raise NotFiniteError(self, x, row, ~np.isfinite(scaled) & ~np.isnan(x[row]))


def _moments(before: Sequence[Transform], X: Any, lists: Lists) -> Any:
    """Return count, mean and Σ(x − mean)² of each column, after the transforms `before`."""
    total = np.zeros((3, outputs_of(before, X.shape[1])))
    for begin, block in blocks_after(before, X, lists):
        with located(begin, before, X.shape[1]):
            total = _merge(total, _moments_of_block(block))
    return total


def _moments_of_block(x: Floats) -> Any:
    """Compute the moments of tiles in threads, then merge adjacent tiles until one is left."""
    from twinrank.data.transforms.compiled_transforms import moments_of_tiles

    rows, features = x.shape
    height = rows_for(_TILE, features)
    tiles = -(-rows // height)
    moments, bad = np.empty((3, tiles, features)), np.zeros(tiles, np.bool_)
    by_tile(moments_of_tiles, rows, height, features, read_only(x), *moments, bad)
    if bad.any():
        infinite = np.isinf(x)
        row = int(infinite.any(axis=1).argmax())
        raise NotFiniteError(Standardise(), x, row, infinite[row])
    while moments.shape[1] > 1:
        even = moments.shape[1] // 2 * 2
        pairs = _merge(moments[:, 0:even:2], moments[:, 1:even:2])
        moments = np.concatenate([pairs, moments[:, even:]], axis=1)
    return moments[:, 0]


def _merge(a: Any, b: Any) -> Any:
    """Return the moments of the union of two sets of documents; either may be empty."""
    count = a[0] + b[0]
    share = b[0] / np.maximum(count, 1)
    away = b[1] - a[1]
    return np.stack([count, a[1] + away * share, a[2] + b[2] + away * away * a[0] * share])


def _numbers(name: str, values: Any) -> tuple[float, ...] | None:
    """Return a sequence of finite numbers, far from overflow, as a tuple."""
    if values is None:
        return None
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if not isinstance(values, list | tuple):
        raise InputError(f"The {name} of Standardise must be a list of numbers, not {values!r}.")
    for f, value in enumerate(values):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not abs(value) < 1e300:
            raise InputError(
                f"The {name} of Standardise, feature {f}: {value!r} is not a finite number."
            )
    return tuple(map(float, values))
