"""Compiled loops of the transforms: moments, extremes, rescaling and bins, row by row.

The inner loops run over the features of a row, which are adjacent in memory. They are vectorised
without reordering a sum: each feature is summed in document order. A list of ordinary length fits
into the cache, so several passes over it are cheap.

Threads share the lists; a very long list is divided by features instead. A *cell* is one such part
of one list: cell c is part c % parts of list c // parts. Each cell is computed independently, so
the number of threads does not change the result.
"""

from typing import Any

import numpy as np

from twinrank.support.compiled import compiled

LARGEST = float(np.finfo(np.float32).max)


@compiled
def zscore_cells(
    start: int, stop: int, parts: int, x: Any, offsets: Any, out: Any, bad: Any
) -> None:
    """Compute z-scores in the cells start…stop − 1; `bad` marks lists with infinities."""
    features = x.shape[1]
    count, mean, factor = np.empty(features), np.empty(features), np.empty(features)
    row = np.empty(features, np.float32)
    for cell in range(start, stop):
        q, part = cell // parts, cell % parts
        low, high = _bounds(part, parts, features)
        if not _moments(x, offsets[q], offsets[q + 1], low, high, count, mean, factor):
            bad[q] = True
            continue
        for f in range(low, high):
            factor[f] = np.sqrt(count[f] / factor[f]) if factor[f] > 0 else 0.0
        for i in range(offsets[q], offsets[q + 1]):
            _rescale(x, i, low, high, mean, factor, row, out)


@compiled
def minmax_cells(
    start: int, stop: int, parts: int, x: Any, offsets: Any, out: Any, bad: Any
) -> None:
    """Compute (x − min) / (max − min) in the cells start…stop − 1; `bad` as in `zscore_cells`."""
    features = x.shape[1]
    least, factor = np.empty(features), np.empty(features)
    lowest, highest = np.empty(features, np.float32), np.empty(features, np.float32)
    row = np.empty(features, np.float32)
    for cell in range(start, stop):
        q, part = cell // parts, cell % parts
        low, high = _bounds(part, parts, features)
        _extremes(x, offsets[q], offsets[q + 1], low, high, lowest, highest)
        infinite = False
        for f in range(low, high):
            least[f] = lowest[f]
            factor[f] = 1.0 / (highest[f] - least[f]) if highest[f] > least[f] else 0.0
            infinite |= lowest[f] == -np.inf or highest[f] == np.inf
        if infinite:
            bad[q] = True
            continue
        for i in range(offsets[q], offsets[q + 1]):
            _rescale(x, i, low, high, least, factor, row, out)


@compiled
def rescale_rows(
    start: int, stop: int, height: int, x: Any, centre: Any, factor: Any, out: Any, bad: Any
) -> None:
    """Compute (x − centre) · factor in the tiles start…stop − 1 of `height` rows each.

    `bad` marks rows with a result that is not finite; they stay unchanged.
    """
    documents, features = x.shape
    row = np.empty(features, np.float32)
    low, high = _bounds(0, 1, features)
    for i in range(start * height, min(stop * height, documents)):
        bad[i] = not _rescale(x, i, low, high, centre, factor, row, out)


@compiled
def quantile_rows(
    start: int,
    stop: int,
    height: int,
    x: Any,
    starts: Any,
    knots: Any,
    at: Any,
    right: Any,
    slope: Any,
    least: float,
    median: float,
    largest: float,
    out: Any,
) -> None:
    """Look values up in a `QuantileTable`, in the tiles start…stop − 1 of `height` rows each."""
    documents, features = x.shape
    one, two = np.uint64(1), np.uint64(2)
    for tile in range(start, stop):
        begin, end = tile * height, min((tile + 1) * height, documents)
        for f in range(features):  # the knots of one feature stay in the cache
            first, size = np.uint64(starts[f]), np.uint64(starts[f + 1] - starts[f])
            if size == 0:
                for i in range(begin, end):
                    out[i, f] = median
                continue
            for i in range(begin, end):
                value, low, left = x[i, f], first, size
                while left > one:  # the last knot that is not larger; no branches but this
                    half = left // two
                    low += half * np.uint64(knots[low + half] <= value)
                    left -= half
                away = np.float64(value) - np.float64(knots[low])
                score = right[low] + away * slope[low] if away > 0 else at[low]
                score = largest if low == first + size - one and away > 0 else score
                score = least if away < 0 else score
                out[i, f] = median if value != value else score


@compiled
def bin_rows(
    start: int,
    stop: int,
    height: int,
    x: Any,
    sources: Any,
    low: Any,
    factor: Any,
    least: Any,
    most: Any,
    out: Any,
    bad: Any,
) -> None:
    """Encode rows by a `BinTable`, in the tiles start…stop − 1; `bad` as in `rescale_rows`."""
    documents, columns = out.shape
    values, row = np.empty(columns), np.empty(columns, np.float32)
    low_end, high_end = _bounds(0, 1, columns)
    for i in range(start * height, min(stop * height, documents)):
        for c in range(low_end, high_end):
            values[c] = x[i, np.uint64(sources[c])]
        wrong = 0
        for c in range(low_end, high_end):
            scaled = 0.0 if values[c] != values[c] else (values[c] - low[c]) * factor[c]
            cut = min(max(scaled, least[c]), most[c])
            wrong |= (scaled != scaled) | (not abs(cut) <= LARGEST)
            row[c] = cut
        bad[i] = wrong != 0
        if not wrong:
            for c in range(low_end, high_end):
                out[i, c] = row[c]


@compiled
def moments_of_tiles(
    start: int, stop: int, height: int, x: Any, count: Any, mean: Any, squares: Any, bad: Any
) -> None:
    """Compute count, mean and Σ(x − mean)² by feature in the tiles start…stop − 1."""
    documents, features = x.shape
    n, m, s = np.empty(features), np.empty(features), np.empty(features)
    low, high = _bounds(0, 1, features)
    for tile in range(start, stop):
        begin, end = tile * height, min((tile + 1) * height, documents)
        bad[tile] = not _moments(x, begin, end, low, high, n, m, s)
        for f in range(features):
            count[tile, f], mean[tile, f], squares[tile, f] = n[f], m[f], s[f]


@compiled
def _bounds(part: int, parts: int, features: int) -> tuple[Any, Any]:
    """Return the features of one part as a range, unsigned: loops need no negative indices."""
    return np.uint64(features * part // parts), np.uint64(features * (part + 1) // parts)


@compiled
def _moments(
    x: Any, begin: int, end: int, low: int, high: int, count: Any, mean: Any, squares: Any
) -> bool:
    """Compute count, mean and Σ(x − mean)² of the features low…high − 1; False if one is infinite.

    Two passes in double precision. The first value of a feature is subtracted from all, so a
    constant has exactly this mean and variance 0.
    """
    shift = squares  # free until the second pass
    _first_values(x, begin, end, low, high, shift)
    for f in range(low, high):
        count[f], mean[f] = 0.0, 0.0
    for i in range(begin, end):
        for f in range(low, high):
            value = np.float64(x[i, f])
            missing = value != value
            count[f] += 0.0 if missing else 1.0
            mean[f] += 0.0 if missing else value - shift[f]
    finite = True
    for f in range(low, high):
        mean[f] = shift[f] + mean[f] / max(count[f], 1.0)
        finite &= abs(mean[f]) < np.inf
        squares[f] = 0.0
    if not finite:
        return False
    for i in range(begin, end):
        for f in range(low, high):
            away = np.float64(x[i, f]) - mean[f]
            squares[f] += away * away if away == away else 0.0
    return True


@compiled
def _first_values(x: Any, begin: int, end: int, low: int, high: int, first: Any) -> None:
    """Find the first value of each feature that is not missing, or 0."""
    for f in range(low, high):
        first[f] = np.nan
    for i in range(begin, end):
        missing = 0
        for f in range(low, high):
            first[f] = first[f] if first[f] == first[f] else np.float64(x[i, f])
            missing += first[f] != first[f]
        if missing == 0:
            return
    for f in range(low, high):
        first[f] = first[f] if first[f] == first[f] else 0.0


@compiled
def _extremes(x: Any, begin: int, end: int, low: int, high: int, lowest: Any, highest: Any) -> None:
    """Find the least and largest value of each feature; ∞ and −∞ if all are missing."""
    for f in range(low, high):
        lowest[f], highest[f] = np.inf, -np.inf
    for i in range(begin, end):
        for f in range(low, high):  # a comparison with a missing value is false
            lowest[f] = x[i, f] if x[i, f] < lowest[f] else lowest[f]
            highest[f] = x[i, f] if x[i, f] > highest[f] else highest[f]


@compiled
def _rescale(
    x: Any, i: int, low: int, high: int, centre: Any, factor: Any, row: Any, out: Any
) -> bool:
    """Write (x − centre) · factor of row i, 0 for missing values; return False if not finite.

    `row` is a buffer: `out` may be `x`, and loops on overlapping arrays are not vectorised. If a
    result is not finite, nothing is written.
    """
    wrong = 0
    for f in range(low, high):
        value = np.float64(x[i, f])
        scaled = 0.0 if value != value else (value - centre[f]) * factor[f]
        wrong |= not abs(scaled) <= LARGEST
        row[f] = scaled
    if wrong:
        return False
    for f in range(low, high):
        out[i, f] = row[f]
    return True
