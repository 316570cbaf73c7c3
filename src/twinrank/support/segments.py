"""Cumulative sums, products and sorts per list of a flat float64 array."""

from typing import Any

import numpy as np

from twinrank.support.compiled import compiled
from twinrank.support.sorting import COUNTS, sort_ascending


def scan(x: Any, offsets: Any, product: bool, reverse: bool) -> Any:
    """Cumulative sum or product within each list, from its front or its back."""
    result = np.empty_like(x)
    _scan(x, offsets, product, reverse, result)
    return result


def sort_descending(x: Any, offsets: Any) -> Any:
    """The values of each list, largest first."""
    result = np.empty_like(x)
    _sort_descending(np.ascontiguousarray(x), offsets, result)
    return result


@compiled
def _scan(x: Any, offsets: Any, product: bool, reverse: bool, result: Any) -> None:
    for q in range(offsets.size - 1):
        total = 1.0 if product else 0.0
        for step in range(offsets[q + 1] - offsets[q]):
            i = offsets[q + 1] - 1 - step if reverse else offsets[q] + step
            total = total * x[i] if product else total + x[i]
            result[i] = total


@compiled
def _sort_descending(x: Any, offsets: Any, result: Any) -> None:
    longest = 0
    for q in range(offsets.size - 1):
        longest = max(longest, offsets[q + 1] - offsets[q])
    keys, order = np.empty(longest, np.uint64), np.empty(longest, np.int64)
    spare_keys, spare_order = np.empty(longest, np.uint64), np.empty(longest, np.int64)
    counts = np.empty(COUNTS, np.int64)
    for q in range(offsets.size - 1):
        begin, end = offsets[q], offsets[q + 1]
        sort_ascending(x, begin, end, order, keys, spare_keys, spare_order, counts)
        for i in range(end - begin):
            result[end - 1 - i] = x[order[i]]
