"""Transforms with the quantiles of the training data: scores by rank, and piecewise-linear bins.

Quantiles are those of all documents or, if there are more than `subsample`, of so many that are
spread evenly over the data. The choice depends only on the number of documents.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from statistics import NormalDist
from typing import Any, ClassVar, NamedTuple

import numpy as np

from twinrank.core.lists import Lists
from twinrank.data.transforms.transform_base import (
    Columns,
    Floats,
    NotFiniteError,
    Transform,
    apply_all,
    blocks_after,
    by_tile,
    located,
    outputs_of,
    rows_for,
)
from twinrank.support.errors import InputError

_TILE = 2**16
_MARGIN = 1e-7
"""Normal scores are those of probabilities at least so far from 0 and 1."""

Statistics = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, kw_only=True)
class _WithQuantiles(Transform):
    """What both transforms share: statistics with some increasing numbers for each feature."""

    statistics: ClassVar[str]
    subsample: int = 100_000

    def __post_init__(self) -> None:
        self._check_whole("subsample", 1)
        values = _increasing(type(self).__name__, getattr(self, self.statistics))
        object.__setattr__(self, self.statistics, values)

    def _check_whole(self, name: str, least: int) -> None:
        value = getattr(self, name)
        if isinstance(value, np.integer):
            value = int(value)
            object.__setattr__(self, name, value)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InputError(
                f"{name} of {type(self).__name__} must be a whole number of at least {least}, not "
                f"{value!r}."
            )

    def _quantiles(
        self, count: int, before: Sequence[Transform], X: Any, lists: Lists
    ) -> list[list[float]]:
        """Return `count` quantiles of each column, none if it is always missing."""
        if lists.documents == 0:
            raise InputError(f"{type(self).__name__} needs at least one document to fit.")
        rows = _sampled_rows(lists.documents, self.subsample)
        sample = _values(before, X, lists, rows)
        infinite = np.isinf(sample)
        if infinite.any():
            row = int(infinite.any(axis=1).argmax())
            with located(int(rows[row]) - row, before, X.shape[1]):
                raise NotFiniteError(self, sample, row, infinite[row])
        ordered = np.sort(np.ascontiguousarray(sample.T), axis=1)  # missing values at the end
        known = len(rows) - np.isnan(ordered).sum(axis=1)
        last, steps = np.maximum(known - 1, 0)[:, None], min(count, len(rows)) - 1
        place = np.arange(steps + 1) * last  # in units of 1 / steps: exact where a value is met
        below, beyond = np.divmod(place, max(steps, 1))
        above = np.minimum(below + 1, last)
        low, high = (np.take_along_axis(ordered, at, 1).astype(np.float64) for at in (below, above))
        values = (low + (high - low) * beyond / max(steps, 1)).astype(np.float32)
        values = np.maximum.accumulate(values, axis=1)  # whatever was rounded
        return [row.tolist() if n else [] for row, n in zip(values, known.tolist(), strict=True)]


@dataclass(frozen=True, kw_only=True)
class Quantile(_WithQuantiles):
    """The share of the training data with a smaller value, as a number or a normal score.

    The result is interpolated between `n_quantiles` quantiles. Tied values get the mean of their
    shares. Values outside the training data, also infinite ones, become the least or largest
    result. Missing values become the median: 0.5, or 0 as a normal score. So does every value of a
    feature that is constant or always missing in the training data.

    With `output_distribution="normal"`, the normal scores of the quantiles are interpolated, from
    −5.2 to 5.2. scikit-learn's `QuantileTransformer` differs in two points: it interpolates before
    it computes normal scores, and it gives 0 or 1 to ties with the least or largest value.

    >>> lists = Lists.from_sizes([5])
    >>> X = np.array([[1.0], [10.0], [100.0], [1000.0], [10000.0]])
    >>> Quantile().fit(X, lists)(X, lists).ravel()
    array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """

    statistics: ClassVar[str] = "quantiles_"
    n_quantiles: int = 200
    output_distribution: str = "uniform"
    quantiles_: Statistics | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self._check_whole("n_quantiles", 2)
        if self.output_distribution not in ("uniform", "normal"):
            chosen, known = self.output_distribution, ("uniform", "normal")
            raise InputError(argument="output_distribution", value=chosen, choices=known)
        super().__post_init__()

    def fit_after(self, before: Sequence[Transform], X: Any, lists: Lists) -> "Quantile":
        """Compute the quantiles of each feature, after the transforms `before`."""
        values = self._quantiles(self.n_quantiles, before, X, lists)
        return replace(self, quantiles_=values)  # type: ignore[arg-type]

    @cached_property
    def table(self) -> "QuantileTable":
        """The distinct quantiles with their results, feature by feature."""
        normal = self.output_distribution == "normal"
        parts = [_steps(values, normal) for values in self.quantiles_ or ()]
        starts = np.cumsum([0, *(part.shape[1] for part in parts)])
        knots, at, right, slope = np.concatenate([np.empty((4, 0)), *parts], axis=1)
        ends = [_score(share, normal) for share in (0.0, 0.5, 1.0)]
        return QuantileTable(starts, knots.astype(np.float32), at, right, slope, *ends)

    def apply(self, x: Floats, lists: Lists, out: Floats) -> None:  # noqa: ARG002
        """Search and interpolate value by value."""
        from twinrank.data.transforms.compiled_transforms import quantile_rows

        table, features = self.table, x.shape[1]
        by_tile(quantile_rows, len(x), rows_for(_TILE, features), features * 8, x, *table, out)


class QuantileTable(NamedTuple):
    """The tables of `Quantile`: starts of features, and columns with one entry per knot."""

    starts: Columns
    knots: Floats
    at: Any
    """The result at a knot."""
    right: Any
    """The limit of the result from the right; it grows with `slope` up to the next knot."""
    slope: Any
    least: float
    median: float
    largest: float


@dataclass(frozen=True, kw_only=True)
class PiecewiseLinear(_WithQuantiles):
    """Piecewise-linear encoding with quantile bins (Gorishniy et al., NeurIPS 2022).

    Each feature becomes one column per bin. The bins lie between distinct quantiles of the training
    data, so a feature with many ties has fewer than `bins`. In bin t from b to c, the result is
    (x − b) / (c − b), cut at 0 and 1. The first bin is not cut at 0 and the last not at 1. Missing
    values become 0 in all columns. A feature that is constant or always missing in the training
    data becomes a single column of zeros.

    >>> lists = Lists.from_sizes([3])
    >>> X = np.array([[0.0], [2.0], [10.0]])
    >>> PiecewiseLinear(bins=2).fit(X, lists)(np.array([[1.0], [6.0], [12.0]]), lists)
    array([[0.5 , 0.  ],
           [1.  , 0.5 ],
           [1.  , 1.25]], dtype=float32)
    """

    statistics: ClassVar[str] = "edges_"
    bins: int = 8
    edges_: Statistics | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self._check_whole("bins", 1)
        super().__post_init__()

    def fit_after(self, before: Sequence[Transform], X: Any, lists: Lists) -> "PiecewiseLinear":
        """Compute the edges of each feature's bins, after the transforms `before`."""
        values = self._quantiles(self.bins + 1, before, X, lists)
        edges = [sorted(set(row)) for row in values]
        return replace(self, edges_=edges)  # type: ignore[arg-type]

    def outputs(self, features: int) -> int:
        """Return the number of bins of all features."""
        return self.sources(features).size

    def sources(self, features: int) -> Columns:
        """Return the feature of each bin."""
        self.check_features(features)
        return self.table.sources

    @cached_property
    def table(self) -> "BinTable":
        """The bins of all features."""
        distinct = [np.unique(row) for row in self.edges_ or ()]
        edges = [row if row.size > 1 else np.array([0.0, np.inf]) for row in distinct]
        counts = np.array([row.size - 1 for row in edges], np.int64)
        ends = np.cumsum(counts)
        low, high = (
            np.concatenate([np.empty(0), *(row[cut] for row in edges)])
            for cut in (slice(-1), slice(1, None))
        )
        least, most = np.zeros(low.size), np.ones(low.size)
        least[ends - counts], most[ends - 1] = -np.inf, np.inf
        return BinTable(
            np.repeat(np.arange(len(edges)), counts), low, 1 / (high - low), least, most
        )

    def apply(self, x: Floats, lists: Lists, out: Floats) -> None:  # noqa: ARG002
        """Encode row by row, in double precision."""
        from twinrank.data.transforms.compiled_transforms import bin_rows

        bad, columns = np.zeros(len(x), np.bool_), out.shape[1]
        by_tile(bin_rows, len(x), rows_for(_TILE, columns), columns, x, *self.table, out, bad)
        if bad.any():
            row = int(bad.argmax())
            sources, low, factor, *_ = self.table
            with np.errstate(invalid="ignore", over="ignore"):
                scaled = ((x[row, sources] - low) * factor).astype(np.float32)
            wrong = sources[~np.isfinite(scaled) & ~np.isnan(x[row, sources])]
            raise NotFiniteError(self, x, row, np.isin(np.arange(x.shape[1]), wrong))


class BinTable(NamedTuple):
    """The tables of `PiecewiseLinear`, with one entry per bin."""

    sources: Columns
    low: Any
    factor: Any
    least: Any
    most: Any


def _steps(values: Sequence[float], normal: bool) -> Any:
    """Return distinct quantiles, results at them, limits from the right, and slopes after them."""
    knots, first, count = np.unique(values, return_index=True, return_counts=True)
    if knots.size < 2:
        return np.empty((4, 0))
    shares = np.linspace(0, 1, len(values))
    last = first + count - 1
    left, at, right = (
        np.array([_score(share, normal) for share in some.tolist()])
        for some in (shares[first], (shares[first] + shares[last]) / 2, shares[last])
    )
    slope = np.append((left[1:] - right[:-1]) / np.diff(knots), 0.0)
    return np.stack([knots, at, right, slope])


def _score(share: float, normal: bool) -> float:
    if not normal:
        return share
    return NormalDist().inv_cdf(min(max(share, _MARGIN), 1 - _MARGIN))


def _sampled_rows(documents: int, subsample: int) -> Columns:
    """Choose one row at random in each of `subsample` equal parts of the data."""
    if documents <= subsample:
        return np.arange(documents)
    within = np.random.default_rng([documents, subsample]).random(subsample)
    return ((np.arange(subsample) + within) * (documents / subsample)).astype(np.int64)


def _values(before: Sequence[Transform], X: Any, lists: Lists, rows: Columns) -> Floats:
    """Return some rows after the transforms `before`."""
    sample = np.empty((rows.size, outputs_of(before, X.shape[1])), np.float32)
    if not any(step.per_query for step in before):
        try:
            apply_all(before, X[rows], Lists.from_sizes([rows.size]), sample)
        except NotFiniteError as error:
            error.row = int(rows[error.row])
            raise
        return sample
    for begin, block in blocks_after(before, X, lists):
        first, last = np.searchsorted(rows, [begin, begin + len(block)])
        sample[first:last] = block[rows[first:last] - begin]
    return sample


def _increasing(name: str, values: Any) -> Statistics | None:
    """Return lists of finite float32 numbers, each in increasing order, as tuples."""
    if values is None:
        return None
    if not isinstance(values, list | tuple):
        raise InputError(f"The statistics of {name} must be a list, not {values!r:.80}.")
    for f, row in enumerate(values):
        if not isinstance(row, list | tuple) or not all(type(v) in (int, float) for v in row):
            raise InputError(f"The statistics of {name}, feature {f}, must be a list of numbers.")
        largest = float(np.finfo(np.float32).max)
        if not all(abs(v) <= largest for v in row):
            raise InputError(
                f"The statistics of {name}, feature {f}, must be finite float32 numbers."
            )
        if any(a > b for a, b in pairwise(row)):
            raise InputError(f"The statistics of {name}, feature {f}, must not decrease.")
    return tuple(tuple(map(float, row)) for row in values)
