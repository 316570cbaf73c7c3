"""Loops over the lists of a flat float64 array: scans, sorts, moves to rank order."""

from typing import Any

import numpy as np

from twinrank.support.compiled import compiled
from twinrank.support.sorting import COUNTS, count_small, descending_key, sort_keys


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


def move_to_rank(x: Any, ranks: Any, offsets: Any, back: bool) -> Any:
    """Put the value of the document ranked r at place r of its list, or `back` again."""
    result = np.empty(ranks.size)
    _move_to_rank(x, ranks, offsets, back, result)
    return result


def lay_out(table: Any, offsets: Any) -> Any:
    """The first m entries of a table, for every list of length m."""
    result = np.empty(offsets[-1])
    _lay_out(table, offsets, result)
    return result


@compiled
def _move_to_rank(x: Any, ranks: Any, offsets: Any, back: bool, result: Any) -> None:
    for q in range(offsets.size - 1):
        for i in range(offsets[q], offsets[q + 1]):
            place = offsets[q] + np.int64(ranks[i]) - 1
            if back:
                result[i] = x[place]
            else:
                result[place] = x[i]


@compiled
def _lay_out(table: Any, offsets: Any, result: Any) -> None:
    for q in range(offsets.size - 1):
        for i in range(offsets[q + 1] - offsets[q]):
            result[offsets[q] + i] = table[i]


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
        numbers = count_small(x, begin, end, keys, counts)
        if numbers:
            place = end
            for number in range(numbers):
                for _ in range(counts[number]):
                    place -= 1
                    result[place] = number
            continue
        for i in range(end - begin):
            keys[i] = descending_key(x[begin + i])
            order[i] = begin + i
        sort_keys(keys, order, end - begin, spare_keys, spare_order, counts)
        for i in range(end - begin):
            result[begin + i] = x[order[i]]
