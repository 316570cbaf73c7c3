"""Compiled loops over the lists of a flat array: scans, sorts and moves to rank order.

The loops index whole arrays, since numba compiles slices slowly.
"""

from typing import Any

import numpy as np

from twinrank.support.compiled import compiled, compiled_sums
from twinrank.support.errors import InputError

_MAX_GRADES = 2048
"""Labels that are integers below this number are used as grades without change."""


def scan(x: Any, offsets: Any, product: bool, reverse: bool) -> Any:
    """Cumulative sum or product within each list, from the start or from the end."""
    result = np.empty_like(x)
    _scan(x, offsets, product, reverse, result)
    return result


def sort_descending(x: Any, offsets: Any) -> Any:
    """The values of each list, largest first."""
    result = np.empty_like(x)
    if not _sort_grades(x, offsets, np.empty(_MAX_GRADES, np.int64), result):
        order = np.lexsort((-x, np.repeat(np.arange(offsets.size - 1), np.diff(offsets))))
        return x[order]
    return result


def grades_of(labels: Any, offsets: Any) -> tuple[Any, int]:
    """Integers in the order of the labels of each list, and an upper bound of them.

    Labels that are small integers are returned unchanged. Other labels are numbered 0, 1, 2, …
    within each list. Grades can be sorted by counting.
    """
    if _are_grades(labels):
        return labels.astype(np.int64), _MAX_GRADES
    of_list = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
    order = np.lexsort((labels, of_list))
    in_order = labels[order]
    steps = np.cumsum(np.r_[False, in_order[1:] != in_order[:-1]])
    grades = np.empty(labels.size, np.int64)
    starts = offsets[:-1][np.diff(offsets) > 0]
    grades[order] = steps - np.repeat(steps[starts], np.diff(offsets)[np.diff(offsets) > 0])
    return grades, int(grades.max(initial=0)) + 1


def settle(credit: Any, discounts: Any, slopes: Any, ranks: Any, offsets: Any) -> tuple[Any, Any]:
    """Σ credit · discount per list, and credit · slope per document, of credits in rank order."""
    values, gradient = np.empty(offsets.size - 1), np.empty(ranks.size)
    _settle(credit, discounts, slopes, ranks, offsets, values, gradient)
    return values, gradient


def move_to_rank(x: Any, ranks: Any, offsets: Any, back: bool) -> Any:
    """Move the value of the document with rank r to position r of its list, or `back`."""
    result = np.empty(ranks.size)
    if not _move_to_rank(x, ranks, offsets, back, result):
        raise InputError("ranks must be between 1 and the length of the list.")
    return result


def lay_out(table: Any, offsets: Any) -> Any:
    """The first m entries of a table, for every list of length m."""
    result = np.empty(offsets[-1])
    _lay_out(table, offsets, result)
    return result


def _are_grades(x: Any) -> bool:
    if x.size == 0:
        return True
    if not (x.min() >= 0 and x.max() < _MAX_GRADES):
        return False
    return bool((x == np.trunc(x)).all())


@compiled
def _move_to_rank(x: Any, ranks: Any, offsets: Any, back: bool, result: Any) -> bool:
    for q in range(offsets.size - 1):
        for i in range(offsets[q], offsets[q + 1]):
            place = offsets[q] + np.int64(ranks[i]) - 1
            if not offsets[q] <= place < offsets[q + 1]:
                return False
            if back:
                result[i] = x[place]
            else:
                result[place] = x[i]
    return True


@compiled_sums
def _settle(
    credit: Any,
    discounts: Any,
    slopes: Any,
    ranks: Any,
    offsets: Any,
    values: Any,
    gradient: Any,
) -> None:
    for q in range(offsets.size - 1):
        total = 0.0
        for i in range(offsets[q + 1] - offsets[q]):
            total += credit[offsets[q] + i] * discounts[i]
            step = np.int64(ranks[offsets[q] + i]) - 1
            gradient[offsets[q] + i] = credit[offsets[q] + step] * slopes[step]
        values[q] = total


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
def count_grades(grades: Any, begin: int, end: int, counts: Any) -> int:
    """Count each grade of one list; return one more than the highest."""
    highest = -1
    for i in range(begin, end):
        while highest < grades[i]:
            highest += 1
            counts[highest] = 0
        counts[grades[i]] += 1
    return highest + 1


@compiled
def _sort_grades(x: Any, offsets: Any, counts: Any, result: Any) -> bool:
    """Sort by counting, descending; False if a value is not a small integer."""
    for q in range(offsets.size - 1):
        highest = -1
        for i in range(offsets[q], offsets[q + 1]):
            if not 0 <= x[i] < counts.size:
                return False
            grade = np.int64(x[i])
            if grade != x[i]:
                return False
            while highest < grade:
                highest += 1
                counts[highest] = 0
            counts[grade] += 1
        place = offsets[q + 1]
        for number in range(highest + 1):
            for _ in range(counts[number]):
                place -= 1
                result[place] = number
    return True


_INSERTION = 24
"""Up to this length an insertion sort is faster."""

COUNTS = 8 * 256
"""The size of the histograms of `sort_keys`, one per byte of a key."""


@compiled
def sort_keys(
    keys: Any, order: Any, size: int, spare_keys: Any, spare_order: Any, counts: Any
) -> None:
    """Sort keys[:size] in place, ascending and stable, and reorder order[:size] with them."""
    if size <= _INSERTION:
        for i in range(1, size):
            key, item = keys[i], order[i]
            j = i
            while j > 0 and keys[j - 1] > key:
                keys[j], order[j] = keys[j - 1], order[j - 1]
                j -= 1
            keys[j], order[j] = key, item
        return
    for i in range(COUNTS):
        counts[i] = 0
    for i in range(size):
        for byte in range(8):
            counts[256 * byte + ((keys[i] >> np.uint64(8 * byte)) & np.uint64(255))] += 1
    source, source_order, target, target_order = keys, order, spare_keys, spare_order
    swapped = False
    for byte in range(8):
        shift, histogram = np.uint64(8 * byte), 256 * byte
        if counts[histogram + ((source[0] >> shift) & np.uint64(255))] == size:
            continue  # all keys share this byte, as float32 values share the lowest three
        place = 0
        for i in range(histogram, histogram + 256):
            place, counts[i] = place + counts[i], place
        for i in range(size):
            bucket = histogram + ((source[i] >> shift) & np.uint64(255))
            place = counts[bucket]
            counts[bucket] = place + 1
            target[place], target_order[place] = source[i], source_order[i]
        source, source_order, target, target_order = target, target_order, source, source_order
        swapped = not swapped
    if swapped:
        for i in range(size):
            keys[i], order[i] = spare_keys[i], spare_order[i]


@compiled
def descending_key(value: float) -> Any:
    """The key of a number; ascending keys give descending numbers.

    −0 and 0 have the same key. NaN is not supported.
    """
    bits, sign = np.float64(value).view(np.uint64), np.uint64(1 << 63)
    if bits & sign and bits != sign:
        return bits
    return ~(bits | sign)
